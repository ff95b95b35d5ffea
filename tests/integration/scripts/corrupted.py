"""A training whose slow tier's file another process changes between two steps, or with --live while steps go on:
`corrupted.py HOW [--child] [--live]`. Prints each loss, and how many tensors are other than they were left, in a forked
child with --child.

HOW: nothing, truncate, trim (100 bytes before the end of the last block that holds anything), extend, zero, punch (holes
in the place of blocks), swap, flip (one bit in each block, in none of the bytes that are sampled)."""
import argparse
import ctypes
import os
import subprocess
import sys

import children

BLOCK = 2 << 20
PAGE = 4096


def files_of(process):
    """Regular files without a name that the process may write: the slow tier's."""
    for name in os.listdir(f"/proc/{process}/fd"):
        path = f"/proc/{process}/fd/{name}"
        if os.readlink(path).endswith("(deleted)") and "memfd:" not in os.readlink(path):
            if os.stat(path).st_size >= 2 * BLOCK:
                yield path


def punch(file, size):
    """Takes the space of the blocks away, and leaves the file's end where it is."""
    keep_size, punch_hole = 1, 2
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate64
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(file, keep_size | punch_hole, 0, size // BLOCK * BLOCK) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def change(path, how):
    size = os.stat(path).st_size
    if how in ("truncate", "extend"):
        return os.truncate(path, size // 2 if how == "truncate" else size + BLOCK)
    with open(path, "r+b") as file:
        if how == "punch":
            return punch(file.fileno(), size)
        blocks = [file.read(BLOCK) for _ in range(size // BLOCK)]
        if how == "trim":
            last = max(number for number, block in enumerate(blocks) if any(block[-PAGE:]))
            return file.truncate((last + 1) * BLOCK - 100)
        if how == "zero":
            blocks = [bytes(len(block)) for block in blocks]
        if how == "swap":
            blocks = blocks[1:] + blocks[:1]
        if how == "flip":  # the first page's sample is its first 64 bytes
            blocks = [block[:PAGE // 2] + bytes([block[PAGE // 2] ^ 16]) + block[PAGE // 2 + 1:] for block in blocks]
        file.seek(0)
        for block in blocks:
            file.write(block)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("how")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--of", type=int, help="the process whose files are changed")
    args = parser.parse_args()
    if args.of:
        found = list(files_of(args.of))
        for path in found:
            change(path, args.how)
        return print("changed", len(found), flush=True)
    training = children.Training(8192, 1 << 20)
    for _ in range(6):
        training.step()
    if args.how != "nothing":
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SENTINEL")}
        other = subprocess.Popen([sys.executable, __file__, args.how, "--of", str(os.getpid())], env=environment)
        while args.live and other.poll() is None:
            training.step()
        if other.wait() != 0:
            return print("nothing was changed", flush=True)
    if args.child:
        child = os.fork()
        if child == 0:
            print("child found", training.wrong(), "wrong", flush=True)
            os._exit(0)
        return print("child ended by", os.WEXITSTATUS(os.waitpid(child, 0)[1]), flush=True)
    print("found", training.wrong(), "wrong", flush=True)
    training.step()


if __name__ == "__main__":
    main()
