"""Exports as parts of other projects: headers compile and link, extensions compile as PyTorch compiles them."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from autotune.answers.best import Best
from autotune.answers.export_projects import function_of, header_compile_line, header_text, torch_files
from autotune.compilers.toolchain import cuda_include_dirs, find_gxx, find_nvcc
from autotune.core.errors import UsageError
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.every_family import each_family_of, home, supported

ROUTES = {"forward": "flash_wgmma", "backward": "flash_mma", "softmax": "warp_per_row"}
FORBIDDEN = ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")
PYTORCHS = [*(f"-D__CUDA_NO_{what}__" for what in FORBIDDEN), "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC"]

MAIN = """
#include <cstdio>
#include <cstring>
#include "attend.h"
#include "key_gradients.h"
bool elsewhere();
int main()
{
    const long long strides[4] = {1, 1, 1, 1};
    const int status = attend(nullptr, strides, nullptr, strides, nullptr, strides, nullptr, strides, nullptr, 1, 3, 2,
                              8, 8, 0.125f, nullptr, nullptr);
    std::printf("%s; %s\\n", attend_error(), key_gradients_error());
    return status == attend_refused && key_gradients_workspace(1, 2, 2, 8, 8) > 0 && elsewhere() ? 0 : 1;
}
"""
ELSEWHERE = """
#include "attend.h"
#include "attend.h"
bool elsewhere() { return attend_workspace(1, 2, 2, 8, 8) >= 0 && attend_error()[0] != 0; }
"""


def answer(family: Template, **fields: object) -> Best:
    problem = supported(family, fields, home(family))  # type: ignore[arg-type]
    space = Space(family, problem, home(family))
    return Best("default", "none", None, problem, home(family), space.candidate(space.default()), template=family)


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_two_headers_in_one_project(tmp_path: Path) -> None:
    """Compiled once each, by the command that they name; included by files of C++ that no nvcc sees; linked; called.

    The second is named like one of its kernels.
    """
    nvcc, includes = str(find_nvcc().path), [f"-I{folder}" for folder in cuda_include_dirs()]
    names = {"attend": answer(find_template("forward", "flash_wgmma")),
             "key_gradients": answer(find_template("backward", "flash_mma"))}  # fmt: skip
    for name, found in names.items():
        path = tmp_path / f"{name}.h"
        path.write_text(header_text(found, path.name))
        assert (name in found.source.plan.kernels) == (name == "key_gradients")
        command = re.search(r"^// compile: +nvcc (.*)$", path.read_text(), re.MULTILINE)
        assert command is not None
        assert f"nvcc {command[1]}" == header_compile_line(found, path.name)
        strict = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", "-Xptxas", "-O1"]
        assert run(nvcc, *strict, *command[1].split(), cwd=tmp_path).stderr == ""
    (tmp_path / "main.cpp").write_text(MAIN)
    (tmp_path / "elsewhere.cpp").write_text(ELSEWHERE)
    for name in ("main", "elsewhere"):
        options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", *includes, "-c", f"{name}.cpp", "-o", f"{name}.o"]
        run(str(find_gxx().path), *options, cwd=tmp_path)
    run(nvcc, "main.o", "elsewhere.o", *(f"{name}.o" for name in names), "-o", "program", cwd=tmp_path)
    said = run("./program", cwd=tmp_path).stdout
    assert said == "NH=3 is not divisible by NH_kv=2: every key head serves NH/NH_kv query heads; \n"


@pytest.mark.parametrize("op", ROUTES)
def test_an_extensions_kernels_compile_as_pytorch_compiles_them(op: str, tmp_path: Path) -> None:
    files = torch_files(answer(find_template(op, ROUTES[op])), "mine")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    flags = next(
        ast.literal_eval(node.value)
        for node in ast.parse(files["__init__.py"]).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "_CUDA_FLAGS"
    )
    command = [*PYTORCHS, *flags, "-Xptxas", "-O1", "-c", "kernels.cu", "-o", "kernels.o"]
    run(str(find_nvcc().path), *command, cwd=tmp_path)
    assert b"mine_workspace" in (tmp_path / "kernels.o").read_bytes()


@each_family_of()
def test_every_family_is_exported_both_ways(family: Template) -> None:
    found = answer(family)
    op = get_op(family.op)
    files = torch_files(found, "mine")
    assert set(files) == {"mine.h", "kernels.cu", "binding.cpp", "__init__.py", "README.md"}
    for text in (header_text(found, "mine.h"), files["mine.h"]):
        before, _, code = text.partition("namespace mine_code {")
        assert not re.search(r'extern\s+"C"[^;{}()]*__global__', code)
        assert "#include" not in code
        assert "#pragma once" not in text
        declared = before.partition("#ifndef MINE_H")[2].partition("#endif  // MINE_H")[0]
        assert 'extern "C" int mine(' in declared
        assert all(re.search(rf"\* {tensor.name}\b", declared) for tensor in op.tensors(found.problem)
                   if tensor.name not in op.in_place(found.problem).values())  # fmt: skip
    binding = files["binding.cpp"]
    assert f'module.def("{op.name}", &{op.name}' in binding
    assert all(f"static_cast<float>({name})" in binding for name in op.scalars(found.problem))
    changed = op.in_place(found.problem)
    for tensor in op.tensors(found.problem):
        if tensor.name in changed or (tensor.role == "input" and tensor.name not in changed.values()):
            assert f'check({tensor.name}, "{tensor.name}", torch::k' in binding
        elif tensor.role == "output":
            assert f"at::Tensor {tensor.name} = at::empty(" in binding
    ast.parse(files["__init__.py"])


def test_what_a_binding_says() -> None:
    found = answer(find_template("forward", "flash_mma"), dtype="bf16", layout="bthd", HS=64)
    binding = torch_files(found, "mine")["binding.cpp"]
    assert 'check(k, "k", torch::kBFloat16, device, {B, NH_kv, T_kv, 64});' in binding
    assert (
        "at::Tensor out = at::empty({B, T, NH, 64}, options.dtype(torch::kBFloat16)).permute({0, 2, 1, 3});" in binding
    )
    assert "std::tuple<at::Tensor, at::Tensor> forward(" in binding
    assert 'pybind11::arg("scale") = 0.125);' in binding
    backward = torch_files(answer(find_template("backward", "flash_simt")), "mine")["binding.cpp"]
    assert "TORCH_CHECK(lse.permute({0, 1, 2}).is_contiguous()" in backward
    assert "at::Tensor dq = at::empty(" in backward


def test_functions_are_named_after_files() -> None:
    assert function_of("attention-hs64.v2") == "attention_hs64_v2"
    with pytest.raises(UsageError, match="'64' does not begin with a letter"):
        function_of("64")
    assert gpu("h200").arch in header_compile_line(answer(find_template("forward", "flash_simt")), "a/b.h")
