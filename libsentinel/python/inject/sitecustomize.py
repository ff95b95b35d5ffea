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


def _give_way(package):
    """A program's own module of that name comes first; where it has none, `import sentinel` finds this package."""
    import importlib.abc
    import importlib.machinery
    import importlib.util

    def is_this(spec):
        return any(os.path.exists(os.path.join(place, "_attach.py")) for place in spec.submodule_search_locations or [])

    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            if name != package.__name__:
                return None
            other = importlib.machinery.PathFinder.find_spec(name)
            if other is not None and other.origin is not None and not is_this(other):
                return None
            return importlib.util.spec_from_loader(name, self, origin=package.__file__, is_package=True)

        def create_module(self, spec):
            return package

        def exec_module(self, module):
            pass

    del sys.modules[package.__name__]
    sys.meta_path.insert(0, Finder())


def _script_folder():
    """Where Python will look first; it is not on the path yet."""
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")[1:-1]]
    for number, word in enumerate(words):
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            words[number + 1:number + 2] = ["-"]
        elif not word.startswith("-"):
            return os.path.dirname(os.path.realpath(word))
        elif word[1:2] != "-" and set(word.partition("X")[0].partition("W")[0]) & {"c", "m"}:
            break
    return os.getcwd()


def _leave_out(loaded):
    """What has been imported here of Python's own modules, and the script's folder has a module of that name: the
    program imports its own, as it does without Sentinel."""
    import importlib.machinery
    if getattr(sys.flags, "safe_path", False):
        return
    try:
        folder = [_script_folder()]
    except OSError:  # it is gone
        return
    for name in loaded:
        top = name.partition(".")[0]
        own = top not in sys.builtin_module_names and importlib.machinery.PathFinder.find_spec(top, folder)
        if own and own.loader is not None:  # a mere folder is none
            sys.modules.pop(name, None)


def _compiles():
    """This process is one that torch.compile starts: it compiles kernels, and starts others that do."""
    script = sys.argv[0] if sys.argv else ""
    return script.endswith(os.path.join("torch", "_inductor", "compile_worker", "__main__.py"))


def _is_spawned():
    """What this process is for comes through a pipe: multiprocessing spawned it, or forks others from it."""
    code = getattr(sys, "orig_argv", [])
    return "--multiprocessing-fork" in sys.argv or any(
        word.startswith("from multiprocessing.forkserver import main") for word in code)


def _hook_spawned():
    """Attaches when it turns out that the process is no worker that loads data: then it may train."""
    from multiprocessing.process import BaseProcess
    bootstrap = BaseProcess._bootstrap

    def begin(process, *args, **kwargs):
        BaseProcess._bootstrap = bootstrap  # what this one forks is none of ours
        target = getattr(process, "_target", None)
        if (getattr(target, "__module__", None) or "").startswith("torch.utils.data."):
            return bootstrap(process, *args, **kwargs)
        # Its part in the names of the files that it writes.
        above, number = os.environ.get("SENTINEL_SPAWNED"), process._identity[-1] - 1 if process._identity else 0
        os.environ["SENTINEL_SPAWNED"] = f"{above}.{number}" if above else str(number)
        attach = _hook()
        try:
            return bootstrap(process, *args, **kwargs)
        finally:  # a forked one runs no handlers of the interpreter's end
            attach.program_ended()

    BaseProcess._bootstrap = begin


def _hook():
    before = set(sys.modules)
    sys.path.insert(0, os.environ["SENTINEL_PYTHON_DIR"])
    try:
        import sentinel
        import sentinel._attach as attach
        import sentinel._tensorflow
        import sentinel._torch
    finally:
        sys.path.pop(0)
    attach.watch_imports()  # or at once, where they have been imported
    _give_way(sentinel)
    _leave_out([name for name in sys.modules if name not in before and not name.startswith("sentinel.")])
    return attach


_chain()
if os.environ.get("SENTINEL_MODE") and not _compiles():
    _hook_spawned() if _is_spawned() else _hook()
