"""Commands that may take so long and no longer."""
import contextlib
import dataclasses
import os
import signal
import subprocess
import typing

GRACE = 2  # seconds from SIGTERM to SIGKILL, and then for the rest of what is said


@dataclasses.dataclass
class Ended:
    status: typing.Optional[int]  # None: it was killed, for its time was up
    out: str
    err: str

    def reason(self):
        """Why it failed, in a line: the first that tells of memory, or else the last."""
        lines = self.err.strip().splitlines() or ["failed without a word"]
        return next((line for line in lines if "out of memory" in line), lines[-1])[-200:]


def said(process, number, seconds):
    """What it has said so many seconds after a signal at most: who has left its group may hold its pipes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as cut:
        return tuple((text or b"").decode(errors="replace") for text in (cut.stdout, cut.stderr))


def end(process, grace):
    """Ends it, and what it has said: SIGTERM for what it runs by this module in groups of their own, and SIGKILL."""
    try:
        said(process, signal.SIGTERM, grace)
    finally:
        told = said(process, signal.SIGKILL, GRACE)
    return told


def run(words, seconds, grace=GRACE):
    """Runs a command to its end. Whatever cuts it short, the time or an exception, all that it has started dies with
    it: a training that is left behind would hold the memory that the next one is measured in. What runs others by this
    module needs more grace than they have."""
    process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    try:
        out, err = process.communicate(timeout=max(1, seconds))
        return Ended(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        return Ended(None, *end(process, grace))
    except BaseException:
        end(process, grace)
        raise


def end_on_sigterm():
    """SIGTERM, and SIGHUP where it is not ignored (nohup), end this process as an exception does, and so what it
    runs."""
    def leave(number, _):
        raise SystemExit(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, leave)
