"""storm.py SCRIPT ARGUMENT...: runs the script, while a thread of it forks and executes SOAK_FORKS times a second."""
import os
import pathlib
import runpy
import sys
import threading

import injections

if __name__ == "__main__":
    threading.Thread(target=injections.fork_forever, args=(1 / int(os.environ["SOAK_FORKS"]),), daemon=True).start()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
