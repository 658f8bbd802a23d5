"""What the compiler sees is in the build key: every byte of the source that is no comment, and what else it hears."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compilers.cache import Recipe
from autotune.compilers.nvcc import _beside
from autotune.compilers.toolchain import Compiler
from autotune.core.confinement import COMPILERS_HEAR, compilers_environment
from autotune.core.errors import TemplateError
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import load_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.small_templates import BODY, FRONT, MakeTemplate
from tests.sources import kernel_source

RECIPE = Recipe("cubin", kernel_source("body"), "nvcc 13.0.88", "sm_90a", ("-O3",))
HIDDEN = [
    "// fine\nint stowaway;\n",
    "// fine\rint stowaway;\n",
    "// fine\u2028int stowaway;\n",
    "// fine\x0bint stowaway;\n",
    "// the next line, too \\\n\n",
    "// the next line, too ??/\n\n",
    "int stowaway;\n",
    "/* fine */\n",
]


@pytest.mark.parametrize("header", HIDDEN)
def test_a_header_is_nothing_but_comments(header: str) -> None:
    with pytest.raises(TemplateError, match="is to be comments"):
        kernel_source("body", header=header)


@pytest.mark.parametrize("key", ["summary", "source"])
@pytest.mark.parametrize("text", ["a\\nint stowaway;", "a\\rb", "a\\u2028b", "a\\u0000b", "a\\u001b[31m"])
def test_texts_of_the_front_matter_are_one_line(make_template: MakeTemplate, key: str, text: str) -> None:
    old = {"summary": 'summary = "a test family"', "source": 'source = "none"'}[key]
    with pytest.raises(TemplateError, match=f"'{key}' is to be one line without control characters"):
        make_template(old=old, new=f'{key} = "{text}"')


def test_values_are_one_line(make_template: MakeTemplate) -> None:
    with pytest.raises(TemplateError, match="parameter MODE: texts are one line"):
        make_template(old='"swizzled"]', new='"a\\nb"]')


def test_names_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a\nint stowaway;.cu.j2"
    path.write_text("{#---\n" + FRONT + "---#}\n" + BODY, encoding="utf-8")
    with pytest.raises(TemplateError, match="cannot be printed"):
        load_template(path)


@pytest.mark.parametrize(
    "variable", ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CPATH", "COMPILER_PATH"]
)
def test_what_compilers_hear_from_the_environment(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for value in (None, "-G", "-O0"):
        monkeypatch.delenv(variable, raising=False) if value is None else monkeypatch.setenv(variable, value)
        keys.add(replace(RECIPE).key)
    assert len(keys) == 3


def test_a_byte_order_mark_is_no_part_of_a_template(tmp_path: Path) -> None:
    path = tmp_path / "marked.cu.j2"
    path.write_text("{#---\n" + FRONT + "---#}\n" + BODY, encoding="utf-8-sig")
    assert load_template(path).front.summary == "a test family"


@pytest.mark.parametrize(
    "directive",
    [
        "#include </etc/passwd>", "#include <../own.cuh>", "#include OWN", "# include /* x */ OWN", "#inc\\\nlude OWN",
        "%:include OWN", "#include_next <x/../../y>", '#include/**/"/etc/passwd"',
        '#in\\\nclude "/etc/passwd"', "#import OWN", "#{{ 'include' }} OWN", "#{{ 'include' }} </etc/passwd>",
    ],
)  # fmt: skip
def test_what_is_included_is_in_the_key_or_the_compilers(directive: str, make_template: MakeTemplate) -> None:
    template = make_template(body=f"{directive}\n{BODY}")
    problem, spec = get_op("forward").problem(T=64), gpu("h200")
    with pytest.raises(TemplateError, match="include"):
        render(template, problem, Space(template, problem, spec).default(), spec)


def test_compilers_hear_nothing_that_is_not_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NVCC_APPEND_FLAGS", "CPATH", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "LIBRARY_PATH", "TMPDIR"):
        monkeypatch.setenv(name, "x")
    places = {"PATH", "HOME", "LD_LIBRARY_PATH"}  # of programs; versions of those are in the key
    assert compilers_environment().keys() - places <= set(COMPILERS_HEAR)
    assert "DEPENDENCIES_OUTPUT" not in compilers_environment()


def test_headers_of_the_toolkit_are_in_the_key(tmp_path: Path) -> None:
    (tmp_path / "cuda_fp16.h").write_text("1")
    (tmp_path / "mma.h").write_text("1")
    beside = {_beside(Compiler("nvcc", Path("nvcc"), "13.0.88", (tmp_path,)))[0]}
    for name in ("cuda_fp16.h", "mma.h"):
        (tmp_path / name).write_text("2")
        _beside.cache_clear()
        beside.add(_beside(Compiler("nvcc", Path("nvcc"), "13.0.88", (tmp_path,)))[0])
    assert len(beside) == 3
