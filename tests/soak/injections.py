"""What happens to a training: faults, signals, stops, forks, and resources that run out. Each class draws its own
details, says how a training may end under it, and acts from a thread while the training runs."""
import os
import pathlib
import signal
import time

HERE = pathlib.Path(__file__).resolve().parent
SAME, SENTENCE, KILLED = "the same numbers", "125 with a sentence", "killed"


class Injection:
    name = ""
    backends = ("ssd", "numa")
    needs = ()          # resources of which a case can have one user: the device's fault, the group, the disk
    ends = {SAME}       # how a training may end
    replaces = ""       # an option of the case for which it has its own

    def __init__(self, rng, steps):
        self.rng = rng
        self.step = rng.randrange(steps - 1)   # after which it begins

    def environment(self):
        return {}

    def options(self):
        return []

    def program(self, words):
        """The training's words after the interpreter."""
        return words

    def during(self, run):
        """`run`: see runs.py. Begins after its step, and returns when all is done."""


class Kill(Injection):
    name, ends = "kill", {SAME, KILLED}

    def during(self, run):
        time.sleep(self.rng.random())
        run.kill(self.rng.choice(("command", "program")), signal.SIGKILL)


class Ending(Injection):
    """What a shell, a scheduler or a person sends."""
    name, ends = "end", {SAME, KILLED}

    def during(self, run):
        time.sleep(self.rng.random())
        run.kill("group", self.rng.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))


class Stop(Injection):
    name = "stop"

    def during(self, run):
        for _ in range(self.rng.randint(1, 4)):
            whom = self.rng.choice(("program", "group"))
            run.kill(whom, signal.SIGSTOP)
            time.sleep(2 * self.rng.random())
            run.kill(whom, signal.SIGCONT)
            time.sleep(self.rng.random())


class Signals(Injection):
    """Hundreds that a program passes over: each interrupts a system call."""
    name = "signals"

    def during(self, run):
        for _ in range(self.rng.randint(100, 500)):
            run.kill("program", self.rng.choice((signal.SIGWINCH, signal.SIGURG, signal.SIGCHLD)))
            time.sleep(0.002 * self.rng.random())


class Forks(Injection):
    """A thread of the program forks and executes without pause."""
    name = "forks"

    def environment(self):
        return {"SOAK_FORKS": str(self.rng.randint(20, 120))}

    def program(self, words):
        return [str(HERE / "storm.py"), *words]


class Workers(Injection):
    """A child is forked, or a program run, in the middle of a step."""
    name = "children"

    def program(self, words):
        return [*words, self.rng.choice(("--fork-at", "--subprocess-at")), str(self.step)]


class Interruption(Injection):
    """An exception in the middle of a step: its loss is null, here and in the plain run."""
    name = "exception"

    def program(self, words):
        return [*words, "--raise-at", str(self.step)]


class DriveFault(Injection):
    """A transfer fails, or brings other bytes; these are found by full checksums alone."""
    name, backends, needs, ends = "drive fault", ("ssd",), ("fault",), {SAME, SENTENCE}

    def __init__(self, rng, steps):
        super().__init__(rng, steps)
        self.fault = rng.choice(("write:{}:EIO", "write:{}:ENOSPC", "read:{}:EIO", "read:{}:short", "read:{}:flip"))
        self.fault = self.fault.format(rng.randint(1, 200))
        self.replaces = "--checksum" if self.fault.endswith("flip") else ""

    def environment(self):
        return {"SENTINEL_INJECT": self.fault}

    def options(self):
        return ["--checksum=full"] if self.replaces else []


class PageFault(Injection):
    """Pages that do not move between nodes."""
    name, backends, needs = "page fault", ("numa",), ("fault",)

    def environment(self):
        code = self.rng.choice(("EBUSY", "ENOMEM", "EACCES", "EFAULT"))
        return {"SENTINEL_INJECT": f"move:%{self.rng.randint(3, 20)}:{code}"}


class FullDisk(Injection):
    """The drive of the slow tier fills up in mid-training, and may have room again."""
    name, backends, needs, ends = "full disk", ("ssd",), ("disk",), {SAME, SENTENCE}

    def __init__(self, rng, steps):
        super().__init__(rng, steps)
        self.left = rng.choice((0, 8 << 20, 64 << 20))
        self.seconds = rng.choice((1, 4, 600))

    def during(self, run):
        run.disk.fill(self.left)
        run.wait(self.seconds)
        run.disk.empty()


class Squeeze(Injection):
    """The limit of the memory cgroup falls below what the program has, for a while. The kernel may kill it then."""
    name, needs, ends = "squeeze", ("group",), {SAME, SENTENCE, KILLED}

    def during(self, run):
        for _ in range(self.rng.randint(1, 3)):
            run.group.squeeze(0.7 + 0.3 * self.rng.random())
            time.sleep(2 * self.rng.random())
            run.group.release()
            time.sleep(self.rng.random())


class NoGroupBudget(Injection):
    """No --fast: the budget is what the group's limit leaves."""
    name, backends, needs, ends = "limit", ("ssd",), ("group",), {SAME, SENTENCE, KILLED}

    def __init__(self, rng, steps):
        super().__init__(rng, steps)
        self.share = 0.6 + 0.3 * rng.random()   # of the plain run's peak


KINDS = (Kill, Ending, Stop, Signals, Forks, Workers, Interruption, DriveFault, PageFault, FullDisk, Squeeze,
         NoGroupBudget)


def fork_forever(pause):
    """Of storm.py: children that end at once, and programs."""
    while True:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        time.sleep(pause)
