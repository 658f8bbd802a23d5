"""Front matter: what it yields, and one clear line for everything that is wrong with it."""

from pathlib import Path

import pytest

from autotune.core.errors import ExpressionError, TemplateError
from autotune.families.template import builtin_templates, find_template, load_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.small_templates import MakeTemplate


def test_front_matter_is_typed(make_template: MakeTemplate) -> None:
    template = make_template()
    assert template.name == "family"
    assert template.op == "forward"
    assert [parameter.name for parameter in template.parameters] == ["BLOCK_M", "WARPS", "PAD", "MODE"]
    assert template.defaults == {"BLOCK_M": 32, "WARPS": 4, "PAD": 0, "MODE": "plain"}
    assert [include.name for include in template.includes][-1] == "common/view.cuh"


def test_a_family_that_does_not_name_a_field_is_not_asked_for_it(make_template: MakeTemplate) -> None:
    asked = get_op("forward").problem(HS_v=32)
    assert make_template().why_unsupported(asked, gpu("h200")) == "it needs HS_v == HS: it computes both alike"
    assert make_template().why_unsupported(asked.replace(HS_v=64), gpu("h200")) is None
    assert make_template(body="// {{ HS_v }}").why_unsupported(asked, gpu("h200")) is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('op = "forward"', "op = 3", "needs a text 'op'"),
        ('op = "forward"', 'op = "for ward"', "op name 'for ward' is not an identifier"),
        ('summary = "a test family"', "", "needs a text 'summary'"),
        ('source = "none"', 'sauce = "none"', "unknown key 'sauce'"),
        ('source = "none"', 'arch = "hopper"', "arch='hopper' is not a compute capability"),
        ("PAD = [0, 1]", "PAD = []", "parameter PAD needs a list"),
        ("PAD = [0, 1]", "PAD = 1", "parameter PAD needs a list"),
        ("PAD = [0, 1]", "PAD = [1, 1]", "lists a value twice"),
        ("PAD = [0, 1]", "PAD = [[0]]", "takes numbers, texts and booleans"),
        ("BLOCK_M = 32\n", "BLOCK_M = 48\n", "the default BLOCK_M=48 is not among its values"),
        ("BLOCK_M = 32\n", "BLOCK_N = 32\n", "names 'BLOCK_N', which is no parameter"),
        ('why = "a swizzle needs no padding"', "", "needs a 'why'"),
        ('why = "a swizzle needs no padding"', 'because = ""', "unknown key 'because'"),
        (
            'why = "a swizzle needs no padding"',
            'why = "so"\nsearch_only = "yes"',
            "search_only is true or false, got 'yes'",
        ),
        ('kernel = "finish"\n', "", "needs 'kernel'"),
        ('block = ["32"]', 'block = ["1", "1", "1", "1"]', "at most 3 axes"),
        ('THREADS = "WARPS * 32"', 'THREADS = "WARPS *"', "cannot parse the expression 'WARPS *'"),
        ('THREADS = "WARPS * 32"', "THREADS = 1.5", "1.5 is not an expression"),
        ('dtype = "fp32" }', 'dtype = "fp8" }', "dtype='fp8' is not one of"),
        ("[params]", "[params", "front matter is not valid TOML"),
    ],
)
def test_wrong_front_matter(make_template: MakeTemplate, old: str, new: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        make_template(old=old, new=new)
    assert message in str(caught.value)
    assert "family.cu.j2" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "starts with its front matter"),
        ("{#---\nop = 'x'\n", "never closed"),
        ("\x89PNG", "cannot read the template"),
    ],
)
def test_not_a_template(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.cu.j2"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(TemplateError, match=message):
        load_template(path)


def test_a_missing_file_and_a_missing_family(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="cannot read the template"):
        load_template(tmp_path / "absent.cu.j2")
    with pytest.raises(TemplateError, match=r"op 'forward' has no template 'flush'; it has: .*flash_simt"):
        find_template("forward", "flush")


def test_a_missing_header(make_template: MakeTemplate) -> None:
    with pytest.raises(TemplateError, match=r'#include "common/absent.cuh" is found neither'):
        _ = make_template(body='#include "common/absent.cuh"\n').hash


def test_the_hash_follows_the_text(make_template: MakeTemplate) -> None:
    first = make_template().hash
    assert make_template(old="PAD = [0, 1]", new="PAD = [0, 2]").hash != first
    assert make_template().hash == first


def test_supports_and_arch(make_template: MakeTemplate) -> None:
    problem = get_op("forward").problem(HS=256)
    assert make_template().why_unsupported(problem, gpu("h200")) == "it needs HS <= 128"
    small = problem.replace(HS=64)
    assert make_template().why_unsupported(small, gpu("h200")) is None
    newer = make_template(old='source = "none"', new='arch = "sm_90"')
    assert newer.why_unsupported(small, gpu("h200")) is None
    assert "it needs sm_90" in str(newer.why_unsupported(small, gpu("a100")))
    only = make_template(old='source = "none"', new='arch = "sm_90a"')
    assert only.why_unsupported(small, gpu("h200")) is None
    assert "it needs sm_90a" in str(only.why_unsupported(small, gpu("b200")))
    assert "computes forward, not backward" in str(
        make_template().why_unsupported(get_op("backward").problem(), gpu("h200"))
    )


def test_a_wrong_name_in_supports_is_an_error(make_template: MakeTemplate) -> None:
    with pytest.raises(ExpressionError, match="'HEAD' is undefined"):
        make_template(old="HS <= 128", new="HEAD <= 128").why_unsupported(get_op("forward").problem(), gpu("h200"))


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_shipped_families_have_defaults_for_every_parameter(op: str) -> None:
    families = builtin_templates(op)
    assert {"unfused", "flash_simt"} <= {family.name for family in families}
    for family in families:
        assert family.defaults.keys() == {parameter.name for parameter in family.parameters}
        assert family.front.source


def test_historical_is_said_and_is_a_boolean(make_template: MakeTemplate) -> None:
    assert not make_template().front.historical
    assert make_template(old='source = "none"', new="historical = true").front.historical
    with pytest.raises(TemplateError, match="historical='yes' is neither true nor false"):
        make_template(old='source = "none"', new='historical = "yes"')
