"""Heads of any size by TMA: rows that begin at any element, by the families for Hopper, on the emulator."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.answers.best import Best
from autotune.answers.export_launcher import Launcher
from autotune.answers.export_text import export_text
from autotune.compilers.cache import BuildCache
from autotune.core.errors import LaunchError, TemplateError
from autotune.core.outcome import Outcome
from autotune.core.plan import TENSOR_MAP_BYTES, TensorMapArg, pack_arguments
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.awkward import awkward_problems, second_problems
from autotune.ops.registry import get_op
from tests.answers.exported_program import run_exported
from tests.kernels.attention_cases import SPEC, traced, verdict
from tests.kernels.backward_runs import GRADIENTS, seen, stored
from tests.kernels.forward_runs import Run, place
from tests.kernels.test_tensor_maps import changed, plan_of

OPS = ("forward", "backward")
FAMILIES = {op: find_template(op, "flash_wgmma") for op in OPS}
SHAPE: dict[str, Any] = {"B": 1, "NH": 8, "T": 70, "T_kv": 130, "dtype": "fp16", "causal": True}
ONCE: dict[str, Value] = {"OUT_APART": False, "PERSISTENT": False}
CASES: tuple[dict[str, Any], ...] = (
    {"HS": 1},
    {"HS": 7, "dtype": "bf16", "NH": 16, "NH_kv": 8},
    {"HS": 33, "causal": False, "T": 130, "T_kv": 70},
    {"HS": 75, "NH": 16, "NH_kv": 8, "B": 2},
    {"HS": 75, "dtype": "bf16", "causal": False, "T_kv": 1},
    {"HS": 50, "NH": 4, "layout": "packed", "T_kv": 70},
    {"HS": 100, "NH": 2, "T": 3},
    {"HS": 127, "dtype": "bf16"},
    {"HS": 255, "T": 66, "T_kv": 67},
    {"HS": 75, "HS_v": 33},
    {"HS": 64, "HS_v": 33},
    {"HS": 33, "HS_v": 64, "layout": "packed", "T_kv": 70},
)
PACKED: tuple[dict[str, Any], ...] = (  # rows that are no multiples of 16 bytes apart are packed first
    {"HS": 1, "layout": "bhtd"},
    {"HS": 7, "dtype": "bf16", "NH": 3, "NH_kv": 1, "B": 2},
    {"HS": 33, "NH": 6, "NH_kv": 3, "causal": False, "T": 130, "T_kv": 70},
    {"HS": 50, "NH": 3, "layout": "packed", "T_kv": 70},
    {"HS": 75, "layout": "bhtd", "NH": 4, "NH_kv": 2, "B": 2},
    {"HS": 75, "dtype": "bf16", "causal": False, "NH": 1, "T": 65, "T_kv": 1},
    {"HS": 127, "dtype": "bf16", "layout": "bhtd", "NH": 2},
    {"HS": 255, "NH": 1, "T": 66, "T_kv": 67},
    {"HS": 75, "HS_v": 33, "NH": 5},
    {"HS": 64, "HS_v": 33, "NH": 2, "layout": "bhtd"},
    {"HS": 33, "HS_v": 64, "NH": 3, "layout": "packed", "T_kv": 70},
)


def problem_of(op: str, **fields: Any) -> Problem:
    return get_op(op).problem(**{**SHAPE, **fields})


def config_of(problem: Problem, **values: Value) -> dict[str, Value]:
    """What a search begins with, some values changed."""
    space = Space(FAMILIES[problem.op], problem, SPEC)
    config = {**(space.starts() or [space.default()])[0], **values}
    assert space.why_not(config) is None
    return config


@pytest.mark.parametrize("fields", [*CASES, *PACKED], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_every_head_size_is_right(op: str, fields: dict[str, Any], cache: BuildCache) -> None:
    """Also over tensors whose heads lie elsewhere, with NaN between rows and in keys and columns that nobody sees."""
    problem = problem_of(op, **fields)
    found = verdict(FAMILIES[op], problem, config_of(problem), cache)
    assert (found.outcome, found.message) == (Outcome.OK, "")


@pytest.mark.parametrize("layout", ["bthd", "bhtd"])
@pytest.mark.parametrize(
    ("op", "values"),
    [("forward", {"OUT_APART": True, "PERSISTENT": True, "BLOCK_N": 48, "BLOCK_M": 128}),
     ("forward", {"OUT_APART": False, "PERSISTENT": True, "BLOCK_N": 48, "BLOCK_M": 128}),
     ("forward", {"MIN_BLOCKS": 2, "BLOCK_M": 64, "BLOCK_N": 64, "PING_PONG": False, **ONCE}),
     ("backward", {"DQ_ACCUMULATE": "bulk", "ORDER": "early", "BLOCK_M": 64}),
     ("backward", {"NEXT_KERNEL": "at_start", "BLOCK_N": 64, "BLOCK_M": 64, "ORDER": "late"})],
    ids=str,
)  # fmt: skip
def test_ways_of_working(op: str, values: dict[str, Value], layout: str, cache: BuildCache) -> None:
    """Right, and nothing found where every access is watched: races, fences, phases, bytes that are waited for."""
    many = {"NH": 144, "NH_kv": 72} if values.get("PERSISTENT") else {}
    problem = problem_of(op, HS=19, T=150, T_kv=90, layout=layout, **many)
    config = config_of(problem, **values)
    found = verdict(FAMILIES[op], problem, config, cache)
    assert (found.outcome, found.message) == (Outcome.OK, "")
    assert [str(one) for one in traced(FAMILIES[op], problem, config, cache).findings] == []


def untouched(storage: NDArray[Any], shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> NDArray[Any]:
    """Of a storage, what lies between the tensor's elements, as bits."""
    free = np.ones(storage.size, bool)
    seen(free, shape, strides, offset)[...] = False
    return np.asarray(storage.view(np.uint16)[free])


@pytest.mark.parametrize("layout", ["bthd", "bhtd"])
@pytest.mark.parametrize("apart", [(83, 8 * 83, 1), (9 * 80, 80, 3), (8 * 9 * 75, 88, 0)], ids=str)
def test_nothing_between_rows_is_read_or_written(apart: tuple[int, int, int], layout: str, cache: BuildCache) -> None:
    """Heads beside and behind one another, from an odd element on: NaN lies around inputs, and stays in results."""
    head, row, offset = apart
    problem = problem_of("forward", HS=75, T=37, T_kv=37, causal=False, layout=layout)
    run = Run(FAMILIES["forward"], problem, cache, config_of(problem))
    strides = (8 * 37 * max(head, row), head * (37 if head == 80 * 9 else 1), row, 1)
    inputs = get_op("forward").inputs(problem, 4)
    views = {name: place(array, strides, offset) for name, array in inputs.items()}
    views["out"] = place(np.full(inputs["q"].shape, np.nan, np.float16), strides, offset)
    storage = run.stored(views)["out"]
    got = run.seen("out", storage, views).astype(np.float64)
    np.testing.assert_allclose(got, run.reference(inputs)["out"], atol=3e-3)
    before = untouched(*views["out"][:1], inputs["q"].shape, strides, offset)
    assert (untouched(storage, inputs["q"].shape, strides, offset) == before).all()


@pytest.mark.parametrize("layout", ["bthd", "bhtd"])
@pytest.mark.parametrize("HS", [66, 75])
def test_gradients_leave_what_lies_between_them_alone(HS: int, layout: str, cache: BuildCache) -> None:
    """From odd elements on, heads an odd number of elements apart; dQ with columns that are not neighbours."""
    problem = problem_of("backward", HS=HS, T=40, T_kv=40, layout=layout)
    inputs = get_op("backward").inputs(problem, 4)
    shape, strides = inputs["q"].shape, (40 * 8 * 93, 93, 8 * 93, 1)
    views = {name: place(inputs[name], strides, 3) for name in ("q", "k", "v", "dout", "out")}
    wide = tuple(2 * stride for stride in strides)
    where = {"dq": (wide, 1), "dk": (strides, 1), "dv": (strides, 2)}
    empty = np.zeros(shape, np.float16)
    views |= {name: place(empty, *where[name]) for name in GRADIENTS}
    found = stored(FAMILIES["backward"], problem, config_of(problem), inputs, views, cache)
    expected = get_op("backward").reference(problem, inputs)
    for name in GRADIENTS:
        np.testing.assert_allclose(seen(found[name], shape, *where[name]), expected[name], atol=2e-2, err_msg=name)
        assert (untouched(found[name], shape, *where[name]) == 0xFFFF).all(), name


@pytest.mark.parametrize("op", OPS)
def test_a_head_of_nan_changes_none_of_its_neighbours(op: str, cache: BuildCache) -> None:
    """Whose tiles begin with its last columns."""
    problem = problem_of(op, HS=19, T=40, T_kv=40)
    inputs = get_op(op).inputs(problem, 4)
    expected = get_op(op).reference(problem, inputs)
    shape, strides = inputs["q"].shape, (40 * 8 * 19, 19, 8 * 19, 1)
    for name in ("q", "k", "v", *(("dout",) if op == "backward" else ())):
        inputs[name][:, 2] = np.nan
    views = {name: place(array, strides) for name, array in inputs.items() if array.ndim == 4}
    others = [head for head in range(8) if head != 2]
    if op == "forward":
        run = Run(FAMILIES[op], problem, cache, config_of(problem))
        got = run(views)["out"]
        np.testing.assert_allclose(got[:, others], expected["out"][:, others], atol=3e-3)
        return
    views |= {name: place(np.zeros(shape, np.float16), strides) for name in GRADIENTS}
    found = stored(FAMILIES[op], problem, config_of(problem), inputs, views, cache)
    for name in GRADIENTS:
        got = seen(found[name], shape, strides, 0)[:, others]
        np.testing.assert_allclose(got, expected[name][:, others], atol=2e-2, err_msg=name)


def kernels(op: str, **fields: Any) -> list[str]:
    problem = problem_of(op, **fields)
    plan = render(FAMILIES[op], problem, config_of(problem), SPEC).plan
    return [launch.kernel for launch in plan.launches]


@pytest.mark.parametrize("op", OPS)
def test_what_is_packed_first(op: str) -> None:
    """Forward, rows that are multiples of 16 bytes apart are read where they lie, as all are whose HS is one of 8."""
    for fields in (*CASES, {"HS": 36, "NH": 12}, {"HS": 36, "NH": 12, "NH_kv": 2}):
        in_place = op == "forward" and fields["HS"] <= 249
        assert ("pack_rows" not in kernels(op, **fields)) is in_place, fields
    for fields in (*PACKED, {"HS": 75, "layout": "bhtd"}, {"HS": 75, "NH": 12}, {"HS": 75, "NH": 8, "NH_kv": 4}):
        assert kernels(op, **fields)[0] == "pack_rows", fields
    assert kernels(op, HS=80, HS_v=75, NH=4)[0] == "pack_rows"
    for fields in ({"HS": 80, "layout": "bhtd"}, {"HS": 8, "NH": 1}, {"HS": 72, "HS_v": 40, "NH": 3}):
        assert "pack_rows" not in kernels(op, **fields), fields
    assert FAMILIES[op].why_unsupported(problem_of(op, HS=75), gpu("a100")) is not None


def test_what_odd_heads_leave_out() -> None:
    space = Space(FAMILIES["forward"], problem_of("forward", HS=75, NH=16, NH_kv=8), SPEC)
    packed = {**space.default(), "PACK_HEADS": True, "HEADS_AT_ONCE": 0}
    assert "no whole 16 bytes apart" in str(space.why_not(packed))
    for way in ("turns", "separate"):
        space = Space(FAMILIES["backward"], problem_of("backward", HS=75), SPEC)
        assert "the kernel that ends the call" in str(space.why_not({**space.default(), "DQ_ACCUMULATE": way}))


@pytest.mark.parametrize("op", OPS)
def test_problems_beside_such_a_one_are_alike(op: str) -> None:
    """What an examination, the checker and the emulator take in its place has rows that TMA takes as well."""
    problem = get_op(op).problem(B=16, NH=32, T=2048, HS=75, dtype="fp16")
    family = FAMILIES[op]
    share = get_op(op).emulated(problem)
    assert (share["NH_kv"], family.why_unsupported(share, SPEC)) == (8, None)
    config = config_of(problem, HEADS_AT_ONCE=0)
    beside = [other for other in second_problems(get_op(op), problem) if family.why_unsupported(other, SPEC) is None]
    assert sum(Space(family, other, SPEC).why_not(config, called=True) is None for other in beside) >= 4
    assert {other["HS"] for other in awkward_problems(op) if family.why_unsupported(other, SPEC) is None} >= {33, 75}


def test_eight_maps_an_argument() -> None:
    """The n-th ends n columns later, and all begin at the multiple of 16 bytes before the tensor."""
    problem = problem_of("forward", HS=75, B=2)
    launch = render(FAMILIES["forward"], problem, config_of(problem), SPEC).plan.launches[0]
    k = launch.args[1]
    assert isinstance(k, TensorMapArg)
    assert (k.extents, k.strides, k.anywhere, k.nbytes) == ((75, 130, 8, 2), (1, 600, 75, 130 * 600), True, 1024)
    made = list[tuple[TensorMapArg, int]]()

    def encode(arg: TensorMapArg, address: int) -> bytes:
        made.append((arg, address))
        return bytes([len(made)]) * TENSOR_MAP_BYTES

    packed = pack_arguments((k,), {"k": 0x1006}, encode)
    assert [packed[128 * n] for n in range(8)] == list(range(1, 9))
    assert {address for _, address in made} == {0x1000}
    steps, last = 1 << 20, 3 + 7 * 75 + 130 * 600
    assert [arg.extents for arg, _ in made] == [(75 + n, 130, steps, last // 8 // steps + 1) for n in range(8)]
    placed = {(arg.strides, arg.box, arg.stride_bytes) for arg, _ in made}
    assert placed == {((1, 600, 8, 8 * steps), (*k.box[:2], 1, 1), (1200, 16, 16))}
    made.clear()
    pack_arguments((replace(k, strides=(1, 600, 1 << 36, 1 << 38)),), {"k": 0}, encode)
    assert {arg.extents[3] for arg, _ in made} == {((7 << 36) + (1 << 38) >> 23) + 1}
    for wrong, address in ((replace(k, strides=(1, 601, 75, 9)), 0), (replace(k, strides=(1, 600, -75, 9)), 0), (k, 1)):
        with pytest.raises(LaunchError, match="k: TMA cannot copy this tensor"):
            pack_arguments((wrong,), {"k": address}, encode)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [('tensor = "q", ', 'tensor = "q", anywhere = "true", ', "boxes of two of three or more whole axes"),
     ('tensor = "sums", ', 'tensor = "sums", anywhere = "true", ', "of 16-bit elements"),
     ('tensor = "k", ', 'tensor = "k", anywhere = "HS", ', "takes a TensorMap as parameter 2, .*, TensorMaps")],
)  # fmt: skip
def test_maps_of_rows_anywhere_that_cannot_be(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=said):
        plan_of(changed(tmp_path, old, new))


@pytest.mark.parametrize("layout", ["bthd", "bhtd"])
@pytest.mark.parametrize(("op", "HS"), [("forward", 19), ("backward", 33)])
def test_an_export_passes_its_own_check(op: str, HS: int, layout: str, tmp_path: Path) -> None:
    problem = problem_of(op, HS=HS, T=70, T_kv=70, layout=layout)
    family = FAMILIES[op]
    candidate = Space(family, problem, SPEC).candidate(config_of(problem))
    found = Best("default", "none", None, problem, SPEC, candidate, template=family)
    launcher = Launcher(family, get_op(op), problem, found.source, SPEC)
    in_place = op == "forward" and layout == "bthd"  # the number of heads decides it
    assert launcher.sizes == (("B", "T", "T_kv") if in_place else ("B", "NH", "NH_kv", "T", "T_kv"))
    assert {name for name, made in launcher.maps.items() if made.anywhere} >= ({"k_map"} if in_place else set())
    text = export_text(found, "exported.cu", True)
    assert ("the one before it a stride of a multiple of 16" in text) is in_place
    assert ("TMA copies" in text) is in_place
    done = run_exported(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "PASS"
