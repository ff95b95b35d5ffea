"""What was measured, in one JSON file that several calls complete:

    about    the machine, the versions, and the options that all rows have in common; a file about another machine,
             other sources or other options is laid aside, as results-before-1.json and so on
    calls    of steps.py: command, commit, begin
    steps    tests and checks by name: call, status, seconds, output
    movement GB/s by kind and direction
    mapping  microseconds for a granule: mapped and unmapped alone, and of several by one call
    probe    microseconds for a chunk by what the device does and the chunks' number and size (vmm_probe.py)
    models   rows by model and contender: call, ms, of_plain (the call's own plain training's time over this one's) ...
    largest  by model: call, limit, batches

It is written after each measurement, so what is cut short loses nothing. One process at a time writes it. By itself
this prints the hash of the sources that are measured.
"""
import datetime
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MEASURED = ("include", "libsentinel", "torchplugin", "tools/sentinel", "tests/unit/engine", "tests/unit/runtime",
            *(f"tests/gpu/{name}" for name in ("device_test.cpp", "touch_kernel.h", "movement.cpp", "models.py",
                                               "train.py", "cases.py", "vmm_probe.py")))


class Results:
    """In memory alone without a path."""

    def __init__(self, path, about, command):
        self.path = path
        self.data = {"about": about, "calls": [], "steps": {}, "movement": {}, "mapping": {}, "probe": {},
                     "models": {}, "largest": {}}
        if path and path.exists():
            earlier = json.loads(path.read_text())
            if earlier["about"] == about:
                self.data = earlier
            else:
                lay_aside(path, earlier["about"], about)
        self.data["calls"].append({"command": shlex.join(map(str, command)),
                                   "commit": answer("git", "-C", ROOT, "describe", "--always", "--dirty"),
                                   "begin": datetime.datetime.now(datetime.timezone.utc).isoformat(" ", "seconds")})
        self.call = len(self.data["calls"]) - 1

    def put(self, value, *keys):
        """put(row, "models", "ViT", "plain")"""
        place = self.data
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = {"call": self.call, **value}
        if self.path:
            begun = self.path.with_suffix(".new")
            begun.write_text(json.dumps(self.data, indent=1) + "\n")
            os.replace(begun, self.path)


def lay_aside(path, earlier, about):
    """Not where the machine may be the same, and did not answer this time."""
    unknown = [key for key, value in earlier.items() if value and not about.get(key)]
    if unknown:
        raise SystemExit(f"{path} knows {', '.join(f'{key} {earlier[key]}' for key in unknown)}, of which nothing is "
                         "found now (nvidia-smi, PyTorch): mend that, or take another folder. Nothing was measured.")
    number = 1
    while (aside := path.with_name(f"{path.stem}-before-{number}.json")).exists():
        number += 1
    path.rename(aside)
    other = ", ".join(sorted(key for key in {**earlier, **about} if earlier.get(key) != about.get(key)))
    print(f"{path} is about other {other}: laid aside as {aside.name}", file=sys.stderr)


def sources():
    """A hash of what is measured."""
    digest = hashlib.sha256()
    for part in MEASURED:
        below = ROOT / part
        for file in [below] if below.is_file() else sorted(below.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


FACTS = """
import json, platform, torch
print(json.dumps({"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda,
                  "cudnn": torch.backends.cudnn.version(), "devices": torch.cuda.device_count()}))
"""


def answer(*words):
    """A command's output; None where it cannot be run."""
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=100)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def about(python, options):
    """The first device, the driver, PyTorch and CUDA; what is not here is None. And what was asked for."""
    device = answer("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    name, driver, memory = device.splitlines()[0].split(", ") if device else (None, None, None)
    return {"device": name, "driver": driver, "memory": memory, "processors": os.cpu_count(),
            **json.loads(answer(python, "-c", FACTS) or '{"torch": null, "cuda": null, "devices": 0}'),
            "sources": sources(), "options": options}


if __name__ == "__main__":
    print(sources())
