"""The broker and peers that speak to it by hand: who is let in, what ends, what stays. No training is run here."""
import fcntl
import os
import pathlib
import random
import signal
import socket
import subprocess
import time

import pytest

from sharing import DIES_WITH_US, LAYOUT, MIB, Broker, Job, Peer, begun, packet


@pytest.fixture
def start(build, tmp_path):
    """start(512 * MIB): a broker, which ends with the test."""
    started = []

    def begin(fast=512 * MIB, *options, **more):
        started.append(Broker(build / "bin" / "sentinel", tmp_path / "broker.sock", fast, *options, **more))
        return started[-1]
    yield begin
    for broker in started:
        broker.end(signal.SIGKILL)


@pytest.fixture
def job():
    """job(path): a process with a grant, killed at the test's end."""
    made = []

    def begin(*words, **more):
        made.append(Job(*words, **more))
        return made[-1]
    yield begin
    for one in made:
        one.kill(signal.SIGCONT)
        one.kill()


def test_who_shrinks_acknowledges_before_anybody_grows(start, job):
    broker = start()
    first = Peer(broker.path).hello()
    assert first.obey() == 512 * MIB
    second = job(broker.path)
    kind, number, amount, _ = first.receive()
    assert (kind, amount) == ("grant", 256 * MIB)
    time.sleep(0.3)
    states = {row["state"]: row for row in broker.jobs()["jobs"]}
    assert set(states) == {"ordered", "waiting"} and "are taken" in states["waiting"]["waits_for"]
    first.send("acknowledge", number=number, amount=amount)
    assert second.granted() == 256 * MIB


def test_only_the_user_may_connect(start):
    broker = start()
    assert broker.path.stat().st_mode & 0o777 == 0o600
    if os.geteuid() != 0:
        pytest.skip("only root can connect as another user")
    broker.path.chmod(0o666)  # so that the peer's user alone decides
    for folder in (broker.path.parent, *broker.path.parent.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    as_nobody = ("import os, socket, sys\nos.setgid(65534), os.setuid(65534)\n"
                 "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.settimeout(5)\ns.connect(sys.argv[1])\n"
                 "try:\n    print(s.recv(4096) == b'')\nexcept ConnectionResetError:\n    print(True)\n")
    tried = subprocess.run(["/usr/bin/python3", "-c", as_nobody, broker.path], capture_output=True, text=True)
    assert tried.stdout.strip() == "True", tried.stderr
    assert broker.end()[1].count("user 65534 tried to connect and was refused") == 1


def bad_packets():
    noise = random.Random(3)
    yield from (noise.randbytes(size) for size in (1, 7, 511, 512, 513, 4096, 60000))
    yield packet("hello", magic=1)
    yield packet("hello", version=9)
    yield packet(99)
    yield packet("grant")  # not for a broker
    yield packet("hello", least=32 * MIB, since=begun(os.getpid()))[:-176] + b"x" * 176  # a text without an end
    yield packet("hello", least=32 * MIB, since=1)  # another process of this number
    yield packet("hello", least=1 << 60, since=begun(os.getpid()))  # more than there is
    yield packet("hello", least=0, since=begun(os.getpid()))
    yield packet("hello", amount=(1 << 64) - 1, least=32 * MIB, since=begun(os.getpid()))


def test_garbage_ends_a_connection_and_nothing_else(start, job):
    broker = start()
    held = job(broker.path)
    assert held.granted() == 512 * MIB
    for data in bad_packets():
        peer = Peer(broker.path)
        peer.socket.send(data)
        came = peer.receive()
        assert came is None or came[0] == "refused", came
        assert came is None or peer.receive() is None
    assert [row["granted_bytes"] for row in broker.jobs()["jobs"]] == [512 * MIB]


def test_what_a_job_may_not_say(start):
    broker = start()
    peer = Peer(broker.path).hello()
    assert peer.obey() == 512 * MIB
    peer.send("acknowledge", number=77, amount=0)  # no such order
    peer.send("acknowledge", number=1, amount=1 << 62)  # more than it ever had
    assert broker.jobs()["jobs"][0]["counted_bytes"] == 512 * MIB
    peer.send("hello", least=32 * MIB, since=begun(os.getpid()))
    assert peer.receive()[3] == "a connection is one job's"
    assert peer.receive() is None
    assert [row["state"] for row in broker.jobs()["jobs"]] == ["absent"], "its process lives, so its grant stays"


@pytest.mark.parametrize("content", [b"{]", b"\0" * 100, b'{"format":"tensor-trace","version":1}\n{"k":0}\n'])
def test_a_profile_that_is_none(content, start):
    broker = start()
    for sealed in (False, True):
        peer = Peer(broker.path).hello(holds=64 * MIB)
        peer.obey()
        file = os.memfd_create("profile", os.MFD_ALLOW_SEALING)
        os.write(file, content)
        if sealed:
            fcntl.fcntl(file, 1033, 15)  # F_ADD_SEALS: all four
        socket.send_fds(peer.socket, [packet("needs", least=32 * MIB, most=64 * MIB)], [file])
        while (came := peer.receive())[0] == "grant":
            pass
        assert came[0] == "refused" and ("sealed" in came[3]) != sealed, came
    assert len(broker.jobs()["jobs"]) == 1


def sealed_chain(layers):
    """A profile's file: what the forward pass makes, the backward pass reads in reverse."""
    lines = ['{"format":"tensor-trace","version":1,"source":"test","model":"chain","batch":4}']
    lines += ['{"t":%d,"bytes":%d,"kind":"intermediate"}' % (t, MIB) for t in range(2 * layers)]
    op = '{"k":%d,"name":"op","us":2000,"in":%s,"out":[%d],"phase":"%s"}'
    for k in range(2 * layers):
        reads = [k - 1] if 0 < k < layers else [] if k == 0 else [2 * layers - 1 - k] + ([k - 1] if k > layers else [])
        lines.append(op % (k, reads, k, "forward" if k < layers else "backward"))
    file = os.memfd_create("profile", os.MFD_ALLOW_SEALING)
    os.write(file, ("\n".join(lines) + "\n").encode())
    fcntl.fcntl(file, 1033, 15)  # F_ADD_SEALS: all four
    return file


def test_a_broker_that_ends_while_it_studies(start):
    for _ in range(5):
        broker = start()
        peer = Peer(broker.path).hello()
        peer.obey()
        file = sealed_chain(300)
        socket.send_fds(peer.socket, [packet("needs", least=32 * MIB, most=300 * MIB)], [file])
        os.close(file)
        asked = time.monotonic()
        status, said = broker.end()
        assert status == 0 and not broker.path.exists(), said
        assert time.monotonic() - asked < 10, "the plan under way, and no other"
        pathlib.Path(f"{broker.path}.ledger").unlink()


def test_a_bye_is_heard_over_any_connection(start):
    broker = start()
    first = Peer(broker.path).hello()
    assert first.obey() == 512 * MIB
    first.close()
    broker.await_jobs(lambda jobs: jobs["jobs"][0]["state"] == "absent")
    other = Peer(broker.path)
    other.send("bye", since=1)  # another process of this number
    assert other.receive()[0] == "bye" and other.receive() is None
    assert len(broker.jobs()["jobs"]) == 1
    again = Peer(broker.path)
    again.send("bye", since=begun(os.getpid()))
    assert again.receive()[0] == "bye" and again.receive() is None
    assert broker.jobs()["jobs"] == []


def test_another_program_in_a_job_s_process(start):
    broker = start()
    first = Peer(broker.path).hello()
    assert first.obey() == 512 * MIB
    again = Peer(broker.path).hello(least=64 * MIB)  # it holds nothing
    assert again.obey() == 512 * MIB
    assert first.receive() is None or first.receive() is None
    assert [row["least_bytes"] for row in broker.jobs()["jobs"]] == [64 * MIB]


def test_a_hundred_connections_a_second_hold_nobody_up(start, job):
    broker = start()
    first = job(broker.path)
    assert first.granted() == 512 * MIB
    peers = []
    for number in range(300):
        peer = Peer(broker.path)
        if number % 3 == 0:
            peer.socket.send(os.urandom(512))
        if number % 3 == 1:
            peers.append(peer)  # says nothing, and stays
        else:
            peer.close()
    job(broker.path).granted()
    assert first.granted() == 256 * MIB
    assert len(broker.jobs()["jobs"]) == 2


def test_a_killed_job_is_told_by_its_process(start):
    """Its socket lives on in a child."""
    broker = start()
    script = ("import os, sys\nsys.path.insert(0, sys.argv[1])\nimport sharing, time\n"
              "peer = sharing.Peer(sys.argv[2], timeout=None).hello()\nprint(peer.obey(), flush=True)\n"
              "if os.fork() == 0:\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
              "print(peer.obey(), flush=True)\ntime.sleep(60)\n")
    parent = subprocess.Popen(["/usr/bin/python3", "-c", script, str(pathlib.Path(__file__).parent), broker.path],
                              stdout=subprocess.PIPE, text=True)
    assert int(parent.stdout.readline()) == 512 * MIB
    child = int(parent.stdout.readline())
    peer = Peer(broker.path).hello()
    assert peer.obey() == 256 * MIB
    parent.kill()
    parent.wait()
    assert peer.obey() == 512 * MIB
    os.kill(child, signal.SIGKILL)


def test_a_stopped_job_keeps_its_grant_and_holds_nobody_up(start, job):
    broker = start()
    first = job(broker.path, most=300 * MIB)
    assert first.granted() == 300 * MIB
    first.kill(signal.SIGSTOP)
    second = Peer(broker.path, timeout=30).hello()
    began = time.monotonic()
    assert second.obey() == 212 * MIB
    assert time.monotonic() - began < 15
    assert {row["state"] for row in broker.jobs()["jobs"]} >= {"silent"}
    first.kill(signal.SIGCONT)
    assert first.granted() < 300 * MIB
    assert second.obey() > 212 * MIB


def test_a_job_that_cannot_shrink_keeps_what_it_has(start, job):
    broker = start()
    first = Peer(broker.path).hello()
    assert first.obey() == 512 * MIB
    second = job(broker.path)
    _, number, _, _ = first.receive()
    first.send("acknowledge", number=number, amount=400 * MIB)
    assert second.granted() == 112 * MIB


def test_a_killed_broker_comes_back_with_its_ledger(start, job):
    broker = start()
    back, dead = Peer(broker.path).hello(most=200 * MIB), job(broker.path, most=100 * MIB)
    granted = back.obey(), dead.granted()
    assert granted == (200 * MIB, 100 * MIB)
    broker.end(signal.SIGKILL)
    assert back.receive() is None
    broker = start()
    assert {row["state"] for row in broker.jobs()["jobs"]} == {"absent"}
    fresh = job(broker.path)
    found = broker.await_jobs(lambda jobs: len(jobs["jobs"]) == 3)
    assert found["waits_for_absent_jobs"] and found["counted_bytes"] == 300 * MIB
    again = Peer(broker.path).hello(most=200 * MIB, holds=200 * MIB)
    assert broker.await_jobs(lambda jobs: len([1 for row in jobs["jobs"] if row["state"] == "absent"]) == 1)
    assert any(row["state"] == "waiting" for row in broker.jobs()["jobs"])
    dead.kill()
    assert fresh.granted() == 312 * MIB
    again.close()


def test_a_holder_that_an_empty_ledger_did_not_know_is_kept(start, job):
    """It says what it holds to one broker; the next one has it from the first one's file."""
    first = start()
    holder = Peer(first.path).hello(most=300 * MIB, holds=300 * MIB)
    while [row["counted_bytes"] for row in first.jobs()["jobs"]] != [300 * MIB]:
        time.sleep(0.02)
    first.process.kill()
    first.process.wait()
    second = start()
    job(second.path, least=400 * MIB)
    while len(second.jobs()["jobs"]) < 2:
        time.sleep(0.02)
    listing = second.jobs()
    assert listing["counted_bytes"] == 300 * MIB and listing["waits_for_absent_jobs"]
    holder.close()


def test_who_says_nothing_is_let_go(start):
    broker = start()
    silent = [Peer(broker.path) for _ in range(300)]
    for peer in silent:
        assert peer.receive()[0] == "refused" and peer.receive() is None
    assert Peer(broker.path).hello().obey() == 512 * MIB


def test_a_damaged_ledger_is_no_empty_one(start, tmp_path):
    (tmp_path / "broker.sock.ledger").write_text('{"format":"sentinel-ledger","version":1,"jobs":')
    status, said = start(wait=False).ended()
    assert status == 1 and "is no ledger of a broker" in said


def test_a_ledger_of_reused_process_numbers(start, tmp_path):
    broker = start()
    peer = Peer(broker.path).hello()
    peer.obey()
    broker.end(signal.SIGKILL)
    ledger = tmp_path / "broker.sock.ledger"
    ledger.write_text(ledger.read_text().replace(str(begun(os.getpid())), "7"))
    assert start().jobs()["jobs"] == []


def test_a_removed_socket_is_made_again(start, job):
    broker = start()
    first = Peer(broker.path).hello()
    assert first.obey() == 512 * MIB
    broker.path.unlink()
    deadline = time.monotonic() + 10
    while not broker.path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    job(broker.path)
    assert first.obey() == 256 * MIB, "the connection from before still is one"


def test_one_broker_a_socket(start, tmp_path):
    broker = start()
    status, said = start(wait=False).ended()
    assert status == 1 and "another broker has the socket" in said
    broker.path.unlink()
    status, said = start(wait=False).ended()
    assert status == 1 and "another broker has the socket" in said
    status, said = broker.end()
    assert status == 0 and not broker.path.exists()
    (tmp_path / "broker.sock").write_text("mine")
    status, said = start(wait=False).ended()
    assert status == 1 and "no socket" in said and (tmp_path / "broker.sock").read_text() == "mine"


def test_a_socket_that_systemd_listens_at(build, tmp_path, start):
    path = tmp_path / "broker.sock"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(path))
    listening.listen()
    words = [str(build / "bin" / "sentinel"), "broker", "--fast", "512M", "--socket", str(path)]
    process = subprocess.Popen(["sh", "-c", 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"', "sh", *words],
                               close_fds=False, preexec_fn=lambda: os.dup2(listening.fileno(), 3))
    listening.close()
    try:
        assert Peer(path).hello().obey() == 512 * MIB
    finally:
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.parametrize("seed", range(4))
def test_random_lives_are_never_over_and_never_stuck(seed, start, job):
    """Joins, deaths, stops, other needs, and brokers that are killed, by real processes over real sockets."""
    chance, total = random.Random(seed), 512 * MIB
    broker, alive, number, leases = start(total, "--sample", "10"), [], 0, 0
    for at in range(400):  # 40 where they are quick enough to lend one another something
        if at >= 40 and leases > 0:
            break
        what = chance.random()
        if what < 0.5 or not alive:
            number += 1
            least = chance.randrange(4, 160) * MIB
            alive.append(job(broker.path, least=least, most=least * chance.randrange(1, 6), returns=number))
        elif what < 0.8:
            alive.pop(chance.randrange(len(alive))).kill()
        elif what < 0.9:
            alive[chance.randrange(len(alive))].kill(chance.choice([signal.SIGSTOP, signal.SIGCONT]))
        elif what < 0.95:
            broker.process.kill()
            broker.process.wait()
            broker = start(total, "--sample", "10")
        time.sleep(chance.random() / 20)
        found = broker.jobs()
        leases = max(leases, found["leases"])
        assert found["counted_bytes"] <= total
    while sum(one.least for one in alive) > total:
        alive.pop().kill()
    for one in alive:
        one.kill(signal.SIGCONT)
    settled = broker.await_jobs(lambda list: len(list["jobs"]) == len(alive) and all(
        one["state"] == "settled" for one in list["jobs"]), timeout=60)
    assert settled["counted_bytes"] <= total and leases > 0
    assert all(one["granted_bytes"] >= one["least_bytes"] for one in settled["jobs"])


def peaky(path, **more):
    """A job that holds half of what it needs in its peaks alone."""
    return Peer(path).hello(most=400 * MIB, usual=200 * MIB, **more)


class Asks(Job):
    """One that asks for so much beyond its base once, and tells what it gets."""
    SCRIPT = """
import sys, sharing
peer = sharing.Peer(sys.argv[1], timeout=None).hello(most=400 << 20, usual=200 << 20)
while peer.obey() != 200 << 20:
    pass
peer.ask(1, int(sys.argv[2]))
print(peer.lease()[1], flush=True)
while True:
    print(peer.lease()[1], flush=True)
"""

    def __init__(self, path, wants):
        self.process = subprocess.Popen(
            [*DIES_WITH_US, "/usr/bin/python3", "-c", self.SCRIPT, path, str(wants)], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)})


def test_peaks_are_lent(start):
    broker = start(640 * MIB)
    first = peaky(broker.path)
    first.obey()
    second = Asks(broker.path, 100 * MIB)
    try:
        while first.obey() != 200 * MIB:
            pass
        while (lent := second.granted()) != 100 * MIB:
            assert lent == 40 * MIB, "of 240 MiB, the first job has not told yet that it holds no more than 200"
        first.ask(1, 200 * MIB)
        assert first.lease() == (1, 140 * MIB), "of 240 MiB, and nobody waits"
        listed = broker.jobs()
        assert listed["leased_bytes"] == 240 * MIB and listed["counted_bytes"] == 640 * MIB
        assert {job["planned_bytes"] for job in listed["jobs"]} == {400 * MIB}
        second.kill()
        while first.obey() != 400 * MIB:
            pass  # a dead job's memory is free, and what was lent to it
    finally:
        second.kill()


def test_a_lease_ends_with_its_connection_and_is_counted_until_it_is_back(start):
    broker = start(640 * MIB)
    first, other = peaky(broker.path), Asks(broker.path, 0)

    def mine(listing):
        return next(row for row in listing["jobs"] if row["process"] == os.getpid())
    try:
        while first.obey() != 200 * MIB:
            pass
        first.ask(1, 100 * MIB)
        assert first.lease() == (1, 100 * MIB)
        first.close()
        away = mine(broker.await_jobs(lambda jobs: mine(jobs)["state"] == "absent"))
        assert (away["leased_bytes"], away["counted_bytes"]) == (100 * MIB, 300 * MIB)
        again = peaky(broker.path, holds=200 * MIB)
        back = mine(broker.await_jobs(lambda jobs: mine(jobs)["state"] != "absent"))
        assert back["leased_bytes"] == 0
        again.close()
    finally:
        other.kill()


def test_jobs_for_people(start, sentinel, job):
    broker = start()
    outcome = sentinel("jobs", "--socket", broker.path)
    assert outcome.status == 0 and "No job is here." in outcome.out
    one = job(broker.path)
    one.granted()
    large = Peer(broker.path).hello(least=512 * MIB)
    assert large.receive()[0] == "waiting"
    outcome = sentinel("jobs", "--socket", broker.path)
    assert outcome.status == 0 and "512 MiB of 512 MiB are granted" in outcome.out
    assert f"{os.getpid()} waits: 512 MiB are needed" in outcome.out
    broker.end()
    outcome = sentinel("jobs", "--socket", broker.path)
    assert outcome.status == 1 and "no broker listens" in outcome.err


def test_figures_for_prometheus(start, job, tmp_path):
    file = tmp_path / "broker.prom"
    broker = start(512 * MIB, "--metrics", file)
    one = job(broker.path)
    assert one.granted() == 512 * MIB
    deadline = time.monotonic() + 20
    while f'pid="{one.process.pid}"' not in (file.read_text() if file.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    text, who = file.read_text(), f'socket="{broker.path}"'
    assert f"sentinel_broker_counted_bytes{{{who}}} {512 * MIB}\n" in text
    assert f'sentinel_broker_jobs{{state="waiting",{who}}} 0\n' in text
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0 and not checked.stderr, checked.stderr
    assert file.stat().st_mode & 0o777 == 0o644


def test_the_message_is_512_bytes():
    assert LAYOUT.size == 512
