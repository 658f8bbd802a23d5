"""Where searches of a family begin: read from the file beside its template, checked, and tried first."""

from dataclasses import replace

import numpy as np
import pytest

from autotune.core.errors import ExpressionError, TemplateError
from autotune.core.values import Value
from autotune.families.catalogue import Families as Known
from autotune.families.narrow import narrowed
from autotune.families.space import Space
from autotune.families.starts import starts_text
from autotune.families.template import Template, load_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.tuning.joint_space import Families, Family
from tests.search_doubles import ListSpace
from tests.small_templates import MakeTemplate

PROBLEM = get_op("forward").problem()
H200 = gpu("h200")
PLAIN: dict[str, Value] = {"BLOCK_M": 32, "WARPS": 4, "PAD": 0, "MODE": "plain"}
KEY = PROBLEM.key
OTHERS = f'device = "h200"\nproblem = "{KEY}"\norigin = "a test"\n'


def starting(make: MakeTemplate, *tables: str) -> Template:
    """The test family with starts: `when`, then its values, of each."""
    path = make().path
    texts = []
    for table in tables:
        when, _, values = table.partition("\n")
        texts.append(f"[[start]]\n{when}\nvalues = {{ {values.replace(chr(10), ', ')} }}\n{OTHERS}")
    path.with_name("family.starts.toml").write_text("\n".join(texts))
    return load_template(path)


def test_starts_that_apply_come_first_then_the_default(make_template: MakeTemplate) -> None:
    template = starting(
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


def test_a_start_that_is_not_valid_or_repeats_is_left_out(make_template: MakeTemplate) -> None:
    template = starting(
        make_template,
        'when = "true"\nPAD = 1\nMODE = "swizzled"',
        'when = "true"\nBLOCK_M = 32',
        'when = "true"\nBLOCK_M = 16',
    )
    assert Space(template, PROBLEM, H200).starts() == (PLAIN, {**PLAIN, "BLOCK_M": 16})


def test_where_no_start_is_valid_the_nearest_to_the_first(make_template: MakeTemplate) -> None:
    template = starting(make_template, 'when = "true"\nBLOCK_M = 64\nWARPS = 64')
    template = narrowed(template, {"WARPS": (64, 2), "PAD": 1})
    assert Space(template, PROBLEM, H200).starts() == ({**PLAIN, "BLOCK_M": 64, "WARPS": 2, "PAD": 1},)


def test_lookups_answer_with_the_first(make_template: MakeTemplate) -> None:
    template = starting(make_template, 'when = "T >= 1024"\nBLOCK_M = 64')
    known = Known((template,))
    assert known.default(PROBLEM, H200).config == {**PLAIN, "BLOCK_M": 64}
    assert known.default(PROBLEM.replace(T=512), H200).config == PLAIN


def test_a_narrowed_family_starts_with_what_is_left(make_template: MakeTemplate) -> None:
    template = starting(make_template, 'when = "true"\nBLOCK_M = 64\nWARPS = 2')
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


WHOLE = f'[[start]]\nwhen = "true"\nvalues = {{ BLOCK_M = 64 }}\n{OTHERS}'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('when = "true"\n', "", r"\[\[start\]\] needs a text 'when', got None"),
        ('device = "h200"\n', "", "needs a text 'device', got None"),
        (f'problem = "{KEY}"\n', "", "needs a text 'problem', got None"),
        ('origin = "a test"\n', "origin = 7\n", "needs a text 'origin', got 7"),
        ("values = { BLOCK_M = 64 }\n", "", "the start for 'true' changes nothing"),
        ("BLOCK_M = 64", "BLOCKS = 64", "names 'BLOCKS', which is no parameter"),
        ("BLOCK_M = 64", "BLOCK_M = 48", "a start's BLOCK_M=48 is not among its values"),
        ("BLOCK_M = 64", "PAD = true", "a start's PAD=True is not among its values"),
        ("[[start]]\n", "[[start]]\nBLOCK_M = 64\n", "unknown key 'BLOCK_M'; known: when, device"),
        ("[[start]]", "[[starts]]", r"it holds \[\[start\]\] tables and nothing else, not starts"),
        ("[[start]]", "[start]", "tables and nothing else, not {"),
        ("[[start]]", "[[start]", "is not valid TOML"),
        ('when = "true"', 'when = "HS ="', "HS ="),
    ],
)
def test_mistakes_are_named(old: str, new: str, message: str, make_template: MakeTemplate) -> None:
    path = make_template().path
    file = path.with_name("family.starts.toml")
    file.write_text(WHOLE)
    assert len(load_template(path).starts) == 1
    assert old in WHOLE
    file.write_text(WHOLE.replace(old, new))
    with pytest.raises(TemplateError, match=rf"family\.starts\.toml.*{message}"):
        load_template(path)


def test_front_matter_says_where_suggestions_have_gone(make_template: MakeTemplate) -> None:
    old = '[[suggestions]]\nwhen = "true"\nBLOCK_M = 64\n[derived]'
    with pytest.raises(
        TemplateError, match=r"family\.cu\.j2: \[\[suggestions\]\] have left .*NAME\.starts\.toml beside"
    ):
        make_template(old="[derived]", new=old)


def test_starts_are_no_part_of_the_version(make_template: MakeTemplate) -> None:
    """Another start changes no kernel: what was measured stands."""
    plain = make_template()
    assert starting(make_template, 'when = "true"\nBLOCK_M = 64').hash == plain.hash


def test_what_is_written_is_read(make_template: MakeTemplate) -> None:
    template = starting(
        make_template, 'when = "HS == 64 and causal"\nBLOCK_M = 64\nMODE = "swizzled"', 'when = "true"\nPAD = 1'
    )
    noted = (template.starts[0], replace(template.starts[1], note='"longer" rows: ä'))
    file = template.path.with_name("family.starts.toml")
    file.write_text(starts_text(noted))
    assert load_template(template.path).starts == noted
    assert starts_text(load_template(template.path).starts) == file.read_text()


def test_a_condition_knows_no_parameters(make_template: MakeTemplate) -> None:
    template = starting(make_template, 'when = "BLOCK_M > 16"\nWARPS = 2')
    with pytest.raises(ExpressionError, match="'BLOCK_M' is undefined"):
        Space(template, PROBLEM, H200).starts()
    assert Space(template, PROBLEM, H200).sample(np.random.default_rng(0)).keys() == PLAIN.keys()
