"""`doctor` and `clean`: this machine, and what killed runs left."""
import json
import os
import shutil
import time

from case import Case


class Machine(Case):
    def test_doctor(self):
        result = self.run_it("doctor", "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for area in json.loads(result.stdout).values():
            for finding in area:
                self.assertTrue(finding["detail"] or finding["available"], finding)
        self.assertIn("userfaultfd", self.run_it("doctor").stdout)
        (self.folder / "cache/sentinel").mkdir(parents=True)
        (self.folder / "cache/sentinel").chmod(0o770)
        self.assertIn(f"chmod go-w {self.folder}/cache/sentinel", self.run_it("doctor").stdout)
        self.assertEqual(self.run_it("doctor", "--slow", "/nowhere").returncode, 0)
        hostile = self.folder / "cache\x1b[31m"
        hostile.mkdir()
        steered = self.run_it("doctor", "--slow", str(hostile))
        self.assertNotIn("\x1b", steered.stdout)
        self.assertIn("\\x1b[31m", steered.stdout)
        self.environment["SENTINEL_DEPTH"] = "many"
        areas = json.loads(self.run_it("doctor", "--json").stdout).values()
        wrong = [finding["name"] for area in areas for finding in area if "SENTINEL_DEPTH" in finding["detail"]]
        self.assertEqual(wrong, ["SENTINEL_ variables"])

    def test_clean(self):
        self.profile()
        self.file("plan.json.1f2e3d4c.999999999.sentinel-tmp", "{")
        mine = ["notes.new", "thesis.99999.tmp", "999999998.tmp", "photo.20241126.999999999.tmp"]
        for name in mine:
            self.file(name, "mine")
        shutil.copy(self.folder / self.profile(), self.folder / "whole.new")
        os.makedirs(self.folder / "cache/sentinel")
        self.file("cache/sentinel/torch-1.0-abc.so.999999999", "")
        self.file("sentinel-a1B2c3.slow", "")
        os.utime(self.folder / "sentinel-a1B2c3.slow", times=(time.time() - 61,) * 2)
        self.file("sentinel-newone.slow", "")  # which may not be locked yet
        self.file("sentinel-backup.tar", "mine")
        told = self.run_it("clean", "--dry-run").stdout
        self.assertTrue((self.folder / "plan.json.1f2e3d4c.999999999.sentinel-tmp").exists())
        self.assertIn("plan.json.1f2e3d4c.999999999.sentinel-tmp", self.run_it("clean").stdout)
        self.assertIn("torch-1.0-abc", told)
        self.assertIn("sentinel-a1B2c3.slow: a file of the slow tier", told)
        self.assertFalse((self.folder / "sentinel-a1B2c3.slow").exists())
        self.assertTrue((self.folder / "sentinel-newone.slow").exists())
        self.assertTrue((self.folder / "sentinel-backup.tar").exists())
        self.assertFalse((self.folder / "plan.json.1f2e3d4c.999999999.sentinel-tmp").exists())
        for name in (*mine, "whole.new"):
            self.assertTrue((self.folder / name).exists(), name)
        self.assertEqual(self.run_it("clean").stdout, "Nothing was left behind.\n")

    def test_clean_removes_profiles_that_never_came(self):
        """To a folder in which others may exchange files: they are written below $TMPDIR (profile_file.h)."""
        self.environment["TMPDIR"] = str(self.folder / "tmp")
        ended, lives, other = (self.folder / "tmp" / f"sentinel-{kind}-abcdef" for kind in ("profile", "profile-2", "other"))
        for folder, writer in ((ended, 999999999), (lives, os.getpid()), (other, 999999999)):
            folder.mkdir(parents=True)
            for suffix in ("", "-wal", "-shm", "-journal"):
                (folder / f"p.1f2e3d4c.{writer}.sentinel-tmp{suffix}").write_text("")
        beside = self.folder / "tmp" / "sentinel-profile-beside"
        beside.mkdir()
        (beside / "p.1f2e3d4c.999999999.sentinel-tmp-wal").write_text("")
        self.assertEqual(self.run_it("clean").returncode, 0)
        self.assertEqual([ended.exists(), beside.exists(), lives.exists(), other.exists()], [False, False, True, True])

    def test_clean_touches_only_own_files(self):
        self.file("mine", "mine")
        (self.folder / "a.json.1f2e3d4c.999999999.sentinel-tmp").symlink_to("mine")
        (self.folder / "b.json.1f2e3d4c.999999999.sentinel-tmp").mkdir()
        os.mkfifo(self.folder / "c.json.1f2e3d4c.999999999.sentinel-tmp")
        names = ["a", "b", "c"]
        if os.geteuid() == 0:
            self.file("d.json.1f2e3d4c.999999999.sentinel-tmp", "theirs")
            os.chown(self.folder / "d.json.1f2e3d4c.999999999.sentinel-tmp", 65534, 65534)
            names.append("d")
        self.assertEqual(self.run_it("clean").stdout, "Nothing was left behind.\n")
        for name in names:
            self.assertTrue(os.path.lexists(self.folder / f"{name}.json.1f2e3d4c.999999999.sentinel-tmp"))

    def test_clean_leaves_slow_files_that_are_not_its_users(self):
        """Whatever lies under their names, in the folder and in the slow tier's."""
        slow = self.folder / "slow"
        slow.mkdir()
        self.environment["SENTINEL_DIR"] = str(slow)
        self.file("mine", "mine")
        aged = (time.time() - 3600,) * 2
        os.utime(self.folder / "mine", times=aged)
        planted = []
        for folder in (self.folder, slow):
            names = [folder / f"sentinel-{kind}.slow" for kind in ("linked", "hanged", "a_pipe", "folder", "theirs")]
            names[0].symlink_to(self.folder / "mine")
            names[1].symlink_to("nowhere")
            os.mkfifo(names[2])
            names[3].mkdir()
            if os.geteuid() == 0:
                names[4].write_text("theirs")
                os.chown(names[4], 65534, 65534)
            else:
                names.pop()
            planted += names
            for name in names:
                os.utime(name, times=aged, follow_symlinks=False)
        own = slow / "sentinel-a1B2c3.slow"
        own.write_text("")
        os.utime(own, times=aged)
        self.assertEqual(self.run_it("clean").stdout, f"{own}: a file of the slow tier\n")
        for name in planted:
            self.assertTrue(os.path.lexists(name), name)
        self.assertEqual((self.folder / "mine").read_text(), "mine")

    def test_clean_applies_no_journal_of_another(self):
        profile = self.profile()
        if os.geteuid() != 0:
            self.skipTest("only root can give files to another user")
        for theirs in (["-wal"], ["-journal"], ["-wal", "-journal"]):
            self.file(profile + "-wal", "")
            self.file(profile + "-journal", "hot")
            for suffix in theirs:
                os.chown(self.folder / (profile + suffix), 65534, 65534)
            self.assertEqual(self.run_it("clean").stdout, "Nothing was left behind.\n")
            for suffix in ("-wal", "-journal"):
                self.assertTrue((self.folder / (profile + suffix)).exists())
                (self.folder / (profile + suffix)).unlink()
