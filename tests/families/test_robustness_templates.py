"""A template may hold anything: whatever is wrong with it is said as its author's mistake, never as a bug."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import AutotuneError, TemplateError, UsageError
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import load_template
from autotune.families.user_op import CustomOp
from autotune.gpus.known import gpu
from autotune.ops import registry
from autotune.ops.registry import register

SOUND: dict[str, Any] = {
    "summary": "s", "op": "torn", "source": "x", "arch": "sm_80", "supports": ["rows > 0"], "deterministic": "true",
    "params": {"A": [1, 2], "F": ["x", "y"]}, "defaults": {"A": 1}, "derived": {"N": "ceil_div(rows, A)"},
    "constraints": [{"expr": "A < 3", "why": "w"}],
    "workspace": {"ws": {"shape": ["rows", "N"], "dtype": "fp32", "when": "A > 1"}},
    "launch": [
        {"zero": "ws", "when": "A > 1"},
        {"kernel": "k", "grid": ["N"], "block": ["32"], "smem": "4*A", "args": ["x", "y", "rows", "A*2"]},
    ],
    "problem": {"rows": 4, "dtype": ["fp32", "fp16"]},
    "tensors": {"x": {"shape": ["rows"], "role": "input"}, "y": {"shape": ["rows"], "role": "output", "dtype": "fp32"}},
    "cost": {"flops": "rows * 2"},
}  # fmt: skip

VALUES: tuple[Any, ...] = (
    -1, 1.5, True, "", "1/0", "nothing", "'text'", "rows.__class__", "device", "((((", "}}", "rows|attr('x')",
    "rows ** 65", "-1", "1.5", "10**30", [], [1], [[1]], {"x": [1]}, "(" * 300 + "1" + ")" * 300, "sqrt(-1)",
    "max()", "rows, A",
)  # fmt: skip

BODIES = (
    "{{ x", "{% include '/etc/passwd' %}", "{% for i in range(10) %}{% endfor %}", "{{ ''.__class__ }}",
    "{{ device.__init__.__globals__ }}", "{{ '{0.__class__}'.format(A) }}",
    "{{ [3]|map(attribute='__class__')|first }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ 'x'.encode('q') }}", "{{ [1]|map('nothing')|list }}",
    "{{ 'x'|xmlattr }}", "{{ 'x'|truncate(-5) }}", "{{ '\\ud800' }}", '#include "../../etc/passwd"',
    '#include "/etc/passwd"', '#include "."', f'#include "{"a" * 5000}"', '#include "\0"',
)  # fmt: skip


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The op `torn` goes when the test ends."""
    monkeypatch.setattr(registry, "_OPS", dict(registry._OPS))


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


KERNEL = 'extern "C" __global__ void k(const float* x, float* y, int rows, int n) { {{ A }} }'


def text(front: dict[str, Any], body: str = KERNEL) -> str:
    return "{#---\n" + "\n".join(f"{name} = {toml(value)}" for name, value in front.items()) + "\n---#}\n" + body + "\n"


def use(path: Path) -> None:
    """All that a search does with a template before it builds."""
    template, spec = load_template(path), gpu("h200")
    op = register(CustomOp(template, lambda _, inputs: inputs["x"]))
    problem = op.problem()
    op.flops(problem)
    op.nbytes(problem)
    template.why_unsupported(problem, spec)
    space = Space(template, problem, spec)
    space.why_not(template.defaults)
    for config in space.configs():
        render(template, problem, config, spec)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    front = copy.deepcopy(SOUND)
    inner = front
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return front


def test_the_sound_one_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "torn.cu.j2"
    path.write_text(text(SOUND))
    use(path)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_any_value_anywhere_in_the_front_matter(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "torn.cu.j2"
    refused = 0
    for place in places(SOUND):
        path.write_text(text(changed(place, value)))
        try:
            use(path)
        except AutotuneError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:20])
def test_a_body_that_fails_or_leaves_the_sandbox(body: str, tmp_path: Path) -> None:
    path = tmp_path / "torn.cu.j2"
    path.write_text(text(SOUND, body))
    with pytest.raises(TemplateError, match="torn"):
        use(path)


def test_a_header_is_not_found_by_way_of_another_folder(tmp_path: Path) -> None:
    path = tmp_path / "torn.cu.j2"
    (tmp_path / "own.cuh").write_text("int x;\n")
    path.write_text(text(SOUND, f'#include "own.cuh"\n{KERNEL}'))
    use(path)
    path.write_text(text(SOUND, f'#include "../{tmp_path.name}/own.cuh"'))
    with pytest.raises(TemplateError, match=r'a header is named without "\.\."'):
        use(path)


@pytest.mark.parametrize("shape", ["0", "-1", "rows / 3", "10**30", "'x'"])
def test_tensors_have_shapes(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "torn.cu.j2"
    path.write_text(text(changed(("tensors", "x", "shape", 0), shape)))
    with pytest.raises(UsageError, match=r"tensor x|not a whole number"):
        use(path)
