"""The `sentinel` that pip puts into PATH: becomes the program that lies in this package."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "installed", "bin", "sentinel")
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"sentinel: could not start {program} ({error.strerror}); install the wheel again, in a folder whose "
                 "file system allows programs")
