"""Loads Sentinel's adaptors when the program imports their frameworks. Found through PYTHONPATH, which
`sentinel run` and `sentinel record` set; runs the sitecustomize that it hides, if there is one."""
import os
import sys


def _chain():
    import importlib.machinery
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        import importlib.util
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _hook():
    # Workers that a program spawns load data; they do not train.
    if not os.environ.get("SENTINEL_MODE") or "--multiprocessing-fork" in sys.argv:
        return
    sys.path.insert(0, os.environ["SENTINEL_PYTHON_DIR"])
    try:
        import sentinel._attach as attach
        import sentinel._tensorflow
        import sentinel._torch
    finally:
        sys.path.pop(0)
    attach.watch_imports()


_chain()
_hook()
