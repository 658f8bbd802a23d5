#!/bin/sh
# Make or refresh the Python environment: setup.sh VENV REQUIREMENT, for example `setup.sh .venv '.[dev]'`.
#
# Checks first what only the user can install. PYTHON names the interpreter; GPU is auto, 0 (never install PyCUDA)
# or 1 (install it in any case).
set -eu

venv=$1
requirement=$2
here=$(dirname "$0")

fail() {
    echo "$1" >&2
    exit 1
}

recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if recent "$name"; then
            echo "$name"
            return
        fi
    done
}

command -v g++ >/dev/null 2>&1 || fail "g++ is missing: install a C++ compiler (Debian, Ubuntu: apt-get install g++)"

if ! recent "$venv/bin/python"; then
    python=$(find_python)
    [ -n "$python" ] || fail "Python 3.11 or later is missing: install it, or name it (make search PYTHON=/path/to/python3.12)"
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 \
        || fail "$python lacks its module venv: install it (Debian, Ubuntu: apt-get install python3-venv)"
    "$python" -m venv "$venv"
fi

echo "installing $requirement into $venv (the first time about 200 MB, with the CUDA compiler)"
# Environments that are older than the distribution's name have it under its former one.
if ls -d "$venv"/lib/python*/site-packages/autotune-[0-9]*.dist-info >/dev/null 2>&1; then
    "$venv/bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes autotune
fi
# What is imported is compiled when it is: most of the packages' modules never are.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable "$requirement"

gpu_present() {
    "$venv/bin/python" -c '
import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit(1)
count = ctypes.c_int()
sys.exit(cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0)'
}

case ${GPU:-auto} in
    0) ;;
    1) "$here/install-pycuda.sh" "$venv" ;;
    *) if gpu_present; then "$here/install-pycuda.sh" "$venv"; fi ;;
esac
