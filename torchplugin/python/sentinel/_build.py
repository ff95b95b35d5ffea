"""Compiles the adaptor for one PyTorch, with that PyTorch's headers and flags. As a script: builds it
for this interpreter's PyTorch into the folder given."""
import hashlib
import os
import subprocess
import sys


def library_name(torch):
    """One file per PyTorch build, interpreter-independent: the adaptor uses C++ interfaces only."""
    key = f"{torch.__version__} {torch.__file__} {torch.compiled_with_cxx11_abi()}"
    return f"torch-{torch.__version__.split('+')[0]}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.so"


def command(torch, home, output):
    base = os.path.dirname(torch.__file__)
    includes = [os.path.join(base, "include"), os.path.join(base, "include/torch/csrc/api/include")]
    libraries = os.path.join(base, "lib")
    standard = "c++17" if int(torch.__version__.split(".")[0]) < 2 else "c++20"
    return ([os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-O2", "-DNDEBUG", f"-std={standard}",
             "-fvisibility=hidden", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
             "-I" + os.path.join(home, "source")]
            + ["-isystem" + path for path in includes if os.path.isdir(path)]
            + [os.path.join(home, "source", "adaptor.cpp"), "-o", output,
               "-L" + libraries, "-Wl,-rpath," + libraries, "-lc10", "-ltorch_cpu",
               "-L" + os.path.dirname(home), "-Wl,-rpath," + os.path.dirname(home), "-lsentinel"])


def build(torch, home, output):
    """Raises RuntimeError with the compiler's first words."""
    partial = f"{output}.{os.getpid()}"
    result = subprocess.run(command(torch, home, partial), capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError("the adaptor does not compile against PyTorch "
                           f"{torch.__version__}:\n{result.stderr[:2000]}")
    os.replace(partial, output)


if __name__ == "__main__":
    import torch
    folder = os.path.join(sys.argv[1], "adaptors")
    os.makedirs(folder, exist_ok=True)
    build(torch, sys.argv[1], os.path.join(folder, library_name(torch)))
