"""Attaches Sentinel to TensorFlow: loads the adaptor before TensorFlow's first tensor, finds layers and
steps through Keras and tf.function. As a script: `check ADAPTOR LIBRARY...` tries the adaptor in this
process, which does nothing else; `prebuild HOME` compiles it into the installation."""
import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import threading
import weakref

try:
    from . import _attach, _prebuilt
except ImportError:
    import _attach
    import _prebuilt

_LIBRARIES = "libtensorflow_framework.so.2", "libtensorflow_cc.so.2"
_TOO_LATE = ("TensorFlow was loaded before Sentinel could see it (by a sitecustomize, a .pth file, or its libraries "
             "by themselves): its tensors may have been made already, and its allocator cannot be replaced any "
             "more. Import tensorflow in the script")
_OLDEST = (2, 21)  # whose headers and symbols the adaptor was written for


def version_of(folder):
    """(major, minor, patch) of the wheel that was installed into this folder, or None."""
    for name in ("tensorflow-cpu", "tensorflow", "tf-nightly-cpu", "tf-nightly"):
        try:
            found = importlib.metadata.distribution(name)
            if os.path.samefile(found.locate_file("tensorflow"), folder):
                return tuple(int(part) for part in re.findall(r"\d+", found.version)[:3])
        except (importlib.metadata.PackageNotFoundError, OSError):
            continue
    return None


def _loaded():
    """Whether TensorFlow's libraries are in this process already."""
    with open("/proc/self/maps") as maps:
        return any(line.rstrip().endswith(_LIBRARIES) for line in maps)


def build_for(folder, version, part="adaptor"):
    """Of the adaptor, or of the graph ops."""
    source = {"adaptor": "tensorflow.cpp", "ops": "tensorflow_ops.cpp"}[part]
    include = os.path.join(folder, "include")
    number = ".".join(map(str, version))

    def arguments(home):
        return ["-std=c++17", f'-DSENTINEL_TENSORFLOW="{number}"', "-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64",
                "-isystem" + include, "-fno-gnu-unique", os.path.join(home, source), "-Wl,-z,defs",
                *(os.path.join(folder, each) for each in _LIBRARIES)]

    library = os.path.join(folder, _LIBRARIES[0])
    key = f"{number} {folder} {os.path.getsize(library)} {os.path.getmtime(library)}"
    return _attach.Build(f"TensorFlow {number}", f"tensorflow-{number}-{part}", f"tensorflow-{part}", number, number,
                         "cxx11", _prebuilt.Headers(include), key, [source], arguments)


def _load(adaptor, libraries):
    """TensorFlow ends a process in which an allocator comes too late or twice, so the adaptor comes
    right behind the libraries, before anything of theirs has run."""
    for library in libraries:
        ctypes.CDLL(library)
    return ctypes.CDLL(adaptor)


def _checked(adaptor, libraries):
    """Tries the adaptor in a process of its own, once for each adaptor. Raises RuntimeError."""
    mark = f"{adaptor.name}.works"
    with contextlib.suppress(OSError):
        tried = os.stat(mark, dir_fd=adaptor.folder, follow_symlinks=False)
        if tried.st_mtime >= os.fstat(adaptor.file).st_mtime:
            return
    environment = {**os.environ, "SENTINEL_MODE": "arena", "TF_CPP_MIN_LOG_LEVEL": "2"}
    script = os.path.join(os.environ["SENTINEL_PYTHON_DIR"], "sentinel", "_tensorflow.py")
    tried = subprocess.run([sys.executable, "-S", script, "check", adaptor.path, *libraries], capture_output=True,
                           text=True, env=environment, pass_fds=[adaptor.file])
    if tried.returncode != 0:
        raise RuntimeError("tried in a process of its own it does not work: "
                           f"{tried.stderr.strip()[-2000:] or f'status {tried.returncode}'}")
    with contextlib.suppress(OSError):  # it is tried again next time
        made = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=adaptor.folder)
        os.utime(made)
        os.close(made)


def _check(adaptor, *libraries):
    ctypes.CDLL(os.environ["SENTINEL_LIBRARY"], mode=ctypes.RTLD_GLOBAL)
    loaded = _load(adaptor, libraries)
    loaded.sentinel_tensorflow_check.restype = ctypes.c_char_p
    wrong = loaded.sentinel_tensorflow_check()
    sys.stdout.flush()
    if wrong is not None:
        sys.stderr.write(wrong.decode())
    os._exit(0 if wrong is None else 1)  # TensorFlow's threads need not be waited for


def attach(spec):
    """Called once, right before tensorflow is imported. Ends the process where the session cannot
    start."""
    if "SENTINEL_WITNESS" in os.environ:  # it looks at PyTorch's steps
        return
    if not _attach.claim("tensorflow"):
        return
    if os.environ.get("SENTINEL_MODE") == "trace":
        _attach.stop("TensorFlow cannot be traced: profile the training with `sentinel record`. Where PyTorch trains, "
                     "set SENTINEL_FRAMEWORK=torch")
    folder = (spec.submodule_search_locations or [""])[0]
    libraries = [os.path.join(folder, each) for each in _LIBRARIES]
    version = version_of(folder)
    if version is None or not all(map(os.path.exists, (*libraries, os.path.join(folder, "include")))):
        _attach.stop(f"the TensorFlow in {folder} has no headers or libraries to build the adaptor against; "
                     "install tensorflow-cpu from PyPI")
    if version < _OLDEST:
        _attach.stop(f"TensorFlow {'.'.join(map(str, version))} is not supported; install tensorflow-cpu "
                     f"{'.'.join(map(str, _OLDEST))} or later")
    if _loaded():
        _attach.stop(_TOO_LATE)
    if os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() in ("1", "true"):
        _attach.stop("TF_CPU_ALLOCATOR_USE_BFC packs all tensors into one piece of memory; unset it")
    try:
        core = _attach.load_library()
        built = build_for(folder, version).find(core, os.environ["SENTINEL_HOME"])
        _checked(built, libraries)
        adaptor = _load(built.path, libraries)
    except (OSError, RuntimeError, KeyError) as error:
        _attach.stop_without_adaptor("TensorFlow", error)
    if not _attach.start(core, adaptor.sentinel_tensorflow_attach):  # an allocator and nothing else
        return
    _find_layers(adaptor)
    _find_steps(adaptor)


def _wrap(owner, name, around):
    """Replaces a method by around(original)."""
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(around(original)))


@contextlib.contextmanager
def _harmless():
    """What goes wrong in finding names must not end the training."""
    try:
        yield
    except Exception as error:  # pylint: disable=broad-except
        if "names" not in _told:
            _attach.tell(f"layers of this Keras are not found ({error!r}); the rest goes on")
        _told.add("names")


_told = set()
_FORWARD, _BACKWARD, _OPTIMIZER = range(3)  # as adaptor.h has them


def _find_layers(adaptor):
    """Keras opens a scope around each layer's ops and each optimizer's. In a graph they are in the
    names of its nodes; where ops run one by one, they tell which layer runs. A layer is one that owns a
    weight of two or more dimensions, with what is called until the next; it is named with the layers that
    it is part of ("attention/query"). The first model names the profile."""
    last = weakref.WeakKeyDictionary()  # graphs to the layer called last
    named = False

    def optimizes(caller):
        module = sys.modules.get("keras.src.optimizers.base_optimizer")
        return module is not None and isinstance(caller, module.BaseOptimizer)

    def heavy(layer):
        return any(len(weight.shape) >= 2 for weight in getattr(layer, "_trainable_variables", ()))

    def path():
        """Of the layer whose scope was opened last, below the outermost model."""
        state = sys.modules["keras.src.backend.common.global_state"]
        callers = [scope.caller for scope in state.get_global_attribute("name_scope_stack") or ()]
        layers = [caller for caller in callers if hasattr(caller, "_trainable_variables")]
        return "/".join(str(layer.name) for layer in layers[hasattr(layers[0], "fit"):])

    def entered(caller, graph):
        nonlocal named
        if not named and hasattr(caller, "fit"):
            named = True
            adaptor.sentinel_tensorflow_model(str(caller.name).encode())
        if graph is None and optimizes(caller):
            adaptor.sentinel_tensorflow_layer(str(caller.name).encode(), _OPTIMIZER)
        elif heavy(caller):
            if graph is None:
                adaptor.sentinel_tensorflow_layer(path().encode(), _FORWARD)
            else:
                last[graph] = path()

    def left(caller, graph, scope):
        if optimizes(caller):
            if graph is None:
                adaptor.sentinel_tensorflow_phase(_FORWARD)
            elif scope:
                adaptor.sentinel_tensorflow_scope(scope.encode(), str(caller.name).encode(), _OPTIMIZER)
        elif graph is not None and scope:
            name = path() if heavy(caller) else last.get(graph)
            if name is not None:
                adaptor.sentinel_tensorflow_scope(scope.encode(), name.encode(), _FORWARD)

    def hook(module):
        def graph_now():
            tf = sys.modules["tensorflow"]
            return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()

        def around_enter(enter):
            def entering(self):
                result = enter(self)
                with _harmless():
                    self._sentinel_graph = graph_now()
                    self._sentinel_scope = self._sentinel_graph and self._sentinel_graph.get_name_scope()
                    entered(self.caller, self._sentinel_graph)
                return result
            return entering

        def around_exit(leave):
            def leaving(self, *args, **kwargs):
                with _harmless():
                    left(self.caller, self._sentinel_graph, self._sentinel_scope)
                    self._sentinel_graph = None
                return leave(self, *args, **kwargs)
            return leaving

        _wrap(module.name_scope, "__enter__", around_enter)
        _wrap(module.name_scope, "__exit__", around_exit)

    def hook_tape(module):
        def around(gradient):
            def backward(self, *args, **kwargs):
                if not sys.modules["tensorflow"].executing_eagerly():
                    return gradient(self, *args, **kwargs)
                adaptor.sentinel_tensorflow_layer(b"(backward)", _BACKWARD)
                try:
                    return gradient(self, *args, **kwargs)
                finally:
                    adaptor.sentinel_tensorflow_phase(_FORWARD)
            return backward

        _wrap(module.GradientTape, "gradient", around)

    _attach.after("keras.src.backend.tensorflow.core", hook)
    _attach.after("tensorflow.python.eager.backprop", hook_tape)


def _find_steps(adaptor):
    """A step ends with the outermost function in which an optimizer updates weights, or with the
    update itself where ops run one by one."""
    steps = _attach.Steps(adaptor.sentinel_tensorflow_step)
    calls = threading.local()  # functions being called, the outermost first
    updating = weakref.WeakSet()

    def around_update(update):
        def updated(self, *args, **kwargs):
            outermost = getattr(calls, "functions", None)
            if outermost:  # it is being traced
                updating.add(outermost[0])
            result = update(self, *args, **kwargs)
            if not outermost and not sys.modules["tensorflow"].inside_function():
                steps.updated(self)
            return result
        return updated

    def around_call(call):
        def called(self, *args, **kwargs):
            functions = calls.__dict__.setdefault("functions", [])
            functions.append(self)
            try:
                result = call(self, *args, **kwargs)
            finally:
                functions.pop()
            if not functions and self in updating:
                steps.updated(self)
            return result
        return called

    _attach.after("keras.src.optimizers.base_optimizer",
                  lambda module: _wrap(module.BaseOptimizer, "apply", around_update))
    _attach.after("tensorflow.python.eager.polymorphic_function.polymorphic_function",
                  lambda module: _wrap(module.Function, "__call__", around_call))


def _prebuild(home):
    """For this interpreter's TensorFlow."""
    sys.path.pop(0)  # the script's folder, where a module of Sentinel has that name
    folder = importlib.util.find_spec("tensorflow").submodule_search_locations[0]
    for part in ("adaptor", "ops"):
        build_for(folder, version_of(folder), part).prebuild(home)


if __name__ == "__main__":
    {"check": _check, "prebuild": _prebuild}[sys.argv[1]](*sys.argv[2:])
elif os.environ.get("SENTINEL_MODE") and "tensorflow" in sys.modules:
    _attach.stop(_TOO_LATE)
else:
    _attach.before("tensorflow", attach)
