#!/usr/bin/env python3
"""What mapping and unmapping a device's memory costs: by size and number of chunks, on an idle device, beside a kernel
that runs, and beside copies both ways. Whether these calls wait for what the device does decides how memory can move
beside training. Prints microseconds a chunk, median and (worst), and writes the rows as JSON. 30 seconds.

    vmm_probe.py FILE [--loads idle,kernel,copies] [--library libcuda.so.1]
"""
import argparse
import ctypes
import dataclasses
import json
import os
import statistics
import time

SHAPES = ((2, 1), (2, 16), (8, 4), (16, 1), (32, 1), (32, 4), (128, 1))  # MiB of a chunk, chunks side by side
ROUNDS = 20


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location),
                ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


PINNED, DEVICE, READ_WRITE = 1, 1, 3
ADDRESS, SIZE = ctypes.c_uint64, ctypes.c_size_t
CALLS = {"cuInit": [ctypes.c_uint],
         "cuDevicePrimaryCtxRetain": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int],
         "cuCtxPushCurrent_v2": [ctypes.c_void_p],
         "cuMemAddressReserve": [ctypes.POINTER(ADDRESS), SIZE, SIZE, ADDRESS, ADDRESS],
         "cuMemAddressFree": [ADDRESS, SIZE],
         "cuMemCreate": [ctypes.POINTER(ADDRESS), SIZE, ctypes.POINTER(Properties), ADDRESS],
         "cuMemRelease": [ADDRESS],
         "cuMemMap": [ADDRESS, SIZE, SIZE, ADDRESS, ADDRESS],
         "cuMemSetAccess": [ADDRESS, SIZE, ctypes.POINTER(Access), SIZE],
         "cuMemUnmap": [ADDRESS, SIZE]}


class Driver:
    """Each call by its name; one that is refused ends the probe."""
    def __init__(self, library):
        self._library = ctypes.CDLL(library)
        for name, types in CALLS.items():
            getattr(self._library, name).argtypes = types

    def __getattr__(self, name):
        def call(*args):
            code = getattr(self._library, name)(*args)
            if code != 0:
                raise SystemExit(f"{name}: error {code} of the CUDA driver")
        return call


class Idle:
    """What the device does meanwhile: nothing."""
    def begin(self):
        pass

    def runs(self):
        return False

    def end(self):
        pass


class Loaded(Idle):
    def __init__(self):
        import torch
        self.torch = torch
        self.streams = [torch.cuda.Stream() for _ in range(2)]

    def runs(self):
        return not all(stream.query() for stream in (self.torch.cuda.current_stream(), *self.streams))

    def end(self):
        self.torch.cuda.synchronize()


class Kernel(Loaded):
    """One that runs for about 1.6 s."""
    def begin(self):
        self.torch.cuda._sleep(3_000_000_000)


class Copies(Loaded):
    """For about 0.8 s, both ways."""
    def __init__(self):
        super().__init__()
        empty = self.torch.empty
        self.host = [empty(64 << 20, dtype=self.torch.uint8, pin_memory=True) for _ in range(2)]
        self.card = [empty(64 << 20, dtype=self.torch.uint8, device="cuda") for _ in range(2)]

    def begin(self):
        for _ in range(600):
            for stream, to, source in zip(self.streams, (self.card[0], self.host[1]), (self.host[0], self.card[1])):
                with self.torch.cuda.stream(stream):
                    to.copy_(source, non_blocking=True)


LOADS = {"idle": Idle, "kernel": Kernel, "copies": Copies}


@dataclasses.dataclass
class Row:
    load: str
    mib: int
    count: int
    create: float
    map: float
    map_max: float
    unmap: float
    unmap_max: float
    load_still_ran: bool
    seconds: float

    def __str__(self):
        return (f"{self.load:7} {self.count:3} x {self.mib:3} MiB  create {self.create:7.1f}  map {self.map:7.1f} "
                f"({self.map_max:8.1f})  unmap {self.unmap:7.1f} ({self.unmap_max:8.1f})  still busy "
                f"{self.load_still_ran}")


def microseconds(begin, count):
    return 1e6 * (time.perf_counter() - begin) / count


def chunks_of(driver, size, count):
    """Handles of them, and microseconds for one."""
    properties = Properties(PINNED, 0, Location(DEVICE, 0), None)
    begin, chunks = time.perf_counter(), [ADDRESS() for _ in range(count)]
    for chunk in chunks:
        driver.cuMemCreate(ctypes.byref(chunk), size, ctypes.byref(properties), 0)
    return chunks, microseconds(begin, count)


def measured(driver, name, load, mib, count):
    size, at = mib << 20, ADDRESS()
    driver.cuMemAddressReserve(ctypes.byref(at), size * count, 0, 0, 0)
    chunks, create = chunks_of(driver, size, count)
    access = Access(Location(DEVICE, 0), READ_WRITE)
    load.end()
    load.begin()
    began, maps, unmaps = time.perf_counter(), [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for number, chunk in enumerate(chunks):
            driver.cuMemMap(at.value + number * size, size, 0, chunk, 0)
        driver.cuMemSetAccess(at, size * count, ctypes.byref(access), 1)
        maps.append(microseconds(begin, count))
        begin = time.perf_counter()
        driver.cuMemUnmap(at, size * count)
        unmaps.append(microseconds(begin, count))
    still_ran, seconds = load.runs(), time.perf_counter() - began
    load.end()
    for chunk in chunks:
        driver.cuMemRelease(chunk)
    driver.cuMemAddressFree(at, size * count)
    return Row(name, mib, count, create, statistics.median(maps), max(maps), statistics.median(unmaps), max(unmaps),
               still_ran, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--loads", type=lambda text: text.split(","), default=list(LOADS))
    parser.add_argument("--library", default=os.environ.get("SENTINEL_CUDA", "libcuda.so.1"))
    args = parser.parse_args()
    driver, context, rows = Driver(args.library), ctypes.c_void_p(), []
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)  # PyTorch's, too
    driver.cuCtxPushCurrent_v2(context)
    for name in args.loads:
        load = LOADS[name]()
        for mib, count in SHAPES:
            rows.append(measured(driver, name, load, mib, count))
            print(rows[-1], flush=True)
            with open(args.file, "w") as file:  # what is cut short is kept
                json.dump([dataclasses.asdict(row) for row in rows], file)


if __name__ == "__main__":
    main()
