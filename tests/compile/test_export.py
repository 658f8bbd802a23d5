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
from autotune.core.problem import Problem
from autotune.core.values import Config, Value
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.gpus.known import gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import BUILTIN, get_op
from tests.every_family import FAMILIES, Fields, each_family_of, families_of, fitted, home, name_of, supported

CASES: tuple[tuple[str, Fields], ...] = (
    ("h200", {"dtype": "fp16"}),
    ("h200", {"dtype": "bf16", "layout": "packed", "T": 8192}),
    ("rtx5090", {"dtype": "fp32", "layout": "bhtd", "NH_kv": 4, "T_kv": 2047, "causal": False, "HS": 96}),
    ("b200", {"dtype": "bf16", "HS": 128}),
    ("a100", {"dtype": "fp32", "layout": "packed", "HS": 32}),
    ("t4", {"dtype": "fp16", "NH_kv": 2}),
)
ATTENTION = ("forward", "backward")


def answer(family: Template, problem: Problem, spec: DeviceSpec, config: Config | None = None) -> Best:
    """A configuration of the family for the problem, its default unless told, as a look-up would answer."""
    space = Space(family, problem, spec)
    candidate = space.candidate(config or space.default())
    return Best("default", "none", None, problem, spec, candidate, template=family)


def default(op: str, family: str, gpu_name: str, **fields: Value) -> Best:
    return answer(find_template(op, family), get_op(op).problem(**fields), gpu(gpu_name))


def exports() -> Iterator[Any]:
    """Every attention family as a program, for one of the first three cases; the other cases for one family an op."""
    for family in families_of(*(op for op in BUILTIN if op not in ATTENTION)):
        yield pytest.param(family, supported(family, {}, home(family)), home(family), False, id=name_of(family))
    for number, family in (pair for op in ATTENTION for pair in enumerate(families_of(op))):
        fitting = [(name, fitted(family, fields, gpu(name), number)) for name, fields in CASES]
        taken = [(name, problem) for name, problem in fitting if problem is not None]
        program = number % 3
        for i in (program, 3 + number) if number < 3 else (program,):
            name, problem = taken[i % len(taken)]
            yield pytest.param(family, problem, gpu(name), i == program, id=f"{name_of(family)}-{name}-{i}")


@pytest.mark.parametrize(("family", "problem", "spec", "main"), list(exports()))
def test_an_export_compiles(family: Template, problem: Problem, spec: DeviceSpec, main: bool, tmp_path: Path) -> None:
    """Without a warning: programs by the command that they name, others for the architecture alone, without the PTX for
    later ones that nvcc adds, which takes a second compilation for sm_90a."""
    path = tmp_path / "exported.cu"
    path.write_text(export_text(answer(family, problem, spec), path.name, main))
    compile_line = re.search(r"^// compile: +nvcc (.*)$", path.read_text(), re.MULTILINE)
    assert compile_line is not None
    strict = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", "-Xptxas", "-O1"]
    named = f"-arch={spec.arch}"
    alone = named if main else f"-gencode=arch={spec.arch.replace('sm', 'compute')},code={spec.arch}"
    command = [str(find_nvcc().path), *strict, *compile_line[1].replace(named, alone).split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    built = tmp_path / ("exported" if main else "exported.o")
    assert built.read_bytes()[:4] == b"\x7fELF"
    assert f"autotune_{family.op}".encode() in built.read_bytes()


def test_every_family_and_every_kind_of_program_is_exported() -> None:
    cases = [case.values for case in exports()]
    assert {family for family, *_ in cases} == set(FAMILIES)
    programs = {(family.op, problem.dtype, problem["layout"]) for family, problem, _, main in cases if main}
    for op in ATTENTION:
        assert {dtype for known, dtype, _ in programs if known == op} == {"fp16", "bf16", "fp32"}
        assert {layout for known, _, layout in programs if known == op} == {"bthd", "bhtd", "packed"}


OTHER_SHAPE: Fields = {"B": 3, "NH": 6, "NH_kv": 2, "T": 100, "T_kv": 333, "M": 100, "N": 333, "K": 77, "group": 3}


@each_family_of()
def test_one_file_for_many_shapes(family: Template) -> None:
    """Shapes are arguments: of one configuration, kernels and launcher are the same for two shapes."""
    op, spec = get_op(family.op), home(family)
    shape = [field.name for field in op.fields if field.kind == "int" and field.name not in op.exact_fields]
    one = supported(family, {}, spec)
    other = op.problem(**{**one.fields, **{name: OTHER_SHAPE[name] for name in shape}})
    assert all(other[name] != one[name] for name in shape)
    assert family.why_unsupported(other, spec) is None

    spaces = [Space(family, problem, spec) for problem in (one, other)]
    rng = np.random.default_rng(0)
    configs = [spaces[0].default(), spaces[1].default(), *(spaces[1].sample(rng) for _ in range(6))]
    tried = [config for config in configs if all(space.why_not(config) is None for space in spaces)]
    assert tried
    for config in tried:
        texts = []
        for problem in (one, other):
            code = re.sub(r"//[^\n]*", "", export_text(answer(family, problem, spec, config), "x.cu", main=False))
            assert '#include "' not in code
            assert "#pragma once" not in code
            assert ", ".join(f"long long {name}" for name in shape) in code
            texts.append(code)
        assert texts[0] == texts[1], config


def test_the_header_says_what_the_file_is() -> None:
    found = default("backward", "flash_simt", "h200", T=512)
    head = export_text(found, "b.cu", main=True).split("\n\n")[0]
    assert "problem:        B=4 NH=12 NH_kv=12 T=512 T_kv=512 HS=64 dtype=fp16 causal=1 layout=bthd" in head
    assert "device:         NVIDIA H200 (sm_90a)" in head
    assert "time:           never tuned: the template's default configuration\n" in head
    assert "compile:        nvcc -std=c++17 -O3 -arch=sm_90a b.cu -o b" in head
    assert f"autotune show {found.source.hash}" in head
    assert "licence:        MIT" in head
    assert "BLOCK_M=" in head


def test_the_header_says_what_to_expect_and_why() -> None:
    """Of a start, and of the winner of another problem; nothing but the time where it is known."""
    default_one = default("backward", "flash_simt", "h200", T=512)
    start = replace(default_one, answer="start", expected_ms=0.25, sure="likely: timed for a problem 1.0 octaves away")
    nearest = replace(
        start,
        answer="nearest",
        kind="measured",
        found_ms=0.5,
        found_on="h200",
        found=default_one.problem.replace(T=1024),
    )
    expected = "0.25 ms expected (likely: timed for a problem 1.0 octaves away)"
    assert time_of(start) == f"never tuned: a start that the family lists for such problems; {expected}"
    assert time_of(nearest) == f"not known; {expected}; 0.5 ms, measured on h200 {nearest.found_for}"
    known = replace(nearest, answer="exact", expected_ms=None, found=default_one.problem)
    assert time_of(known) == "0.5 ms, measured on h200"


def time_of(found: Best) -> str:
    head = export_text(found, "b.cu", main=True).split("\n\n")[0]
    (said,) = re.findall(r"^// time: +(.*)$", head, re.MULTILINE)
    return str(said)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("measured", "0.1235 ms, measured on h200"), ("estimated", "0.1235 ms, estimated by a model, not measured, on")],
)
def test_the_header_labels_estimates(kind: Any, said: str) -> None:
    found = default("forward", "flash_simt", "h200")
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
