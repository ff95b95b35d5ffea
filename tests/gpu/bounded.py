"""Commands that may take so long and no longer."""
import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
import typing

GRACE = 2  # seconds from SIGTERM to SIGKILL, and then for the rest of what is said
_births = []  # one entry while the main thread makes a process: the signal that came meanwhile, or None


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


@contextlib.contextmanager
def birth():
    """A signal of end_on_sigterm waits meanwhile: nobody could end a process that has no name here yet."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals interrupt the main thread alone
        return
    _births.append(None)
    try:
        yield
    finally:
        number = _births.pop()
    if number:
        raise SystemExit(128 + number)


def run(words, seconds, grace=GRACE):
    """Runs a command to its end. Whatever cuts it short, the time or an exception, all that it has started dies with
    it: a training that is left behind would hold the memory that the next one is measured in. What runs others by this
    module needs more grace than they have."""
    process = None
    try:
        with birth():
            process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        out, err = process.communicate(timeout=max(1, seconds))
        return Ended(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        return Ended(None, *end(process, grace))
    except BaseException:
        if process:
            end(process, grace)
        raise


def end_on_sigterm():
    """SIGTERM, and SIGHUP where it is not ignored (nohup), end this process as an exception does, and so what it
    runs."""
    def leave(number, _):
        if _births:
            _births[-1] = number
            return
        raise SystemExit(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, leave)
