"""A training whose children read its tensors, of which most have left memory: `children.py HOW`. Each child appends a
line to --report: how many of the tensors it found to be other than they are. Prints each loss to the last bit, how
each child ended, and what the parent finds at the end.

HOW: keeps, closes, writes, threads, later, twice, daemon, outlives, system_call, raw, bare, process_fork, process_forkserver,
process_spawn, pool, subprocess, spawned."""
import argparse
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import torch

import eager

TENSORS = 24
SYS_FORK = 57 if os.uname().machine == "x86_64" else None


def close_all(first=3):
    os.closerange(first, 4096)


class Training:
    def __init__(self, width, kept_elements):
        torch.manual_seed(3)
        torch.set_num_threads(1)
        self.model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)], torch.nn.Linear(64, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.kept = [torch.full((kept_elements,), float(k + 1)) for k in range(TENSORS)]
        self.width = width
        self.steps = 0

    def step(self):
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(self.width, 64)).square().mean()
        loss.backward()
        self.optimizer.step()
        print("step", self.steps, float(loss.detach()).hex(), flush=True)
        self.steps += 1

    def wrong(self, tensors=None):
        return sum(not bool((self.kept[k] == k + 1).all()) for k in tensors or range(TENSORS))


class Children:
    def __init__(self, training, report):
        self.training, self.report = training, report

    def tell(self, text):
        with open(self.report, "a") as file:
            file.write(text + "\n")

    def read(self):
        self.tell(f"wrong {self.training.wrong()}")

    def forked(self, body, fork=os.fork):
        """The child's number; it runs `body` and ends."""
        child = fork()
        if child == 0:
            try:
                body()
            finally:
                os._exit(0)
        return child

    def ended(self, child):
        status = os.waitpid(child, 0)[1]
        print("child ended by", f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status),
              flush=True)

    def keeps(self):
        self.ended(self.forked(self.read))

    def closes(self):
        def body():
            close_all(0)
            self.read()
        self.ended(self.forked(body))

    def writes(self):
        def body():
            close_all()
            for tensor in self.training.kept:
                tensor.add_(1)
            self.tell(f"wrong {sum(not bool((t == k + 2).all()) for k, t in enumerate(self.training.kept))}")
        self.ended(self.forked(body))

    def threads(self):
        def body():
            close_all()
            found = []
            readers = [threading.Thread(target=lambda: found.append(self.training.wrong())) for _ in range(4)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            self.tell(f"wrong {max(found)}")
        self.ended(self.forked(body))

    def later(self):
        """The child closes all above 2, and the parent trains a hundred steps more before the child reads."""
        here, there = os.pipe()

        def body():
            os.dup2(here, 0)
            close_all()
            os.read(0, 1)
            self.read()
        child = self.forked(body)
        os.close(here)
        for _ in range(100):
            self.training.step()
        os.close(there)
        self.ended(child)

    def twice(self):
        """A child that has read a few tensors forks another one, which closes what the first has not."""
        def first():
            close_all()
            self.tell(f"wrong {self.training.wrong([2, 5, 7])}")
            self.ended(self.forked(second))
            self.read()

        def second():
            close_all(0)
            self.read()
        self.ended(self.forked(first))

    def daemon(self):
        """As daemons do: the process between ends at once, and nobody waits for the last."""
        def first():
            os.setsid()
            self.forked(last)

        def last():
            close_all(0)
            time.sleep(0.5)
            self.read()
        self.ended(self.forked(first))
        self.await_report()

    def await_report(self):
        for _ in range(200):
            if os.path.exists(self.report):
                return
            time.sleep(0.1)

    def outlives(self):
        """The child reads when its parent is gone; the test waits for its report."""
        parent = os.getpid()

        def body():
            close_all(0)
            while os.getppid() == parent:
                time.sleep(0.05)
            self.read()
        self.forked(body)

    def system_call(self):
        """The kernel reads the tensors for the child."""
        def body():
            close_all()
            file = os.open(self.report + ".bytes", os.O_CREAT | os.O_RDWR)
            for tensor in self.training.kept:
                os.write(file, memoryview(tensor.numpy()))
            bytes_each = self.training.kept[0].numel() * 4
            read = [os.pread(file, bytes_each, k * bytes_each) for k in range(TENSORS)]
            expected = [torch.full_like(t, k + 1.).numpy().tobytes() for k, t in enumerate(self.training.kept)]
            self.tell(f"wrong {sum(a != b for a, b in zip(read, expected))}")
            os.unlink(self.report + ".bytes")
        self.ended(self.forked(body))

    def raw(self):
        """A child that the C library knows nothing of."""
        self.ended(self.forked(self.read, lambda: ctypes.CDLL(None).syscall(SYS_FORK)))

    def bare(self):
        self.ended(self.forked(self.read, ctypes.CDLL(None)._Fork))

    def process(self, method):
        context = multiprocessing.get_context(method)
        process = context.Process(target=in_process, args=(self.report,))
        process.start()
        process.join()
        print("child ended by", process.exitcode, flush=True)

    def process_fork(self):
        self.process("fork")

    def process_forkserver(self):
        self.process("forkserver")

    def process_spawn(self):
        self.process("spawn")

    def pool(self):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map(in_pool, range(TENSORS), 3)
        self.tell(f"wrong {sum(found)}")

    def subprocess(self):
        subprocess.run(["true"], close_fds=True, check=True)
        subprocess.run(["true"], close_fds=True, check=True, preexec_fn=self.read)

    def spawned(self):
        self.ended(os.posix_spawn("/bin/true", ["true"], os.environ))
        os.system("true")


now = None  # the training, where a child of multiprocessing has inherited it


def in_process(report):
    """Of a server's or a new process, which has no training. A server's has a session of its own: who closes the
    descriptors of that ends with 125."""
    if now:
        close_all()
    Children(now, report).tell(f"wrong {now.wrong() if now else int(torch.ones(5).sum()) - 5}")


def in_pool(k):
    close_all_but_pool()
    return now.wrong([k])


def close_all_but_pool():
    """What a pool's worker works by are pipes."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                os.close(int(name))
        except OSError:
            pass


def main():
    eager.without_compiler()
    parser = argparse.ArgumentParser()
    parser.add_argument("how")
    parser.add_argument("--report", required=True)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--elements", type=int, default=1 << 20)
    args = parser.parse_args()
    signal.alarm(140)
    global now
    now = Training(args.width, args.elements)
    children = Children(now, args.report)
    for _ in range(6):
        now.step()
    getattr(children, args.how)()
    now.step()
    print("parent", now.wrong(), "wrong")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
