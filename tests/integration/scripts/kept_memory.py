"""A training whose program has the kernel keep memory of a tensor where it is: `kept_memory.py HOW STEP`. Before step
STEP it registers a tensor as a buffer of io_uring, locks it, or locks all of its memory; in the end it reads a file
into the buffer. Prints each loss to the last bit and how many tensors are other than they should be."""
import ctypes
import os
import struct
import sys
import tempfile

import torch

import children

SETUP, ENTER, REGISTER, READ_FIXED, GET_EVENTS = 425, 426, 427, 4, 1
libc = ctypes.CDLL(None, use_errno=True)


def checked(answer):
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


class Ring:
    """io_uring with one registered buffer and one request."""
    def __init__(self, tensor):
        self.address, self.bytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        params = ctypes.create_string_buffer(120)
        self.ring = checked(libc.syscall(SETUP, 4, params))
        self.sq_offsets = struct.unpack_from("10I", params, 40)
        piece = struct.pack("QQ", self.address, self.bytes)
        checked(libc.syscall(REGISTER, self.ring, 0, piece, 1))

    def read(self, file):
        import mmap
        head, tail, mask, entries, _, _, array = self.sq_offsets[:7]
        rings = mmap.mmap(self.ring, 4096, offset=0)
        requests = mmap.mmap(self.ring, 4096, offset=0x10000000)
        requests[:64] = struct.pack("BBHiQQIIQHHiQQ", READ_FIXED, 0, 0, file, 0, self.address, self.bytes, 0, 0, 0, 0, 0,
                                    0, 0)
        struct.pack_into("I", rings, array, 0)
        struct.pack_into("I", rings, tail, 1)
        checked(libc.syscall(ENTER, self.ring, 1, 1, GET_EVENTS, None, 0))


def main():
    how, when = sys.argv[1], int(sys.argv[2])
    training = children.Training(8192, 1 << 20)
    buffer, ring = training.kept[3], None
    for step in range(10):
        if step == when:
            if how == "registered":
                ring = Ring(buffer)
            elif how == "locked":
                checked(libc.mlock(ctypes.c_void_p(buffer.data_ptr() & -4096), ctypes.c_size_t(1 << 22)))
            elif how == "all_locked":
                checked(libc.mlockall(1))
        training.step()
    if ring is not None:
        with tempfile.TemporaryFile() as file:
            file.write(torch.arange(buffer.numel(), dtype=torch.float32).numpy().tobytes())
            file.flush()
            ring.read(file.fileno())
        print("buffer read", bool((buffer == torch.arange(buffer.numel())).all()), flush=True)
        buffer.fill_(4)
    print(training.wrong(), "wrong", flush=True)


if __name__ == "__main__":
    main()
