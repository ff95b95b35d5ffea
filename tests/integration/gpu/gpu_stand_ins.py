"""Stand-ins for what the scripts of tests/gpu start: a Python that has PyTorch and a device, and `sentinel`."""
import pathlib
import sys

GPU = pathlib.Path(__file__).resolve().parents[2] / "gpu"
sys.path.insert(0, str(GPU))  # its modules


def write_triton(folder, module, text):
    """A stand-in that has one module of Triton's, which is enough for PyTorch 1.13. Returns the environment in which
    it is found."""
    module = folder / "triton" / module
    module.parent.mkdir(parents=True)
    for package in (folder / "triton", module.parent):
        (package / "__init__.py").touch()
    module.write_text(text)
    return dict(PYTHONPATH=str(folder))


def write_program(path, text, interpreter=sys.executable):
    path.write_text(f"#!{interpreter}\n{text}")
    path.chmod(0o755)
    return path


# A Python that has PyTorch and a device: it knows of both, and trains by the book (train.py's options).
PYTHON = """
import json, os, sys, time
if sys.argv[1] == "-c":
    print(json.dumps({"torch": "2.0", "cuda": "13.0", "devices": int(os.environ.get("DEVICES", 1))}))
    sys.exit()
if sys.argv[1].endswith("cases.py"):
    sys.exit(print(f"{sys.argv[2]} trains"))
if sys.argv[1].endswith("vmm_probe.py"):
    row = {"load": "idle", "mib": 2, "count": 16, "map": 5.0, "map_max": 9.0, "unmap": 2.0, "unmap_max": 3.0}
    with open(sys.argv[2], "w") as file:
        json.dump([row, {**row, "load": "kernel"}], file)
    sys.exit(print("probed"))
if sys.argv[1].endswith("_torch.py"):
    with open(os.environ["LOG"], "a") as log:
        log.write(f"adaptor {sys.argv[2]}\\n")
    sys.exit("no PyTorch to build for" if os.environ.get("NO_ADAPTOR") else 0)
model, flags = sys.argv[2], dict(zip(sys.argv[3:-1], sys.argv[4:]))
with open(os.environ["LOG"], "a") as log:
    log.write(f"{model} {flags.get('--techniques', os.environ.get('UNDER', ''))}\\n")
if "--largest" in sys.argv:
    print("batch 1 trains\\nbatch 2 trains\\nbatch 4 fails\\nbatch 3 trains", file=sys.stderr, flush=True)
    sys.exit(time.sleep(100) if os.environ.get("HANGS") == "plain's search" else 0)
if os.environ.get("UNDER") and os.environ.get("UNDER") == os.environ.get("REFUSES"):
    sys.exit("the budget is too small")
records = []
for technique in flags.get("--techniques", "none").split(","):
    under = os.environ.get("UNDER", technique)
    if under == os.environ.get("HANGS"):
        time.sleep(100)
    if under.endswith(os.environ.get("FASTER", "nothing")):
        os.environ["MS"] = "90"
    ms = {"checkpoint": 130.0, "save_on_cpu": 200.0, "none": 100.0}.get(under, float(os.environ.get("MS", 102.0)))
    if under == os.environ.get("RUNS_OUT"):
        records.append({"technique": technique, "failure": "CUDA out of memory. Tried to allocate"})
    else:
        loss = "0x2p+0" if under == os.environ.get("DIFFERS") or technique == os.environ.get("DRIFTS") and records \\
            else "0x1p+0"
        records.append({"technique": technique, "peak_bytes": 10 ** 10,
                        "steps": [{"loss": loss, "ms": ms + (900 if n < 4 else 0)} for n in range(10)]})
    with open(flags["--json"], "w") as file:
        json.dump(records, file)
if os.environ.get("UNDER") and os.environ.get("UNDER") == os.environ.get("LINGERS"):
    time.sleep(100)
"""

# `sentinel run` and `sentinel fit`, which starts the command in a process of its own.
SENTINEL = """
import json, os, subprocess, sys, time
words = sys.argv[1:]
if words == ["--version"]:
    sys.exit(print("sentinel 0"))
command = words[words.index("--") + 1:]
flags = dict(zip(words, words[1:words.index("--")]))
assert flags["--tiers"] == "fast=gpu0,slow=host" and ("--quiet" in words) == (words[0] == "fit" or "cases.py" in str(words))
if words[0] == "fit":
    begin = int(flags["--from"])
    print(f"sentinel: batch {begin} ...\\nsentinel: batch {begin} trains\\nsentinel: batch {8 * begin} trains\\n"
          f"sentinel: batch {16 * begin} fails with status 1", file=sys.stderr, flush=True)
    assert command[command.index("--batch") + 1] == "{}"
    if os.environ.get("HANGS") == "fit":
        time.sleep(100)
    sys.exit(print(8 * begin))
under = " ".join([flags.get("--fast", "all"), flags.get("--policy", "plan"), *words[words.index("--granule") + 1:][:1]]
                 if "--granule" in words else [flags.get("--fast", "all"), flags.get("--policy", "plan")])
print(f"sentinel: 3 ops name more than a budget of 4 GiB holds", file=sys.stderr)
begin = subprocess.Popen(command, env={**os.environ, "UNDER": under})
with open(os.environ["LOG"], "a") as log:
    log.write(f"pid {begin.pid}\\n")
status = begin.wait()
if status == 0 and "--summary" in flags:
    times = {"warmup": 102.0, "profile": 250.0, "steady": 102.0}
    steps = [{"phase": phase, "ms": ms} for phase, ms in times.items()]
    with open(flags["--summary"], "w") as file:
        json.dump({"peak_fast_bytes": 4 * 10 ** 9, "steps": steps}, file)
sys.exit(status)
"""
