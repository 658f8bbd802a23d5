"""Compiler options of a template's own: which, how they are rendered, and that builds with others are others."""

import pytest

from autotune.compilers.cache import Recipe
from autotune.compilers.nvcc import FLAGS
from autotune.core.errors import TemplateError
from autotune.families.flags import checked, for_hosts, merged
from autotune.families.render import render
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.small_templates import FRONT, MakeTemplate

TOP = 'op = "forward"'


@pytest.mark.parametrize(
    "flag",
    ["-DN=4", "-DNDEBUG", "-UN", "-use_fast_math", "--use_fast_math", "-maxrregcount=64", "-Xptxas=-O1,-dlcm=cg",
     "-std=c++20"],
)  # fmt: skip
def test_options_that_a_template_may_give(flag: str) -> None:
    assert checked([flag, " "]) == (flag,)


@pytest.mark.parametrize(
    "flag",
    ["-arch=sm_80", "-o", "-I/tmp", "-I.", "-include=x", "-O0", "-maxrregcount 64", "-DN=$(touch x)", "-DN=a b", "x.cu",
     "-Xcompiler=-O0", "-lineinfo -g", "-G", "-maxrregcount=", "-Xptxas=-o;x"],
)  # fmt: skip
def test_options_that_are_refused(flag: str, make_template: MakeTemplate) -> None:
    with pytest.raises(TemplateError, match=r"is not among the options that a template may give: -DNAME"):
        make_template(old=TOP, new=f"{TOP}\nflags = ['-DN', {flag!r}]")


def test_flags_are_texts(make_template: MakeTemplate) -> None:
    with pytest.raises(TemplateError, match="flags lists 3, which is no text"):
        make_template(old=TOP, new=f"{TOP}\nflags = [3]")


def test_they_are_rendered_and_enter_key_and_compile_line(make_template: MakeTemplate) -> None:
    flags = """flags = ["-maxrregcount={{ 16 * WARPS }}", "{{ '-use_fast_math' if MODE == 'plain' }}"]"""
    template = make_template(old=TOP, new=f"{TOP}\n{flags}")
    problem, spec = get_op("forward").problem(), gpu("h200")
    config = template.defaults
    plain = render(template, problem, config, spec)
    assert plain.flags == ("-maxrregcount=64", "-use_fast_math")
    assert "nvcc -std=c++17 -O3 -maxrregcount=64 -use_fast_math -arch=sm_90a" in plain.header
    other = render(template, problem, {**config, "MODE": "swizzled"}, spec)
    assert other.flags == ("-maxrregcount=64",)
    bare = render(make_template(name="bare"), problem, config, spec)
    assert bare.body == plain.body
    assert bare.hash != plain.hash
    keys = {Recipe("cubin", source, "nvcc", "sm_80", merged(FLAGS, source.flags)).key for source in (plain, bare)}
    assert len(keys) == 2


def test_what_is_rendered_is_looked_at(make_template: MakeTemplate) -> None:
    template = make_template(old=TOP, new=f"""{TOP}\nflags = ["-{{{{ 'o' }}}}"]""")
    with pytest.raises(TemplateError, match=r"family.cu.j2: flags: flags: '-o' is not among"):
        render(template, get_op("forward").problem(), template.defaults, gpu("h200"))
    unknown = make_template(old=TOP, new=f"""{TOP}\nflags = ["-DN={{{{ NOTHING }}}}"]""")
    with pytest.raises(TemplateError, match="'NOTHING' is undefined"):
        render(unknown, get_op("forward").problem(), unknown.defaults, gpu("h200"))


def test_own_options_go_before_the_usual_ones() -> None:
    assert merged(FLAGS, ["-fmad=false"]) == (*(flag for flag in FLAGS if flag != "-fmad=true"), "-fmad=false")
    fast = merged(FLAGS, ["--use_fast_math"])
    assert not any(flag.startswith(("-ftz", "-prec", "-fmad")) for flag in fast)
    assert merged(FLAGS, ["-std=c++20"])[0] == "-O3"
    assert merged(FLAGS, ["-DA=1", "-DB=2"])[-2:] == ("-DA=1", "-DB=2")
    assert merged(FLAGS, []) == FLAGS


def test_the_emulator_hears_of_macros_and_the_language() -> None:
    assert for_hosts(["-DN=4", "-use_fast_math", "--std=c++20", "-UM", "-maxrregcount=64"]) == (
        "-DN=4",
        "-std=c++20",
        "-UM",
    )


def test_the_front_matter_used_here_is_the_tests_own() -> None:
    assert TOP in FRONT
