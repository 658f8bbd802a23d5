"""Which configuration answers for a problem, and what the answer says about itself."""

import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.answers import environment, lookup
from autotune.compilers.toolchain import find_nvcc
from autotune.core.candidate import Candidate
from autotune.core.errors import (
    BuildError,
    DeviceMissing,
    NoFeasibleConfiguration,
    ProblemError,
    StoreError,
    UsageError,
)
from autotune.core.measurement import Measurement
from autotune.core.model_version import DRIVER, MODEL
from autotune.core.problem import Problem
from autotune.families import template
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus import present as detect
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.gpus.meant import usual_gpu
from autotune.ops.registry import get_op
from autotune.store import Store, entries, open_store
from autotune.store.json_lines import Line
from tests.small_templates import MakeTemplate
from tests.store.store_records import CPU_H200, H100, H200, SOURCE, ok

FORWARD = get_op("forward").problem()
A100 = DeviceIdentity("cuda", gpu("a100"))


@pytest.fixture
def family(make_template: MakeTemplate, monkeypatch: pytest.MonkeyPatch) -> Template:
    """The one family there is."""
    made = make_template()
    monkeypatch.setattr(template, "builtin_templates", lambda op: (made,) if op == "forward" else ())
    return made


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Line]]:
    """The winners that come with the package: none, until a test adds some."""
    lines: list[Line] = []
    monkeypatch.setattr(entries, "shipped_winners", lambda: tuple(lines))
    entries._shipped.cache_clear()
    yield lines
    entries._shipped.cache_clear()


@pytest.fixture
def store(tmp_path: Path, shipped: list[Line], monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name in ("AUTOTUNE_DEVICE", "AUTOTUNE_TARGET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "a.db"))
    monkeypatch.setattr(detect, "present_gpu", lambda index=0: None)
    with open_store() as opened:
        yield opened


def made(family: Template, BLOCK_M: int = 32, template_hash: str | None = None, **config: Any) -> Candidate:
    values = {**family.defaults, "BLOCK_M": BLOCK_M, **config}
    candidate = Space(family, FORWARD, gpu("h200")).candidate(values)
    return candidate if template_hash is None else replace(candidate, template_hash=template_hash)


def line(identity: DeviceIdentity, problem: Problem, candidate: Candidate, measurement: Measurement) -> Line:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return Line(
        record="winner", identity=identity, problem=problem, candidate=candidate, source_hash=SOURCE, stage="final",
        package_version="0.1.0", created_at=moment, measurement=measurement,
    )  # fmt: skip


def test_the_exact_winner(store: Store, family: Template) -> None:
    store.record(H200, FORWARD, made(family, 16), SOURCE, ok(2.0))
    number = store.record(H200, FORWARD, made(family, 64), SOURCE, ok(1.5))
    found = autotune.best("forward")
    assert (found.answer, found.kind, found.ms, found.origin) == ("exact", "measured", 1.5, "own")
    assert (found.problem, found.found, found.found_on, found.measurement_id) == (FORWARD, FORWARD, "h200", number)
    assert (found.device, found.candidate) == (gpu("h200"), made(family, 64))
    assert found.config == {"BLOCK_M": 64, "WARPS": 4, "PAD": 0, "MODE": "plain"}
    assert "constexpr int BLOCK_M = 64;" in found.source.code
    assert found.plan.launches[0].grid == (16, 12, 4)


def test_the_nearest_problem_is_rendered_for_the_one_asked(store: Store, family: Template) -> None:
    for T, BLOCK_M in ((256, 16), (1024, 32), (4096, 64)):
        store.record(H200, FORWARD.replace(T=T, T_kv=T), made(family, BLOCK_M), SOURCE, ok(T / 1000))
    found = autotune.best("forward", T=3000)
    assert (found.answer, found.ms, found.found_ms, found.config["BLOCK_M"]) == ("nearest", None, 4.096, 64)
    assert found.found_for == f"for {found.found}, the nearest problem"
    data = found.to_json()
    assert (data["ms"], data["found_ms"]) == (None, 4.096)
    assert found.found == FORWARD.replace(T=4096, T_kv=4096)
    assert found.problem == FORWARD.replace(T=3000, T_kv=3000)
    assert found.plan.launches[0].grid == (47, 12, 4)
    assert f"tuned for {found.found}" in found.notes


@pytest.mark.parametrize("change", [{"HS": 32}, {"dtype": "fp32"}])
def test_head_size_and_width_of_elements_are_never_changed(store: Store, family: Template, change: Any) -> None:
    store.record(H200, FORWARD, made(family, 16), SOURCE, ok(1.0))
    assert autotune.best("forward", **change).answer == "default"


@pytest.mark.parametrize("change", [{"dtype": "bf16"}, {"causal": False}, {"layout": "bhtd"}])
def test_winners_of_another_mask_layout_or_dtype_serve_where_there_is_none_of_the_same(
    store: Store, family: Template, change: Any
) -> None:
    store.record(H200, FORWARD, made(family, 16), SOURCE, ok(1.0))
    found = autotune.best("forward", **change)
    assert (found.answer, found.config["BLOCK_M"], found.ms, found.found) == ("nearest", 16, None, FORWARD)
    assert found.sure == "plausible: timed for a problem of the same lengths, of another mask, layout or dtype"


def test_a_nearer_problem_whose_configuration_does_not_fit_is_passed_over(
    store: Store, make_template: MakeTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = '[[constraints]]\nexpr = "T % BLOCK_M == 0"\nwhy = "whole tiles"\n'
    family = make_template(old='[[constraints]]\nexpr = "PAD', new=whole + '[[constraints]]\nexpr = "PAD')
    monkeypatch.setattr(template, "builtin_templates", lambda op: (family,))
    store.record(H200, FORWARD, made(family, 64), SOURCE, ok(1.0))
    store.record(H200, FORWARD.replace(T=512, T_kv=512), made(family, 16), SOURCE, ok(1.0))
    found = autotune.best("forward", T=1040)
    assert (found.answer, found.config["BLOCK_M"]) == ("nearest", 16)


def test_distance_is_the_norm_of_log_ratios() -> None:
    exact = get_op("forward").exact_fields

    def distance(asked: Problem, found: Problem, exact: Sequence[str]) -> float:
        return math.dist(entries.place(asked, exact), entries.place(found, exact))

    assert distance(FORWARD, FORWARD, exact) == 0.0
    assert distance(FORWARD, FORWARD.replace(T=2048), exact) == 1.0
    assert distance(FORWARD, FORWARD.replace(T=512), exact) == 1.0
    assert distance(FORWARD, FORWARD.replace(B=32, T=16384), exact) == 5.0  # 3² + 4²
    assert distance(FORWARD, FORWARD.replace(HS=128, causal=False), exact) == 0.0


def test_another_gpu_of_the_same_architecture(store: Store, family: Template) -> None:
    store.record(A100, FORWARD, made(family, 16), SOURCE, ok(0.5))
    assert autotune.best("forward", device="h200").answer == "default"
    store.record(H100, FORWARD.replace(T=512), made(family, 64), SOURCE, ok(0.7))
    found = autotune.best("forward", device="h200")
    assert (found.answer, found.found_on, found.config["BLOCK_M"]) == ("architecture", "h100", 64)
    assert (found.ms, found.found_ms) == (None, 0.7)
    assert found.device.name == "h200"
    assert "tuned on h100, another GPU of the same architecture" in found.notes
    assert autotune.best("forward", T=512, T_kv=1024, device="h100").answer == "exact"


def test_the_default_when_nothing_is_known(store: Store, family: Template) -> None:
    found = autotune.best("forward")
    assert (found.answer, found.kind, found.ms, found.found, found.measurement_id) == (
        "default",
        "none",
        None,
        None,
        None,
    )
    assert found.config == family.defaults
    assert "nothing like it has been tuned" in found.notes[0]


def test_no_database_at_all_is_no_error(tmp_path: Path, store: Store, family: Template) -> None:
    path = tmp_path / "none.db"
    assert autotune.best("forward", db=path).answer == "default"
    assert not path.exists()
    with open_store(path) as made_later:
        made_later.record(H200, FORWARD, made(family), SOURCE, ok(1.0))
    assert autotune.best("forward", db=path).answer == "exact"


def test_measured_before_estimated(store: Store, family: Template) -> None:
    store.record(CPU_H200, FORWARD, made(family, 64), SOURCE, ok(0.1, "estimated"))
    found = autotune.best("forward")
    assert (found.answer, found.kind, found.ms, found.found_on) == ("exact", "estimated", 0.1, "cpu:h200")
    store.record(H200, FORWARD, made(family, 16), SOURCE, ok(5.0))
    found = autotune.best("forward")
    assert (found.kind, found.ms, found.found_on) == ("measured", 5.0, "h200")


def test_ones_own_before_shipped(store: Store, family: Template, shipped: list[Line]) -> None:
    shipped.append(line(H200, FORWARD, made(family, 64), ok(1.0)))
    found = autotune.best("forward")
    assert (found.answer, found.origin, found.ms, found.measurement_id) == ("exact", "shipped", 1.0, None)
    assert autotune.best("forward", T=2048).origin == "shipped"
    store.record(H200, FORWARD, made(family, 16), SOURCE, ok(2.0))
    assert [autotune.best("forward", T=T).found_ms for T in (1024, 2048)] == [2.0, 2.0]


def test_a_shipped_measurement_before_ones_own_estimate(store: Store, family: Template, shipped: list[Line]) -> None:
    shipped.append(line(H200, FORWARD, made(family, 64), ok(1.0)))
    store.record(CPU_H200, FORWARD, made(family, 16), SOURCE, ok(0.5, "estimated"))
    found = autotune.best("forward")
    assert (found.kind, found.origin) == ("measured", "shipped")


def test_a_winner_whose_template_changed_is_not_exact(store: Store, family: Template) -> None:
    store.record(H200, FORWARD, made(family, 64, "a" * 16), SOURCE, ok(1.0))
    found = autotune.best("forward")
    assert (found.answer, found.config["BLOCK_M"], found.found) == ("nearest", 64, FORWARD)
    assert found.candidate.template_hash == family.hash
    assert "template family has changed since this was measured" in found.notes


def test_the_best_of_the_present_template_is_exact_beside_a_faster_old_one(store: Store, family: Template) -> None:
    store.record(H200, FORWARD, made(family, 64, "a" * 16), SOURCE, ok(1.0))
    store.record(H200, FORWARD, made(family, 16), SOURCE, ok(3.0))
    number = store.record(H200, FORWARD, made(family, 32), SOURCE, ok(2.0))
    found = autotune.best("forward")
    assert (found.answer, found.ms, found.measurement_id) == ("exact", 2.0, number)
    said = "a configuration of family was measured at 1 ms, but this template has changed since"
    assert f"{said} (`autotune db recheck` tells whether its machine code has)" in found.notes


def test_a_changed_template_without_that_value_falls_through(store: Store, family: Template) -> None:
    gone = replace(made(family, 64, "a" * 16), values=(("BLOCK_M", 48), ("WARPS", 4), ("PAD", 0), ("MODE", "plain")))
    store.record(H200, FORWARD, gone, SOURCE, ok(1.0))
    assert autotune.best("forward").answer == "default"


def test_another_driver_or_compiler_is_said(store: Store, family: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.gpus.nvml.driver_release", lambda: "580.2")
    monkeypatch.setattr(environment, "present_compiler", lambda: "nvcc 13.0.88")
    store.record(H200, FORWARD, made(family), SOURCE, ok(1.0, driver="570.1", compiler="nvcc 12.8.1"))
    found = autotune.best("forward")
    assert found.answer == "exact"
    assert found.notes == (
        "timed with driver 570.1, this machine has 580.2",
        "built with nvcc 12.8.1, this machine has nvcc 13.0.88",
    )
    assert list(environment.differences("580.2", "nvcc 13.0.88")) == []
    assert list(environment.differences("", "")) == []


def test_the_compiler_is_the_one_that_builds_use() -> None:
    try:
        found = str(find_nvcc())
    except BuildError:
        pytest.skip("there is no nvcc")
    assert environment.present_compiler() == found


def test_which_device_is_meant(store: Store, family: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(device: str | None = None) -> str:
        return autotune.best("forward", device=device).device.name

    assert asked() == "h200"
    monkeypatch.setenv("AUTOTUNE_TARGET", "a100")
    assert (asked(), asked("cpu"), asked("cpu:h100"), asked("NVIDIA H200")) == ("a100", "a100", "h100", "h200")
    monkeypatch.setattr(detect, "present_gpu", lambda index=0: replace(gpu("h100"), name="h100-66sm"))
    lookup._ANSWERS.clear()  # a GPU does not come and go in the life of a process
    assert (asked(), asked("cuda"), asked("cpu"), asked("h100-66sm")) == ("h100-66sm", "h100-66sm", "a100", "h100-66sm")
    monkeypatch.setenv("AUTOTUNE_DEVICE", "b200")
    assert (asked(), asked("h200")) == ("b200", "h200")


def test_a_gpu_known_from_the_database_alone(store: Store, family: Template) -> None:
    odd = DeviceIdentity("cuda", replace(gpu("h100"), name="h100-pcie"))
    store.record(odd, FORWARD, made(family), SOURCE, ok(1.0))
    assert autotune.best("forward", device="h100-pcie").answer == "exact"
    with pytest.raises(UsageError, match="unknown GPU 'h100-nvl'"):
        autotune.best("forward", device="h100-nvl")


def test_cuda_without_a_gpu(store: Store, family: Template) -> None:
    with pytest.raises(DeviceMissing, match="there is no GPU here"):
        autotune.best("forward", device="cuda")
    with pytest.raises(DeviceMissing, match="there is no GPU 1 here"):
        autotune.best("forward", device="cuda:1")


def test_the_gpu_of_look_ups_that_name_none(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    assert usual_gpu() == "h200"
    monkeypatch.setenv("AUTOTUNE_TARGET", "a100")
    assert usual_gpu() == "a100"
    monkeypatch.setenv("AUTOTUNE_DEVICE", "cuda")
    assert usual_gpu() is None
    monkeypatch.setattr(detect, "present_gpu", lambda index=0: gpu("t4"))
    assert usual_gpu() == "t4"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"op": "sideways"}, "unknown op 'sideways'"),
        ({"T": 0}, "T=0 must be at least 1"),
        ({"T": [1]}, "not a whole number"),
        ({"NH": 5, "NH_kv": 2}, "not divisible"),
        ({"shape": 3}, "no field 'shape'"),
    ],
)
def test_a_problem_that_makes_no_sense(store: Store, family: Template, arguments: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        autotune.best(**arguments)


def test_a_problem_that_no_template_supports(store: Store, family: Template) -> None:
    with pytest.raises(NoFeasibleConfiguration, match="family: it needs HS <= 128"):
        autotune.best("forward", HS=256)
    with pytest.raises(NoFeasibleConfiguration, match="there are no templates for this op"):
        autotune.best("backward")


def test_a_family_of_ones_own(store: Store, family: Template, make_template: MakeTemplate, tmp_path: Path) -> None:
    mine = make_template(name="mine")
    store.record(H200, FORWARD, made(mine, 16), SOURCE, ok(1.0))
    slower = store.record(H200, FORWARD, made(family, 64), SOURCE, ok(2.0))
    found = autotune.best("forward")
    assert (found.answer, found.measurement_id) == ("exact", slower)
    assert "is not among those looked at (--template and --full-precision choose)" in found.notes[0]
    found = autotune.best(template=mine.path)
    assert (found.answer, found.ms, found.candidate.template) == ("exact", 1.0, "mine")
    with pytest.raises(UsageError, match="computes 'forward', not 'backward'"):
        autotune.best("backward", template=mine.path)


def test_one_shipped_family_alone(store: Store, make_template: MakeTemplate, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = make_template(name="one"), make_template(name="other")
    monkeypatch.setattr(template, "builtin_templates", lambda op: (one, other))
    store.record(H200, FORWARD, made(one, 16), SOURCE, ok(1.0))
    store.record(H200, FORWARD, made(other, 64), SOURCE, ok(2.0))
    assert autotune.best("forward").candidate.template == "one"
    found = autotune.best(template="other")
    assert (found.answer, found.ms, found.candidate.template) == ("exact", 2.0, "other")
    with pytest.raises(UsageError, match="op 'forward' has no template 'third'; it has: one, other"):
        autotune.best(template="third")


def test_an_answer_as_json(store: Store, family: Template) -> None:
    number = store.record(H200, FORWARD, made(family, 64), SOURCE, ok(1.5))
    data = autotune.best("forward").to_json()
    assert data["answer"] == "exact"
    assert data["problem"] == {"op": "forward", **FORWARD.fields}
    assert (data["measurement_id"], data["ms"], data["kind"]) == (number, 1.5, "measured")
    assert data["config"] == made(family, 64).config
    source = autotune.best("forward").source
    assert (data["source"], data["source_hash"]) == (source.code, source.hash)
    assert data["plan"]["steps"][1]["grid"] == (16, 12, 4)
    assert data["plan"]["buffers"][0]["name"] == "q"
    assert data.keys() - autotune.best("forward").to_json(source=False, plan=False).keys() == {"plan", "source"}


def test_asking_again_gives_the_same_answer_until_something_is_written(store: Store, family: Template) -> None:
    store.record(H200, FORWARD, made(family, 16), SOURCE, ok(9.0))
    first = autotune.best("forward")
    assert autotune.best("forward") is first
    for i in range(20):  # quicker than the clock of any file system
        store.record(H200, FORWARD, made(family, (16, 32, 64)[i % 3], PAD=i % 2), f"{i:016x}", ok(8.0 - i / 10))
        assert autotune.best("forward").ms == 8.0 - i / 10


def test_a_database_that_is_replaced_is_read_anew(tmp_path: Path, store: Store, family: Template) -> None:
    store.record(H200, FORWARD, made(family), SOURCE, ok(9.0))
    assert autotune.best("forward").ms == 9.0
    with open_store(tmp_path / "b.db") as other:
        other.record(H200, FORWARD, made(family), SOURCE, ok(7.0))
    store.close()
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"a.db{suffix}").unlink(missing_ok=True)
    (tmp_path / "b.db").replace(tmp_path / "a.db")
    assert autotune.best("forward").ms == 7.0
    (tmp_path / "a.db").unlink()
    assert autotune.best("forward").answer == "default"


def test_a_broken_database_is_an_error(tmp_path: Path, store: Store, family: Template) -> None:
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(StoreError, match=r"cannot read the database .*bad\.db"):
        autotune.best("forward", db=bad)
    with pytest.raises(StoreError, match="is a folder"):
        autotune.best("forward", db=tmp_path)
    with pytest.raises(UsageError, match="malformed database URL"):
        autotune.best("forward", db="postgresql+psycopg://h:port/x")


def test_another_schema_version_is_an_error(tmp_path: Path, store: Store, family: Template) -> None:
    with store.write() as session:
        session.connection().exec_driver_sql("UPDATE autotune_version SET version_num = '0099'")
    with pytest.raises(StoreError, match="schema version 0099"):
        autotune.best("forward")


def test_looking_up_loads_no_sqlalchemy(tmp_path: Path) -> None:
    open_store(tmp_path / "a.db").close()
    code = (
        "import sys, autotune; assert 'numpy' not in sys.modules; autotune.best('forward', device='h200'); "
        "print([name for name in ('sqlalchemy', 'alembic', 'optuna') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"AUTOTUNE_DB": str(tmp_path / "a.db"), "PATH": ""}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_an_estimate_by_an_older_model_says_so(store: Store, family: Template) -> None:
    store.record(CPU_H200, FORWARD, made(family, 32), SOURCE, ok(0.5, "estimated", driver="", compiler=""))
    old = autotune.best("forward")
    assert (old.kind, old.ms) == ("estimated", 0.5)
    assert old.notes == (f"estimated by model 1, an older one than {MODEL}: search again for new figures",)
    store.record(CPU_H200, FORWARD, made(family, 16), SOURCE, ok(0.7, "estimated", driver=DRIVER, compiler=""))
    new = autotune.best("forward")
    assert (new.config["BLOCK_M"], new.ms, new.notes) == (16, 0.7, ())


def test_of_estimates_by_a_template_as_it_is_now_the_newest_models_come_first(store: Store, family: Template) -> None:
    store.record(CPU_H200, FORWARD, made(family, 64, "a" * 16), SOURCE, ok(0.1, "estimated", driver=DRIVER))
    store.record(CPU_H200, FORWARD, made(family, 16), SOURCE, ok(0.3, "estimated", driver=DRIVER))
    store.record(CPU_H200, FORWARD, made(family, 32), SOURCE, ok(0.2, "estimated", driver="estimates, model 1"))
    assert (autotune.best("forward").ms, autotune.best("forward").config["BLOCK_M"]) == (0.3, 16)
