"""Exported files compile with nvcc, without a warning, and say what they are."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.answers.best import Best
from autotune.answers.export_text import export_text
from autotune.compilers.toolchain import find_nvcc
from autotune.families.space import Space
from autotune.families.template import builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op, op_names

CASES: tuple[tuple[str, dict[str, Any], bool], ...] = (
    ("h200", {"dtype": "fp16"}, True),
    ("h200", {"dtype": "bf16", "layout": "packed", "T": 8192}, True),
    ("rtx5090", {"dtype": "fp32", "layout": "bhtd", "NH_kv": 4, "T_kv": 2047, "causal": False, "HS": 96}, True),
    ("b200", {"dtype": "bf16", "HS": 128}, False),
    ("a100", {"dtype": "fp32", "layout": "packed", "HS": 32}, False),
    ("t4", {"dtype": "fp16", "NH_kv": 2}, False),
)


def answer(op: str, family: str, gpu_name: str, fields: dict[str, Any]) -> Best | None:
    """The family's default for the problem; None where it does not support it."""
    template = next(template for template in builtin_templates(op) if template.name == family)
    problem, spec = get_op(op).problem(**fields), gpu(gpu_name)
    if template.why_unsupported(problem, spec) is not None:
        return None
    space = Space(template, problem, spec)
    return Best("default", "none", None, problem, spec, space.candidate(space.default()), template=template)


ATTENTION = ("forward", "backward")


def families(*ops: str) -> Iterator[tuple[str, str]]:
    return ((op, template.name) for op in ops for template in builtin_templates(op))


def exports() -> Iterator[Any]:
    """Three cases an attention family supports, so that all are compiled for some; launchers of the other ops."""
    for op, family in families(*op_names()):
        if op not in ATTENTION:
            yield pytest.param(op, family, "h200", {}, False, id=f"{op}-{family}")
    for number, (op, family) in enumerate(families(*ATTENTION)):
        supported = [case for case in CASES if answer(op, family, case[0], case[1]) is not None]
        for i in dict.fromkeys((0, 1 + number % 2, 3 + number % 3)):
            if i < len(supported):
                yield pytest.param(op, family, *supported[i], id=f"{op}-{family}-{supported[i][0]}-{i}")


@pytest.mark.parametrize(("op", "family", "gpu_name", "fields", "main"), list(exports()))
def test_compiles_without_warnings(
    op: str, family: str, gpu_name: str, fields: dict[str, Any], main: bool, tmp_path: Path
) -> None:
    found = answer(op, family, gpu_name, fields)
    assert found is not None
    path = tmp_path / "exported.cu"
    path.write_text(export_text(found, path.name, main))
    compile_line = re.search(r"^// compile: +nvcc (.*)$", path.read_text(), re.MULTILINE)
    assert compile_line is not None
    strict = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", "-Xptxas", "-O1"]
    command = [str(find_nvcc().path), *strict, *compile_line[1].split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    built = tmp_path / ("exported" if main else "exported.o")
    assert built.read_bytes()[:4] == b"\x7fELF"
    assert f"autotune_{op}".encode() in built.read_bytes()


OTHER_SHAPE = {"B": 3, "NH": 6, "NH_kv": 2, "T": 100, "T_kv": 333, "M": 100, "N": 333, "K": 77, "group": 3}


@pytest.mark.parametrize(("op", "family"), list(families(*op_names())))
def test_one_file_for_many_shapes(op: str, family: str) -> None:
    """Shapes are arguments: of one configuration, kernels and launcher are the same for two shapes."""
    fields, exact = get_op(op).fields, get_op(op).exact_fields
    shape = [field.name for field in fields if field.kind == "int" and field.name not in exact]
    found = answer(op, family, "h200", {}) or answer(op, family, "h200", {"dtype": "fp32"})
    assert found is not None
    assert found.template is not None
    other = get_op(op).problem(**{**found.problem.fields, **{name: OTHER_SHAPE[name] for name in shape}})
    assert all(other[name] != found.problem[name] for name in shape)

    spaces = [Space(found.template, problem, found.device) for problem in (found.problem, other)]
    rng = np.random.default_rng(0)
    configs = [spaces[0].default(), spaces[1].default(), *(spaces[1].sample(rng) for _ in range(6))]
    tried = [config for config in configs if all(space.contains(config) for space in spaces)]
    assert tried
    for config in tried:
        texts = []
        for problem, space in zip((found.problem, other), spaces, strict=True):
            exported = replace(found, problem=problem, candidate=space.candidate(config))
            code = re.sub(r"//[^\n]*", "", export_text(exported, "x.cu", main=False))
            assert '#include "' not in code
            assert "#pragma once" not in code
            assert ", ".join(f"long long {name}" for name in shape) in code
            texts.append(code)
        assert texts[0] == texts[1], config


def test_the_header_says_what_the_file_is() -> None:
    found = answer("backward", "flash_simt", "h200", {"T": 512})
    assert found is not None
    head = export_text(found, "b.cu", main=True).split("\n\n")[0]
    assert "problem:        B=4 NH=12 NH_kv=12 T=512 T_kv=512 HS=64 dtype=fp16 causal=1 layout=bthd" in head
    assert "device:         NVIDIA H200 (sm_90a)" in head
    assert "time:           never tuned" in head
    assert "compile:        nvcc -O3 -std=c++17 -arch=sm_90a b.cu -o b" in head
    assert f"autotune show {found.source.hash}" in head
    assert "licence:        MIT" in head
    assert "BLOCK_M=" in head


@pytest.mark.parametrize(
    ("kind", "said"),
    [("measured", "0.1235 ms, measured on h200"), ("estimated", "0.1235 ms, estimated by a model, not measured, on")],
)
def test_the_header_labels_estimates(kind: Any, said: str) -> None:
    found = answer("forward", "flash_simt", "h200", {})
    assert found is not None
    device = "h200" if kind == "measured" else "cpu:h200"
    timed = Best(
        "exact", kind, 0.123456, found.problem, found.device, found.candidate, found=found.problem, found_on=device,
        template=found.template,
    )  # fmt: skip
    assert said in export_text(timed, "f.cu", main=False)
    other = found.problem.replace(T=2048)
    near = replace(timed, answer="nearest", found=other)
    assert f"not known; 0.1235 ms, {said.partition(', ')[2]}" in export_text(near, "f.cu", main=False)
    assert f" for {other}, the nearest problem\n" in export_text(near, "f.cu", main=False)
