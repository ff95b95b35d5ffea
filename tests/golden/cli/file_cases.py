"""Files that verbs read and write, and the cache."""
import os
import pwd
import shutil
import subprocess
import unittest

from case import Case, MACHINE, SENTINEL, TRACE, processor_s


class Inputs(Case):
    """Whatever is named to be read: regular files alone, up to a size."""

    def every_way(self, name):
        self.profile()
        self.file("plan.json", "{}")
        run = ("run", "--fast", "64M")
        return [(1, ("report", name)), (1, ("plan", name, "-o", "out")), (1, ("explain", name)),
                (1, ("simulate", name, "--machine", "v100-16gb")),
                (1, ("simulate", "trace.jsonl", "--machine", name)),
                (1, ("compare", name, "--machine", "v100-16gb")), (1, ("compare", "trace.jsonl", "--machine", name)),
                (1, ("plan", "trace.jsonl", "--machine", name, "-o", "out")),
                (1, ("import", name, "-o", "out")),
                (1, ("import", name, "--format", "pytorch-snapshot", "-o", "out")),
                (1, ("export", name, "-o", "out")),
                (125, (*run, "--profile", name, "--", "true")), (125, ("run", "--plan", name, "--", "true")),
                (125, (*run, "--machine", name, "--profile", "p.sentinel", "--", "true"))]

    def refused(self, name, words):
        for status, command in self.every_way(name):
            with self.subTest(command):
                began = processor_s()
                result = subprocess.run([SENTINEL, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                        cwd=self.folder, env=self.environment, timeout=60)
                self.assertLess(processor_s() - began, 1)
                self.assertEqual(result.returncode, status, result.stderr)
                self.assertIn(words, result.stderr)
                self.assertIn(name.removeprefix("./"), result.stderr)
                self.assertFalse((self.folder / "out").exists())

    def test_named_pipes(self):
        os.mkfifo(self.folder / "pipe.toml")
        self.refused("./pipe.toml", "it is a pipe, not a regular file")

    def test_devices(self):
        self.refused("/dev/zero", "it is a device, not a regular file")

    def test_folders(self):
        (self.folder / "folder.toml").mkdir()
        self.refused("./folder.toml", "name the file, not its folder")

    def test_giants(self):
        with open(self.folder / "giant.toml", "wb") as giant:
            giant.truncate(1 << 40)
        self.refused("./giant.toml", "it has 1.00 TiB, and ")

    def test_a_shells_substitution(self):
        result = subprocess.run(["bash", "-c", f'"{SENTINEL}" explain <(cat plan.json)'], capture_output=True,
                                text=True, cwd=self.folder, env=self.environment, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertIn("write what it gives to a file", result.stderr)


class Outputs(Case):
    def test_lost_text_is_an_error(self):
        """However long it is: what stdio writes at once and what it keeps."""
        profile = self.profile()
        for command in (["report", profile, "--format", "html"], ["report", profile], ["--version"], ["--help"],
                        ["run", "--help"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([SENTINEL, *command], stdout=full, stderr=subprocess.PIPE, text=True,
                                        cwd=self.folder, env=self.environment)
            self.assertIn(result.returncode, (1, 125), command)
            self.assertEqual(result.stderr, "sentinel: could not write to stdout: No space left on device\n")

    def commands(self, name):
        profile = self.profile()
        return [("import", "trace.jsonl", "-o", name), ("export", profile, "-o", name),
                ("export", profile, "-o", name + ".gz"), ("report", profile, "-o", name),
                ("plan", profile, "--machine", "v100-16gb", "--policy", "sentinel", "-o", name),
                ("simulate", profile, "--machine", "v100-16gb", "--sweep", "fast=1M", "--html", name)]

    def test_streams(self):
        profile = self.profile()
        whole = self.run_it("report", profile).stdout
        self.assertEqual(self.run_it("report", profile, "-o", "/dev/stdout").stdout, whole)
        self.assertEqual(self.run_it("report", profile, "-o", "/dev/stderr").stderr, whole)
        self.assertEqual(self.run_it("report", profile, "-o", "/dev/null").returncode, 0)
        piped = subprocess.run(["bash", "-c", f'"{SENTINEL}" report {profile} -o >(cat) | cat'], capture_output=True,
                               text=True, cwd=self.folder, env=self.environment, timeout=60)
        self.assertEqual(piped.stdout, whole)

    def test_anothers_links_in_a_shared_folder(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give files to another user")
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        self.file("mine", "mine")
        for name in ("out", "out.gz"):
            (shared / name).symlink_to(self.folder / "mine")
            os.chown(shared / name, 65534, 65534, follow_symlinks=False)
        for command in self.commands("shared/out"):
            with self.subTest(command):
                result = self.run_it(*command)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertEqual((self.folder / "mine").read_text(), "mine")
                self.assertIn("shared/out", result.stderr)

    def test_anothers_links_in_a_folder_of_theirs(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give files to another user")
        (self.folder / "theirs").mkdir()
        self.file("mine", "mine")
        (self.folder / "secret").mkdir()
        for name in ("out", "out.gz"):
            self.file(f"secret/{name}", "mine")
            (self.folder / "theirs" / name).symlink_to(self.folder / "mine")
        (self.folder / "theirs/folder").symlink_to(self.folder / "secret")
        for path in (self.folder / "theirs", *(self.folder / "theirs").iterdir()):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        for command in (*self.commands("theirs/out"), *self.commands("theirs/folder/out")):
            with self.subTest(command):
                result = self.run_it(*command)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn("belongs to user 65534", result.stderr)
                for name in ("mine", "secret/out", "secret/out.gz"):
                    self.assertEqual((self.folder / name).read_text(), "mine")

    def test_own_links_lead_to_their_targets(self):
        (self.folder / "deep/er").mkdir(parents=True)
        (self.folder / "way").symlink_to("deep")
        (self.folder / "deep/out").symlink_to("er/../er/target")
        result = self.run_it("export", self.profile(), "-o", "way/./out")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue((self.folder / "deep/er/target").read_text())
        self.assertTrue((self.folder / "deep/out").is_symlink())
        (self.folder / "deep/round").symlink_to("round")
        self.fails(1, "Too many levels", "export", self.profile(), "-o", "deep/round")
        self.fails(1, "Is a directory", "export", self.profile(), "-o", "deep/er/")

    def test_a_file_of_that_name_and_new_stays(self):
        self.file("t.jsonl", TRACE)
        self.file("p.new", "mine")
        self.assertEqual(self.run_it("import", "t.jsonl", "-o", "p").returncode, 0)
        self.assertEqual((self.folder / "p.new").read_text(), "mine")

    def test_anothers_links_are_told_before_a_training(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give files to another user")
        (self.folder / "shared").mkdir()
        (self.folder / "shared").chmod(0o1777)
        (self.folder / "shared/out").symlink_to(self.folder / "mine")
        os.chown(self.folder / "shared/out", 65534, 65534, follow_symlinks=False)
        for options in (("record", "-o"), ("run", "--summary"), ("run", "-o")):
            with self.subTest(options):
                self.fails(125, "belongs to user 65534", *options, "shared/out", "--", "echo", "trains")
                self.assertFalse((self.folder / "mine").exists())

    def planted(self, names, plant):
        """A shared folder with something of another user's under each name."""
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        self.file("mine", "mine")
        for name in names:
            plant(shared / name)
            os.chown(shared / name, 65534, 65534, follow_symlinks=False)
        return shared

    def test_what_lies_under_a_name_with_any_processs_number(self):
        """Nobody knows which it will be: what is no profile there would be lost."""
        if os.geteuid() != 0:
            self.skipTest("only root can give files to another user")
        plants = {"link": lambda path: path.symlink_to(self.folder / "mine"), "pipe": os.mkfifo}
        for kind, plant in plants.items():
            with self.subTest(kind):
                shared = self.planted(("p-7",), plant)
                result = self.run_it("record", "-o", "shared/p-%p", "--", "touch", "it-ran")
                self.assertEqual(result.returncode, 125, result.stderr)
                self.assertIn("shared/p-7 exists and is not a Sentinel profile", result.stderr)
                self.assertFalse((self.folder / "it-ran").exists())
                self.assertEqual((self.folder / "mine").read_text(), "mine")
                shutil.rmtree(shared)

    @unittest.skipIf(os.geteuid() != 0, "needs root, to run a program as another user")
    def test_a_program_may_run_as_the_folders_owner(self):
        folder = self.folder / "theirs"
        folder.mkdir()
        os.chown(folder, 65534, 65534)
        self.assertEqual(self.run_it("import", self.file("t.jsonl", TRACE), "-o", "p.sentinel").returncode, 0)
        result = self.run_it("record", "-o", "theirs/p", "--", "sh", "-c",
                             f"cp {self.folder}/p.sentinel theirs/p && chown 65534 theirs/p")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("as which the program may have run", result.stderr)

    def test_anothers_profile_is_not_taken_for_the_recorded_one(self):
        """Put there while the program runs, and read by nobody."""
        if os.geteuid() != 0:
            self.skipTest("only root can give files to another user")
        profile = self.folder / self.profile()
        for plant in (f"ln -s {profile} shared/p-7 && chown -h 65534 shared/p-7",
                      f"cp {profile} shared/p-7 && chown 65534 shared/p-7"):
            with self.subTest(plant):
                shared = self.planted((), None)
                result = self.run_it("record", "-o", "shared/p-%p", "--", "sh", "-c", plant)
                self.assertEqual(result.returncode, 125, result.stderr)
                self.assertIn("shared/p-7, which is another user's", result.stderr)
                shutil.rmtree(shared)

    def test_nothing_is_left_beside_them(self):
        for command in self.commands("out"):
            with self.subTest(command):
                (self.folder / "made").mkdir()
                result = subprocess.run([SENTINEL, *(word.replace("out", "made/out") for word in command)],
                                        capture_output=True, text=True, cwd=self.folder, env=self.environment)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(len(list((self.folder / "made").iterdir())), 1)
                shutil.rmtree(self.folder / "made")


class Cache(Case):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache/sentinel"
        self.profile()

    def test_without_a_home(self):
        """The cache is then in the home of the passwd entry, not in /tmp, where anybody may have prepared it."""
        home = pwd.getpwuid(os.geteuid()).pw_dir
        for unset in ([], ["HOME="], ["HOME=relative", "XDG_CACHE_HOME=relative"]):
            result = subprocess.run(["env", "-i", *unset, SENTINEL, "simulate", "trace.jsonl", "--machine",
                                     "local-none"], capture_output=True, text=True, cwd=self.folder, timeout=20)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"{home}/.cache/sentinel/local-none.toml", result.stderr)

    def test_a_folder_that_others_write_to(self):
        self.cache.mkdir(parents=True)
        (self.cache / "local.toml").write_text(MACHINE)
        command = ("simulate", "trace.jsonl", "--machine", "local")
        self.assertEqual(self.run_it(*command).returncode, 0)
        self.cache.chmod(0o775)
        result = self.fails(1, f"chmod go-w {self.cache}", *command)
        self.assertIn("mode 0775", result.stderr)

    def test_a_run_goes_on_without(self):
        """The machine is measured and not kept; this is said once."""
        self.cache.mkdir(parents=True)
        self.cache.chmod(0o777)
        result = self.run_it("run", "--fast", "64M", "--slow", str(self.folder), "--", "echo", "trained")
        self.assertEqual((result.returncode, result.stdout), (0, "trained\n"), result.stderr)
        self.assertEqual(result.stderr.count("chmod go-w"), 1, result.stderr)
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_another_users_home(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give files to another user")
        home = self.folder / "home"
        home.mkdir()
        os.chown(home, 65534, 65534)
        del self.environment["XDG_CACHE_HOME"]
        self.environment["HOME"] = str(home)
        result = self.run_it("run", "--fast", "64M", "--slow", str(self.folder), "--", "echo", "trained")
        self.assertEqual((result.returncode, result.stdout), (0, "trained\n"), result.stderr)
        self.assertEqual(result.stderr.count("belongs to user 65534"), 1, result.stderr)
        self.assertEqual(list(home.iterdir()), [])
