"""What a configuration promises for a problem it was not timed for: against the times of shipped winners."""

import math
from collections.abc import Iterator
from statistics import median

import pytest

from autotune.core.problem import Problem
from autotune.estimate.fit import Expected, Known, by_promise
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op, problem_of
from autotune.store.json_lines import Line
from autotune.store.shipped import shipped_winners

SPEC = gpu("h200")
FORWARD, BACKWARD = get_op("forward"), get_op("backward")
TEMPLATES = {op: {t.name: t for t in builtin_templates(op) if not t.front.historical} for op in ("forward", "backward")}
WINNERS = [line for line in shipped_winners() if line.problem.op in TEMPLATES and line.problem.dtype == "fp16"]


def valid(template: Template, known: Known, problem: Problem) -> bool:
    unsupported = template.why_unsupported(problem, SPEC)
    return unsupported is None and Space(template, problem, SPEC).why_not(known.candidate.config) is None


def contenders(problem: Problem, lines: list[Line]) -> Iterator[Known]:
    templates = TEMPLATES[problem.op]
    for line in lines:
        known = Known(line.candidate, line.problem, line.measurement.ms)
        alike = (line.problem.op, line.problem["HS"]) == (problem.op, problem["HS"])
        if alike and valid(templates[line.candidate.template], known, problem):
            yield known
    for template in templates.values():
        if template.why_unsupported(problem, SPEC) is None:
            space = Space(template, problem, SPEC)
            for config, start in space.known_starts():
                timed = () if start is None else (problem_of(start.problem), start.ms)
                yield Known(space.candidate(config), *timed)


def ranked(problem: Problem, lines: list[Line] | None = None) -> list[Expected]:
    found = contenders(problem, WINNERS if lines is None else lines)
    return by_promise(found, TEMPLATES[problem.op], problem, SPEC)


def test_times_of_winners_are_foretold_from_other_problems() -> None:
    """With all that is known of a problem itself left out: right within a quarter for most, and on the whole."""
    ratios = []
    for line in WINNERS[::4]:
        best = ranked(line.problem, [other for other in WINNERS if other.problem != line.problem])[0]
        assert line.measurement.ms is not None
        ratios.append(best.ms / line.measurement.ms)
    assert len(ratios) >= 15
    assert 0.9 < median(ratios) < 1.1
    assert sum(0.75 < ratio < 1.25 for ratio in ratios) >= 0.85 * len(ratios), ratios
    assert all(0.5 < ratio < 1.5 for ratio in ratios), ratios


@pytest.mark.parametrize("group", [1, 4, 8])
def test_decoding_is_not_given_tiles_for_long_sequences(group: int) -> None:
    problem = FORWARD.problem(B=16, NH=32, NH_kv=32 // group, T=1, T_kv=4096, HS=128, dtype="fp16")
    config = ranked(problem)[0].known.candidate.config
    assert int(config["BLOCK_M"]) <= 16
    assert config["PACK_HEADS"] is (group > 1)


def test_a_problem_of_few_blocks_is_not_given_the_largest_tiles() -> None:
    """48 heads of 128 rows: with BLOCK_M=128 each is one block, and 84 of 132 SMs have none."""
    config = ranked(FORWARD.problem(B=4, NH=12, T=128, T_kv=4096))[0].known.candidate.config
    assert int(config["BLOCK_M"]) <= 64 or int(config.get("SPLIT", 1)) > 1


def test_nearer_times_count_more_and_unknown_ones_least() -> None:
    """Three records of one configuration, each promising the same rate."""
    template = TEMPLATES["forward"]["flash_mma"]
    problem = FORWARD.problem(B=4, NH=16, T=4096, HS=128)
    candidate = Space(template, problem, SPEC).candidate(template.defaults)
    twice, other = problem.replace(B=8), problem.replace(causal=False)
    same = [
        Known(candidate, problem, 1.0),
        Known(candidate, twice, 2.0),
        Known(candidate, other, 2.0),
        Known(candidate),
    ]
    found = by_promise(reversed(same), {"flash_mma": template}, problem, SPEC)
    assert [expected.known for expected in found] == same
    assert found[0].ms == pytest.approx(1.0, rel=1e-6)
    assert [expected.distance for expected in found] == [0.0, 1.0, 0.0, math.inf]
    assert [expected.alike for expected in found] == [True, True, False, False]
    assert found[3].ms == pytest.approx(1.6 * median(e.ms / (1.06, 1.1)[e is found[2]] for e in found[1:3]), rel=0.05)


@pytest.mark.parametrize(
    ("fields", "config", "pairs"),
    [
        ({"causal": False}, {"BLOCK_M": 64, "BLOCK_N": 64}, 1024 * 1024),
        ({"causal": False, "T": 1}, {"BLOCK_M": 128, "BLOCK_N": 64}, 128 * 1024),
        ({"causal": False, "T": 1, "NH_kv": 3}, {"BLOCK_M": 16, "BLOCK_N": 64, "PACK_HEADS": True}, 4 * 1024),
        ({"causal": False, "T_kv": 77}, {"BLOCK_M": 64, "BLOCK_N": 128}, 1024 * 128),
        ({"causal": False, "T_kv": 77}, {}, 1024 * 77),
        ({}, {"BLOCK_M": 64, "BLOCK_N": 64}, 1024 * 1024 - 960 * 960 / 2),
        ({"T_kv": 512}, {"BLOCK_M": 64, "BLOCK_N": 64}, 1024 * 512 - 448 * 448 / 2 - 512 * 512),
    ],
)
def test_operations_of_whole_tiles(fields: dict[str, int], config: dict[str, int], pairs: float) -> None:
    problem = FORWARD.problem(**{"T_kv": 1024, **fields})
    assert FORWARD.tiled_flops(problem, config) == pytest.approx(4 * 4 * 12 * 64 * pairs)
    like = BACKWARD.problem(**{"T_kv": 1024, **fields})
    assert BACKWARD.tiled_flops(like, config) == pytest.approx(10 * 4 * 12 * 64 * pairs)
