#!/usr/bin/env python3
"""Touches so much of the host's memory, and gives it back: where a machine's memory grows as it is touched, that is
slow, and is not to be measured as Sentinel's.

    touch_memory.py [GIB]      48 if not given; never more than three quarters of what is free
"""
import mmap
import sys
import threading
import time

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE
THREADS, PAGE = 8, 4096


def free_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def touch(size):
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(POPULATE_WRITE)
    except OSError:  # before Linux 5.14
        for at in range(0, size, PAGE):
            memory[at] = 1
    kept.append(memory)


kept = []
wanted = min(int(float(sys.argv[1] if len(sys.argv) > 1 else 48) * (1 << 30)), free_bytes() * 3 // 4)
begin = time.perf_counter()
threads = [threading.Thread(target=touch, args=(max(PAGE, wanted // THREADS // PAGE * PAGE),)) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"{wanted / (1 << 30):.1f} GiB of the host's memory touched in {time.perf_counter() - begin:.1f} s")
