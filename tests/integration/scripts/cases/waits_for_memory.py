"""A thread allocates, which waits for a broker's memory; the main thread forks meanwhile, and says so."""
import os
import threading
import time

import torch

allocates = threading.Event()


def allocate():
    allocates.set()
    print("allocated", torch.ones(1 << 20).sum().item(), flush=True)


thread = threading.Thread(target=allocate)
thread.start()
allocates.wait()
time.sleep(1)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
print("forked", flush=True)
thread.join()
