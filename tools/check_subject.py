#!/usr/bin/env python3
"""check_subject.py FILE: a commit message's subject has 1 to 72 characters, and a blank line follows it."""
import pathlib
import sys

MOST = 72


def objection(message):
    """Why the message is not accepted, or None."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if not subject.strip():
        return "the subject is missing"
    if len(subject) > MOST:
        return f"the subject has {len(subject)} characters, {len(subject) - MOST} too many: {subject}"
    if len(lines) > 1 and lines[1].strip():
        return "a blank line has to follow the subject"
    return None


if __name__ == "__main__":
    if wrong := objection(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")):
        sys.exit(wrong)
