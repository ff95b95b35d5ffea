"""The help screens, the completion, the reference and the manual page."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from case import BUILD, Case, ROOT, VERBS


class Help(Case):
    def test_every_verb(self):
        for verb in VERBS:
            with self.subTest(verb):
                result = self.run_it("help", verb)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertEqual(result.stdout, self.run_it(verb, "--help").stdout)
                self.assertEqual(result.stdout.split("Examples\n")[1].count("\n"), 2)
                self.expect_screen("help-" + verb, result.stdout)

    def test_overview(self):
        text = self.run_it("help").stdout
        self.assertEqual(text, self.run_it("--help").stdout)
        self.expect_screen("help", text)

    def test_without_arguments(self):
        result = self.run_it()
        self.assertEqual((result.returncode, result.stderr), (2, ""))
        self.assertEqual(result.stdout, self.run_it("help").stdout)

    def test_version(self):
        self.assertRegex(self.run_it("--version").stdout, r"^sentinel \d+\.\d+\.\d+\n$")

    def test_help_after_the_dashes_is_the_commands(self):
        result = self.run_it("run", "--", "sh", "-c", 'echo "$1"', "x", "--help")
        self.assertEqual(result.stdout, "--help\n")

    def test_completion_knows_verbs_and_options(self):
        text = self.run_it("completion", "bash").stdout
        for word in VERBS + ["--summary", "heatmap"]:
            self.assertIn(word, text)
        check = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
        self.assertEqual((check.returncode, check.stderr), (0, ""))

    def completed(self, *words):
        """As bash completes the last of the words, of which it makes three where one has an equals sign."""
        script = self.run_it("completion", "bash").stdout + (
            'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _sentinel; printf "%s\\n" "${COMPREPLY[@]}"')
        return subprocess.run(["bash", "-c", script, "bash", "sentinel", *words], text=True,
                              capture_output=True).stdout.split()

    def test_completion_of_values(self):
        self.assertEqual(self.completed("ru"), ["run"])
        self.assertIn("--fast", self.completed("run", "--"))
        self.assertNotIn("--fast", self.completed("record", "--"))
        self.assertEqual(self.completed("run", "--move", ""), ["auto", "copy"])
        self.assertEqual(self.completed("record", "--count", "k"), ["kernel"])
        self.assertIn("deepum", self.completed("run", "--policy", "d"))
        self.assertEqual(self.completed("run", "--move", "="), ["auto", "copy"])
        self.assertEqual(self.completed("run", "--checksum", "=", "s"), ["sampled"])
        self.assertIn("--fast", self.completed("run", "--checksum", ""))  # which may stand alone
        self.assertEqual(self.completed("run", "--profile", ""), [])  # then bash completes files
        self.assertEqual(self.completed("run", "--", "--move", ""), [])
        self.assertEqual(self.completed("report", "p", "--format", "h"), ["html"])

    def test_completion_for_fish(self):
        text = self.run_it("completion", "fish").stdout
        self.assertIn("from run' -l move -x -a 'auto copy'\n", text)
        self.assertIn("from record' -s o -l output -r\n", text)
        self.assertIn("from report' -a '", text)


class Reference(Case):
    """What is made from the verbs and the table of options, to be read elsewhere."""

    def test_the_file(self):
        result = self.run_it("help", "--markdown")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        file = ROOT / "docs/reference/options.md"
        if os.environ.get("SENTINEL_ACCEPT"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(result.stdout)
        self.assertEqual(file.read_text(), result.stdout, f"accept: SENTINEL_ACCEPT=1 {sys.executable} {__file__} "
                                                          f"{BUILD} Reference")

    def test_the_command_line_names_every_verb_and_option(self):
        text = (ROOT / "docs/reference/command-line.md").read_text()
        self.assertEqual(re.findall(r"^## sentinel (\w+)$", text, re.M), VERBS)
        known = text + self.run_it("help", "--markdown").stdout  # test_the_file compares the file
        for verb in VERBS:
            options = set(re.findall(r"--[a-z-]+", self.run_it("help", verb).stdout.split("\nExamples\n")[0]))
            self.assertEqual({option for option in options if option not in known}, set(), verb)

    def test_the_manual_page(self):
        page = self.run_it("help", "--man").stdout
        for verb in VERBS:
            self.assertIn(f"\n.SS {verb}\n", page)
        for option in re.findall(r"--[a-z-]+", "".join(self.run_it("help", verb).stdout.split("Examples")[0]
                                                       for verb in VERBS)):
            self.assertIn(option.replace("-", "\\-"), page)
        self.assertEqual((pathlib.Path(BUILD) / "share/man/man1/sentinel.1").read_text(), page)
        self.fails(2, "no verb", "help", "run", "--man")
        if shutil.which("groff") is None:
            self.skipTest("groff, which would read the page, is not installed")
        read = subprocess.run(["groff", "-man", "-ww", "-Tutf8"], input=page, capture_output=True, text=True)
        self.assertEqual((read.returncode, read.stderr), (0, ""))
        self.assertIn("SENTINEL_FAST", re.sub(".\b", "", read.stdout))  # bold is struck twice
