"""Look-ups that ask for more than the least time: for the least energy, within an error, under a limit of the GPU."""

from dataclasses import replace

import pytest

import autotune
from autotune.core.errors import NoFeasibleConfiguration, UsageError
from autotune.core.measurement import Energy, Measurement, OutputCheck, Verification
from autotune.families.template import Template
from autotune.gpus.cap import Cap
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.store import Store
from autotune.store.json_lines import Line
from tests.answers.lookup_records import FORWARD, line, made
from tests.cli.calling import Capture, call
from tests.store.store_records import CPU_H200, H200, SOURCE, ok

CAPPED = DeviceIdentity("cuda", gpu("h200"), Cap(1200))


def drew(ms: float, mj: float, part: float = 0.05) -> Measurement:
    """Of this time, energy and part of the error bound."""
    verified = Verification("forward", (OutputCheck("out", part * 2e-3, 2e-3, 0),), 4, 4)
    return replace(ok(ms), energy=Energy(mj, mj / ms, ms, 100, 0.5, "counter", 80.0), verification=verified)


def test_the_least_energy_and_the_least_product(store: Store, family: Template) -> None:
    store.record(H200, FORWARD, made(family, 16), SOURCE, ok(0.9))  # nobody knows its energy
    store.record(H200, FORWARD, made(family, 32), SOURCE, drew(1.0, 600.0))
    store.record(H200, FORWARD, made(family, 64), SOURCE, drew(1.3, 500.0))
    by = {name: autotune.best("forward", objective=name) for name in ("time", "energy", "edp")}
    assert {name: found.config["BLOCK_M"] for name, found in by.items()} == {"time": 16, "energy": 64, "edp": 32}
    assert (by["energy"].answer, by["energy"].ms, by["energy"].energy_mj) == ("exact", 1.3, 500.0)
    assert by["time"].energy_mj is None
    assert by["edp"].to_json()["energy_mj"] == 600.0


def test_finalists_come_first_by_their_newest_figures(store: Store, family: Template) -> None:
    store.record(H200, FORWARD, made(family, 16), SOURCE, drew(1.0, 400.0))
    for mj in (450.0, 550.0):
        store.record(H200, FORWARD, made(family, 32), SOURCE, drew(1.0, mj), stage="final")
    store.record(H200, FORWARD, made(family, 64), SOURCE, drew(1.0, 500.0), stage="final")
    assert autotune.best("forward", objective="energy").energy_mj == 500.0


def test_where_no_energy_is_known_the_answer_says_so(store: Store, family: Template) -> None:
    store.record(H200, FORWARD, made(family, 16), SOURCE, ok(0.9))
    found = autotune.best("forward", objective="energy")
    assert (found.answer, found.ms) == ("exact", 0.9)
    assert found.notes[0] == (
        "nothing on record of this problem has its energy known: this is the answer by time without a limit"
    )
    with pytest.raises(UsageError, match="'time,energy' has no single winner"):
        autotune.best("forward", objective="time,energy")


def test_a_smaller_error_may_cost_time(store: Store, family: Template, shipped: list[Line]) -> None:
    store.record(H200, FORWARD, made(family, 16), SOURCE, drew(1.0, 500.0, 0.9))
    store.record(H200, FORWARD, made(family, 32), SOURCE, drew(1.2, 500.0, 0.4))
    store.record(CPU_H200, FORWARD, made(family, 64), SOURCE, replace(ok(1.0, "estimated")))
    found = [autotune.best("forward", max_error=error) for error in (None, 1.0, 0.5, 0.1)]
    assert [(best.kind, best.config["BLOCK_M"]) for best in found] == [
        ("measured", 16), ("measured", 16), ("measured", 32), ("estimated", 64),
    ]  # fmt: skip
    assert [best.error for best in found[1:]] == pytest.approx([0.9, 0.4, 0.05])
    shipped.append(line(H200, FORWARD, made(family, 16, PAD=1), replace(drew(3.0, 1.0, 0.2), energy=None)))
    assert autotune.best("forward", max_error=0.3).config["PAD"] == 0  # what ships was read before
    with pytest.raises(NoFeasibleConfiguration, match=r"has an error of at most 0.001 of the bound: `autotune search"):
        autotune.best("forward", max_error=0.001)


def test_shipped_winners_have_errors_too(store: Store, family: Template, shipped: list[Line]) -> None:
    shipped.append(line(H200, FORWARD, made(family, 64), ok(3.0)))
    found = autotune.best("forward", max_error=0.3)
    assert (found.origin, found.ms) == ("shipped", 3.0)
    assert found.error == pytest.approx(0.05)
    with pytest.raises(NoFeasibleConfiguration):
        autotune.best("forward", max_error=0.01)


def test_results_under_a_limit_are_kept_apart(store: Store, family: Template) -> None:
    store.record(CAPPED, FORWARD, made(family, 16), SOURCE, ok(0.5))
    assert autotune.best("forward").answer == "default"  # nor is it a neighbour
    assert autotune.best("forward", T=2048).answer == "default"
    under = autotune.best("forward", device="h200@1200MHz")
    assert (under.answer, under.ms, under.found_on, under.config["BLOCK_M"]) == ("exact", 0.5, "h200@1200MHz", 16)
    store.record(H200, FORWARD, made(family, 64), SOURCE, ok(0.4))
    assert autotune.best("forward").config["BLOCK_M"] == 64
    assert autotune.best("forward", device="h200@1200MHz").config["BLOCK_M"] == 16
    other = autotune.best("forward", device="h200@400W")
    assert (other.answer, other.ms, other.config["BLOCK_M"]) == ("nearest", None, 64)
    assert "nothing on record of this problem has the GPU at 400W" in other.notes[0]


def test_the_commands_ask_likewise(store: Store, family: Template, capsys: Capture) -> None:
    store.record(H200, FORWARD, made(family, 16), SOURCE, drew(1.0, 500.0, 0.9))
    number = store.record(H200, FORWARD, made(family, 32), SOURCE, drew(1.2, 400.0, 0.4))
    for asked in (["--objective", "energy"], ["--max-error", "0.5"]):
        assert call(capsys, "best", *asked)["measurement_id"] == number
    [row] = call(capsys, "list", "winners", "--objective", "energy")
    assert (row["id"], row["energy_mj"], row["power_w"]) == (number, 400.0, pytest.approx(400.0 / 1.2))
    assert [row["ms"] for row in call(capsys, "list", "winners", "--own")] == [1.0]
    assert call(capsys, "show", str(number))["measurement"]["energy"]["mj"] == 400.0
