"""A memory cgroup of our own, version 1 or 2, whichever is mounted."""
import pathlib
import time

ROOT = pathlib.Path("/sys/fs/cgroup")
# What the two versions call the same things.
V1 = {"limit": "memory.limit_in_bytes", "peak": "memory.max_usage_in_bytes", "now": "memory.usage_in_bytes"}
V2 = {"limit": "memory.max", "peak": "memory.peak", "now": "memory.current"}


class Unavailable(Exception):
    """Why there is no memory cgroup to be had here."""


def own_path(controller):
    """Lines of /proc/self/cgroup: 4:memory:/path (v1), 0::/path (v2)."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    raise Unavailable(f"this process is in no cgroup of {controller or 'version 2'}")


class MemoryGroup:
    """Use as a context: made on entry, removed on exit."""

    def __init__(self, name):
        if (ROOT / "memory" / V1["limit"]).exists():
            self.names, parent = V1, ROOT / "memory" / own_path("memory")
        elif (ROOT / "cgroup.controllers").exists():
            self.names, parent = V2, ROOT / own_path("")
        else:
            raise Unavailable("no memory cgroup is mounted at /sys/fs/cgroup")
        self.path = parent / name

    def __enter__(self):
        try:
            self.path.mkdir()
            if not (self.path / self.names["limit"]).exists():
                (self.path.parent / "cgroup.subtree_control").write_text("+memory")
        except OSError as error:
            self.__exit__()
            raise Unavailable(f"no memory cgroup may be made here: {error}") from None
        if not (self.path / self.names["peak"]).exists():
            self.__exit__()
            raise Unavailable(f"this kernel's memory cgroups have no {self.names['peak']}")
        return self

    def __exit__(self, *_):
        for _ in range(50):  # until the last of its processes is really gone
            try:
                return self.path.rmdir()
            except FileNotFoundError:
                return None
            except OSError:
                time.sleep(0.1)
        return None

    def limit(self, size, swap=False):
        """Of what its processes hold; swap is off in it unless it is asked for."""
        if self.names is V1:
            self._write(V1["limit"], size)
            self._write("memory.swappiness", 60 if swap else 0)
            if not swap and (self.path / "memory.memsw.limit_in_bytes").exists():
                self._write("memory.memsw.limit_in_bytes", size)
        else:
            self._write("memory.max", size)
            if (self.path / "memory.swap.max").exists():
                self._write("memory.swap.max", "max" if swap else 0)

    def peak(self):
        return int((self.path / self.names["peak"]).read_text())

    def inside(self, *command):
        """The command, to be run in the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', self.path / "cgroup.procs", *command]

    def _write(self, name, value):
        (self.path / name).write_text(str(value))
