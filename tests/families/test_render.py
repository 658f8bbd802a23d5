"""Rendering and launch plans."""

import math
import struct

import pytest

from autotune.core.errors import ExpressionError, TemplateError
from autotune.core.plan import Launch, PointerArg, ScalarArg, ViewArg, Zero, pack_arguments
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.template import Template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.small_templates import BODY, MakeTemplate

PROBLEM = get_op("forward").problem(B=2, NH=3, T=100, HS=32, dtype="bf16")


def rendered(template: Template, **changes: int | str) -> KernelSource:
    return render(template, PROBLEM, {**template.defaults, **changes}, gpu("h200"))


def test_the_body_reads_as_cuda(make_template: MakeTemplate) -> None:
    source = rendered(make_template(), PAD=1)
    assert source.body == (
        '#include "common/view.cuh"\n'
        "constexpr int BLOCK_M = 32;\n"
        "constexpr bool CAUSAL = true;\n"
        "constexpr int ROW = 33;\n"
        'extern "C" __global__ void attend(View<const __nv_bfloat16, 4> q, Out o, float* partial, int T, '
        "float scale, count n) {}\n"
        'extern "C" __global__ void finish(const float* partial, float* lse) {}\n'
    )
    assert "constexpr int ROW" not in rendered(make_template(), MODE="swizzled").body


def test_the_header_says_what_it_is(make_template: MakeTemplate) -> None:
    source = rendered(make_template())
    assert "forward/family" in source.header
    assert "B=2 NH=3 NH_kv=3 T=100 T_kv=100 HS=32 dtype=bf16 causal=1" in source.header
    assert "BLOCK_M=32 WARPS=4 PAD=0 MODE=plain" in source.header
    assert "nvcc" in source.header
    assert "-arch=sm_90a" in source.header
    assert source.hash in source.header


def test_the_hash_is_of_the_code_not_of_the_problem(make_template: MakeTemplate) -> None:
    template = make_template()
    other = render(template, PROBLEM.replace(B=4), template.defaults, gpu("h200"))
    assert other.hash == rendered(template).hash
    assert other.header != rendered(template).header
    assert rendered(template, BLOCK_M=64).hash != other.hash


def test_the_plan(make_template: MakeTemplate) -> None:
    plan = rendered(make_template()).plan
    assert [(b.name, b.dtype, b.elements, b.role) for b in plan.buffers] == [
        ("q", "bf16", 19200, "input"),
        ("k", "bf16", 19200, "input"),
        ("v", "bf16", 19200, "input"),
        ("out", "bf16", 19200, "output"),
        ("lse", "fp32", 600, "output"),
        ("partial", "fp32", 600, "workspace"),
    ]
    zero, launch = plan.steps
    assert zero == Zero("partial")
    assert isinstance(launch, Launch)
    assert (launch.grid, launch.block, launch.smem) == ((4, 3, 2), (128, 1, 1), 32 * 32 * 2)
    assert launch.args == (
        ViewArg("q", "q", 0, "bf16", (9600, 32, 96, 1), "input"),
        PointerArg("out", "out", 0, "bf16", "output"),
        PointerArg("partial", "partial", 0, "fp32", "workspace"),
        ScalarArg("T", "int", 100),
        ScalarArg("scale", "float", struct.unpack("f", struct.pack("f", 1 / math.sqrt(32)))[0]),
        ScalarArg("T * NH", "int", 300),
    )
    assert [step.kernel for step in rendered(make_template(), MODE="swizzled").plan.launches] == ["attend", "finish"]


def test_packed_layout_shares_one_buffer(make_template: MakeTemplate) -> None:
    template = make_template(old='args = ["q.view", "out", "partial"', new='args = ["q.view", "v.view", "partial"')
    problem = get_op("forward").problem(B=2, NH=4, NH_kv=2, T=10, HS=8, layout="packed")
    plan = render(template, problem, template.defaults, gpu("h200")).plan
    assert [(b.name, b.elements) for b in plan.buffers[:2]] == [("qkv", 2 * 10 * 8 * 8), ("out", 2 * 10 * 4 * 8)]
    q, v = plan.launches[0].args[:2]
    assert q == ViewArg("q", "qkv", 0, "fp16", (640, 8, 64, 1), "input")
    assert v == ViewArg("v", "qkv", 48, "fp16", (640, 8, 64, 1), "input")


def test_arguments_are_packed_with_natural_alignment() -> None:
    args = (
        ScalarArg("T", "int", 7),
        PointerArg("q", "qkv", 3, "fp16", "input"),
        ScalarArg("scale", "float", 0.5),
        ViewArg("v", "qkv", 1, "fp32", (5, 1), "input"),
        ScalarArg("n", "long long", -(2**40)),
    )
    packed = pack_arguments(args, {"qkv": 4096})
    assert packed == struct.pack("<i4xQf4xQqqq", 7, 4102, 0.5, 4100, 5, 1, -(2**40))


def test_a_large_integer_becomes_long_long(make_template: MakeTemplate) -> None:
    template = make_template(old='"T * NH"', new='"T * NH * 100000000"')
    assert rendered(template).plan.launches[0].args[-1] == ScalarArg("T * NH * 100000000", "long long", 30_000_000_000)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"q.view"', '"qq.view"', "qq.view: only tensors have views"),
        ('"q.view"', '"partial.view"', "partial.view: only tensors have views"),
        ('"scale"', '"skale"', "'skale' is undefined"),
        ('"scale"', '"dtype"', "argument 'dtype' is 'bf16'"),
        ('zero = "partial"', 'zero = "partiel"', "'partiel' is neither a tensor of the op nor a workspace"),
        ('grid = ["ceil_div(T, BLOCK_M)"', 'grid = ["T // 1000"', "must be at least 1, got [0, 3, 2]"),
    ],
)
def test_wrong_launches(make_template: MakeTemplate, old: str, new: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        rendered(make_template(old=old, new=new))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{{ BLOCK }}", "'BLOCK' is undefined"),
        ("{% if BLOCK_M %}", "line"),
        ("{{ ''.__class__.__mro__ }}", "not allowed"),
        ("{{ BLOCK_M.__class__ }}", "not allowed"),
        ("{{ 'x' * 100000000 }}", "not allowed"),
        ("{% include 'other' %}", "no loader"),
        ("{{ BLOCK_M // 0 }}", "rendering failed"),
    ],
)
def test_wrong_bodies(make_template: MakeTemplate, line: str, message: str) -> None:
    with pytest.raises(TemplateError, match=r"family\.cu\.j2") as caught:
        rendered(make_template(body=BODY + line + "\n"))
    assert message in str(caught.value)


def test_a_syntax_error_has_the_line_of_the_file(make_template: MakeTemplate) -> None:
    template = make_template(body="int a;\n{% if %}\n")
    line = template.text.splitlines().index("{% if %}") + 1
    with pytest.raises(TemplateError, match=f"line {line}:"):
        rendered(template)


def test_expression_errors_are_template_errors() -> None:
    assert issubclass(ExpressionError, TemplateError)
