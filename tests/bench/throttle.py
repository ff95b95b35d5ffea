"""A control group in which a drive reads and writes no faster than some bytes a second, for benchmarks. Needs root, and
the io controller of control groups: version 1 (blkio) or 2."""
import os
import pathlib
import subprocess

V1, V2 = pathlib.Path("/sys/fs/cgroup/blkio"), pathlib.Path("/sys/fs/cgroup")


def drive_of(folder):
    """The whole drive under a folder, as "8:0"."""
    device = os.stat(folder).st_dev
    node = pathlib.Path("/sys/dev/block") / f"{os.major(device)}:{os.minor(device)}"
    if not node.exists():
        raise SystemExit(f"{folder} lies on no block device that could be throttled")
    place = node.resolve()
    return ((place.parent if (place / "partition").exists() else place) / "dev").read_text().strip()


class Throttle:
    """with Throttle(folder, bytes_per_s) as throttle: throttle.run(command)"""

    def __init__(self, folder, rate):
        self.drive, self.rate = drive_of(folder), int(rate)
        self.is_v2 = (V2 / "cgroup.controllers").exists()
        self.group = (V2 if self.is_v2 else V1) / f"sentinel-throttle-{os.getpid()}"

    def __enter__(self):
        if self.is_v2:
            (V2 / "cgroup.subtree_control").write_text("+io")
        self.group.mkdir()
        try:
            if self.is_v2:
                (self.group / "io.max").write_text(f"{self.drive} rbps={self.rate} wbps={self.rate}")
            else:
                for way in ("read", "write"):
                    (self.group / f"blkio.throttle.{way}_bps_device").write_text(f"{self.drive} {self.rate}")
        except OSError:
            self.group.rmdir()
            raise
        return self

    def __exit__(self, *_):
        self.group.rmdir()

    def run(self, command, **options):
        """The command and all that it starts, in the group."""
        enter = 'echo $$ > "$0"/cgroup.procs && exec "$@"'
        return subprocess.run(["sh", "-c", enter, self.group, *command], **options)

    def passed(self):
        """Bytes that were read and written so far, by the group's own account."""
        counts = {"Read": 0, "Write": 0}
        if self.is_v2:
            for line in (self.group / "io.stat").read_text().splitlines():
                drive, *pairs = line.split()
                values = dict(pair.split("=") for pair in pairs)
                if drive == self.drive:
                    counts = {"Read": int(values.get("rbytes", 0)), "Write": int(values.get("wbytes", 0))}
        else:
            for line in (self.group / "blkio.throttle.io_service_bytes").read_text().splitlines():
                words = line.split()
                if words[0] == self.drive and words[1] in counts:
                    counts[words[1]] = int(words[2])
        return counts["Read"], counts["Write"]
