"""What the adaptors' Python sides share: waiting for an import, loading the library, building an adaptor
for the framework that is found, and finding where a training step ends. Each adaptor registers itself
with `before` and `after`; nothing of a framework is imported before the program does."""
import atexit
import ctypes
import hashlib
import importlib.abc
import os
import subprocess
import sys
import weakref

_before, _after = {}, {}


def before(name, callback):
    """callback(spec) runs once, right before the module of that name is executed."""
    _before[name] = callback


def after(name, callback):
    """callback(module) runs once, when the module of that name has been executed."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        callback(module)
    else:
        _after[name] = callback


_claimed = None


def claim(framework):
    """Whether this framework is the one to attach to: a process has one session. The first that is
    imported is, or the one that SENTINEL_FRAMEWORK names."""
    global _claimed
    wanted = os.environ.get("SENTINEL_FRAMEWORK", framework)
    if _claimed is None and wanted == framework:
        _claimed = framework
        return True
    if _claimed is not None and not os.environ.get("SENTINEL_QUIET"):
        sys.stderr.write(f"sentinel: {_claimed} trains under Sentinel in this process, so {framework} is left "
                         f"alone; SENTINEL_FRAMEWORK={framework} makes it the other way round\n")
    return False


class _Finder(importlib.abc.MetaPathFinder):
    """Lets an import go its way, and tells who waits for it."""

    def find_spec(self, name, path=None, target=None):
        if name not in _before and name not in _after:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            first, last = _before.pop(name, None), _after.pop(name, None)
            if first is not None:
                first(spec)
            run(module)
            if last is not None:
                last(module)

        spec.loader.exec_module = exec_module
        return spec


def watch_imports():
    sys.meta_path.insert(0, _Finder())


def stop(message):
    """Nothing has been trained yet: the program ends, and says why."""
    sys.stderr.write(f"sentinel: {message}\n")
    sys.stderr.flush()
    os._exit(125)


def load_library():
    """libsentinel.so; it ends the session when the program ends. Raises OSError."""
    core = ctypes.CDLL(os.environ["SENTINEL_LIBRARY"], mode=ctypes.RTLD_GLOBAL)
    core.sentinel_last_error.restype = ctypes.c_char_p
    return core


def start(core, attach):
    """Starts the session by the adaptor's own attach(); whether its hooks are wanted."""
    status = attach()
    if status < 0:
        stop(core.sentinel_last_error().decode(errors="replace"))
    if status == 0:
        atexit.register(core.sentinel_detach, b"the program ended during the profiling step")
    return status == 0


class Build:
    """How an adaptor is compiled for one build of a framework. `framework`: its name and version, for
    people; `key`: what the result depends on beside the sources; `arguments(source folder)`: the
    compiler's, but for the output."""

    def __init__(self, framework, prefix, key, sources, arguments):
        self.framework, self.sources, self.arguments = framework, sources, arguments
        self._prefix, self._key = prefix, key

    def _name(self, home):
        """Of the file: by the framework's build, the sources and the interface between them."""
        digest = hashlib.sha256(self._key.encode())
        for part in (*self.sources, "sentinel/adaptor.h", "sentinel/sentinel.h"):
            with open(os.path.join(home, "source", part), "rb") as file:
                digest.update(file.read())
        return f"{self._prefix}-{digest.hexdigest()[:12]}.so"

    def find(self, home):
        """The adaptor's path, compiled first where it has not been. Raises RuntimeError, OSError."""
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sentinel")
        name = self._name(home)
        for folder in (os.path.join(home, "adaptors"), cache):
            if os.path.exists(os.path.join(folder, name)):
                return os.path.join(folder, name)
        os.makedirs(cache, mode=0o700, exist_ok=True)
        if not os.environ.get("SENTINEL_QUIET"):
            sys.stderr.write(f"sentinel: building the adaptor for {self.framework}, once\n")
        return self.build(home, cache)

    def build(self, home, folder):
        """Raises RuntimeError with the compiler's first words."""
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, self._name(home))
        partial = f"{path}.{os.getpid()}"
        library = os.path.dirname(home)
        command = [os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-O2", "-DNDEBUG", "-fvisibility=hidden",
                   "-I" + os.path.join(home, "source"), *self.arguments(os.path.join(home, "source")),
                   "-o", partial, "-L" + library, "-Wl,-rpath," + library, "-lsentinel"]
        try:
            result = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise RuntimeError(f"no C++ compiler for the adaptor ({error}); install g++, or name one in CXX") \
                from None
        if result.returncode != 0:
            raise RuntimeError(f"the adaptor does not compile against {self.framework}:\n{result.stderr[:2000]}")
        os.replace(partial, path)
        return path


class Steps:
    """Where a step ends: with what updates the weights (an optimizer, or the function in which it runs).
    With several it ends with the last one before the first comes round again. Others may come in their
    place (another model, another fold): one that comes round twice in a step begins the search anew."""

    def __init__(self, ended):
        self._ended = ended
        self._seen = []     # in this step; while the last is searched, since the first
        self._last = None

    def updated(self, by):
        reference = weakref.ref(by)
        again = reference in self._seen
        if again and self._last is None and len(self._seen) > 1:
            self._last, self._seen = self._seen[-1], []
        elif again and self._last is not None:
            self._last, self._seen = None, []
        if reference not in self._seen:
            self._seen.append(reference)
        if reference == self._last:
            self._seen = []
        if reference == self._last or (self._last is None and len(self._seen) == 1):
            self._ended()
