"""Templates that would fill the memory or never end: one line, and the process that asks lives on."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autotune.core.errors import AutotuneError, ExpressionError, TemplateError
from autotune.families import bodies
from autotune.families.expressions import Expression
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, load_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.small_templates import BODY, MakeTemplate

NAMES = {"A": 3, "B": 5, "F": "x"}
GRID = {**NAMES, "A": np.array([1, 2, 3])}

EXPRESSIONS = (
    "'a'|center(500000000)|length", "'a'|replace('a', 'aaaaaaaa')|replace('a', 'aaaaaaaa')|length",
    "'a'.ljust(999999999)", "'%0999999999d' % 1", "'%0999999999d'|format(1)", "'{:999999999}'.format(1)",
    "'a'.zfill(999999999)", "'a' * 999999999",
    "((64**64)**64)**64", "(((10**60)**60)**60)**60 > 0", "A ** (B ** 60)", "*".join(["10**60"] * 60), "1" + "0" * 399,
    "9" * 5000, "+".join(["1"] * 20000), "+".join(["A"] * 500), "~".join(["F"] * 5000), " and ".join(["true"] * 20000),
    "(" * 5000 + "1" + ")" * 5000, "(" * 1500 + "1" + ")" * 1500, "-" * 3000 + "1", "not " * 900 + "A",
    "[" * 900 + "]" * 900, "A" + "|abs" * 600, "A" + ".x" * 1000, "1 if A else " * 300 + "1", "F" + "[0]" * 400,
    "'a'|wordwrap(1)", "F|batch(9999999)",
    "[1, 2]|random", "F.encode()", "A.bit_length()", "{'a': 1}",
)  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS, ids=lambda text: text[:24])
def test_an_expression_is_refused_in_one_line(text: str) -> None:
    uses: tuple[Callable[[Expression], object], ...] = (
        lambda e: e(NAMES), lambda e: e.over(NAMES), lambda e: e.over(GRID), lambda e: e.whole(NAMES),
    )  # fmt: skip
    for use_it in uses:
        start = time.process_time()
        with pytest.raises(ExpressionError) as raised:
            use_it(Expression(text))
        assert len(str(raised.value)) < 600
        assert "\n" not in str(raised.value)
        assert time.process_time() - start < 5.0


@pytest.mark.parametrize(
    "text",
    [
        "+".join(["A"] * 90), "*".join(["A"] * 90), " and ".join(["A"] * 90), "-" * 90 + "A", "not " * 90 + "A",
        "1 if A else " * 90 + "1", "(" * 40 + "A" + ")" * 40, "A" + "|abs" * 90, "max(" * 40 + "A" + ", 1)" * 40,
        "min(ceil_div(" * 20 + "A" + ", 2), 7)" * 20, "-(A * " * 30 + "1" + ")" * 30, "2**64 * 2**63", "A % B",
    ],
    ids=lambda text: text[:24],
)  # fmt: skip
def test_what_is_no_bomb_has_a_value(text: str) -> None:
    """Up to the limits all ways of evaluating agree, and none runs out of Python's own."""
    assert Expression(text)(NAMES) == Expression(text).over(NAMES)


DOUBLING = "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = x ~ x %}" * 40 + "{{ x|length }}"
BODIES = {
    "center": ("{{ 'a'|center(50000000000) }}", "more memory than the limit of 512 MiB"),
    "doubling": (DOUBLING, "more memory than the limit of 512 MiB"),
    "blocks": ("{% set x = 'aa' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40, "more memory"),
    "replace": ("{{ 'a'" + "|replace('a', 'aaaaaaaaaaaaaaaa')" * 12 + " }}", "more memory"),
    "nested lists": (
        "{% set x = ['a'] %}" + "{% set x = [x, x, x, x, x, x, x, x, x, x] %}" * 12 + "{{ x }}",
        "more memory|longer than",
    ),
    "loops": ("{% for a in 'x'|center(3000) %}" * 8 + "{% endfor %}" * 8, "longer than the limit of 0.5 s"),
    "macros": (
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}", "longer than",
    ),
    "a long text": ("{{ 'a'|center(9000000) }}", "9,000,000 characters, more than 4,194,304"),
    "terms": ("{{ " + "+".join(["1"] * 20000) + " }}", "rendering failed: RecursionError|tore its process down"),
    "digits": ("{{ " + "9" * 5000 + " }}", "rendering failed: ValueError"),
    "powers": ("{{ ((64**64)**64)**64 }}", "not allowed: whole numbers have at most 1000 bits"),
}  # fmt: skip


def use(template: Template) -> str:
    spec, problem = gpu("h200"), get_op("forward").problem(T=64)
    return render(template, problem, Space(template, problem, spec).default(), spec).body


@pytest.mark.parametrize("name", BODIES)
def test_a_body_ends_in_one_line(name: str, make_template: MakeTemplate, monkeypatch: pytest.MonkeyPatch) -> None:
    body, said = BODIES[name]
    template, sound = make_template(body=body, name="bomb"), make_template(name="sound")
    use(sound)  # the process is there
    monkeypatch.setattr(bodies, "LIMIT_S", 0.5 if name in {"loops", "macros"} else 20.0)
    with pytest.raises(TemplateError, match=said) as raised:
        use(template)
    assert str(template.path) in str(raised.value)
    assert "\n" not in str(raised.value)
    monkeypatch.setattr(bodies, "LIMIT_S", 20.0)
    assert "constexpr int BLOCK_M = 32;" in use(sound)


def test_a_renderer_that_is_killed_is_no_verdict_on_a_template(
    make_template: MakeTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = make_template()
    expected = use(sound)
    running, times = bodies._Renderer._running, 1

    def doomed(self: bodies._Renderer) -> object:
        nonlocal times
        connection = running(self)
        if times:
            times -= 1
            assert self._companion.process is not None
            os.kill(self._companion.process.pid, signal.SIGKILL)
            self._companion.process.wait(10.0)
        return connection

    monkeypatch.setattr(bodies._Renderer, "_running", doomed)
    assert use(sound) == expected
    times = 2
    with pytest.raises(AutotuneError, match=r"was killed by SIGKILL, twice, from outside") as raised:
        use(sound)
    assert not isinstance(raised.value, TemplateError)


def test_threads_and_forks_render_alike(make_template: MakeTemplate) -> None:
    sound = make_template()
    expected, found = use(sound), []
    threads = [threading.Thread(target=lambda: found.append(use(sound))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8
    child = os.fork()
    if child == 0:
        os._exit(0 if use(sound) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert use(sound) == expected


def test_the_families_that_ship_are_rendered_here(monkeypatch: pytest.MonkeyPatch, make_template: MakeTemplate) -> None:
    """They are part of the program, and a search renders thousands."""
    monkeypatch.setattr(bodies._Renderer, "render", lambda *_: "elsewhere")
    from autotune.families.template import find_template

    assert "extern" in use(find_template("forward", "flash_simt"))
    with pytest.raises(TemplateError, match="which the source does not define"):
        use(make_template(body=BODY))


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 5000 + "]" * 5000, "x." + ".".join("a" * 5000) + " = 1", 'x = "' + "a" * 9_000_000 + '"']
)
def test_front_matter_that_is_too_much(text: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.cu.j2"
    path.write_text("{#---\n" + text + "\n---#}\n")
    with pytest.raises(TemplateError, match=r"deep\.cu\.j2"):
        load_template(path)


def test_a_file_without_an_end_is_no_template() -> None:
    with pytest.raises(TemplateError, match=r"/dev/zero is no template: it is larger than"):
        load_template(Path("/dev/zero"))


def test_headers_that_include_one_another_without_end(tmp_path: Path, make_template: MakeTemplate) -> None:
    for number in range(150):
        (tmp_path / f"{number}.cuh").write_text(f'#include "{number + 1}.cuh"\n')
    (tmp_path / "150.cuh").write_text("")
    template = make_template(body=f'#include "0.cuh"\n{BODY}')
    with pytest.raises(TemplateError, match="headers include one another more than"):
        use(template)
