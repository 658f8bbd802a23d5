"""Which configuration answers for a problem, and what the answer says about itself."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.answers import environment, lookup
from autotune.compilers.toolchain import find_nvcc
from autotune.core.errors import (
    BuildError,
    DeviceMissing,
    NoFeasibleConfiguration,
    ProblemError,
    UsageError,
)
from autotune.core.problem import Problem
from autotune.core.words import nearest_round
from autotune.families import template
from autotune.families.template import Template
from autotune.gpus import present as detect
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.gpus.meant import usual_gpu
from autotune.ops.registry import get_op
from autotune.store import Store, entries
from autotune.store.json_lines import Line
from tests.answers.lookup_records import A100, FORWARD, line, made
from tests.small_templates import MakeTemplate
from tests.store.store_records import CPU_H200, H100, H200, SOURCE, ok


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
    assert "verified for that problem, not for this one: `autotune.kernel(...).verify()` does it here" in found.notes


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


def test_lengths_that_change_are_answered_as_round_ones_next_to_them(store: Store, family: Template) -> None:
    for T, BLOCK_M in ((1024, 16), (2048, 64), (1000, 32)):
        store.record(H200, FORWARD.replace(T=T, T_kv=T), made(family, BLOCK_M), SOURCE, ok(T / 1000))
    for T, answer, BLOCK_M, of in ((1000, "exact", 32, 1000), (1100, "nearest", 16, 1024), (2047, "nearest", 64, 2048)):
        found = lookup.best_of_lengths("forward", T=T)
        assert (found.answer, found.config["BLOCK_M"]) == (answer, BLOCK_M)
        assert (found.problem.integer("T"), found.found) == (T, FORWARD.replace(T=of, T_kv=of))
        assert found.ms == (1.0 if answer == "exact" else None)
        assert found.plan.launches[0].grid[0] == -(-T // BLOCK_M)
    assert [nearest_round(n) for n in (1, 7, 9, 15, 1024, 1100, 1200, 4095)] == [1, 7, 10, 16, 1024, 1024, 1280, 4096]


def test_a_round_length_whose_configuration_does_not_fit_is_no_answer(
    store: Store, make_template: MakeTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = '[[constraints]]\nexpr = "T % BLOCK_M == 0"\nwhy = "whole tiles"\n'
    family = make_template(old='[[constraints]]\nexpr = "PAD', new=whole + '[[constraints]]\nexpr = "PAD')
    monkeypatch.setattr(template, "builtin_templates", lambda op: (family,))
    store.record(H200, FORWARD, made(family, 64), SOURCE, ok(1.0))
    store.record(H200, FORWARD.replace(T=512, T_kv=512), made(family, 16), SOURCE, ok(1.0))
    assert lookup.best_of_lengths("forward", T=1040).config["BLOCK_M"] == 16


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
