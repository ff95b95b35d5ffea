"""A broker for tests, and peers that speak its protocol by hand."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import time

KINDS = ("hello waiting grant acknowledge needs refused bye list listing lease drive").split()
LAYOUT = struct.Struct("=IHHQQQQQQQIIII64s64s128s176s")
MAGIC, VERSION = 0x42544E53, 4
MIB = 1 << 20
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")  # whoever starts such a command


def begun(process):
    """When a process began, as the kernel counts."""
    return int(pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[19])


def packet(kind, number=0, amount=0, least=0, most=0, usual=0, since=0, training=0, ranks=1, priority=1,
           drive=0, name=b"test", magic=MAGIC, version=VERSION):
    which = KINDS.index(kind) + 1 if isinstance(kind, str) else kind
    return LAYOUT.pack(magic, version, which, number, amount, least, most, usual, since, training, priority, 0, ranks,
                       drive, b"", b"", name, b"")


class Peer:
    """A connection to a broker; with hello(), a job of this process or of the one that it is given."""

    def __init__(self, path, timeout=30):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        self.drive = 1  # the part of its time on which plans may count

    def send(self, *words, **more):
        self.socket.send(packet(*words, **more))

    def hello(self, least=32 * MIB, most=1 << 40, holds=0, **more):
        self.send("hello", amount=holds, least=least, most=most, since=begun(os.getpid()), **more)
        return self

    def ask(self, number, wants, holds=0):
        """For so much beyond its base, of which it holds so much at most."""
        self.send("lease", number=number, amount=holds, most=wants)

    def lease(self):
        """The number and bytes of the next lease."""
        while (came := self.receive())[0] != "lease":
            assert came[0] == "grant", came
            self.send("acknowledge", number=came[1], amount=came[2])
        return came[1:3]

    def receive(self):
        """(kind, number, bytes, text); None at the connection's end. A part of the drive is kept beside."""
        while True:
            try:
                data = self.socket.recv(4096)
            except ConnectionResetError:
                return None
            if not data:
                return None
            _, _, kind, number, amount, *_, drive, _, _, _, text = LAYOUT.unpack(data)
            if KINDS[kind - 1] != "drive":
                return KINDS[kind - 1], number, amount, text.rstrip(b"\0").decode()
            self.drive = drive / 1000

    def obey(self):
        """Waits for a grant, and acknowledges it; its bytes."""
        while True:
            came = self.receive()
            assert came is not None, "the broker has ended the connection"
            assert came[0] != "refused", came
            if came[0] == "grant":
                self.send("acknowledge", number=came[1], amount=came[2])
                return came[2]

    def listing(self):
        self.send("list")
        _, files, _, _ = socket.recv_fds(self.socket, 4096, 1)
        if not files:
            raise ConnectionResetError("the broker has ended the connection")
        with os.fdopen(files[0]) as file:
            file.seek(0)
            return json.load(file)

    def close(self):
        self.socket.close()


class Job:
    """A process of its own that holds a grant and obeys, until it is killed or told to stop doing so."""

    SCRIPT = """
import signal, sys
sys.path.insert(0, sys.argv[1])
import sharing
peer = sharing.Peer(sys.argv[2], timeout=None)
peer.hello(least=int(sys.argv[3]), most=int(sys.argv[4]))
try:
    while True:
        print(peer.obey(), flush=True)
except AssertionError:
    signal.pause()  # without a broker it goes on with what it has
"""
    RETURNS = """
import random, sys, time
sys.path.insert(0, sys.argv[1])
import sharing
has, number, chance = 0, 0, random.Random(int(sys.argv[5]))
least, most = map(int, sys.argv[3:5])
while True:
    try:
        peer = sharing.Peer(sys.argv[2], timeout=0.02)
        peer.hello(least=least, most=most, holds=has, usual=chance.choice([0, least]))
        leased = 0  # it lasts no longer than a connection
        while True:
            try:
                came = peer.receive()
            except TimeoutError:
                came = ("nothing",)
            if came is None:
                raise OSError
            if came[0] == "grant":
                has, leased = came[2], 0
                peer.send("acknowledge", number=came[1], amount=has)
            if came[0] == "lease" and came[1] == number:
                leased = came[2]
            what = chance.random()
            if what < 0.1:
                peer.send("needs", least=least, most=chance.randrange(least, 2 * most), usual=chance.choice([0, least]))
            elif has and what < 0.6:
                wants, number = chance.choice([0, 0, most]), number + 1
                leased = min(leased, wants)
                peer.ask(number, wants, leased)
    except OSError:
        time.sleep(0.05)
"""

    def __init__(self, path, least=32 * MIB, most=1 << 40, returns=None):
        """`returns`: it connects again, and now and then needs something else or a lease, by that seed."""
        script = self.SCRIPT if returns is None else self.RETURNS
        self.least = least
        self.process = subprocess.Popen(
            [*DIES_WITH_US, "/usr/bin/python3", "-c", script, str(pathlib.Path(__file__).parent),
             *map(str, (path, least, most, returns))],
            stdout=subprocess.PIPE, text=True)

    def granted(self):
        """The next grant that it has had."""
        return int(self.process.stdout.readline())

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()


class Broker:
    def __init__(self, sentinel, path, fast, *options, wait=True):
        self.path = pathlib.Path(path)
        self.process = subprocess.Popen(
            [*DIES_WITH_US, str(sentinel), "broker", "--fast", str(fast), "--socket", str(path), *map(str, options)],
            stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 20
        while wait and self.process.poll() is None and not self._listens():
            assert time.monotonic() < deadline, "the broker does not begin"
            time.sleep(0.02)

    def _listens(self):
        with contextlib.suppress(OSError):
            Peer(self.path).close()
            return True
        return False

    def jobs(self):
        peer = Peer(self.path)
        try:
            return peer.listing()
        finally:
            peer.close()

    def await_jobs(self, holds, timeout=30):
        """The list, once holds(list) is true."""
        deadline = time.monotonic() + timeout
        while True:
            found = self.jobs()
            if holds(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def ended(self):
        """Its status and words, of one that ends by itself."""
        return self.process.wait(20), self.process.stderr.read()

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(20), self.process.stderr.read()
