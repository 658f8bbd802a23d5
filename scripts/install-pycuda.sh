#!/bin/sh
# Install PyCUDA into the Python environment named by $1 (default .venv).
#
# PyCUDA is published as source only. Its own build looks for a whole CUDA toolkit and a driver library to link
# with; all it needs are the headers, which the nvidia-cuda-runtime wheel brings, and something called libcuda.so.
# So this gives it a siteconf.py and an empty stub; at run time the real libcuda.so.1 of the driver is loaded.
set -eu

venv=${1:-.venv}
python=$venv/bin/python
requirement='pycuda>=2026.1'

fail() {
    echo "PyCUDA: $1" >&2
    exit 1
}

[ -x "$python" ] || fail "there is no environment at $venv; run 'make setup' first"
if [ -z "${FORCE:-}" ] && "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("pycuda") is None)'; then
    exit 0
fi
command -v g++ >/dev/null 2>&1 || fail "g++ is missing; install it (Debian, Ubuntu: apt-get install g++)"
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
    || fail "the headers of Python are missing; install them (Debian, Ubuntu: apt-get install python3-dev)"

headers_of() { # the first folder of CUDA whose headers are complete, or nothing
    "$python" -c '
import os, sysconfig
wheel = os.path.join(sysconfig.get_path("purelib"), "nvidia", "cu13")
for root in (os.environ.get("CUDA_HOME"), wheel, "/usr/local/cuda"):
    if root and all(os.path.exists(os.path.join(root, "include", name)) for name in ("cuda.h", "cudaProfiler.h")):
        print(root)
        break'
}
cuda=$(headers_of)
if [ -z "$cuda" ]; then
    "$python" -m pip install --quiet 'nvidia-cuda-runtime>=13,<14' 'nvidia-cuda-profiler-api>=13,<14'
    cuda=$(headers_of)
fi
[ -n "$cuda" ] || fail "no folder holds include/cuda.h and include/cudaProfiler.h; set CUDA_HOME to a CUDA toolkit"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
"$python" -m pip download --quiet --no-deps --dest "$work" "$requirement" || fail "pip cannot find $requirement"

for wheel in "$work"/pycuda-*.whl; do
    if [ -e "$wheel" ]; then # the configured index has a binary for this machine
        exec "$python" -m pip install --quiet "$wheel"
    fi
done

mkdir "$work/source" "$work/stub"
tar -xzf "$work"/pycuda-*.tar.gz -C "$work/source" --strip-components=1
: >"$work/stub/empty.c"
g++ -x c -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$work/stub/libcuda.so" "$work/stub/empty.c"
cat >"$work/source/siteconf.py" <<SITECONF
CUDA_ROOT = '$cuda'
CUDA_INC_DIR = ['$cuda/include']
CUDADRV_LIB_DIR = ['$work/stub']
CUDA_ENABLE_CURAND = False
LDFLAGS = ['-Wl,--no-as-needed', '-L$work/stub', '-lcuda']
SITECONF
echo "building PyCUDA with the headers in $cuda (about two minutes)"
if ! "$python" -m pip install ${FORCE:+--force-reinstall --no-deps} "$work/source" >"$work/log" 2>&1; then
    cp "$work/log" "$venv/pycuda.log"
    grep -m 1 -i 'error: ' "$work/log" >&2 || true
    fail "the build failed; all it printed is in $venv/pycuda.log (without a GPU: make search GPU=0)"
fi
