"""Winners are examined: on another problem and by the checker. What is wrong there was right where it was searched."""

from collections.abc import Mapping
from concurrent.futures import wait
from contextlib import closing
from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.candidate import Candidate
from autotune.core.errors import BuildError
from autotune.core.outcome import Outcome
from autotune.core.values import Value
from autotune.devices.factory import CpuOpener
from autotune.devices.twin import FAR, make_twin
from autotune.emulator import building
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import builtin_templates, find_template
from autotune.gpus.known import gpu
from autotune.ops.awkward import second_problems
from autotune.ops.registry import BUILTIN, get_op
from autotune.store import open_store
from autotune.store.records import StoredMeasurement
from autotune.tuning import examination
from autotune.tuning.choose import choose_subject
from autotune.tuning.evaluation import Task
from autotune.tuning.events import silent
from autotune.tuning.result import SearchResult
from autotune.tuning.search_options import Options
from autotune.tuning.session import search_one

SPEC = gpu("h200")
FIELDS: Mapping[str, Value] = {"B": 1, "NH": 2, "T": 128, "HS": 64}
MISTAKES = {
    "map": ("head / (NH / NH_kv)", "head % NH_kv"),
    "race": (
        "    const int batch =",
        "    if (threadIdx.x < 2) k_tile[0] = 0.0f;  // the same number twice\n    const int batch =",
    ),
}

Found = tuple[SearchResult, dict[str, StoredMeasurement], bool]


def search(folder: Path, **texts: str) -> Found:
    """The defaults of some families; their records; whether the database has a winner."""
    for name, text in texts.items():
        (folder / f"{name}.cu.j2").write_text(text)
    subject = choose_subject("forward", [str(folder / f"{name}.cu.j2") for name in texts], None)
    problem = subject.problem(FIELDS)
    with open_store(folder / "found.db") as store:
        result = search_one(subject, problem, CpuOpener(gpu("h200"), 2), Options(trials=len(texts)), store, silent)
        records = {record.candidate.template: record for record in store.measurements(problem)}
        return result, records, store.winner(problem, result.device) is not None


def family() -> str:
    return find_template("forward", "minimal_flash").path.read_text()


def test_what_was_right_by_luck_does_not_win(tmp_path: Path) -> None:
    for old, _ in MISTAKES.values():
        assert old in family()
    result, records, won = search(tmp_path, **{name: family().replace(*change) for name, change in MISTAKES.items()})
    assert {name: record.measurement.outcome for name, record in records.items()} == dict.fromkeys(
        MISTAKES, Outcome.WRONG_RESULT
    )
    assert records["race"].measurement.message.startswith("shared memory race: ")
    assert "(on forward B=2 NH=6 NH_kv=2 T=131 T_kv=257" in records["map"].measurement.message
    assert all(record.measurement.timing is None for record in records.values())
    assert (result.best, won) == (None, False)
    assert result.outcomes == {Outcome.WRONG_RESULT: 2}


def test_a_right_one_wins_over_one_that_is_wrong_elsewhere(tmp_path: Path) -> None:
    texts = {"map": family().replace(*MISTAKES["map"]), "right": family()}
    result, records, won = search(tmp_path, **texts)
    assert result.best is not None
    assert (result.best.candidate.template, won, result.unexamined) == ("right", True, "")
    if records["map"].measurement.outcome is Outcome.WRONG_RESULT:  # it was the faster one
        assert result.outcomes == {Outcome.WRONG_RESULT: 1, Outcome.OK: 1}


def test_who_led_when_a_search_was_interrupted_is_examined_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    def search_now(name: str) -> Found:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return search(folder, **{name: family().replace(*MISTAKES[name]) if name in MISTAKES else family()})

    for name in ("map", "right"):
        with monkeypatch.context() as patch:
            patch.setattr(examination.Examiner, "complaint", interrupt)
            with pytest.raises(KeyboardInterrupt):
                search_now(name)
    result, _, won = search_now("map")
    assert (result.best, won) == (None, False)
    result, _, won = search_now("right")
    assert (won, result.unexamined) == (True, "")
    monkeypatch.setattr(examination.Examiner, "complaint", interrupt)
    assert search_now("right")[2], "what has passed is not examined again"


def test_an_examination_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BuildError("no C++ compiler found")

    monkeypatch.setattr(examination, "build_emulator", refuse)
    result, _, won = search(tmp_path, right=family())
    assert result.best is not None
    assert won
    assert result.unexamined == "no C++ compiler found"


@pytest.mark.parametrize("name", [name for name in BUILTIN if name != "permute"])
def test_second_problems_keep_what_kernels_are_rendered_for(name: str) -> None:
    op = get_op(name)
    problem = op.problem()
    others = list(second_problems(op, problem))
    assert len(others) > 1
    assert all(other[field] == problem[field] for other in others for field in op.exact_fields)
    assert problem not in others


@pytest.mark.parametrize("layout", ["bthd", "packed"])
def test_second_problems_of_attention(layout: str) -> None:
    op = get_op("backward")
    first, second, *_ = second_problems(op, op.problem(layout=layout))
    for other in (first, second):
        assert other["NH"] != other["NH_kv"]
    if layout == "packed":
        assert first["T"] == first["T_kv"]
    else:
        assert first.integer("T") < first.integer("T_kv")
        assert second.integer("T") > second.integer("T_kv")


def axes_far_apart(op: str) -> dict[str, set[int]]:
    """Of the tensors of the problem of few of each: of rows and columns those whose stride exceeds 2^31 elements."""
    found = get_op(op)
    problem = list(second_problems(found, found.problem()))[2]
    family = next(template for template in builtin_templates(op) if template.why_unsupported(problem, SPEC) is None)
    source = render(family, problem, Space(family, problem, SPEC).default(), SPEC)
    tensors = found.tensors(problem)
    twins = [make_twin(source.plan, tensors, placement) for placement in FAR]
    placed = [tensor for twin in twins if twin is not None for tensor in twin.tensors]
    names = {tensor.name for tensor in placed if len(tensor.shape) == 4 and 1 not in tensor.shape}
    return {
        name: {axis for axis in (2, 3) if any(t.strides[axis] >= 2**31 for t in placed if t.name == name)}
        for name in names
    }


@pytest.mark.parametrize("op", ["forward", "backward", "matmul"])
def test_a_stride_itself_exceeds_32_bits_in_every_tensor(op: str) -> None:
    """An int of it is noticed only where an index is not 0: a row of one key has none."""
    columns = {3} if op == "matmul" else set()  # a head has too many
    apart = axes_far_apart(op)
    assert len(apart) >= 3
    assert all(axes >= {2} | columns for axes in apart.values()), apart


@pytest.mark.parametrize("op", ["forward", "backward", "matmul"])
def test_second_problems_are_longer_than_a_ring_of_tiles(op: str) -> None:
    config: dict[str, Value] = {"BLOCK_M": 96, "BLOCK_N": 128, "BLOCK_K": 64, "Q_STAGES": 2, "STAGES": 3}
    longer = examination.in_flight(op, config)
    found = get_op(op)
    for problem in (found.problem(), found.problem(causal=False) if op != "matmul" else found.problem()):
        others = list(second_problems(found, problem, longer))
        if op == "matmul":
            assert max(other.integer("K") for other in others[:3]) == 193
            assert (others[0].integer("M"), others[0].integer("N")) == (137, 200)
            wide = next(second_problems(found, problem, examination.in_flight(op, {"BLOCK_M": 256, "BLOCK_N": 256})))
            assert (wide.integer("M"), wide.integer("N")) == (265, 264)
        else:
            assert others[0].integer("T_kv") == 385
            assert others[0].integer("T") == (289 if op == "backward" else 131)
    assert examination.in_flight(op, {"THREADS": 128}) == {}


def test_second_problems_have_keys_for_every_split() -> None:
    """A step of decoding, its keys split and heads packed, is examined like any other candidate."""
    op, family = get_op("forward"), find_template("forward", "flash_mma")
    problem = op.problem(B=16, NH=32, NH_kv=1, T=1, T_kv=4096, HS=256, dtype="bf16", causal=False)
    values = {"BLOCK_M": 16, "WARPS": 1, "BLOCK_N": 16, "STAGES": 3, "MIN_BLOCKS": 3, "Q_IN_REGISTERS": False}
    config = {**family.defaults, **values, "SPLIT": 16, "PACK_HEADS": True, "HEADS_AT_ONCE": 8}
    assert Space(family, problem, SPEC).why_not(config) is None
    others = [
        other for other in second_problems(op, problem, examination.in_flight("forward", config))
        if Space(family, other, SPEC).why_not(config, called=True) is None
    ]  # fmt: skip
    assert [(other["T"], other["T_kv"], other["NH_kv"]) for other in others[:2]] == [(131, 257, 2), (257, 257, 2)]
    assert not any(Space(family, other, SPEC).why_not(config) is None for other in others[:2])


@pytest.mark.parametrize(("op", "longer"), [("backward", {"T": 200, "T_kv": 300}), ("forward", {"T_kv": 300})])
def test_equal_lengths_stay_equal_when_they_are_raised(op: str, longer: dict[str, int]) -> None:
    """Of a forward pass the keys alone are a stream; a packed problem has as many queries."""
    found = get_op(op)
    first, *_ = second_problems(found, found.problem(layout="packed"), longer)
    assert (first["T"], first["T_kv"]) == (300, 300)


@pytest.mark.parametrize("op", ["forward", "backward", "softmax", "softmax_backward", "matmul"])
@pytest.mark.parametrize("layout", ["bthd", "packed"])
def test_one_of_the_examined_problems_has_one_key(op: str, layout: str) -> None:
    """Without a mask no other row sees so few: one that is taken for a row without keys shows there."""
    found = get_op(op)
    fields = {field.name for field in found.fields}
    given: dict[str, Value] = {"layout": layout, "causal": False} if op in ("forward", "backward") else {}
    others = list(second_problems(found, found.problem(**given)))[: examination._PROBLEMS]
    assert 1 in {other["T_kv" if "T_kv" in fields else "K"] for other in others}


def test_a_traced_run_without_end_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidate ran to its end where it was timed, and on the emulator: the tracer may just be slow there."""
    monkeypatch.setattr(examination, "LIMIT_S", 1e-3)
    monkeypatch.setattr(examination.Examiner, "_verify", lambda *_: "")
    result, _, won = search(tmp_path, right=family())
    assert (result.outcomes, won) == ({Outcome.OK: 1}, True)
    assert "the traced run took longer than the limit" in result.unexamined


def test_what_passed_is_not_examined_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_PASSED", set())
    examined = []

    def examine(_: examination.Examiner, candidate: Candidate, __: object) -> str:
        examined.append(candidate)
        return ""

    monkeypatch.setattr(examination.Examiner, "_examine", examine)
    for _ in range(2):
        result, _, won = search(tmp_path, right=family())
        assert (won, result.unexamined) == (True, "")
        (tmp_path / "found.db").unlink()
    assert len(examined) == 1


@pytest.mark.parametrize("op", ["forward", "backward"])
@pytest.mark.parametrize("causal", [False, True])
def test_every_grouping_of_heads_has_second_problems(op: str, causal: bool) -> None:
    """Without one, what the search found is examined on no other problem."""
    spec = gpu("h200")
    for name in ("flash_mma", "flash_wgmma"):
        template = find_template(op, name)
        problems = list(second_problems(get_op(op), get_op(op).problem(dtype="fp16", HS=64, causal=causal)))
        for heads in next(p.values for p in template.parameters if p.name == "HEADS_AT_ONCE"):
            config = {**template.defaults, "HEADS_AT_ONCE": heads}
            fitting = [other for other in problems if Space(template, other, spec).why_not(config) is None]
            assert len(fitting) >= 3, (name, heads)
            assert len({(other["T"], other["T_kv"]) for other in fitting}) >= 3


def test_what_a_leader_needs_is_built_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both binaries are in the cache when it is examined, whatever else led meanwhile."""
    monkeypatch.setattr(examination, "_PASSED", set())
    (tmp_path / "right.cu.j2").write_text(family())
    subject = choose_subject("forward", [str(tmp_path / "right.cu.j2")], None)
    (template,) = subject.templates
    identity = CpuOpener(gpu("h200"), 2).open().identity
    task = Task(
        subject.op, subject.source, subject.problem(FIELDS), {template.name: template}, identity, {}, 0, 20.0
    )  # fmt: skip
    candidate = Candidate(template.name, template.hash, tuple(template.defaults.items()))
    with closing(examination.Examiner(task, BuildCache(tmp_path / "cache"))) as examiner:
        for _ in range(3):
            examiner.expect([candidate])
        wait(examiner.expected[candidate])
        compiled = []
        monkeypatch.setattr(building, "_compile", lambda *_: compiled.append(1))
        assert examiner.complaint(candidate) == ""
    assert (compiled, examiner.skipped) == ([], "")
