"""Every family's exported launcher refuses what it cannot take, and says what and why."""

import re
import subprocess
from pathlib import Path

import pytest

from autotune.answers.best import Best
from autotune.answers.export_launcher import Launcher
from autotune.answers.export_text import export_text, function_name
from autotune.answers.lookup import best
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op, op_names
from tests.answers.exported_program import build_exported

H200 = gpu("h200")
FAMILIES = [template for op in op_names() for template in builtin_templates(op)]

_MAIN = r"""
#include <cstring>
int main()
{
    alignas(256) static char memory[1 << 22];
    const long long rows[4] = {64, 32, 32, 1};
    float* f = reinterpret_cast<float*>(memory);
    auto* e = reinterpret_cast<__half*>(memory);
    using size = long long;
    const auto call = [&](__half* q, __half* v, const size* strides, float* lse, size B, size NH, size NH_kv, size T,
                          float scale, void* workspace) {
        const int status = autotune_forward(q, rows, e, rows, v, strides, e, rows, lse, B, NH, NH_kv, T, 3, scale,
                                            workspace, nullptr);
        std::printf("%d %s\n", status, autotune_forward_error());
    };
    __half* odd = reinterpret_cast<__half*>(memory + 1);
    call(e, e, rows, f, 0, 2, 2, 3, 1, memory);
    call(e, e, rows, f, 1, -2, 2, 3, 1, memory);
    call(e, e, rows, f, 1, 2, 2, 1ll << 33, 1, memory);
    call(e, e, rows, f, 1, 7, 2, 3, 1, memory);
    call(e, e, rows, f, 1, 2, 2, 3, 0, memory);
    call(e, e, rows, f, 1, 2, 2, 3, -1, memory);
    call(e, e, rows, f, 1, 2, 2, 3, NAN, memory);
    call(e, e, rows, f, 1, 2, 2, 3, INFINITY, memory);
    call(nullptr, e, rows, f, 1, 2, 2, 3, 1, memory);
    call(e, e, nullptr, f, 1, 2, 2, 3, 1, memory);
    call(odd, e, rows, f, 1, 2, 2, 3, 1, memory);
    call(e, e, rows, f, 1, 2, 2, 3, 1, nullptr);
    call(e, e, rows, f, 1, 2, 2, 3, 1, memory + 16);
    call(e, e, rows, f, 1 << 20, 1 << 20, 1, 3, 1, memory);
    call(e, e, rows, f, 1, 2, 2, 3, 1, memory);
}
"""

_REFUSALS = (
    r"B=0 must be from 1 to 2147483647",
    r"NH=-2 must be from 1 to 2147483647",
    r"T=8589934592 must be from 1 to 1073741824",
    r"NH=7 is not divisible by NH_kv=2: every key head serves NH/NH_kv query heads",
    r"scale=0 must be finite and above 0",
    r"scale=-1 must be finite and above 0",
    r"scale=-?nan must be finite and above 0",
    r"scale=inf must be finite and above 0",
    r"q or its strides: a null pointer",
    r"v or its strides: a null pointer",
    r"q is not at a multiple of its elements' size",
    r"workspace is a null pointer; autotune_forward_workspace\(\.\.\.\) bytes are needed",
    r"workspace is not at a multiple of 256 bytes",
    r"kernel attention_scores: size of the grid along \w: \d+; at most \d+ is possible",
)


def _answer(template: Template) -> Best:
    op = get_op(template.op)
    problems = (op.problem(**fields) for fields in ({}, {"dtype": "fp32"}))
    problem = next(p for p in problems if template.why_unsupported(p, H200) is None)
    candidate = Space(template, problem, H200).candidate(Space(template, problem, H200).default())
    return Best("default", "none", None, problem, H200, candidate, template=template)


@pytest.mark.parametrize("template", FAMILIES, ids=lambda t: f"{t.op}-{t.name}")
def test_every_argument_of_every_family_is_checked(template: Template) -> None:
    answer = _answer(template)
    op = get_op(template.op)
    launcher = Launcher(template, op, answer.problem, answer.source, H200)
    text = export_text(answer, "f.cu", main=False)
    conditions = {check.condition for check in launcher.checks}
    for field in op.fields:
        if field.name in launcher.sizes:
            assert f"{field.name} >= {field.minimum} && {field.name} <= {field.maximum}" in conditions
    for rule in op.rules(answer.problem):
        if {rule.left, rule.right} & set(launcher.sizes):
            assert f"{rule.left} % {rule.right} == 0" in conditions
    for name in launcher.scalars:
        assert any(condition.startswith(f"std::isfinite({name})") for condition in conditions)
    for parameter in launcher.parameters:
        strides = f" || {parameter.spec.name}_strides == nullptr" if parameter.strided else ""
        assert f"if ({parameter.spec.name} == nullptr{strides})" in text
    assert ("workspace == nullptr" in text) == bool(launcher.scratch)
    assert not re.search(r"return (cuda\w+|status);", text.partition(f"int {function_name(op)}(")[2])


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_the_scale_of_attention_is_positive(op: str) -> None:
    for template in builtin_templates(op):
        answer = _answer(template)
        launcher = Launcher(template, get_op(op), answer.problem, answer.source, H200)
        assert "std::isfinite(scale) && scale > 0.0f" in {check.condition for check in launcher.checks}


def test_what_is_refused_is_named(tmp_path: Path) -> None:
    answer = best("forward", device="h200", db=tmp_path / "none.db", template="unfused", HS=32, B=1, NH=2, T=3)
    text = export_text(answer, "f.cu", main=False) + _MAIN
    done = subprocess.run([build_exported(text, tmp_path)], capture_output=True, text=True, check=True, timeout=250)
    *refused, right = done.stdout.splitlines()
    assert len(refused) == len(_REFUSALS)
    for line, words in zip(refused, _REFUSALS, strict=True):
        assert re.fullmatch(rf"1 {words}", line), line
    assert right == "0 "
