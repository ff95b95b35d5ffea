"""fio in the pattern of Sentinel's exchange: blocks of 2 MiB at random places, read and written at once past the
page cache, eight in flight each way, from buffers on huge pages."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile

from contenders import Absent

RAMP = 10  # seconds that do not count: the training beside it starts
# As threads, so that none goes on when fio is killed.
PATTERN = ["--thread", "--bs=2M", "--direct=1", "--ioengine=io_uring", "--iodepth=8", "--size=2G", "--time_based",
           "--runtime=1d", f"--ramp_time={RAMP}"]


PR_SET_PDEATHSIG = 1


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Exchange:
    """Runs from entry until stop(), or exit. `pace`: bytes a second in and out; as fast as it goes without."""

    def __init__(self, folder, pace=None):
        self.folder, self.pace = folder, pace

    def __enter__(self):
        if shutil.which("fio") is None:
            raise Absent("fio is not installed")
        jobs = []
        for index, way in enumerate(("read", "write")):
            jobs += [f"--name={way}", f"--rw=rand{way}", f"--filename={self.folder / way}", *PATTERN]
            if self.pace:
                jobs.append(f"--rate={int(self.pace[index])}")
        self.answer, self.errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(["fio", "--output-format=json", *jobs], stdout=self.answer,
                                        stderr=self.errors, preexec_fn=_die_with_parent,
                                        env=dict(os.environ, GLIBC_TUNABLES="glibc.malloc.hugetlb=1"))
        return self

    def stop(self):
        """GB/s read and written. Throws Absent where fio could not run or for too short."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
        self.answer.seek(0)
        self.errors.seek(0)
        try:
            text = self.answer.read()
            jobs = json.loads(text[text.index("{"):])["jobs"]
            answer = [next(job[way]["bw_bytes"] for job in jobs if job["jobname"] == way) / 1e9
                      for way in ("read", "write")]
        except (ValueError, KeyError, StopIteration):
            raise Absent(f"fio failed: {self.errors.read().strip()[-200:]}") from None
        if not all(answer):
            raise Absent(f"the training was over before fio had run for {RAMP} seconds; --steps makes it longer")
        return answer

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.answer.close()
        self.errors.close()
