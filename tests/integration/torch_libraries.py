"""Small libraries and extension modules that tests compile against an interpreter's PyTorch."""
import functools
import json
import os
import pathlib
import shutil
import subprocess

from compiled_once import once

SCRIPTS = pathlib.Path(__file__).resolve().parent / "scripts"
ASK = """
import json, os, sysconfig, torch
base = os.path.dirname(torch.__file__)
print(json.dumps({"base": base, "abi": int(torch.compiled_with_cxx11_abi()), "python": sysconfig.get_path("include"),
                  "version": torch.__version__, "standard": "c++17" if torch.__version__ < "2" else "c++20"}))
"""


@functools.cache
def torch_of(interpreter):
    """A text that names it: folder, version and how it was compiled."""
    return subprocess.run([interpreter, "-c", ASK], capture_output=True, text=True, check=True,
                          env=dict(os.environ, SENTINEL_FRAMEWORK="none")).stdout


def compiled(interpreter, source, made, extension=False):
    """`made`, of a source among the scripts."""
    told = json.loads(torch_of(interpreter))
    include, library = os.path.join(told["base"], "include"), os.path.join(told["base"], "lib")
    words = ["g++", "-shared", "-fPIC", "-O1", "-w", f"-std={told['standard']}", f"-D_GLIBCXX_USE_CXX11_ABI={told['abi']}",
             f"-isystem{include}", f"-isystem{include}/torch/csrc/api/include", f"-isystem{told['python']}",
             SCRIPTS / source, f"-L{library}", f"-Wl,-rpath,{library}", "-lc10", "-ltorch_cpu",
             *(["-ltorch_python"] if extension else [])]
    words = [str(word) for word in words]

    def compile_it(path):
        done = subprocess.run([*words, "-o", str(path)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr

    shutil.copy(once(made.name, [*words, told["version"], SCRIPTS / source], compile_it), made)
    return made
