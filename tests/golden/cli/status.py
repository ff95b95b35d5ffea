"""What a session publishes (libsentinel/runtime/status/status.h), written by a test: the lock is held by this process."""
import contextlib
import ctypes
import fcntl
import os
import struct
import time

U32, U64, F32, F64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_float, ctypes.c_double
MAGIC, VERSION = b"SENTSTAT", 1
TRAINS, LEFT, OVER = range(3)
NO_PLAN, PLAN, PAGER = range(3)


class Figures(ctypes.Structure):
    _fields_ = [("us", F64), ("stall_us", F64), ("replay_us", F64), ("in_bytes", U64), ("out_bytes", U64),
                ("faults", U64), ("replays", U64), ("replayed_bytes", U64), ("read_bytes", U64),
                ("written_bytes", U64), ("read_us", F64), ("written_us", F64)]


class Step(ctypes.Structure):
    _fields_ = [("us", F32), ("stall_us", F32)]


class Point(ctypes.Structure):
    _fields_ = [("needed", U64), ("held", U64)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 48), ("bytes", U64), ("leaves", U32), ("returns", U32), ("times", U32),
                ("remade", U32)]


class Program(ctypes.Structure):
    _fields_ = [("command", ctypes.c_char * 160), ("framework", ctypes.c_char * 32), ("policy", ctypes.c_char * 32),
                ("fast", ctypes.c_char * 64), ("slow", ctypes.c_char * 64), ("rank", U32), ("ranks", U32),
                ("began_us", F64)]


class Memory(ctypes.Structure):
    _fields_ = [("limit", U64), ("held", U64), ("peak", U64), ("unlimited", U64)]


class Plan(ctypes.Structure):
    _fields_ = [("us", F64), ("in_bytes", U64), ("out_bytes", U64), ("kinds", U32), ("ops", U32), ("moved", U32),
                ("reserved", U32), ("points", U32), ("tensors", U32), ("memory", Point * 128), ("moves", Tensor * 40)]


class Status(ctypes.Structure):
    _fields_ = [("program", Program), ("phase", ctypes.c_char * 16), ("state", U32), ("guide", U32), ("steps", U64),
                ("step_ended_us", F64), ("memory", Memory), ("last", Figures), ("total", Figures),
                ("history", Step * 128), ("plan", Plan)]


def now_us():
    return time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6


def of_training():
    """Step 1234 of a training under a plan."""
    status = Status(phase=b"steady", guide=PLAN, steps=1234)
    status.program = Program(command=b"python3 train.py --batch 128", framework=b"torch 2.13.0", policy=b"auto",
                             fast=b"memory", slow=b"/var/tmp")
    status.memory = Memory(limit=1342177280, held=402653184, peak=1288490188, unlimited=6657199308)
    status.plan = Plan(us=1.18e6, in_bytes=1288490188, out_bytes=1181116006, kinds=1, ops=640, moved=34, points=128,
                       tensors=12)
    status.last = Figures(us=1.24e6, stall_us=45e3, replay_us=34e3, in_bytes=1288490188, out_bytes=1181116006,
                          replays=12, replayed_bytes=1 << 28, read_bytes=1181116006, written_bytes=1181116006,
                          read_us=400e3, written_us=610e3)
    status.total = Figures(us=1530e6, stall_us=71e6, replay_us=40e6, in_bytes=1 << 40, out_bytes=1 << 40, faults=3,
                           replays=14808)
    for i in range(128):
        status.history[i] = Step(1.2e6 + 0.1e6 * ((i * 37) % 11) / 10, 0.3e6 if i % 9 == 0 else 0.02e6)
        needed = 0.5e9 + 6.1e9 * (1 - abs(i - 64) / 64)
        status.plan.memory[i] = Point(int(needed), int(min(needed, 1.2e9)))
    for i in range(12):
        status.plan.moves[i] = Tensor(f"layer{1 + i // 4}.{i % 4}.conv2/aten::convolution:0".encode(), (40 - i) << 20, 20 + i,
                                 600 - i, 1, i % 3 == 1)
    return status


class Session:
    """A session that publishes in the folder. Its process is this one."""

    def __init__(self, folder, status, version=VERSION, name=None):
        folder.mkdir(mode=0o700, exist_ok=True)
        self.path, self.version, self.status, self.written = folder / (name or f"{os.getpid()}.0123456789abcdef.sentinel"), version, status, 0
        self.file = open(self.path, "w+b", buffering=0)
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        self.publish()

    def publish(self, since_s=0.0):
        """As if the last step had ended so long ago."""
        self.written += 2
        self.status.step_ended_us = now_us() - since_s * 1e6
        self.status.program.began_us = self.status.step_ended_us - 3725e6
        header = struct.pack("<8sIIQ", MAGIC, self.version, ctypes.sizeof(Status), self.written)
        with contextlib.suppress(ValueError):  # it is closed
            os.pwrite(self.file.fileno(), header + bytes(self.status), 0)

    def die(self):
        self.file.close()
