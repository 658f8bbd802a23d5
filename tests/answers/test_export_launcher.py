"""Launchers of exported files, from small hand-made families."""

import re

import pytest

from autotune.answers.best import Best
from autotune.answers.export_launcher import LaunchCode, Launcher
from autotune.answers.export_text import export_text
from autotune.core.errors import TemplateError
from autotune.core.values import Value
from autotune.families.space import Space
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.small_templates import FRONT, MakeTemplate

BODY = """#include "common/view.cuh"
constexpr int BLOCK_M = {{ BLOCK_M }};
extern "C" __global__ void attend(View<const {{ ctype }}, 4> q, {{ ctype }}* out, float* partial, int T, float scale,
                                  int size)
{
}
extern "C" __global__ void finish(const float* partial, float* lse) {}
"""
H200 = gpu("h200")


def launcher(
    make_template: MakeTemplate, body: str = BODY, old: str = "", new: str = "", mode: str = "plain"
) -> Launcher:
    found = answer(make_template, body, old, new, mode)
    return Launcher(found.template, get_op("forward"), found.problem, found.source, H200)


def answer(make_template: MakeTemplate, body: str, old: str = "", new: str = "", mode: str = "plain") -> Best:
    template = make_template(body=body, old=old, new=new)
    problem = get_op("forward").problem()
    config: dict[str, Value] = {"BLOCK_M": 32, "WARPS": 4, "PAD": 0, "MODE": mode}
    candidate = Space(template, problem, H200).candidate(config)
    return Best("default", "none", None, problem, H200, candidate, template)


def test_sizes_are_expressions_over_the_shape(make_template: MakeTemplate) -> None:
    made = launcher(make_template)
    assert made.sizes == ("B", "NH", "NH_kv", "T", "T_kv", "HS")
    assert [scratch.nbytes for scratch in made.scratch] == ["4 * B * NH * T"]
    zero, attend = made.steps
    assert zero.condition is None
    assert isinstance(attend, LaunchCode)
    assert attend.grid == "dim3(host::ceil_div(T, 32), NH, B)"
    assert attend.block == "128"
    assert attend.smem == "32 * HS * 2"
    assert attend.arguments == ("q_view", "out", "partial", "T", "scale", "T * NH")
    assert made.views == {
        "View<const __half, 4>{q, {q_strides[0], q_strides[1], q_strides[2], q_strides[3]}}": "q_view"
    }


def test_what_the_body_reads_is_fixed(make_template: MakeTemplate) -> None:
    made = launcher(make_template, BODY + "// {{ ROW }} and {{ T }}\n")
    assert made.sizes == ("B", "NH", "NH_kv", "T_kv")
    assert made.fixed == {"T": 1024, "HS": 64}
    attend = made.steps[1]
    assert isinstance(attend, LaunchCode)
    assert attend.grid == "dim3(32, NH, B)"
    assert attend.smem == str(32 * 64 * 2)
    assert not attend.raises_limit


def test_everything_is_fixed_where_a_size_has_no_cpp_form(make_template: MakeTemplate) -> None:
    made = launcher(make_template, old='"ceil_div(T, BLOCK_M)"', new='"log2(T)"')
    assert made.sizes == ()
    assert made.fixed["T"] == 1024
    attend = made.steps[1]
    assert isinstance(attend, LaunchCode)
    assert attend.grid == "dim3(10, 12, 4)"


def test_steps_may_depend_on_the_shape(make_template: MakeTemplate) -> None:
    made = launcher(make_template, BODY + "// {{ HS }}\n", old="when = \"MODE == 'swizzled'\"", new='when = "T > 512"')
    assert [step.condition for step in made.steps] == [None, None, "T > 512"]


def test_constraints_on_the_shape_are_checked(make_template: MakeTemplate) -> None:
    made = launcher(make_template, BODY + "// {{ HS }}\n", old='"BLOCK_M % WARPS == 0"', new='"T % BLOCK_M == 0"')
    checks = {check.condition: check for check in made.checks}
    assert (
        checks["T % 32 == 0"].complaint
        == "B=%lld, NH=%lld, NH_kv=%lld, T=%lld, T_kv=%lld: rows are dealt to warps evenly (T %% BLOCK_M == 0)"
    )
    assert checks["T % 32 == 0"].values == made.sizes


def test_constraints_of_the_search_alone_are_not_checked(make_template: MakeTemplate) -> None:
    loose = '[[constraints]]\nexpr = "BLOCK_M < T"\nwhy = "there are several"\nsearch_only = true\n[workspace]'
    made = launcher(make_template, BODY + "// {{ HS }}\n", old=FRONT, new=FRONT.replace("[workspace]", loose))
    strict = launcher(
        make_template, BODY + "// {{ HS }}\n", old=FRONT,
        new=FRONT.replace("[workspace]", loose.replace("search_only = true\n", "")),
    )  # fmt: skip
    conditions = [check.condition for check in strict.checks]
    assert conditions.count("32 < T") == 1
    assert [check.condition for check in made.checks] == [text for text in conditions if text != "32 < T"]


def test_shared_memory_that_depends_on_the_shape_is_checked(make_template: MakeTemplate) -> None:
    limit = '[[constraints]]\nexpr = "smem <= device.max_shared_memory"\nwhy = "it fits"\n[workspace]'
    front = FRONT.replace("[workspace]", limit).replace("BLOCK_M * ROW * sizeof(dtype)", "4 * T_kv")
    found = launcher(make_template, BODY + "// {{ HS }}\n", old=FRONT, new=front)
    assert found.sizes == ("B", "NH", "NH_kv", "T", "T_kv")
    assert "4 * T_kv <= 232448" in [check.condition for check in found.checks]
    attend = found.steps[1]
    assert isinstance(attend, LaunchCode)
    assert (attend.smem, attend.raises_limit) == ("4 * T_kv", True)


def test_outputs_set_to_zero(make_template: MakeTemplate) -> None:
    found = answer(make_template, BODY, old='zero = "partial"', new='zero = "out"')
    text = export_text(found, "f.cu", main=False)
    assert "host::zero_elements<__half, 4><<<12288, 256, 0, stream>>>" in text
    assert "out, {{4, 12, 1024, 64}, {786432, 64, 768, 1}}, 3145728);" in text
    assert "Fixed in the kernels: B=4, NH=12" in text


def test_inputs_that_a_kernel_takes_without_const(make_template: MakeTemplate) -> None:
    made = launcher(make_template, BODY.replace("View<const {{ ctype }}, 4>", "View<{{ ctype }}, 4>"))
    assert next(iter(made.views)).startswith("View<__half, 4>{const_cast<__half*>(q), {q_strides[0]")


def test_headers_come_once_and_before_the_kernels(make_template: MakeTemplate) -> None:
    text = export_text(answer(make_template, BODY), "f.cu", main=False)
    assert "licence:        of the kernels, what their author says; of the launcher" in text
    assert len(re.findall(r"^struct View \{", text, re.MULTILINE)) == 1
    assert text.index("struct View {") < text.index("void attend(")
    assert '#include "' not in text
    assert "#pragma once" not in text
    assert "int main()" not in text


def test_a_kernel_of_a_macro_is_not_exported(make_template: MakeTemplate) -> None:
    named = '#define KERNEL(name) extern "C" __global__ void name\nKERNEL(attend)('
    body = BODY.replace('extern "C" __global__ void attend(', named)
    with pytest.raises(TemplateError, match="a launch of attend: no definition with 6 parameters is seen"):
        launcher(make_template, body)
