"""The space: exactly the configurations that pass, and the reason for those that do not."""

import itertools
from collections import Counter

import numpy as np
import pytest

from autotune.core.errors import ExpressionError, NoFeasibleConfiguration, TemplateError
from autotune.core.values import Value
from autotune.families import space as space_module
from autotune.families.space import Space
from autotune.families.template import builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.small_templates import FRONT, MakeTemplate

PROBLEM = get_op("forward").problem()


def test_exactly_the_valid_ones(make_template: MakeTemplate) -> None:
    space = Space(make_template(), PROBLEM, gpu("h200"))
    expected = [
        {"BLOCK_M": m, "WARPS": w, "PAD": p, "MODE": mode}
        for m, w, p, mode in itertools.product((16, 32, 64), (1, 2, 4), (0, 1), ("plain", "swizzled"))
        if not (p and mode == "swizzled")
    ]
    assert list(space.configs()) == expected
    assert (space.size, space.raw_size) == (27, 48)
    assert [space[i] for i in range(space.size)] == expected


def test_a_value_of_another_type_is_another_value(make_template: MakeTemplate) -> None:
    """True equals 1 and 2.0 equals 2, but they are rendered as other text, and would be candidates of their own."""
    space = Space(make_template(), PROBLEM, gpu("h200"))
    sound = space[0]
    assert space.contains(sound)
    for changed in ({"WARPS": True}, {"WARPS": 1.0}, {"PAD": False}):
        config = {**sound, **changed}
        assert not space.contains(config)
        name, value = next(iter(changed.items()))
        assert str(space.why_not(config)).startswith(f"{name}={value} is not among")


def test_contains_and_why_not_agree_everywhere(make_template: MakeTemplate) -> None:
    space = Space(make_template(), PROBLEM, gpu("h200"))
    names = [parameter.name for parameter in space.template.parameters]
    for values in itertools.product(*(parameter.values for parameter in space.template.parameters)):
        config = dict(zip(names, values, strict=True))
        assert space.contains(config) == (space.why_not(config) is None), config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"PAD": 1, "MODE": "swizzled"}, "a swizzle needs no padding"),
        ({"WARPS": 3}, "WARPS=3 is not among [1, 2, 4, 64]"),
        ({"BLOCK_M": 64, "WARPS": 64}, "kernel attend asks for 2048 threads a block; NVIDIA H200 allows 1024"),
        ({"EXTRA": 1}, "EXTRA is no parameter"),
    ],
)
def test_why_not(make_template: MakeTemplate, change: dict[str, int | str], message: str) -> None:
    space = Space(make_template(), PROBLEM, gpu("h200"))
    config = {**space.default(), **change}
    assert message in str(space.why_not(config))
    assert not space.contains(config)


VALID: dict[str, Value] = {"BLOCK_M": 64, "WARPS": 4, "PAD": 0, "MODE": "plain"}


@pytest.mark.parametrize(
    ("rule", "change", "named", "by_any"),
    [
        ("PAD == 0 or MODE == 'plain'", {}, {}, {}),
        ("PAD == 0 or MODE == 'plain'", {"PAD": 1, "MODE": "swizzled"}, {"PAD": 0}, {"PAD": 0}),
        # PAD would do, too, and comes first; but the constraint names the other one.
        ("ROW <= HS or MODE == 'plain'", {"PAD": 1, "MODE": "swizzled"}, {"MODE": "plain"}, {"MODE": "plain"}),
        ("ROW <= HS", {"PAD": 1}, None, {"PAD": 0}),  # it names a parameter by what is derived from it
        ("PAD == 0", {"WARPS": 64}, None, {"WARPS": 4}),  # more threads than a block may have
        ("PAD == 0", {"PAD": 1, "WARPS": 64}, None, None),  # two would have to change
        ("PAD == 0", {"PAD": 2}, None, None),  # no value of it
    ],
)
def test_one_parameter_at_its_default(
    make_template: MakeTemplate,
    rule: str,
    change: dict[str, int | str],
    named: dict[str, int | str] | None,
    by_any: dict[str, int | str] | None,
) -> None:
    template = make_template(FRONT.replace("PAD == 0 or MODE == 'plain'", rule))
    space, given = Space(template, PROBLEM, gpu("h200")), {**VALID, **change}
    assert space.mended(given) == (None if named is None else {**given, **named})
    assert space.mended(given, by_any=True) == (None if by_any is None else {**given, **by_any})


def test_shared_memory_says_asked_and_available(make_template: MakeTemplate) -> None:
    template = make_template(old='smem = "BLOCK_M * ROW * sizeof(dtype)"', new='smem = "BLOCK_M * 10000"')
    space = Space(template, PROBLEM, gpu("h200"))
    assert {config["BLOCK_M"] for config in space.configs()} == {16}
    why = space.why_not({**space.default(), "BLOCK_M": 32})
    assert why == "kernel attend asks for 320000 bytes of shared memory; NVIDIA H200 allows 232448"


def test_limits_of_a_launch_that_does_not_take_place_do_not_count(make_template: MakeTemplate) -> None:
    template = make_template(old='block = ["32"]', new='block = ["2048"]')
    space = Space(template, PROBLEM, gpu("h200"))
    assert {config["MODE"] for config in space.configs()} == {"plain"}


def test_a_grid_axis_beyond_the_limit(make_template: MakeTemplate) -> None:
    problem = get_op("forward").problem(B=70000)
    space = Space(make_template(), problem, gpu("h200"))
    assert space.size == 0
    with pytest.raises(NoFeasibleConfiguration, match="grid axis z is 70000; 1 to 65535 is allowed"):
        space.default()


def test_default_falls_back_to_the_closest_valid(make_template: MakeTemplate) -> None:
    template = make_template(old='expr = "BLOCK_M % WARPS == 0"', new='expr = "BLOCK_M == 64"')
    assert Space(template, PROBLEM, gpu("h200")).default() == {"BLOCK_M": 64, "WARPS": 4, "PAD": 0, "MODE": "plain"}


def test_samples_are_valid_and_cover_the_space(make_template: MakeTemplate) -> None:
    space = Space(make_template(), PROBLEM, gpu("h200"))
    generator = np.random.default_rng(0)
    seen = {tuple(space.sample(generator).items()) for _ in range(500)}
    assert seen == {tuple(config.items()) for config in space.configs()}


def test_no_parameters_is_a_space_of_one(make_template: MakeTemplate) -> None:
    front = 'summary = "s"\nop = "forward"\n[[launch]]\nkernel = "k"\ngrid = ["T"]\nblock = ["32"]\nargs = ["q"]\n'
    space = Space(make_template(front), PROBLEM, gpu("h200"))
    assert list(space.configs()) == [{}]
    assert space.contains({})


def wide(make_template: MakeTemplate, constraint: str, values: int = 100) -> Space:
    """The small family with four more parameters."""
    many = "\n".join(f"P{i} = {list(range(values))}" for i in range(4))
    front = FRONT.replace("PAD = [0, 1]", f"PAD = [0, 1]\n{many}")
    text = f'[[constraints]]\nexpr = "{constraint}"\nwhy = "because"\n[workspace]'
    return Space(make_template(front.replace("[workspace]", text)), PROBLEM, gpu("h200"))


def test_too_many_combinations(make_template: MakeTemplate) -> None:
    with pytest.raises(TemplateError, match=r"tie 100,000,000 raw combinations of P0, P1, P2, P3 together.*list fewer"):
        wide(make_template, "P0 + P1 + P2 == P3")


def test_billions_of_combinations_are_never_enumerated(make_template: MakeTemplate) -> None:
    """48 raw combinations of the small family and 100⁴ more; P0 and P1 are tied to each other, the rest is free."""
    space = wide(make_template, "P0 < P1")
    small = Space(make_template(), PROBLEM, gpu("h200"))
    assert (space.raw_size, space.size) == (48 * 10**8, small.size * 4950 * 10**4)
    rows = space.draw(np.random.default_rng(0), 2000)
    assert len(np.unique(rows, axis=0)) == 2000
    assert space.holds(rows).all()
    names = [parameter.name for parameter in space.template.parameters]
    first, second = (names.index(name) for name in ("P0", "P1"))
    assert (rows[:, first] < rows[:, second]).all()
    assert {tuple(row) for row in rows[:, :3].tolist()} >= {(0, 0, 0), (2, 2, 1)}  # all of the small family's
    rows[:, [first, second]] = rows[:, [second, first]]
    assert not space.holds(rows).any()
    for position in (0, 1, space.size // 3, space.size - 1):
        assert space.contains(space[position])
    assert str(space.why_not({**space[0], "P0": 7, "P1": 7})).startswith("because (P0 < P1 fails for ")


def test_a_space_in_parts_is_the_same_space(make_template: MakeTemplate, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = wide(make_template, "P0 < P1", values=3)
    everything = {tuple(config.items()) for config in whole.configs()}
    nearest = whole.default()
    monkeypatch.setattr(space_module, "_LARGEST", 100)
    parts = wide(make_template, "P0 < P1", values=3)
    assert len(parts._parts) == 4  # the small family's own, P0 with P1, P2, P3
    assert {tuple(config.items()) for config in parts.configs()} == everything
    assert parts.size == whole.size == len(everything)
    assert parts.default() == nearest
    rows = np.stack(np.unravel_index(np.arange(whole.raw_size), whole._shape), axis=1)
    assert (parts.holds(rows) == whole.holds(rows)).all()


def test_draws_are_uniform_and_distinct(make_template: MakeTemplate) -> None:
    space = Space(make_template(), PROBLEM, gpu("h200"))
    rng = np.random.default_rng(0)
    drawn = [tuple(row) for _ in range(400) for row in space.draw(rng, 9).tolist()]
    assert all(len(set(drawn[i : i + 9])) == 9 for i in range(0, len(drawn), 9))
    counts = np.array(list(Counter(drawn).values()))
    assert len(counts) == space.size
    assert counts.min() > 80  # 133 expected
    assert counts.max() < 190
    assert space.holds(space.draw(rng, 1000)).all()
    assert len(space.draw(rng, 1000)) == space.size


def test_an_undefined_name_in_a_constraint(make_template: MakeTemplate) -> None:
    template = make_template(old="BLOCK_M % WARPS == 0", new="BLOCK_M % WRAPS == 0")
    with pytest.raises(ExpressionError, match="'WRAPS' is undefined"):
        _ = Space(template, PROBLEM, gpu("h200")).size


@pytest.mark.parametrize("op", ["forward", "backward"])
@pytest.mark.parametrize("name", ["h200", "a100", "t4", "rtx4090"])
def test_shipped_spaces_agree_with_single_checks(op: str, name: str) -> None:
    for template in builtin_templates(op):
        problem = get_op(op).problem()
        space = Space(template, problem, gpu(name))
        if not space.size:  # tiles for Hopper, say, that no other GPU's shared memory holds
            assert template.why_unsupported(problem, gpu(name)) is not None
            continue
        assert space.why_not(space.default()) is None
        generator = np.random.default_rng(1)
        for _ in range(100):
            config = {p.name: p.values[int(generator.integers(len(p.values)))] for p in template.parameters}
            assert space.contains(config) == (space.why_not(config) is None), config
