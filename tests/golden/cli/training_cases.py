"""`run`, `record` and `fit`: usage, and the command that they start."""
import os
import signal
import subprocess

from case import Case, SAYS_SIGNAL, SENTINEL


class Fit(Case):
    def fit(self, command, *options):
        return self.run_it("fit", "--fast", "64M", "--slow", str(self.folder), *options, "--", "sh", "-c", command)

    def test_finds_the_largest(self):
        result = self.fit("echo from the command; test {} -le 37")
        self.assertEqual((result.returncode, result.stdout), (0, "36\n"))  # less than a 16th too small
        self.assertIn("batch 64 fails with status 1", result.stderr)
        self.assertIn("from the command", result.stderr)
        self.assertEqual(self.fit("test {} -le 37", "--within", "100").stdout, "37\n")
        self.assertEqual(self.fit("true {}", "--most", "48").stdout, "48\n")

    def test_says_what_is_in_the_way(self):
        result = self.fit("exit 3 # {}")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("batch 1 does not train", result.stderr)
        self.assertEqual(self.fit("kill -INT $$ # {}").returncode, 130)
        for missing, *words in (("{}", "--fast", "1G", "--", "true"), ("--fast", "--", "true", "{}"),
                                ("in bytes", "--fast", "20%", "--", "true", "{}")):
            result = self.run_it("fit", *words)
            self.assertEqual(result.returncode, 2)
            self.assertIn(missing, result.stderr)


class WrongUsage(Case):
    def test_is_2(self):
        for words, *arguments in [
                ("did you mean run", "rum"), ("FILE is required", "report"),
                ("--nonsense", "report", "--nonsense", "x"), ("after --", "run"),
                ("missing", "run", "--"), ("not a share", "run", "--fast", "0%", "--", "true"),
                ("not a share", "run", "--fast", "101%", "--", "true"),
                ("not a size", "run", "--fast", "much", "--", "true"),
                ("no policy", "run", "--policy", "best", "--", "true"),
                ("backend", "run", "--io", "fast", "--", "true"),
                ("--move", "run", "--move", "fast", "--", "true"),
                ("auto, kernel, rwp, userfaultfd, samples, cupti, ops", "record", "--count", "all", "--", "true"),
                ("slow=DIR", "run", "--tiers", "fast=/x", "--", "true"),
                ("slow=host", "run", "--tiers", "fast=gpu0,slow=/x", "--", "true"),
                ("either", "run", "--plan", "a", "--profile", "b", "--", "true"),
                ("are of --live", "bench", "--shares", "20"),
                ("not of --live", "bench", "--live", "--json"),
                ("not of --live", "bench", "--live", "--size", "1M"),
                ("format", "report", "p", "sharing", "--format", "html"),
                ("no view and no profile", "report", "p", "everything"),
                ("--noise", "simulate", "p", "--machine", "optane", "--noise", "nan"),
                ("--target", "compare", "p", "--machine", "optane", "--target", "nan"),
                ("--time-limit", "compare", "p", "--machine", "optane", "--time-limit", "inf")]:
            with self.subTest(arguments):
                self.fails(2, words, *arguments)

    def test_unknown_names_are_1(self):
        self.profile()
        for words, *arguments in [
                ("no policy", "plan", "p.sentinel", "--machine", "optane", "--policy", "best", "-o", "q"),
                ("no policy", "simulate", "p.sentinel", "--machine", "optane", "--policy", "best"),
                ("no policy", "compare", "p.sentinel", "--machine", "optane", "--policy", "lru,best"),
                ("machine", "compare", "p.sentinel", "--machine", "best")]:
            with self.subTest(arguments):
                self.fails(1, words, *arguments)


class Commands(Case):
    def status(self, *command):
        return self.run_it("run", "--", *command)

    def test_the_commands_own_status(self):
        self.assertEqual(self.status("true").returncode, 0)
        self.assertEqual(self.status("false").returncode, 1)
        self.assertEqual(self.status("sh", "-c", "exit 77").returncode, 77)
        self.assertEqual(self.status("sh", "-c", "kill -9 $$").returncode, 137)
        self.assertEqual(self.run_it("record", "--", "sh", "-c", "exit 3").returncode, 3)

    def test_no_such_command(self):
        result = self.status("no-such-command")
        self.assertEqual((result.returncode, result.stdout), (127, ""))
        self.assertIn("command not found", result.stderr)
        self.file("text", "x")
        self.assertEqual(self.status("./text").returncode, 126)

    def test_streams_are_left_alone(self):
        result = self.run_it("run", "--", "cat", stdin="one\ntwo\n")
        self.assertEqual((result.stdout, result.stderr), ("one\ntwo\n", ""))

    def test_what_the_command_inherits(self):
        self.environment["PYTHONPATH"] = "/before"
        out = self.run_it("run", "--summary", "s.json", "--", "env").stdout
        seen = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        self.assertEqual(seen["SENTINEL_MODE"], "run")
        self.assertEqual(seen["SENTINEL_SUMMARY"], str(self.folder.resolve() / "s.json"))
        self.assertTrue(seen["PYTHONPATH"].endswith("inject:/before"))
        for place in ("SENTINEL_HOME", "SENTINEL_PYTHON_DIR", "SENTINEL_LIBRARY"):
            self.assertTrue(os.path.exists(seen[place]), place)
        quoted = self.run_it("run", "--", "sh", "-c", 'printf %s "$SENTINEL_COMMAND"').stdout
        self.assertEqual(quoted, """sh -c 'printf %s "$SENTINEL_COMMAND"'""")

    def test_failures_of_our_own_are_125_and_before_the_command(self):
        touch = ("--", "touch", "it-ran")
        self.file("text", "x")
        for words, *arguments in [
                ("tmpfs", "run", "--slow", "/dev/shm"), ("/nowhere", "run", "--slow", "/nowhere"),
                ("smallest", "run", "--fast", "1M"), ("missing", "run", "--profile", "missing"),
                ("missing", "run", "--plan", "missing"), ("text", "run", "--profile", "text"),
                ("nowhere", "run", "--summary", "nowhere/s"), ("-o", "record", "-o", "nowhere/p"),
                ("not a Sentinel profile", "record", "-o", "text")]:
            with self.subTest(arguments):
                self.fails(125, words, *arguments, *touch)
                self.assertFalse((self.folder / "it-ran").exists())

    def test_a_record_without_training(self):
        result = self.run_it("record", "--", "echo", "trained?")
        self.assertEqual((result.returncode, result.stdout), (125, "trained?\n"))
        self.assertIn("no training step was seen", result.stderr)

    def test_an_old_profile_is_not_taken_for_a_new_one(self):
        self.profile()
        self.fails(125, "no profile", "record", "-o", "p.sentinel", "--", "true")

    def test_signals_reach_the_command(self):
        for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT"):
            with self.subTest(name), subprocess.Popen(
                    [SENTINEL, "run", "--", "/usr/bin/python3", "-c", SAYS_SIGNAL, name], text=True,
                    stdout=subprocess.PIPE, env=self.environment, cwd=self.folder) as started:
                self.assertEqual(started.stdout.readline(), "ready\n")
                started.send_signal(getattr(signal, name))
                self.assertEqual(started.stdout.read(), name + "\n")
                self.assertEqual(started.wait(10), 9)
