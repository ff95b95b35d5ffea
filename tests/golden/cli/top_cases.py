"""`top` in a terminal of its own (tmux), and what it says where there is none. The sessions are this process's."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

import status
from case import Case, SENTINEL

FIELD = 7  # columns of a process's number


class Tops(Case):
    def setUp(self):
        super().setUp()
        self.place = self.folder / "status"
        self.environment["SENTINEL_STATUS"] = str(self.place)

    def session(self, figures=None, **more):
        session = status.Session(self.place, figures or status.of_training(), **more)
        self.addCleanup(session.die)
        return session

    def named(self, text):
        """With the same number of the process everywhere, in a field of the same width, and as if the machine had been
        started long ago: no training runs for longer than it."""
        text = re.sub(r" *runs for [\d hmins]+$", lambda ran: "runs for 1 h 2 min".rjust(len(ran[0])), text, flags=re.M)
        number = str(os.getpid())
        for written, instead in ((number.ljust(FIELD), "PID".ljust(FIELD)), (number.rjust(FIELD), "PID".rjust(FIELD)),
                                 (number, "PID")):
            text = text.replace(written, instead)
        return text


@unittest.skipUnless(shutil.which("tmux"), "tmux, the terminal of these tests, is not installed")
class Screen(Tops):
    servers = 0

    def open(self, columns, rows, *arguments, term="screen-256color", locale="C.UTF-8"):
        self.servers += 1  # a server that is ended lives for a moment
        self.socket = str(self.folder / f"tmux{self.servers}")
        self.addCleanup(subprocess.run, ["tmux", "-S", self.socket, "kill-server"], capture_output=True)
        environment = {"LC_ALL": locale, "TERM": term, "SENTINEL_STATUS": str(self.place)}
        words = ["env", *(f"{name}={value}" for name, value in environment.items()), SENTINEL, "top", *arguments]
        self.tmux("-f", "/dev/null", "-u", "new-session", "-d", "-x", str(columns), "-y", str(rows),
                  " ".join(words) + "; echo ended with $?; exec sleep 100", ";", "set", "-g", "status", "off")

    def tmux(self, *words):
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        environment.pop("TMUX", None)
        return subprocess.run(["tmux", "-S", self.socket, *words], capture_output=True, text=True, env=environment).stdout

    def screen(self, words, session=None):
        """Once these words stand on it; the session goes on."""
        for _ in range(300):  # 30 s
            if session:
                session.publish()
            text = self.tmux("capture-pane", "-p")
            if words in text:
                return text.rstrip("\n") + "\n"
            time.sleep(0.1)
        self.fail(f"{words!r} does not come:\n{text}")

    def test_both_sizes(self):
        for columns, rows in ((80, 24), (200, 50)):
            with self.subTest(columns):
                session = self.session()
                self.open(columns, rows)
                self.screen("Moves", session)
                text = self.screen("Moves", session)
                self.assertLessEqual(max(map(len, text.splitlines())), columns)
                self.expect_screen(f"top-{columns}x{rows}", self.named(text))
                self.tmux("kill-server")
                session.die()

    def test_it_follows_the_steps(self):
        session = self.session()
        self.open(100, 30, str(os.getpid()))
        self.screen("1234 ended", session)
        session.status.steps = 1235
        session.status.guide = status.PAGER
        text = self.screen("1235 ended", session)
        self.assertIn("the policy pages by demand", text)
        self.assertNotIn("Memory over a step", text)
        session.status.state = status.LEFT
        self.screen("no longer managed", session)
        session.publish(since_s=40)
        self.screen("1235 ended")

    def test_a_step_that_does_not_end(self):
        session = self.session()
        session.publish(since_s=40)
        self.open(100, 30)
        self.assertRegex(self.screen("No step has ended"), r"No step has ended for \d+ s\.")

    def test_it_survives_the_sessions_end(self):
        for over, words in ((False, "has ended before its training had"), (True, "The training is over")):
            with self.subTest(over):
                session = self.session()
                self.open(80, 24)
                self.screen("1234 ended", session)
                if over:
                    session.status.state = status.OVER
                    session.publish()
                session.path.unlink()
                session.die()
                text = self.screen(words)
                self.assertIn("1234 ended", text)  # the last figures stay
                self.assertIn("1.20 GiB", text)
                self.tmux("send-keys", "q")
                self.screen("ended with 0")
                self.tmux("kill-server")

    def test_it_waits_for_a_session(self):
        self.open(80, 24)
        self.screen("No session of yours is running")
        session = self.session()
        self.screen("1234 ended", session)

    def test_the_terminal_changes(self):
        session = self.session()
        self.open(80, 24)
        self.screen("1234 ended", session)
        self.tmux("resize-window", "-x", "50", "-y", "12")
        self.screen("this view needs 60 and 16", session)
        self.tmux("resize-window", "-x", "120", "-y", "40")
        self.screen("layer3.3.conv2", session)

    def test_it_leaves_the_terminal_as_it_was(self):
        session = self.session()
        for key, ends in (("q", "ended with 0"), ("C-c", "ended with 0")):
            self.open(80, 24)
            self.screen("1234 ended", session)
            self.tmux("send-keys", key)
            text = self.screen(ends)
            self.assertNotIn("1234 ended", text)
            self.assertEqual(self.tmux("display", "-p", "#{cursor_flag}#{alternate_on}").strip(), "10")
            self.tmux("kill-server")

    def test_without_block_characters(self):
        session = self.session()
        self.open(80, 24, locale="C")
        text = self.screen("Moves", session)
        self.assertTrue(text.isascii(), text)
        self.expect_screen("top-ascii", self.named(self.screen("Moves", session)))

    def test_a_terminal_that_cannot(self):
        self.session()
        self.open(80, 24, term="dumb")
        text = self.screen("ended with 1")
        self.assertIn("TERM=dumb", text)
        self.assertIn("--once", text)

    def test_keys_that_arrive_together(self):
        session = self.session()
        self.open(80, 24)
        self.screen("1234 ended", session)
        self.tmux("send-keys", "-l", "j\x1b[Akjq")
        self.screen("ended with 0")

    def test_several_sessions(self):
        first = self.session()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            figures = status.of_training()
            figures.program.command, figures.steps = b"python3 other.py", 77
            kept = status.Session(self.place, figures)
            while kept:
                time.sleep(1)
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.kill, child, signal.SIGKILL)
        self.open(100, 40)
        text = self.screen("2 sessions", first)
        both = [line for line in text.splitlines() if re.search(r"step (77|1234)", line)]
        self.assertEqual(len(both), 2, text)
        chosen = "1234 ended" if "1234 ended" in text else "77 ended"
        self.tmux("send-keys", "Down")
        self.screen("77 ended" if chosen == "1234 ended" else "1234 ended", first)
        self.tmux("send-keys", "Up")
        self.screen(chosen, first)


class Top(Tops):
    def test_once(self):
        session = self.session()

        def once(*words):
            session.publish()  # the same time of the last step, however slow this machine is
            result = self.run_it("top", "--once", *words)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            return result.stdout
        all_of_them = once()
        self.assertIn("1234 ended", all_of_them)
        self.assertEqual(once(str(os.getpid())), all_of_them)
        # A child's ancestors are this process, and those above it.
        self.assertEqual(once(str(os.getppid())), all_of_them)

    def once(self, figures):
        self.session(figures)
        self.environment["LC_ALL"] = "C.UTF-8"
        result = self.run_it("top", "--once")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_the_budget_stands_over_memory_that_is_elsewhere(self):
        figures = status.of_training()
        for point in figures.plan.memory:
            point.needed, point.held = 6 << 30, 1 << 28
        text = self.once(figures)
        line, = [line for line in text.splitlines() if line.startswith("  1.25 GiB")]
        self.assertRegex(line, "^  1.25 GiB ─+$")
        self.assertIn("░", text)
        self.assertIn("planned in fast memory", text)
        self.assertRegex(text, r"op 0 +op 639\n")

    def test_moves_into_the_next_step(self):
        figures = status.of_training()
        figures.plan.moves[0].returns = 3
        text = self.once(figures)
        self.assertRegex(text, r"20 +3 \(next step\)\n")
        self.assertEqual(text.count("(next step)"), 1)

    def test_steps_beside_a_long_first_one(self):
        figures = status.of_training()
        figures.steps = 3
        for step, us in zip(figures.history, (60e6, 1e6, 0.5e6)):
            step.us, step.stall_us = us, 0
        text = self.once(figures)
        self.assertIn("time     █▄▂ █ from 2.00 s", text)
        self.assertIn("waited   none", text)
        self.assertIn("steps/s (last 3)", text)

    def test_before_the_first_step_has_ended(self):
        figures = status.of_training()
        figures.steps = 0
        text = self.once(figures)
        for line in (" Last step  -", " All steps  -"):
            self.assertIn(line + "\n", text)
        self.assertRegex(text, r"\n   in +- +1.20 GiB +2.75 GiB/s +-\n")

    def test_json(self):
        self.session()
        result = self.run_it("top", "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        session, = json.loads(result.stdout)["sessions"]
        self.assertEqual((session["pid"], session["state"], session["steps"]), (os.getpid(), "runs", 1234))
        self.assertEqual(session["last_step"]["promoted_bytes"], 1288490188)
        self.assertEqual(len(session["moves"]), 12)
        self.assertEqual(session["moves"][1]["made_again"], True)

    def test_none_is_running(self):
        self.fails(1, "no session of yours is running", "top", "--once")
        self.fails(1, "neither process 1 nor one below it", "top", "1", "--once") if os.getpid() != 1 else None
        self.assertEqual(self.run_it("top", "--json").stdout, '{\n  "sessions": []\n}\n')
        self.fails(2, "not the number of a process", "top", "none", "--once")

    def test_a_pipe_is_no_screen(self):
        self.session()
        self.fails(1, "needs a terminal", "top")

    def test_another_version(self):
        self.session(version=7)
        text = self.run_it("top", "--once").stdout
        self.assertIn("publishes version 7 of the figures; this command knows 1", text)
        session, = json.loads(self.run_it("top", "--json").stdout)["sessions"]
        self.assertEqual(session, {"pid": os.getpid(), "state": "other version"})

    def test_files_that_harm(self):
        """Names that would steer a terminal, figures beyond all sense, and files that are none."""
        figures = status.of_training()
        figures.program.command = b"python3 \x1b]0;owned\x07\x1b[2Jx.py \xff\xfe"
        figures.plan.tensors = figures.plan.points = figures.plan.kinds = 0xffffffff
        figures.plan.us = figures.last.us = float("nan")
        figures.total.us = float("inf")
        figures.history[3] = status.Step(float("nan"), -1)
        self.session(figures)
        for name, content in (("1", b""), ("2", b"SENTSTAT"), ("3", b"x" * 9000), ("4", b"SENTSTAT" + b"\xff" * 9000)):
            (self.place / f"{name}.sentinel").write_bytes(content)
        os.mkfifo(self.place / "5.sentinel")
        (self.place / "6.sentinel").symlink_to("/dev/zero")
        (self.place / "7.sentinel").mkdir()
        result = self.run_it("top", "--once")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertNotIn("\x1b", result.stdout)
        self.assertIn("\\x1b]0;owned", result.stdout)
        self.assertEqual(len(json.loads(self.run_it("top", "--json").stdout)["sessions"]), 1)

    def test_random_figures(self):
        """No content of a whole file ends the command."""
        import random
        chance = random.Random(33)
        session = self.session()
        size = len(bytes(session.status))
        for _ in range(20):
            session.status = status.Status.from_buffer_copy(chance.randbytes(size))
            session.publish()
            for words in (("--once",), ("--json",)):
                result = self.run_it("top", *words)
                self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_a_session_of_no_folder(self):
        self.environment["SENTINEL_STATUS"] = str(pathlib.Path("/nowhere"))
        self.fails(1, "no session of yours", "top", "--once")

    def test_a_folder_that_is_passed_over(self):
        self.environment["SENTINEL_STATUS"] = "off"
        self.fails(1, "SENTINEL_STATUS is off", "top", "--once")
        self.environment["SENTINEL_STATUS"] = str(self.place)
        self.place.write_text("a file")
        result = self.run_it("top", "--json")
        self.assertEqual((result.returncode, result.stderr), (0, f"sentinel: {self.place} is no folder\n"))
