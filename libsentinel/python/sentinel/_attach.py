"""What the adaptors' Python sides share: waiting for an import, loading the library, building an adaptor
for the framework that is found, and finding where a training step ends. Each adaptor registers itself
with `before` and `after`; nothing of a framework is imported before the program does."""
import atexit
import contextlib
import ctypes
import errno
import hashlib
import importlib.abc
import os
import subprocess
import sys
import weakref

try:
    from . import _prebuilt
except ImportError:
    import _prebuilt

_before, _after = {}, {}
profile_begins = []  # called when the program begins a profile
marks = {}  # of a trace: what the program's marks call, by the library's names


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
    if _claimed is not None:
        tell(f"{_claimed} trains under Sentinel in this process, so {framework} is left alone; "
             f"SENTINEL_FRAMEWORK={framework} makes it the other way round")
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


def _line(message):
    """One that steers no terminal: what exceptions and compilers say may be anything."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message[:2000])


def tell(message):
    if not os.environ.get("SENTINEL_QUIET"):
        sys.stderr.write(f"sentinel: {_line(message)}\n")


def stop(message):
    """Nothing has been trained yet: the program ends, and says why."""
    sys.stderr.write(f"sentinel: {_line(message)}\n")
    sys.stderr.flush()
    os._exit(125)


def stop_without_adaptor(framework, error):
    reason = f"{error.args[0]} is not set" if isinstance(error, KeyError) else error
    stop(f"could not load the {framework} adaptor: {reason}; `sentinel doctor` says what is missing")


def load_library():
    """libsentinel.so; it ends the session when the program ends. Raises OSError."""
    core = ctypes.CDLL(os.environ["SENTINEL_LIBRARY"], mode=ctypes.RTLD_GLOBAL)
    core.sentinel_last_error.restype = ctypes.c_char_p
    return core


_NOWHERE = -1  # a descriptor that nothing can be opened by


class Library:
    """A compiled adaptor that was looked at: descriptors of the folder where `name` may be noted of it, and of itself,
    which stay open. `path` leads to that very file, as long as this process lives."""

    def __init__(self, folder, file, name):
        self.folder, self.file, self.name = folder, file, name
        self.path = f"/proc/self/fd/{file}"


def _open_library(core, folder, name):
    """None where there is none, or one that must not be loaded: it is code."""
    file = core.sentinel_library_open(folder, name.encode())
    if file >= 0:
        return Library(folder, file, name)
    if file != -errno.ENOENT:
        tell(core.sentinel_last_error().decode(errors="replace"))
    return None


def _open_cache(core):
    """Its descriptor, or None. The reason is told once, in the programs that this one starts as well."""
    folder = core.sentinel_cache_open()
    if folder >= 0:
        return folder
    if not os.environ.get("SENTINEL_CACHE_TOLD"):
        tell(core.sentinel_last_error().decode(errors="replace"))
    os.environ["SENTINEL_CACHE_TOLD"] = "1"
    return None


def start(core, attach):
    """Starts the session by the adaptor's own attach(); whether its hooks are wanted."""
    status = attach()
    if status < 0:
        stop(core.sentinel_last_error().decode(errors="replace"))
    if status == 0:
        _cores.append(core)
        atexit.register(program_ended)
    return status == 0


_cores = []  # of the session of this process


def program_ended():
    """Any number of times."""
    for core in _cores:
        core.sentinel_detach(b"the program ended during the profiling step")


class Build:
    """How an adaptor is compiled for one build of a framework. `framework`: its name and version, for people; `stem`,
    `prefix`: of a result's name in the cache, and of one that is installed; `version` in full, `release`: the part of
    it that an adaptor is bound to, `abi`, `headers`: see _prebuilt; `key`: what else a result depends on that is kept
    on this machine; `arguments(source folder)`: the compiler's, but for the output."""

    def __init__(self, framework, stem, prefix, version, release, abi, headers, key, sources, arguments):
        self.framework, self.prefix, self.version, self.release = framework, prefix, version, release
        self.abi, self.headers, self.sources, self.arguments = abi, headers, sources, arguments
        self._stem, self._key = stem, key

    def _digest(self, home, key):
        """Of the sources, the interface between them, and the key."""
        digest = hashlib.sha256(key.encode())
        for part in (*self.sources, "sentinel/adaptor.h", "sentinel/sentinel.h"):
            with open(os.path.join(home, "source", part), "rb") as file:
                digest.update(file.read())
        return digest.hexdigest()

    def name(self, home):
        """Of the file in this machine's cache."""
        return f"{self._stem}-{self._digest(home, self._key)[:12]}.so"

    def find(self, core, home):
        """The Library, compiled first where it has not been. Without a cache it is compiled for this process
        alone, in a folder that nobody else can write to. Raises RuntimeError, OSError."""
        name, cache = self.name(home), _open_cache(core)
        found = self._prebuilt(home, cache, name)
        if found is None and cache is not None:
            found = _open_library(core, cache, name)
        if found is not None:
            return found
        tell(f"building the adaptor for {self.framework}, {'once' if cache is not None else 'for this run'}")
        if cache is not None:  # others write to none of the folders that this path leads through
            self.build(home, os.readlink(f"/proc/self/fd/{cache}"), name)
            return self._built(core, cache, name)
        import tempfile
        with tempfile.TemporaryDirectory(prefix="sentinel-") as place:
            folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            self.build(home, place, name)
            return self._built(core, folder, name)

    def _prebuilt(self, home, cache, marks):
        """`marks`: what the cache notes of it begins with this."""
        place = os.path.join(home, "adaptors")
        name = _prebuilt.fitting(self, self._digest(home, ""), place)
        if name is None:
            return None
        try:
            file = _prebuilt.open_installed(place, name, os.environ["SENTINEL_LIBRARY"])
        except OSError as error:
            tell(f"cannot load {os.path.join(place, name)}: {error.strerror or error}")
            return None
        return Library(_NOWHERE if cache is None else cache, file, marks)

    def _built(self, core, folder, name):
        found = _open_library(core, folder, name)
        if found is None:
            raise RuntimeError("the adaptor was built and cannot be opened")
        return found

    def prebuild(self, home):
        """Compiles the adaptor into the installation, if none there fits. Raises RuntimeError, OSError."""
        sources, folder = self._digest(home, ""), os.path.join(home, "adaptors")
        os.makedirs(folder, exist_ok=True)
        with _prebuilt.locked(folder):
            _prebuilt.prune(self, sources, folder)
            if _prebuilt.fitting(self, sources, folder) is not None:
                return
        import tempfile
        name = f"{_prebuilt.beginning(self)}{self._digest(home, self.version)[:12]}.so"
        # Several are compiled at a time, beside `home`, from where they can be moved in one step.
        with tempfile.TemporaryDirectory(prefix="prebuild-", dir=os.path.dirname(os.path.abspath(home))) as place:
            dependencies = os.path.join(place, "headers")
            made = self.build(home, place, name, ["-MD", "-MF", dependencies])
            _prebuilt.add(made, name, _prebuilt.describe(self, sources, dependencies), folder)

    def build(self, home, place, name, more=()):
        """The adaptor's path in that folder. Raises RuntimeError with the compiler's first fault; all that it said is
        the cause."""
        os.makedirs(place, exist_ok=True)
        partial = f"{name}.{os.urandom(4).hex()}.{os.getpid()}"  # as `sentinel clean` knows it
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._compile(home, os.path.join(place, partial), more)
            file = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
            os.fchmod(file, 0o755)  # whatever the umask: what others may write to is not loaded
            os.close(file)
            os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial, dir_fd=folder)
            os.close(folder)
        return os.path.join(place, name)

    def _compile(self, home, output, more=()):
        """What the adaptor needs is in the process before it is loaded: it says no place to look for it."""
        command = [os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-O2", "-DNDEBUG", "-fvisibility=hidden",
                   "-I" + os.path.join(home, "source"), *more, *self.arguments(os.path.join(home, "source")),
                   "-o", output, "-L" + os.path.dirname(home), "-lsentinel"]
        try:
            result = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise RuntimeError(f"no C++ compiler for the adaptor ({error}){self._others(home)}; install g++, or name "
                               "one in CXX") from None
        if result.returncode != 0:
            raise RuntimeError(f"the adaptor does not compile against {self.framework} ({_first_fault(result)})"
                               f"{self._others(home)}; install g++ and the framework's headers, or name another "
                               "compiler in CXX") from RuntimeError(result.stderr)

    def _others(self, home):
        """Which releases need no compiler."""
        known = _prebuilt.releases(self, os.path.join(home, "adaptors"))
        name = self.framework.split()[0]
        return f", and none comes with Sentinel for {self.framework} (for {name} {', '.join(known)} one does)" \
            if known else ""


def _first_fault(result):
    """Of a compiler or a linker, in a line."""
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    faults = [line for line in lines if "error" in line or "undefined reference" in line]
    return (faults or lines or [f"{result.args[0]} ended with status {result.returncode}"])[0][:400]


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
