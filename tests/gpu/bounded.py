"""Commands that may take so long and no longer."""
import dataclasses
import os
import signal
import subprocess
import typing


@dataclasses.dataclass
class Ended:
    status: typing.Optional[int]  # None: it was killed, for its time was up
    out: str
    err: str

    def reason(self):
        """Why it failed, in a line: the first that tells of memory, or else the last."""
        lines = self.err.strip().splitlines() or ["failed without a word"]
        return next((line for line in lines if "out of memory" in line), lines[-1])[-200:]


def run(words, seconds):
    """Runs a command to its end. Whatever cuts it short, the time or an exception, all that it has started dies with
    it: a training that is left behind would hold the memory that the next one is measured in."""
    process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    try:
        out, err = process.communicate(timeout=max(1, seconds))
        return Ended(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return Ended(None, out, err)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def end_on_sigterm():
    """SIGTERM ends this process as an exception does, and so what it runs."""
    def end(number, _):
        raise SystemExit(128 + number)
    signal.signal(signal.SIGTERM, end)
