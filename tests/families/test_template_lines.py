"""Lines of rendered sources are told as the template's."""

import pytest

from autotune.core.errors import CompileError
from autotune.core.problem import Problem
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.template import Template, builtin_templates
from autotune.families.template_lines import CompilesAs, template_lines
from autotune.gpus.known import gpu
from autotune.ops.registry import BUILTIN, get_op
from tests.small_templates import MakeTemplate

BODY = """
#include "common/view.cuh"
{# a comment
   of two lines #}
{% macro twice(x) %}
{{ x }} +  // macro
    {{ x }}
{%- endmacro %}
constexpr int M = {{ BLOCK_M }};
{% if MODE == "plain" %}
    {% for i in [0, 1, 2] %}
constexpr int A{{ i }} = {{ i }};  // looped
    {% endfor %}
{% else %}
constexpr int B = 1;
{% endif %}
{% set n = 4 -%}

constexpr int C = {{ twice("n") }};
{{ "constexpr" }} int D = {{ n }};  // after an expression
{% raw %}
constexpr int E = {{1}};  // raw
{% endraw %}
extern "C" __global__ void attend(View<const {{ ctype }}, 4> q, Out o, float* partial, int T, float scale, count n) {}
extern "C" __global__ void finish(const float* partial, float* lse) {}
"""

SPEC = gpu("h200")


def rendered(template: Template, problem: Problem | None = None) -> KernelSource:
    return render(template, problem or get_op(template.op).problem(), template.defaults, SPEC)


@pytest.mark.parametrize(
    ("shown", "written"),
    [
        ('#include "common/view.cuh"', '#include "common/view.cuh"'),
        ("constexpr int M = 32;", "constexpr int M ="),
        ("constexpr int A0 = 0;  // looped", "// looped"),
        ("constexpr int A2 = 2;  // looped", "// looped"),
        ("constexpr int C = n +  // macro", "constexpr int C ="),
        ("    n;", "    {{ x }}"),
        ("constexpr int D = 4;  // after an expression", "// after an expression"),
        ("constexpr int E = {{1}};  // raw", "// raw"),
        ('extern "C" __global__ void finish(', "void finish("),
    ],
)
def test_each_line_comes_from_one(make_template: MakeTemplate, shown: str, written: str) -> None:
    template = make_template(body=BODY)
    source = rendered(template)
    lines = template_lines(template, source, SPEC)
    [number] = [number for number, text in enumerate(source.code.splitlines(), 1) if text.startswith(shown)]
    assert written in template.text.splitlines()[lines(number) - 1]


def test_words_of_a_compiler(make_template: MakeTemplate) -> None:
    template = make_template(body=BODY)
    source = rendered(template)
    at = next(number for number, text in enumerate(source.code.splitlines(), 1) if "int M = " in text)
    here = next(number for number, text in enumerate(template.text.splitlines(), 1) if "int M = " in text)
    lines = template_lines(template, source, SPEC)
    said = f"kernel.cu({at}): error: no\nkernel.cu:{at}:5: error: no\ncommon/view.cuh:3: x\n"
    said += 'end of "kernel.cu"; kernel.cu:99999'
    assert lines.translated(said) == (
        f"family.cu.j2({here}): error: no\nfamily.cu.j2:{here}:5: error: no\ncommon/view.cuh:3: x\n"
        'end of "family.cu.j2"; kernel.cu:99999'
    )
    with pytest.raises(CompileError, match=rf"^family.cu.j2:{here}: x$"), CompilesAs(template, source, SPEC):
        raise CompileError(f"kernel.cu:{at}: x")


def test_what_computes_with_its_own_text_keeps_the_rendered_lines(make_template: MakeTemplate) -> None:
    body = BODY + "{% set text %}ab\n{% endset %}\nconstexpr int L = {{ text | length }};\n"
    template = make_template(body=body)
    lines = template_lines(template, rendered(template), SPEC)
    assert lines.lines == ()
    assert lines.translated("kernel.cu:7: error") == "kernel.cu:7: error"


@pytest.mark.parametrize("op", BUILTIN)
def test_every_family_can_be_told(op: str) -> None:
    for template in builtin_templates(op):
        problem = get_op(op).problem(dtype="fp32" if "tf32" in template.name else "fp16")
        source = rendered(template, problem)
        lines = template_lines(template, source, SPEC)
        written = template.text.splitlines()
        shown = source.code.splitlines()
        same = sum(text == written[lines(number) - 1] for number, text in enumerate(shown, 1) if lines(number))
        assert same > 0.7 * (len(shown) - source.header.count("\n")), template.name
