"""All cases have this in common: a folder, the command, its screens, and small inputs."""
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PROGRAM = HERE / "cli_test.py"
BUILD = sys.argv[1] if len(sys.argv) > 1 else ""
SENTINEL = str(pathlib.Path(BUILD).resolve() / "bin/sentinel")
VERBS = ("doctor record run trace verify top fit broker jobs report plan explain simulate compare import export "
         "bench clean completion help").split()
TRACE = "\n".join([
    '{"format":"tensor-trace","version":1,"source":"test","model":"tiny","batch":1}',
    '{"t":0,"bytes":8192,"kind":"global"}',
    '{"t":1,"bytes":4096,"kind":"intermediate"}',
    '{"k":0,"name":"first","us":10,"in":[0],"out":[1],"phase":"forward"}',
    '{"k":1,"name":"second","us":20,"in":[1],"out":[0],"phase":"backward"}']) + "\n"
MACHINE = """name = "small"
fault_us = 10
granule = 4096
[[tier]]
name = "fast"
capacity = "1MiB"
[[tier]]
name = "ssd"
read_bw = "1GB/s"
write_bw = "1GB/s"
"""
SAYS_SIGNAL = """
import os, signal, sys, time
def said(number, frame):  # it may come while "ready" is being printed
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    sys.exit(9)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), said)
print("ready", flush=True)
time.sleep(20)
"""


def chain(layers=12, size=1 << 20):
    """Activations that the forward pass makes and the backward pass reads in reverse."""
    lines = ['{"format":"tensor-trace","version":1,"source":"test","model":"chain","batch":4}']
    lines += ['{"t":%d,"bytes":%d,"kind":"intermediate"}' % (t, size) for t in range(2 * layers)]
    op = '{"k":%d,"name":"%s","us":2000,"in":%s,"out":[%d],"phase":"%s"}'
    for k in range(layers):
        lines.append(op % (k, "forward", [k - 1] if k else [], k, "forward"))
    for k in range(layers):
        reads = [layers - 1 - k] + ([layers + k - 1] if k else [])
        lines.append(op % (layers + k, "backward", reads, layers + k, "backward"))
    return "\n".join(lines) + "\n"


def processor_s():
    """Processor seconds of the commands that have ended. What else runs meanwhile makes nothing of it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("SENTINEL_")}
        self.environment.update(XDG_CACHE_HOME=str(self.folder / "cache"), COLUMNS="100")

    def run_it(self, *arguments, stdin=""):
        return subprocess.run([SENTINEL, *arguments], input=stdin, capture_output=True, text=True,
                              cwd=self.folder, env=self.environment, timeout=60)

    def fails(self, status, words, *arguments):
        result = self.run_it(*arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertIn(words, result.stderr)
        self.assertEqual(result.stdout, "")
        return result

    def file(self, name, content):
        mode = "wb" if isinstance(content, bytes) else "w"
        with open(self.folder / name, mode) as out:
            out.write(content)
        return name

    def profile(self):
        self.file("trace.jsonl", TRACE)
        self.assertEqual(self.run_it("import", "trace.jsonl", "-o", "p.sentinel").returncode, 0)
        return "p.sentinel"

    def expect_screen(self, name, text):
        golden = HERE / (name + ".txt")
        if os.environ.get("SENTINEL_ACCEPT"):
            golden.write_text(text)
        if golden.exists() and golden.read_text() == text:
            return
        actual = pathlib.Path(tempfile.gettempdir()) / f"sentinel-{name}.txt"
        actual.write_text(text)
        self.fail(f'The screen "{name}" differs.\n  show:   diff -u {golden} {actual}\n'
                  f"  accept: SENTINEL_ACCEPT=1 {sys.executable} {PROGRAM} {BUILD} Help")
