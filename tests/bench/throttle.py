"""A control group in which a drive reads and writes no faster than some bytes a second, for benchmarks. Needs root, and
the io controller of control groups: version 1 (blkio) or 2."""
import os
import pathlib
import subprocess
import sys

TOLERANCE = 0.2  # of the rate, against what is measured of it
UNLIMITED = 1e12  # bytes a second: no drive is as fast
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
    """with Throttle(folder, bytes_per_s) as throttle: throttle.run(command). Without a rate what passes is counted."""

    def __init__(self, folder, rate):
        self.drive, self.rate = drive_of(folder), int(rate or UNLIMITED)
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
        return subprocess.run(self.inside(*command), **options)

    def inside(self, *command):
        """The command, to be run in the group."""
        return ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', self.group, *command]

    def machine(self, sentinel, folder, **environment):
        """The file that describes the machine with the throttled drive, as Sentinel measures it itself; it is made
        below the folder, and not kept for other runs. Answers its rates beside: {"read": bytes a second, "write": …}."""
        cache, script = folder / "cache", folder / "nothing.py"
        script.write_text("")
        self.run([sentinel, "run", "--quiet", "--fast", "1G", "--", sys.executable, script], check=True,
                 env={**os.environ, **environment, "XDG_CACHE_HOME": str(cache)})
        machine = cache / "sentinel" / "local.toml"
        drive = machine.read_text().split("name = 'ssd'")[1].splitlines()
        rates = {way: max(float(line.split("=")[1]) for line in drive if line.startswith(f"{way}_bw"))
                 for way in ("read", "write")}
        for way, rate in rates.items():
            if self.rate != UNLIMITED and abs(rate / self.rate - 1) > TOLERANCE:
                sys.exit(f"the throttled drive's {way} rate was measured as {rate / 1e9:.3f} GB/s, not as "
                         f"{self.rate / 1e9:.3f}")
        return machine, rates

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
