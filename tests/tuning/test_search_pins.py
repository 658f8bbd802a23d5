"""Searches over part of the families."""

import pytest

from autotune.cli.main import run
from autotune.core.errors import UsageError
from autotune.core.values import Value
from autotune.families.template import Template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.tuning.choose import Subject, choose_families, choose_subject
from autotune.tuning.pins import pinned
from tests.small_templates import MakeTemplate

FORWARD = get_op("forward")
MAPS = 'GRID = ["x=a,y=b", "x=b,y=a", "x=a"]\nFLAG = [true, false]\n[defaults]'


def subject(*templates: Template) -> Subject:
    return Subject(FORWARD, choose_subject("forward").source, templates)


def lists(template: Template) -> dict[str, tuple[Value, ...]]:
    return {parameter.name: parameter.values for parameter in template.parameters}


def test_values_of_a_parameter(make_template: MakeTemplate) -> None:
    family = make_template()
    for given in ("32, 64", [32, 64], (32, 64, 32)):
        part = pinned(subject(family), {"BLOCK_M": given})
        [kept] = part.templates
        assert lists(kept) == {**lists(family), "BLOCK_M": (32, 64)}
        assert (kept.name, kept.hash, part.label) == (family.name, family.hash, "BLOCK_M=32,64")
    assert pinned(subject(family), {}) == subject(family)


def test_one_value_for_each_parameter_is_one_configuration(make_template: MakeTemplate) -> None:
    part = pinned(subject(make_template()), {"BLOCK_M": 64, "WARPS": "2", "PAD": 0, "MODE": "swizzled"})
    families = choose_families(part.templates, FORWARD.problem(), gpu("h200"))
    assert [candidate.key for candidate in families.candidates()] == ["family BLOCK_M=64 WARPS=2 PAD=0 MODE=swizzled"]
    assert part.label == "BLOCK_M=64 MODE=swizzled PAD=0 WARPS=2"


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("x=a,y=b", ("x=a,y=b",)),
        ("x=a", ("x=a",)),
        ("x=a,x=b,y=a", ("x=a", "x=b,y=a")),
        ("x=b,y=a,x=a,y=b,x=a", ("x=b,y=a", "x=a,y=b", "x=a")),
    ],
)
def test_values_with_commas(make_template: MakeTemplate, given: str, values: tuple[Value, ...]) -> None:
    part = pinned(subject(make_template(old="[defaults]", new=MAPS)), {"GRID": given, "FLAG": "false"})
    assert lists(part.templates[0])["GRID"] == values
    assert lists(part.templates[0])["FLAG"] == (False,)


def test_families_without_the_value_are_left_out(make_template: MakeTemplate) -> None:
    small, other = make_template(), make_template(old="BLOCK_M", new="ROWS", name="other")
    large = make_template(old="BLOCK_M = [16, 32, 64]", new="BLOCK_M = [32, 128]", name="large")
    kept = pinned(subject(small, large, other), {"BLOCK_M": "16,128"}).templates
    assert [(t.name, lists(t).get("BLOCK_M")) for t in kept] == [("family", (16,)), ("large", (128,)), ("other", None)]
    assert [t.name for t in pinned(subject(small, large, other), {"BLOCK_M": 128}).templates] == ["large", "other"]
    wide = make_template(old="PAD = [0, 1]", new="PAD = [5]", name="wide")
    with pytest.raises(UsageError, match="no family has all of BLOCK_M=128 PAD=5"):
        pinned(subject(large, wide), {"BLOCK_M": 128, "PAD": 5})


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"BLOCKM": 64}, "no family has a parameter 'BLOCKM'; there are BLOCK_M, WARPS, PAD, MODE"),
        ({"BLOCK_M": 65}, "parameter BLOCK_M takes 16, 32, 64, not 65"),
        ({"BLOCK_M": "32,65"}, "parameter BLOCK_M takes 16, 32, 64, not 32,65"),
        ({"BLOCK_M": ""}, "parameter BLOCK_M takes 16, 32, 64, not $"),
        ({"BLOCK_M": []}, r"parameter BLOCK_M takes 16, 32, 64, not \[\]"),
    ],
)
def test_what_no_family_has(make_template: MakeTemplate, wanted: dict[str, Value], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pinned(subject(make_template()), wanted)


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "--op", "forward", "--param", "BLOCK"]) == 2
    assert "--param takes NAME=VALUE, got 'BLOCK'" in capsys.readouterr().err
    assert run(["search", "--op", "forward", "--param", "BLOCK=1"]) == 2
    assert "no family has a parameter 'BLOCK'" in capsys.readouterr().err
    assert run(["search", "--op", "forward", "--param", "BLOCK_M=1", "--param", "BLOCK_M=2"]) == 2
    assert "not 1,2" in capsys.readouterr().err
