"""What is made of a profile: reports, plans, simulations, comparisons."""
import csv
import json
import os
import pickle
import subprocess

from case import Case, MACHINE, SENTINEL, TRACE, chain


class Reports(Case):
    def test_missing_and_foreign_files(self):
        self.fails(1, "sentinel record", "report", "missing.sentinel")
        self.file("text", "not a profile\n")
        self.fails(1, "text", "report", "text")
        for verb in ("plan", "export"):
            self.fails(1, "missing", verb, "missing", "-o", "out")
        self.fails(1, "missing", "explain", "missing")

    def test_a_damaged_profile(self):
        path = self.folder / self.profile()
        whole = path.read_bytes()
        for damaged in (whole[:300], whole[:len(whole) // 2],
                        whole[:4096] + b"\xff" * (len(whole) - 4096)):
            path.write_bytes(damaged)
            self.fails(1, "p.sentinel", "report", "p.sentinel")

    def test_formats(self):
        name = self.profile()
        self.assertIn("tiny", self.run_it("report", name).stdout)
        json.loads(self.run_it("report", name, "heatmap", "--format", "json").stdout)
        page = self.run_it("report", name, "--format", "html").stdout
        self.assertTrue(page.startswith("<!"), page[:40])
        self.assertEqual(self.run_it("report", name, "--format", "html", "-o", "x").stdout, "")
        self.assertEqual((self.folder / "x").read_text(), page)
        self.fails(1, "nowhere", "report", name, "-o", "nowhere/x")

    def test_differences(self):
        before = self.profile()
        self.file("later.jsonl", TRACE.replace("8192", "16384").replace('"name":"second"', '"name":"third"'))
        text = self.run_it("report", "--diff", before, "later.jsonl").stdout
        self.assertIn("The steps differ: of the kinds of op 1 are new, 1 are gone; of the tensors 1 have another size",
                      text)
        self.assertIn("+100.0 %", text)
        self.assertEqual(json.loads(self.run_it("report", "--diff", before, "later.jsonl", "--format", "json").stdout)
                         ["same_step"], False)
        self.assertIn("Both are the same step", self.run_it("report", before, "--diff", before).stdout)
        self.assertTrue(self.run_it("report", "--diff", before, before, "--format", "html").stdout.startswith("<!"))
        self.fails(2, "one view", "report", before, "heatmap", "--diff", before)
        self.fails(2, 'no format "csv"', "report", before, "--format", "csv", "--diff", before)
        self.fails(1, "missing", "report", before, "--diff", "missing")
        self.fails(2, "used by the same command", "report", before, "--diff", "later.jsonl", "-o", "later.jsonl")

    def test_profiles_side_by_side(self):
        first = self.profile()
        self.file("second.jsonl", TRACE.replace("8192", "16384"))
        text = self.run_it("report", first, "second.jsonl").stdout
        self.assertRegex(text, r"peak live memory +\S+ \S+ +\S+ \S+\n")
        self.assertNotIn("page accesses", text)
        shown = json.loads(self.run_it("report", first, "second.jsonl", first, "--format", "json").stdout)
        self.assertEqual(shown["files"], [first, "second.jsonl", first])
        live = next(row for row in shown["figures"] if row["label"] == "peak live memory")["values"]
        self.assertGreater(live[1], live[0])
        self.assertEqual(live[0], live[2])
        self.fails(2, "leave out \"heatmap\"", "report", first, "second.jsonl", "heatmap")
        self.fails(2, "no view and no profile", "report", first, "heatmaps")
        self.fails(2, "have no format \"html\"", "report", first, "second.jsonl", "--format", "html")
        self.fails(1, "missing", "report", first, "second.jsonl", "missing")
        self.fails(2, "used by the same command", "report", first, "second.jsonl", "-o", "second.jsonl")

    def test_an_exported_snapshot_is_pythons(self):
        self.run_it("export", self.profile(), "--format", "pytorch-snapshot", "-o", "s.pickle")
        snapshot = pickle.loads((self.folder / "s.pickle").read_bytes())
        self.assertEqual([event["action"] for event in snapshot["device_traces"][0]],
                         ["alloc", "free_requested", "free_completed"])
        self.assertIn("2 tensors", self.run_it("import", "s.pickle", "--format", "pytorch-snapshot", "-o", "b.sentinel")
                      .stdout)

    def test_a_full_disk_is_a_failure(self):
        name = self.profile()
        with open("/dev/full", "w") as full:
            result = subprocess.run([SENTINEL, "report", name], cwd=self.folder, stdout=full,
                                    stderr=subprocess.PIPE, text=True, env=self.environment)
        self.assertEqual(result.returncode, 1)
        self.assertIn("No space left", result.stderr)

    def test_export_takes_back_what_import_took(self):
        text = self.run_it("export", self.profile(), "-o", "-").stdout
        self.assertEqual([json.loads(line).get("name") for line in text.splitlines() if '"k"' in line],
                         ["first", "second"])


class Simulations(Case):
    def test_json_has_the_fields_and_nothing_else_on_stdout(self):
        self.file("m.toml", MACHINE)
        result = self.run_it("simulate", self.profile(), "--machine", "m.toml", "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        answer = json.loads(result.stdout)
        self.assertLessEqual({"trace", "machine", "fast_bytes", "results"}, answer.keys())
        self.assertLessEqual(
            {"policy", "feasible", "step_us", "ideal_us", "normalized_throughput", "lower_bound_us",
             "swap_lower_bound_us", "stall_us", "recompute_us", "plan_ms", "peak_fast_bytes",
             "demand_faults", "traffic"}, answer["results"][0].keys())

    def test_what_cannot_work_has_a_reason_and_no_times(self):
        self.file("m.toml", MACHINE)
        result = self.run_it("simulate", self.profile(), "--machine", "m.toml", "--fast", "1K",
                             "--json")
        answer = json.loads(result.stdout)["results"][0]
        self.assertFalse(answer["feasible"])
        self.assertIsNone(answer["step_us"])
        self.assertTrue(answer["reason"])

    def test_several_jobs(self):
        self.file("m.toml", MACHINE)
        name = self.profile()
        result = self.run_it("simulate", name, "--machine", "m.toml", "--policy", "tensile,sentinel",
                             "--jobs", f"{name}@0,@5ms@50%", "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for one in json.loads(result.stdout)["results"]:
            self.assertLessEqual(
                {"policy", "feasible", "step_us", "ideal_us", "normalized_throughput", "plan_ms",
                 "peak_fast_bytes", "traffic", "msr", "eor", "cbr", "jobs"}, one.keys())
            self.assertEqual([job["start_us"] for job in one["jobs"]], [0, 5000])
            self.assertAlmostEqual(sum(job["step_us"] for job in one["jobs"]), one["step_us"])
        yardstick = self.run_it("simulate", name, "--machine", "m.toml", "--policy", "ideal", "--fast", "50%",
                                "--jobs", "@0,@0", "--json")
        self.assertEqual(json.loads(yardstick.stdout)["results"][0]["stall_us"], 0, yardstick.stderr)
        self.assertIn("job 2", self.run_it("simulate", name, "--machine", "m.toml", "--jobs",
                                           "@0,@0").stdout)

    def test_jobs_that_make_no_sense(self):
        self.file("m.toml", MACHINE)
        name = self.profile()
        for jobs in ("a", "a@", "a@x", "a@1h", "a@-1", "@0@150%", "@0@x%", "@", "@0,,@0", ",", "@nan", "@inf",
                     "@1e400", "@0@nan%", "@0@-1%", "@0%", "%", "@0s s", "@0@", "@0@50%@50%", "\x1b[2J"):
            with self.subTest(jobs):
                result = self.fails(2, "--jobs", "simulate", name, "--machine", "m.toml", f"--jobs={jobs}")
                self.assertIn("write FILE@TIME for each job", result.stderr)
                self.assertNotIn("\x1b", result.stderr)
        self.file("text", "x")
        os.mkfifo(self.folder / "pipe")
        for words, file in (("missing", "missing"), ("text", "text"), ("it is a pipe", "pipe"), ("its folder", ".")):
            with self.subTest(file):
                result = self.fails(1, words, "simulate", name, "--machine", "m.toml", "--jobs", f"@0,{file}@0")
                self.assertEqual(result.stderr.count("\n"), 1)
        self.fails(2, "--sweep", "simulate", name, "--machine", "m.toml", "--jobs", "@0", "--sweep",
                   "fast=10%")

    def test_noise_is_the_same_for_a_seed(self):
        self.file("m.toml", MACHINE)
        step = lambda *options: json.loads(self.run_it(
            "simulate", self.profile(), "--machine", "m.toml", "--json", *options).stdout
        )["results"][0]["step_us"]
        self.assertNotEqual(step("--noise", "20", "--seed", "1"), step())
        self.assertNotEqual(step("--noise", "20", "--seed", "1"),
                            step("--noise", "20", "--seed", "2"))
        self.assertEqual(step("--noise", "20", "--seed", "1"), step("--noise", "20", "--seed", "1"))
        self.fails(2, "--noise", "simulate", self.profile(), "--machine", "m.toml", "--noise", "100")

    def test_with_noise_what_is_relative_is_relative_to_the_times_that_ops_met(self):
        self.file("m.toml", MACHINE)
        for seed in range(8):
            for row in json.loads(self.run_it("compare", self.profile(), "--machine", "m.toml", "--fast", "8K", "--noise",
                                              "20", "--seed", str(seed), "--json").stdout)["results"]:
                if not row["feasible"]:
                    continue
                self.assertGreaterEqual(row["lower_bound_us"], row["ideal_us"] * (1 - 1e-9), row)
                self.assertLessEqual(row["lower_bound_us"], row["step_us"] * (1 + 1e-9), row)
                self.assertLessEqual(row["normalized_throughput"], 1 + 1e-9, row)

    def test_sweep(self):
        self.file("m.toml", MACHINE)
        result = self.run_it("compare", self.profile(), "--machine", "m.toml", "--json", "--sweep",
                             "ssd-bw=1GB/s,2GB/s")
        sweeps = {r["sweep"] for r in json.loads(result.stdout)["results"]}
        self.assertEqual(sweeps, {"ssd-bw=1GB/s", "ssd-bw=2GB/s"})

    def test_a_plan_and_its_explanation(self):
        self.file("m.toml", MACHINE)
        made = self.run_it("plan", self.profile(), "--machine", "m.toml", "-o", "plan.json")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        stored = json.loads((self.folder / "plan.json").read_text())
        self.assertEqual(stored["profile_path"], str(self.folder.resolve() / "p.sentinel"))
        self.assertIn("sentinel", self.run_it("explain", "plan.json").stdout)
        self.fails(1, "no tensor", "explain", "plan.json", "nothing-of-that-name")


class Compared(Case):
    def setUp(self):
        super().setUp()
        host = '[[tier]]\nname = "host"\ncapacity = "4MiB"\nread_bw = "2GB/s"\nwrite_bw = "2GB/s"\n'
        at = MACHINE.rindex("[[tier]]")
        self.file("m.toml", MACHINE[:at] + host + MACHINE[at:])
        self.file("chain.jsonl", chain())

    def results(self, *options):
        result = self.run_it("simulate", "chain.jsonl", "--machine", "m.toml", "--json", *options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)["results"]


class Comparisons(Compared):
    def test_a_table_with_the_bounds(self):
        table = self.run_it("compare", "chain.jsonl", "--machine", "m.toml", "--fast", "6M").stdout
        self.assertRegex(table, r"policy +step +throughput +bound +swapping")
        self.assertRegex(table, r"\nauto +\S+ \S+ +[01]\.\d{3} +[01]\.\d{3} ")

    def test_the_best_policy_is_first_and_what_cannot_work_is_last(self):
        sweep = ("--sweep", "fast=5M,6M")
        rows = json.loads(self.run_it("compare", "chain.jsonl", "--machine", "m.toml", "--json", *sweep).stdout)["results"]
        for budget in ("fast=5M", "fast=6M"):
            steps = [row["step_us"] for row in rows if row["sweep"] == budget]
            timed = [step for step in steps if step is not None]
            self.assertEqual(steps, sorted(timed) + [None] * (len(steps) - len(timed)))
            self.assertLess(1, len(set(timed)))
            self.assertLess(len(timed), len(steps))
        names = ["superneurons", "memory-mode", "ideal"]
        asked = self.results("--policy", ",".join(names), "--fast", "6M")
        self.assertEqual([row["policy"] for row in asked], names)  # simulate keeps the order of its list

    def test_a_page(self):
        result = self.run_it("compare", "chain.jsonl", "--machine", "m.toml", "--fast", "6M",
                             "--html", "c.html")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        page = (self.folder / "c.html").read_text()
        self.assertLess(len(page), 2_000_000)
        figures = json.loads(page.split('id="profile">')[1].split("</script>")[0])
        drawn = [row for row in figures["rows"] if row.get("strip")]
        self.assertIn("auto", {row["policy"] for row in drawn})
        for row in drawn:
            self.assertEqual(len(row["strip"]["held"]), len(row["strip"]["stalled"]))
            self.assertEqual(bool(row["strip"]["moved"]), bool(row["result"]["moved"]), row["policy"])
        self.fails(1, "nowhere", "simulate", "chain.jsonl", "--machine", "m.toml", "--html",
                   "nowhere/c.html")

    def test_a_feature_less_a_row(self):
        rows = self.results("--policy", "g10,ideal", "--fast", "6M", "--features")
        self.assertEqual([(row["policy"], row.get("without")) for row in rows],
                         [("g10", None), ("g10", "eager-prefetch"), ("g10", "host-tier"),
                          ("ideal", None)])

    def test_the_contract(self):
        fields = {"policy", "feasible", "step_us", "ideal_us", "normalized_throughput",
                  "lower_bound_us", "swap_lower_bound_us", "stall_us", "recompute_us", "plan_ms",
                  "peak_fast_bytes", "demand_faults", "traffic"}
        for row in self.results("--policy", "all", "--fast", "6M"):
            self.assertLessEqual(fields, row.keys())
            if not row["feasible"]:
                self.assertTrue(row["reason"])
                self.assertEqual({row[name] for name in fields if name.endswith("_us")}, {None})
                continue
            self.assertGreaterEqual(row["step_us"], row["lower_bound_us"] * (1 - 1e-9))
            self.assertGreaterEqual(row["swap_lower_bound_us"], row["lower_bound_us"])
            self.assertGreaterEqual(row["lower_bound_us"], row["ideal_us"] * (1 - 1e-9))
            self.assertAlmostEqual(row["normalized_throughput"], row["ideal_us"] / row["step_us"])
            for moved in row["traffic"]:
                self.assertEqual(moved.keys(), {"from", "to", "bytes"})

    def test_moves_only(self):
        both = self.results("--policy", "superneurons,auto", "--fast", "4M")
        moves = self.results("--policy", "superneurons,auto", "--fast", "4M", "--no-recompute")
        self.assertGreater(sum(row["recompute_us"] for row in both), 0)
        for row in moves:
            self.assertEqual(row["recompute_us"], 0)
            self.assertEqual(row["lower_bound_us"], row["swap_lower_bound_us"])

    def test_a_time_limit_cuts(self):
        self.file("chain.jsonl", chain(300))
        for row in self.results("--policy", "auto,home,swapadvisor", "--fast", "30M", "--effort",
                                "100000000", "--time-limit", "0.5"):
            self.assertTrue(row["feasible"], row)
            self.assertLess(row["plan_ms"], 5000, row["policy"])


class Sweeps(Compared):
    def steps(self, sweep, *options):
        return {row["sweep"]: row["step_us"]
                for row in self.results("--fast", "6M", "--sweep", sweep, *options)}

    def test_a_range_has_ten_values(self):
        shares = self.steps("fast=30%..75%", "--policy", "lru")
        self.assertEqual(list(shares), [f"fast={n}%" for n in range(30, 76, 5)])
        self.assertGreater(shares["fast=30%"], shares["fast=75%"])

    def test_a_range_with_a_step_and_a_list(self):
        self.assertEqual(list(self.steps("host=1,2..8MiB:3", "--policy", "ideal")),
                         ["host=1", "host=2MiB", "host=5MiB", "host=8MiB"])
        self.assertEqual(list(self.steps("interval=1..4", "--policy", "ideal")),
                         [f"interval={n}" for n in range(1, 5)])

    def test_each_changes_what_it_names(self):
        by_bandwidth = self.steps("ssd-bw=10MB/s,10GB/s", "--policy", "g10-gds")
        self.assertGreater(by_bandwidth["ssd-bw=10MB/s"], by_bandwidth["ssd-bw=10GB/s"])
        traffic = {row["sweep"]: {end for t in row["traffic"] for end in (t["from"], t["to"])}
                   for row in self.results("--fast", "6M", "--sweep", "host=0,16M", "--policy", "vdnn")}
        self.assertNotIn("host", traffic["host=0"])
        self.assertIn("host", traffic["host=16M"])
        by_interval = self.steps("interval=1,24", "--policy", "sentinel")
        self.assertEqual(len(by_interval), 2)

    def test_the_first_line_tells_the_budgets(self):
        def first(*options):
            result = self.run_it("simulate", "chain.jsonl", "--machine", "m.toml", "--policy", "lru", *options)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            return result.stdout.splitlines()[0]
        self.assertIn(": 6.00 MiB of fast memory,", first("--fast", "6M"))
        self.assertIn(": 5.00 MiB to 8.00 MiB of fast memory,", first("--sweep", "fast=5M,8M,6M"))

    def test_csv_and_the_curve(self):
        result = self.run_it("simulate", "chain.jsonl", "--machine", "m.toml", "--policy",
                             "lru,g10", "--sweep", "fast=40%..100%", "--csv", "--html", "c.html")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = list(csv.DictReader(result.stdout.splitlines()))
        self.assertEqual(len(rows), 20)
        for row in rows:
            self.assertAlmostEqual(float(row["normalized_throughput"]),
                                   float(row["ideal_us"]) / float(row["step_us"]))
        page = (self.folder / "c.html").read_text()
        figures = json.loads(page.split('id="profile">')[1].split("</script>")[0])
        self.assertEqual(figures["swept"], "fast")
        self.assertEqual([row["at"] for row in figures["rows"]],
                         [int(row["fast_bytes"]) for row in rows])

    def test_wrong_ones(self):
        for sweep in ("fast=", "fast=,20%", "fast=0%..10%", "fast=50%..10%", "fast=1%..2%:0%", "fast=1%..2M",
                      "host=a..b", "ssd-bw=0GB/s", "ram=1..2", "interval=1..1000000:0.00001"):
            with self.subTest(sweep):
                self.fails(2, "--sweep", "simulate", "chain.jsonl", "--machine", "m.toml",
                           "--sweep", sweep)
