# shellcheck shell=bash
# Sourced by setup.sh. Debian's PyTorch uses the BLAS that the system's alternatives name. With another one than
# OpenBLAS with OpenMP the same training is several times slower.

# own_blas [FOLDER]
# Lets what this script starts use OpenBLAS with OpenMP, where it is installed and is not the system's choice anyway.
# Nothing of the system is changed. FOLDER: of the system's libraries.
own_blas() {
  local folder=${1:-/usr/lib/$(uname -m)-linux-gnu} link
  local ours=$folder/openblas-openmp
  if [ ! -e "$ours/libblas.so.3" ]; then
    echo "note: OpenBLAS with OpenMP is not installed (libopenblas0-openmp); steps may be several times slower" >&2
    return 0
  fi
  for link in libblas.so.3 liblapack.so.3; do
    case $(readlink -f "$folder/$link") in
      "$(readlink -f "$ours")"/*) ;;
      *)
        export LD_LIBRARY_PATH=$ours${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        echo "BLAS: this run uses $ours; the system's choice stays as it is"
        return 0
        ;;
    esac
  done
}
