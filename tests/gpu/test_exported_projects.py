"""Headers and extensions that `autotune export` writes, built and run on a GPU."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.compilers.toolchain import find_nvcc

pytestmark = pytest.mark.gpu(pycuda=False)

PROGRAM = """
#include <cstdio>
#include <vector>
#include "attend.h"
int main()
{
    const long long B = 1, NH = 2, T = 70, HS = 64, n = B * NH * T * HS, strides[4] = {NH * T * HS, T * HS, HS, 1};
    std::vector<__half> ones(n, __float2half(1.0f));
    __half *in, *out;
    float* lse;
    char* workspace;
    cudaMalloc(&in, n * sizeof(__half));
    cudaMalloc(&out, n * sizeof(__half));
    cudaMalloc(&lse, B * NH * T * sizeof(float));
    cudaMalloc(&workspace, attend_workspace(B, NH, NH, T, T) + 1);
    cudaMemcpy(in, ones.data(), n * sizeof(__half), cudaMemcpyHostToDevice);
    if (attend(in, strides, in, strides, in, strides, out, strides, lse, B, NH, NH, T, T, 0.125f, workspace, nullptr)) {
        std::printf("%s\\n", attend_error());
        return 1;
    }
    cudaMemcpy(ones.data(), out, n * sizeof(__half), cudaMemcpyDeviceToHost);
    for (__half x : ones)
        if (std::fabs(__half2float(x) - 1.0f) > 1e-3f) return 2;
    std::printf("right\\n");
}
"""


def test_a_header_in_a_program(tmp_path: Path) -> None:
    """Attention over rows of ones is one; two files, of which nvcc compiles the header by itself."""
    written = autotune.export(
        "forward", format="header", output=tmp_path / "attend.h", device="cuda", HS=64, dtype="fp16", causal=True,
        db=tmp_path / "none.db",
    )  # fmt: skip
    (tmp_path / "main.cu").write_text(PROGRAM.replace("#include <cstdio>", "#include <cmath>\n#include <cstdio>"))
    nvcc = str(find_nvcc().path)
    for command in (
        written.compile.split()[1:],
        ["-c", "main.cu", "-o", "main.o"],
        ["main.o", "attend.o", "-o", "run"],
    ):
        done = subprocess.run([nvcc, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    done = subprocess.run([tmp_path / "run"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "right\n")


def imported(op: str, folder: Path) -> Any:
    """The function of an extension that is built now."""
    autotune.export(
        op, format="torch", output=folder, device="cuda", HS=64, dtype="fp16", causal=True, db=folder.parent / "none.db"
    )
    spec = importlib.util.spec_from_file_location(folder.name, folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[folder.name] = module
    spec.loader.exec_module(module)
    return getattr(module, op)


def test_extensions_of_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    forward, backward = (imported(op, tmp_path / f"attention_{op}") for op in ("forward", "backward"))
    torch.manual_seed(0)
    q, k, v, dout = (
        torch.randn(2, 150, n, 64, dtype=torch.float16, device="cuda").transpose(1, 2) for n in (4, 2, 2, 4)
    )
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        out, lse = forward(q, k, v, scale=0.1)
        found = [out, *backward(q=q, k=k, v=v, out=out, lse=lse, dout=dout, scale=0.1)]
        torch.cuda.current_stream().synchronize()
    exact = [t.double().contiguous().requires_grad_() for t in (q, k, v)]
    right = torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=True, scale=0.1, enable_gqa=True)
    expected = [right, *torch.autograd.grad(right, exact, dout.double())]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, atol=2e-2, rtol=1e-2)
    with pytest.raises(RuntimeError, match=r"k is of BFloat16; the kernels take Half"):
        forward(q, k.bfloat16(), v)
    with pytest.raises(RuntimeError, match=r"v has shape \[2, 2, 149, 64\]; \[2, 2, 150, 64\] goes with"):
        forward(q, k, v[:, :, :149])
    with pytest.raises(RuntimeError, match="q is on cpu"):
        forward(q.cpu(), k, v)
