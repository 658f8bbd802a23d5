"""Configurations that a family suggests for some problems: read, checked, and tried first."""

import numpy as np
import pytest

from autotune.core.errors import ExpressionError, TemplateError
from autotune.core.values import Value
from autotune.families.catalogue import Families as Known
from autotune.families.narrow import narrowed
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.tuning.joint_space import Families, Family
from tests.search_doubles import ListSpace
from tests.small_templates import MakeTemplate

PROBLEM = get_op("forward").problem()
H200 = gpu("h200")
PLAIN: dict[str, Value] = {"BLOCK_M": 32, "WARPS": 4, "PAD": 0, "MODE": "plain"}


def suggesting(make: MakeTemplate, *tables: str, name: str = "family") -> Template:
    text = "\n".join(f"[[suggestions]]\n{table}" for table in tables)
    return make(old="[derived]", new=f"{text}\n[derived]", name=name)


def test_suggestions_that_apply_come_first_then_the_default(make_template: MakeTemplate) -> None:
    template = suggesting(
        make_template,
        'when = "HS == 128"\nBLOCK_M = 16',
        'when = "HS == 64 and device.sm_count > 100"\nBLOCK_M = 64\nWARPS = 2',
        'when = "causal"\nMODE = "swizzled"',
    )
    starts = Space(template, PROBLEM, H200).starts()
    assert starts == ({**PLAIN, "BLOCK_M": 64, "WARPS": 2}, {**PLAIN, "MODE": "swizzled"}, PLAIN)
    assert Space(template, PROBLEM, H200).default() == starts[0]
    assert Space(template, PROBLEM, gpu("t4")).default() == {**PLAIN, "MODE": "swizzled"}
    assert Space(template, PROBLEM.replace(causal=False), gpu("t4")).starts() == (PLAIN,)


def test_a_suggestion_that_is_not_valid_or_repeats_is_left_out(make_template: MakeTemplate) -> None:
    template = suggesting(
        make_template,
        'when = "true"\nPAD = 1\nMODE = "swizzled"',
        'when = "true"\nBLOCK_M = 32',
        'when = "true"\nBLOCK_M = 16',
    )
    assert Space(template, PROBLEM, H200).starts() == (PLAIN, {**PLAIN, "BLOCK_M": 16})


def test_where_nothing_suggested_is_valid_the_nearest_to_the_first(make_template: MakeTemplate) -> None:
    template = suggesting(make_template, 'when = "true"\nBLOCK_M = 64\nWARPS = 64')
    template = narrowed(template, {"WARPS": (64, 2), "PAD": 1})
    assert Space(template, PROBLEM, H200).starts() == ({**PLAIN, "BLOCK_M": 64, "WARPS": 2, "PAD": 1},)


def test_lookups_answer_with_the_suggestion(make_template: MakeTemplate) -> None:
    template = suggesting(make_template, 'when = "T >= 1024"\nBLOCK_M = 64')
    known = Known((template,))
    assert known.default(PROBLEM, H200).config == {**PLAIN, "BLOCK_M": 64}
    assert known.default(PROBLEM.replace(T=512), H200).config == PLAIN


def test_a_narrowed_family_suggests_what_is_left(make_template: MakeTemplate) -> None:
    template = suggesting(make_template, 'when = "true"\nBLOCK_M = 64\nWARPS = 2')
    narrow = narrowed(template, {"BLOCK_M": (16, 32)})
    assert Space(narrow, PROBLEM, H200).starts() == ({**PLAIN, "WARPS": 2}, PLAIN)


class AllFirst(ListSpace):
    """A space that would have all of it tried first."""

    def starts(self) -> list[dict[str, Value]]:
        return list(self.configs())


def test_families_take_turns() -> None:
    def family(name: str, *values: int) -> Family:
        return Family(name, "0", {"X": values}, {"X": values[0]}, AllFirst({"X": values}, lambda config: True))

    joint = Families([family("a", 1, 2, 3), family("b", 4)])
    assert [(c.template, c.config["X"]) for c in joint.starts()] == [("a", 1), ("b", 4), ("a", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("BLOCK_M = 64", r"\[\[suggestions\]\] needs 'when'"),
        ('when = "true"', "the suggestion for 'true' changes nothing"),
        ('when = "true"\nBLOCKS = 64', "names 'BLOCKS', which is no parameter"),
        ('when = "true"\nBLOCK_M = 48', "the suggested BLOCK_M=48 is not among its values"),
    ],
)
def test_mistakes_are_named(table: str, message: str, make_template: MakeTemplate) -> None:
    with pytest.raises(TemplateError, match=message):
        suggesting(make_template, table)


def test_a_condition_knows_no_parameters(make_template: MakeTemplate) -> None:
    template = suggesting(make_template, 'when = "BLOCK_M > 16"\nWARPS = 2')
    with pytest.raises(ExpressionError, match="'BLOCK_M' is undefined"):
        Space(template, PROBLEM, H200).starts()
    assert Space(template, PROBLEM, H200).sample(np.random.default_rng(0)).keys() == PLAIN.keys()
