"""Trainings that share one amount of fast memory: their numbers are the plain ones, and together they never hold
more than there is."""
import contextlib
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import pytest

import training
from sharing import DIES_WITH_US, MIB, Broker, Peer, begun, packet

CASES = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "cases"
SHARED = CASES / "shared.py"
STEPS = ("--threads", "1")
MODELS = {
    "resnet": ("resnet_cifar.py", "--depth", "20", "--batch", "96", "--steps", "30"),
    "lstm": ("lstm_lm.py", "--hidden", "384", "--batch", "20", "--vocab", "6000", "--steps", "9"),
    "dcgan": ("dcgan.py", "--batch", "32", "--steps", "8"),
}


@pytest.fixture
def broker(build, tmp_path):
    """broker(bytes): one that looks every 10 ms, and ends with the test."""
    started = []

    def begin(fast):
        started.append(Broker(build / "bin" / "sentinel", tmp_path / "broker.sock", fast, "--sample", "10"))
        return started[-1]
    yield begin
    for one in started:
        one.end(signal.SIGKILL)


class Watched:
    """What all jobs hold together, asked every 10 ms."""

    def __init__(self, path):
        self.path, self.over, self.samples, self.most, self.together = path, False, 0, 0, 0
        self.violations = []
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.over:
            with contextlib.suppress(OSError):  # the broker may be killed
                peer = Peer(self.path)
                while not self.over:
                    found = peer.listing()
                    if found["counted_bytes"] > found["total_bytes"]:
                        self.violations.append(found)
                    self.samples += 1
                    self.most = max(self.most, sum(job.get("held_bytes", 0) for job in found["jobs"]))
                    self.together = max(self.together, len([1 for job in found["jobs"] if job["granted_bytes"]]))
                    time.sleep(0.01)
            time.sleep(0.01)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()
        assert not self.violations, self.violations[0]


@pytest.fixture
def begin(build, python, tmp_path):
    """begin("--share", "1G", command=[...]): a training under `sentinel run --broker`, in the background."""
    numbers, running = itertools.count(), []

    def start(*options, command, path=None, interpreter=(python,)):
        number = next(numbers)
        summary = tmp_path / f"summary-{number}.json"
        path = path or tmp_path / "broker.sock"
        process = subprocess.Popen(
            [str(word) for word in (*DIES_WITH_US, build / "bin" / "sentinel", "run", f"--broker={path}", *options,
                                    "--summary", summary, "--", *interpreter, *command)],
            stdout=open(tmp_path / f"out-{number}", "w"), stderr=open(tmp_path / f"err-{number}", "w"),
            stdin=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "OMP_WAIT_POLICY": "passive"})
        process.out, process.err, process.summary = tmp_path / f"out-{number}", tmp_path / f"err-{number}", summary
        running.append(process)
        return process
    yield start
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until_step(process, step, timeout=120):
    """Waits until shared.py has printed that step."""
    deadline = time.monotonic() + timeout
    while f"step {step} " not in process.out.read_text():
        assert process.poll() is None and time.monotonic() < deadline, process.err.read_text()
        time.sleep(0.02)


def plain_of(python, seed, steps):
    return training.finish([python, SHARED, seed, steps]).out


def grants_of(process):
    """The limit in each step."""
    return [step["limit_bytes"] for step in training.read_json(process.summary)["steps"]]


@pytest.mark.parametrize("names", [("resnet", "lstm"), ("resnet", "lstm", "dcgan")])
def test_staggered_models(names, begin, broker, plain, under, expect_same, tmp_path):
    """In 40 % of the sum of their peaks."""
    peaks = [under(None, *MODELS[name][:-1], "5", *STEPS).summary["peak_unlimited_bytes"] for name in names]
    total = int(0.4 * sum(peaks)) // (2 * MIB) * 2 * MIB
    one = broker(total)
    processes = []
    with Watched(one.path) as watched:
        for name in names:
            record = tmp_path / f"{name}.json"
            script, *flags = *MODELS[name], *STEPS
            processes.append(begin(command=[training.WORKLOADS / script, *flags, "--json", record]))
            time.sleep(5)
        for process in processes:
            assert process.wait(300) == 0, process.err.read_text()
    assert watched.samples > 100 and watched.together == len(names)
    assert watched.most <= total and one.jobs()["most_held_bytes"] <= total
    for name, process in zip(names, processes):
        script, *flags = *MODELS[name], *STEPS
        outcome = training.Outcome(0, "", process.err.read_text(), training.read_json(tmp_path / f"{name}.json"),
                                   training.read_json(process.summary), tmp_path / f"{name}.json")
        expect_same(plain(script, *flags), outcome)
        assert max(grants_of(process)) <= total
    assert min(grants_of(processes[0])) < total, "the first shrank for the others"


def test_a_killed_job_s_memory_is_given_to_others(begin, broker, python):
    one = broker(100 * MIB)
    first = begin(command=[SHARED, 1, 100])
    until_step(first, 6)
    second = begin(command=[SHARED, 2, 200])
    until_step(second, 4)
    os.killpg(second.pid, signal.SIGKILL)
    steps = first.out.read_text().count("step ")
    assert first.wait(200) == 0, first.err.read_text()
    assert first.out.read_text() == plain_of(python, 1, 100)
    grants = grants_of(first)
    assert grants[0] == 100 * MIB and min(grants) < 80 * MIB
    assert len(grants) > steps + 3, "it trained on after the other was killed"
    assert all(grant > min(grants) for grant in grants[steps + 3:]), "within two steps"
    assert one.jobs()["most_held_bytes"] <= 100 * MIB


def test_a_stopped_job_wakes_within_its_grant(begin, broker, python):
    broker(100 * MIB)
    first = begin(command=[SHARED, 1, 16])
    until_step(first, 6)
    os.killpg(first.pid, signal.SIGSTOP)
    second = begin("--broker-wait", "3", command=[SHARED, 2, 8])
    assert second.wait(60) == 125, "all memory is the stopped one's"
    os.killpg(first.pid, signal.SIGCONT)
    assert first.wait(120) == 0 and first.out.read_text() == plain_of(python, 1, 16)


def test_a_killed_broker_leaves_everybody_the_last_grant(begin, broker, python):
    one = broker(100 * MIB)
    with Watched(one.path) as watched:
        first = begin(command=[SHARED, 1, 30])
        until_step(first, 6)
        one.end(signal.SIGKILL)
        until_step(first, 10)
        again = broker(100 * MIB)
        again.await_jobs(lambda jobs: [job["state"] for job in jobs["jobs"]] == ["settled"])
        second = begin(command=[SHARED, 2, 8])
        assert second.wait(200) == 0, second.err.read_text()
        assert first.wait(200) == 0, first.err.read_text()
    assert watched.most <= 100 * MIB
    assert first.out.read_text() == plain_of(python, 1, 30) and second.out.read_text() == plain_of(python, 2, 8)
    assert min(grants_of(first)) < 100 * MIB, "it shrank for the second"


def test_run_starts_a_broker_that_ends_after_its_last_job(begin, sentinel, tmp_path):
    alone = sentinel("run", f"--broker={tmp_path}/broker.sock", "--", "true")
    assert alone.status == 125 and "--share BYTES" in alone.err
    process = begin("--share", "100M", command=[SHARED, 1, 6])
    assert process.wait(120) == 0, process.err.read_text()
    assert grants_of(process)[0] == 100 * MIB and "grants 100 MiB" in process.err.read_text()
    again = sentinel("run", f"--broker={tmp_path}/broker.sock", "--share", "1G", "--", "true")
    assert again.status == 0 and "--share changes nothing" in again.err
    deadline = time.monotonic() + 30
    while (tmp_path / "broker.sock").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("granted", [0, MIB])
def test_an_order_of_too_little_ends_a_training_before_it_begins(granted, begin, tmp_path):
    """It never is taken for no limit."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(tmp_path / "broker.sock"))
    listening.listen()
    listening.settimeout(60)  # a training that never asks fails the test
    process = begin(command=[SHARED, 1, 4])
    command = listening.accept()[0]
    command.recv(4096)
    command.send(packet("listing"))  # it listens, says that
    trains = listening.accept()[0]
    trains.settimeout(60)
    trains.recv(4096)
    trains.send(packet("grant", number=1, amount=granted))
    assert process.wait(60) == 125
    for each in (listening, command, trains):
        each.close()
    assert "less than the" in process.err.read_text() and "step 0" not in process.out.read_text()


def test_a_wait_for_memory_holds_no_other_thread_up(begin, broker):
    one = broker(128 * MIB)
    first = Peer(one.path).hello(least=128 * MIB)
    assert first.obey() == 128 * MIB
    process = begin(command=[CASES / "waits_for_memory.py"])
    deadline = time.monotonic() + 60
    while "forked" not in process.out.read_text():
        assert process.poll() is None and time.monotonic() < deadline, process.err.read_text()
        time.sleep(0.05)
    assert "allocated" not in process.out.read_text()
    first.send("bye", since=begun(os.getpid()))
    assert process.wait(60) == 0 and "allocated 1048576.0" in process.out.read_text(), process.err.read_text()


def test_offset_peaks_share_memory(begin, broker, build, slow_machine, tmp_path):
    """Two of 432 MiB in 0.85 of that: each plans for its peak, what it holds beyond its base is lent, for their drive is
    slow, and every byte that it reads is the one that it wrote."""
    program = tmp_path / "mountain"
    source = pathlib.Path(__file__).resolve().parents[1] / "c_program" / "mountain.c"
    subprocess.run(["cc", "-std=c11", "-O2", "-D_POSIX_C_SOURCE=199309L", "-Wall", "-Wextra", "-Werror",
                    "-I", source.parents[3] / "include", source, "-o", program, "-L", build / "lib",
                    f"-Wl,-rpath,{build / 'lib'}", "-lsentinel"], check=True)
    alone = training.finish([build / "bin" / "sentinel", "run", "--quiet", "--", program, 16, 16, 0])
    assert alone.status == 0, alone.err
    total = int(0.85 * 2 * 432) // 2 * 2 * MIB
    one, processes = broker(total), []
    with Watched(one.path) as watched:
        for _ in range(2):
            processes.append(begin("--machine", slow_machine, command=[program, 16, 16, 10], interpreter=()))
            time.sleep(0.4)
        for process in processes:
            assert process.wait(200) == 0, process.err.read_text()
    listed = one.jobs()
    assert listed["leases"] > 20, listed
    assert not watched.violations and watched.most <= total and listed["most_held_bytes"] <= total
    for process in processes:
        assert process.out.read_text().splitlines()[0] == alone.out.splitlines()[0]
    assert max(sum(pair) for pair in zip(*map(grants_of, processes))) > total, "they plan for more than there is"


def test_jobs_share_the_drive_s_time(begin, broker, python, sentinel, slow_machine, tmp_path):
    """Each plans for what the other leaves of it, and the one that stays has all of it again."""
    one = broker(100 * MIB)
    processes = [begin("--machine", slow_machine, command=[SHARED, seed, steps]) for seed, steps in ((1, 90), (2, 30))]
    shared = one.await_jobs(lambda found: [job.get("drive_part", 1) < 0.9 for job in found["jobs"]] == [True, True], 120)
    assert sum(job["drive_part"] for job in shared["jobs"]) < 1.5 and all("curve" in job for job in shared["jobs"])
    assert " % " in sentinel("jobs", "--socket", tmp_path / "broker.sock").out.splitlines()[3]
    one.await_jobs(lambda found: [job["drive_part"] for job in found["jobs"]] == [1], 120)
    assert [process.wait(200) for process in processes] == [0, 0], processes[0].err.read_text()
    assert [process.out.read_text() for process in processes] == [plain_of(python, 1, 90), plain_of(python, 2, 30)]


def test_jobs_says_what_moves(begin, broker, sentinel, tmp_path):
    broker(64 * MIB)
    process = begin(command=[SHARED, 1, 60])
    until_step(process, 20)
    listed = sentinel("jobs", "--socket", tmp_path / "broker.sock", "--json")
    job, = json.loads(listed.out)["jobs"]
    assert job["step_ms"] > 0 and job["in_bytes_per_s"] > 0 and job["out_bytes_per_s"] > 0, job
    assert "comes in" in sentinel("jobs", "--socket", tmp_path / "broker.sock").out


def test_who_never_fits_is_refused_at_once(begin, broker):
    broker(16 * MIB)
    process = begin(command=[SHARED, 1, 4])
    assert process.wait(60) == 125
    assert "the least that it can train with" in process.err.read_text()


def test_what_cannot_be_shared_is_refused(sentinel, tmp_path):
    shared = ("run", f"--broker={tmp_path}/broker.sock")
    nodes = sentinel(*shared, "--tiers", "fast=node0,slow=node1", "--", "true")
    assert nodes.status == 2 and "over an SSD" in nodes.err
    plan = sentinel(*shared, "--plan", tmp_path / "plan.json", "--", "true")
    assert plan.status == 2 and "one budget" in plan.err


def torchrun(script, ranks=2):
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, script]


@pytest.mark.parametrize("script", ["two_ranks.py", "sharded_ranks.py"])
def test_ranks_share_the_budget(script, sentinel, python, tmp_path):
    """DDP and FSDP2."""
    words = torchrun(CASES / script)
    outcome = sentinel("run", "--fast", "72M", "--summary", tmp_path / "s.json", "--", python, *words, timeout=300)
    assert outcome.status == 0, outcome.err
    assert outcome.out == training.finish([python, *words]).out
    ranks = [training.read_json(tmp_path / f"s.rank{rank}.json") for rank in range(2)]
    assert [rank["steps"][0]["limit_bytes"] for rank in ranks] == [36 * MIB] * 2
    assert sum(rank["peak_fast_bytes"] for rank in ranks) <= 72 * MIB
    assert all(len(rank["steps"]) == 8 for rank in ranks)


def test_ranks_that_do_not_fit_together(sentinel, python):
    outcome = sentinel("run", "--fast", "40M", "--", python, *torchrun(CASES / "two_ranks.py"), timeout=300)
    assert outcome.status != 0 and "cannot work" in outcome.err


def test_ranks_are_admitted_together(begin, broker, python):
    """Two trainings of two ranks each, of which one has room."""
    one = broker(110 * MIB)
    holder = Peer(one.path).hello(least=110 * MIB)
    holder.obey()
    words = torchrun(CASES / "two_ranks.py")
    trainings = [begin(command=words) for _ in range(2)]
    with Watched(one.path) as watched:
        one.await_jobs(lambda found: len(found["jobs"]) == 5, 120)
        holder.send("bye", since=begun(os.getpid()))
        told, first = set(), set()
        while jobs := one.jobs()["jobs"]:
            if len(first) < 2:
                first = {job["process"] for job in jobs if job["granted_bytes"]} - {os.getpid()}
            elif first & {job["process"] for job in jobs}:
                told |= {job["waits_for"].split(";")[0].split("needed ")[-1] for job in jobs
                         if job["process"] not in first and not job["granted_bytes"]}
            time.sleep(0.01)
        assert [process.wait() for process in trainings] == [0, 0], trainings[0].err.read_text()
        assert watched.samples > 20
    assert told == {"by 2 ranks together"}
    expected = training.finish([python, *words]).out
    assert [process.out.read_text() for process in trainings] == [expected] * 2


def test_a_killed_rank_ends_the_others_as_it_does_without_sentinel(sentinel, python):
    words = torchrun(CASES / "dying_rank.py")
    plain = training.finish([python, *words], timeout=200)
    outcome = sentinel("run", "--fast", "72M", "--", python, *words, timeout=200)
    assert plain.status != 0 and outcome.status == plain.status, outcome.err
    assert "Signal 9 (SIGKILL)" in plain.err and "Signal 9 (SIGKILL)" in outcome.err
