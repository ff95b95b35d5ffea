"""Files that are damaged, or of another kind."""
import gzip
import json
import os
import pickle

from case import Case, MACHINE, TRACE, chain


class BadInput(Case):
    """Exit 1 and a message that says where."""

    def test_traces(self):
        self.file("m.toml", MACHINE)
        lines = TRACE.splitlines()
        for words, line, text in [
                ("execution order", 5, lines[4].replace('"k":1', '"k":0')),
                ("whole number", 2, lines[1].replace("8192", "-8192")),
                ("used but not defined", 4, lines[3].replace("[1]", "[7]")),
                ("not a line of JSON", 4, lines[3][:30]), ("\"us\"", 5, lines[4].replace("20", "-20")),
                ("not one of", 3, lines[2].replace("intermediate", "other")),
                ("missing", 3, lines[2].replace('"bytes"', '"size"')),
                ("version", 1, lines[0].replace('"version":1', '"version":9'))]:
            with self.subTest(words):
                changed = lines[:line - 1] + [text] + lines[line:]
                self.file("bad.jsonl", "\n".join(changed) + "\n")
                for verb in (["simulate", "bad.jsonl", "--machine", "m.toml"],
                             ["import", "bad.jsonl", "-o", "out"]):
                    result = self.fails(1, words, *verb)
                    self.assertIn(f"bad.jsonl:{line}:", result.stderr)

    def test_a_truncated_archive(self):
        self.file("m.toml", MACHINE)
        whole = gzip.compress(chain(200).encode())
        self.file("cut.jsonl.gz", whole[:len(whole) // 2])
        self.assertRegex(self.fails(1, "truncated", "simulate", "cut.jsonl.gz", "--machine",
                                    "m.toml").stderr, r"cut\.jsonl\.gz:\d+: ")

    def test_machines(self):
        name = self.profile()
        self.fails(1, "there is no machine", "simulate", name, "--machine", "cray")
        for words, line, text in [("unknown key", 6, MACHINE.replace('capacity', 'capasity')),
                                  ("not a size", 6, MACHINE.replace('"1MiB"', '"-1MiB"')),
                                  ("not negative", 2, MACHINE.replace("10", "-10")),
                                  ("two tiers", 1, MACHINE[:MACHINE.rindex("[[tier]]")])]:
            with self.subTest(words):
                self.file("bad.toml", text)
                self.assertIn(f"bad.toml:{line}:", self.fails(
                    1, words, "simulate", name, "--machine", "bad.toml").stderr)

    def test_an_op_that_does_not_fit_is_named(self):
        self.file("m.toml", MACHINE)
        self.file("chain.jsonl", chain())
        asked = ("simulate", "chain.jsonl", "--machine", "m.toml", "--fast", "2M", "--policy")
        words = 'op 13 ("backward") needs 3.00 MiB at once, more than the 2.00 MiB'
        self.assertIn(words, self.run_it(*asked, "lru").stderr)
        op = json.loads(self.run_it(*asked, "lru", "--json").stdout)["trace"]["largest_op"]
        self.assertEqual(op, {"k": 13, "name": "backward", "bytes": 3 << 20, "fits": False})
        self.fails(1, words, "simulate", "chain.jsonl", "--machine", "m.toml", "--fast", "2M",
                   "--policy", "memory-mode")

    def test_plans(self):
        self.file("m.toml", MACHINE)
        self.assertEqual(self.run_it("plan", self.profile(), "--machine", "m.toml", "-o",
                                     "plan.json").returncode, 0)
        plan = (self.folder / "plan.json").read_text()
        for words, text in [("line", plan[:len(plan) // 2]), ("not a plan", "{}"),
                            ("version", plan.replace('"version": 3', '"version": 9')),
                            ("not a readable plan", plan.replace('"moves"', '"movements"'))]:
            with self.subTest(words):
                self.file("bad.json", text)
                self.assertIn("bad.json", self.fails(1, words, "explain", "bad.json").stderr)

    def test_a_snapshot_that_holds_code_runs_none(self):
        class Code:
            def __reduce__(self):
                return os.system, (f"touch {os.getcwd()}/it-ran",)
        self.file("s.pickle", pickle.dumps({"segments": [Code()], "device_traces": []}))
        self.fails(1, "run code", "import", "s.pickle", "--format", "pytorch-snapshot", "-o", "p")
        self.assertFalse(os.path.exists("it-ran"))

    def test_a_snapshot(self):
        event = dict(action="alloc", addr=1 << 40, size=4096, time_us=1, frames=[
            dict(filename="/x/model.py", line=3, name="forward")])
        trace = [event, {**event, "action": "free_requested", "time_us": 8}]
        snapshot = {"segments": [], "device_traces": [trace]}
        for protocol in (2, 3, 4, 5):
            self.file("s.pickle", pickle.dumps(snapshot, protocol))
            result = self.run_it("import", "s.pickle", "--format", "pytorch-snapshot", "-o", "p")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("1 tensors, 1 ops, 1 layers", result.stdout)
