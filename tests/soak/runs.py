"""One training under `sentinel run`, what may be done to it, and what it leaves."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import cgroup  # noqa: E402
import training  # noqa: E402

STEP = re.compile(r"^step +(\d+) ", re.M)


class Disk:
    """A small file system of its own, in a file."""

    def __init__(self, folder, size=1 << 30):
        self.folder, self.image = folder / "mounted", folder / "disk"
        self.folder.mkdir(exist_ok=True)
        self.filler = self.folder / "filler"
        with open(self.image, "wb") as file:
            file.truncate(size)
        for command in (["mkfs.ext4", "-q", "-F", self.image], ["mount", "-o", "loop", self.image, self.folder]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise OSError(f"{command[0]}: {done.stderr.strip()}")

    def fill(self, left):
        """All of it but so many bytes."""
        found = os.statvfs(self.folder)
        size = found.f_bavail * found.f_frsize - left
        if size > 0:
            with open(self.filler, "wb") as file:
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                except OSError:  # the training was faster
                    pass

    def empty(self):
        self.filler.unlink(missing_ok=True)

    def remove(self):
        subprocess.run(["umount", "-l", self.folder], check=False)
        self.image.unlink()


class Group(cgroup.MemoryGroup):
    def begin(self, size):
        self.size = size
        self.limit(size)

    def squeeze(self, share):
        now = int((self.path / self.names["now"]).read_text())
        self._set(int(now * share))

    def release(self):
        self._set(self.size)

    def _set(self, size):
        try:
            self.limit(size)
        except OSError:  # version 1 refuses a limit that it cannot reach
            pass


class Run:
    """Begins at once. Injections act on it from threads of their own."""

    def __init__(self, command, environment, folder, disk=None, group=None):
        self.disk, self.group = disk, group
        self.output, self.errors = folder / "output", folder / "errors"
        self.over = threading.Event()
        with open(self.output, "wb") as out, open(self.errors, "wb") as err:
            self.process = subprocess.Popen(
                [str(word) for word in command], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True, preexec_fn=training._default_signals)

    def steps_done(self):
        return len(STEP.findall(self.output.read_text(errors="replace")))

    def wait(self, seconds):
        self.over.wait(seconds)

    def act(self, injection):
        """Once its step has ended; nothing where the training is over by then."""
        while self.steps_done() <= injection.step and not self.over.wait(0.05):
            pass
        if not self.over.is_set():
            injection.during(self)

    def members(self):
        """Processes of the training: those of its session."""
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self.process.pid and fields[0] != "Z":
                found.append(int(stat.parent.name))
        return sorted(found)

    def kill(self, whom, number):
        """`whom`: "command", the program it started, or all of the group."""
        try:
            if whom == "group":
                os.killpg(self.process.pid, number)
            elif whom == "command":
                os.kill(self.process.pid, number)
            else:
                programs = [member for member in self.members() if _is_python(member)]
                if programs:
                    os.kill(programs[0], number)
        except ProcessLookupError:
            pass

    def finish(self, injections, timeout):
        """The status as a shell gives it; None: it hung, and was killed."""
        threads = [threading.Thread(target=self.act, args=(injection,)) for injection in injections]
        for thread in threads:
            thread.start()
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        self.over.set()
        for thread in threads:
            thread.join()
        return status if status is None or status >= 0 else 128 - status

    def survivors(self):
        """Processes that are left ten seconds after the end; they are killed."""
        end = time.monotonic() + 10
        while self.members() and time.monotonic() < end:
            time.sleep(0.1)
        left = self.members()
        for member in left:
            os.kill(member, signal.SIGKILL)
        return left


def _is_python(process):
    try:
        return "python" in os.readlink(f"/proc/{process}/exe")
    except OSError:
        return False
