"""Recording, reading back and choosing winners, on every kind of database that can be had here."""

from collections.abc import Iterator
from typing import Any

import pytest

from autotune.answers.lookup import best
from autotune.core.errors import StoreError
from autotune.core.measurement import Measurement
from autotune.core.model_version import DRIVER, MODEL, model_of
from autotune.core.outcome import Outcome
from autotune.devices.emulated import CpuDevice
from autotune.families.space import Space
from autotune.families.template import builtin_templates
from autotune.gpus.known import gpu
from autotune.store import Owner, Store, entries, open_store
from autotune.store.claims import Terms
from tests.store.store_records import BACKWARD, CPU_H200, FORWARD, H200, SOURCE, candidate, failed, ok, timing, wrong


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


def test_every_outcome_reads_back_as_it_was_written(store: Store) -> None:
    written = {
        Outcome.OK: ok(1.25),
        Outcome.WRONG_RESULT: wrong(),
        **{
            outcome: failed(outcome, f"why {outcome}\x00\ud800")
            for outcome in Outcome
            if outcome not in {"ok", "wrong_result"}
        },
    }
    for i, measurement in enumerate(written.values()):
        store.record(H200, FORWARD, candidate(i), SOURCE, measurement)
    read = {record.measurement.outcome: record for record in store.measurements(FORWARD, "h200")}
    assert read.keys() == written.keys() == set(Outcome)
    for outcome, measurement in written.items():
        assert repr(read[outcome].measurement) == repr(measurement)  # NaN is unequal to itself, its repr is not
    first = read[Outcome.OK]
    assert (first.problem, first.candidate, first.device) == (FORWARD, candidate(0), "h200")
    assert (first.source_hash, first.stage, first.driver, first.compiler) == (SOURCE, "trial", "570.1", "nvcc 13.0.88")


def test_values_of_another_size_read_back(store: Store) -> None:
    """And where they are of the usual one, rows are those of before there was the field."""
    wide = FORWARD.replace(HS_v=96)
    for problem in (FORWARD, wide):
        store.record(H200, problem, candidate(), SOURCE, ok(1.0))
        assert [record.problem for record in store.measurements(problem, "h200")] == [problem]
    assert [winner.record.problem["HS_v"] for winner in store.winners()] == [64, 96]


def test_a_trial_is_recorded_once_for_each_source_driver_and_compiler(store: Store) -> None:
    first = store.record(H200, FORWARD, candidate(), SOURCE, ok(2.0))
    assert store.record(H200, FORWARD, candidate(), SOURCE, ok(1.0)) == first
    others = [
        store.record(H200, FORWARD, candidate(), "f" * 16, ok(2.0)),
        store.record(H200, FORWARD, candidate(), SOURCE, ok(2.0, driver="580")),
        store.record(H200, FORWARD, candidate(), SOURCE, ok(2.0, compiler="nvcc 13.1")),
        store.record(H200, BACKWARD, candidate(), SOURCE, ok(2.0)),
        store.record(CPU_H200, FORWARD, candidate(), SOURCE, ok(2.0, "estimated")),
        store.record(H200, FORWARD, candidate(template_hash="0" * 16), SOURCE, ok(2.0)),
    ]
    assert len({first, *others}) == 7
    assert [record.measurement.ms for record in store.measurements()] == [2.0] * 7


@pytest.mark.parametrize("ms", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(store: Store, ms: float) -> None:
    with pytest.raises(StoreError, match="no time a kernel can take"):
        store.record(H200, FORWARD, candidate(), SOURCE, Measurement(Outcome.OK, timing=timing(ms)))
    assert list(store.measurements()) == []


def test_ok_without_a_time_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="outcome ok has no time"):
        store.record(H200, FORWARD, candidate(), SOURCE, Measurement(Outcome.OK))


def test_following_by_id_gives_what_has_come_since(store: Store, url: str) -> None:
    ids = [store.record(H200, FORWARD, candidate(i), SOURCE, ok(1.0 + i)) for i in range(3)]
    with open_store(url) as other:
        assert [record.id for record in other.measurements(FORWARD, "h200", after_id=ids[0])] == ids[1:]
        late = store.record(H200, FORWARD, candidate(9), SOURCE, ok(9.0))
        assert [record.id for record in other.measurements(FORWARD, "h200", after_id=ids[-1])] == [late]
        assert list(other.measurements(FORWARD, "cpu:h200")) == []
        assert [r.id for r in other.measurements(FORWARD, "h200", outcome=Outcome.OK, driver="570.1")] == [*ids, late]
        assert list(other.measurements(FORWARD, "h200", driver="580")) == []


def test_the_fastest_ok_trial_wins_and_a_failed_one_never(store: Store) -> None:
    store.record(H200, FORWARD, candidate(0), SOURCE, wrong())
    assert store.winner(FORWARD, "h200") is None
    pruned = Measurement(Outcome.PRUNED, timing=timing(0.1))
    store.record(H200, FORWARD, candidate(1), SOURCE, pruned)
    assert store.winner(FORWARD, "h200") is None
    slow = store.record(H200, FORWARD, candidate(2), SOURCE, ok(3.0))
    assert _winner(store) == slow
    fast = store.record(H200, FORWARD, candidate(3), SOURCE, ok(2.0))
    store.record(H200, FORWARD, candidate(4), SOURCE, ok(2.5))
    assert _winner(store) == fast


def test_measured_and_estimated_winners_stay_apart(store: Store) -> None:
    measured = store.record(H200, FORWARD, candidate(0), SOURCE, ok(3.0))
    estimated = store.record(CPU_H200, FORWARD, candidate(0), SOURCE, ok(1.0, "estimated"))
    assert _winner(store) == measured
    assert _winner(store, "cpu:h200") == estimated
    assert [(w.record.id, w.kind) for w in store.winners(op="forward")] == [
        (estimated, "estimated"),
        (measured, "measured"),
    ]
    assert store.winner(FORWARD, "h200", "estimated") is None


def test_a_finalist_displaces_the_luckiest_trial(store: Store) -> None:
    for i, ms in enumerate([1.0, 1.1]):
        store.record(H200, FORWARD, candidate(i), SOURCE, ok(ms))
    finals = [
        store.record(H200, FORWARD, candidate(i), SOURCE, ok(ms), stage="final") for i, ms in enumerate([1.3, 1.2])
    ]
    assert store.name_winner(finals[1])
    assert _winner(store) == finals[1]
    store.record(H200, FORWARD, candidate(0), "e" * 16, ok(1.01))  # it has had its say among the finalists
    assert _winner(store) == finals[1]
    newcomer = store.record(H200, FORWARD, candidate(7), SOURCE, ok(1.1))
    assert _winner(store) == newcomer


def test_a_standing_winner_is_judged_by_its_newest_figure(store: Store) -> None:
    old = store.record(H200, FORWARD, candidate(0), SOURCE, ok(1.0), stage="final")
    assert store.name_winner(old)
    rival = store.record(H200, FORWARD, candidate(1), SOURCE, ok(1.03), stage="final")
    assert not store.name_winner(rival)
    assert _winner(store) == old
    again = store.record(H200, FORWARD, candidate(0), SOURCE, ok(1.05), stage="final")  # in the same comparison
    assert again > rival
    assert store.name_winner(rival)
    assert _winner(store) == rival


def test_a_winner_yields_to_a_new_version_of_its_template(store: Store) -> None:
    old = store.record(H200, FORWARD, candidate(0, template_hash="a" * 16), SOURCE, ok(1.0), stage="final")
    new = store.record(H200, FORWARD, candidate(0, template_hash="b" * 16), SOURCE, ok(2.0), stage="final")
    assert store.name_winner(old)
    assert store.name_winner(new)
    assert _winner(store) == new


def test_only_an_ok_measurement_can_be_named(store: Store) -> None:
    number = store.record(H200, FORWARD, candidate(), SOURCE, wrong())
    with pytest.raises(StoreError, match=f"measurement {number} cannot be a winner: its outcome is wrong_result"):
        store.name_winner(number)
    with pytest.raises(StoreError, match="measurement 999 cannot be a winner: there is none"):
        store.name_winner(999)


def test_a_search_is_known_by_its_settings(store: Store) -> None:
    first = store.start_search(H200, FORWARD, {"sampler": "tpe", "seed": 0}, {"trials": 10})
    assert (first.resumed, first.state, first.device, first.problem) == (False, "running", "h200", FORWARD)
    store.end_search(first.id, "interrupted")
    again = store.start_search(H200, FORWARD, {"seed": 0, "sampler": "tpe"}, {"trials": 20})
    assert (again.id, again.resumed, again.budget) == (first.id, True, {"trials": 20})
    others = [
        store.start_search(H200, FORWARD, {"sampler": "tpe", "seed": 1}, {}),
        store.start_search(CPU_H200, FORWARD, {"sampler": "tpe", "seed": 0}, {}),
        store.start_search(H200, BACKWARD, {"sampler": "tpe", "seed": 0}, {}),
    ]
    assert len({first.id, *(other.id for other in others)}) == 4
    number = store.record(H200, FORWARD, candidate(), SOURCE, ok(1.0), first.id)
    assert [record.id for record in store.measurements(search_id=first.id)] == [number]
    with pytest.raises(StoreError, match="there is no search 999"):
        store.end_search(999, "finished")


def test_a_candidate_is_claimed_by_one_owner_until_it_is_measured(store: Store) -> None:
    one, two = Owner.here(), Owner.here()
    assert store.claim(H200, FORWARD, candidate(), one).granted
    assert store.claim(H200, FORWARD, candidate(), one).granted  # asking again is no harm
    held = store.claim(H200, FORWARD, candidate(), two)
    assert (held.state, held.holder) == ("held", one)
    assert store.claim(H200, FORWARD, candidate(32), two).granted
    number = store.record(H200, FORWARD, candidate(), SOURCE, ok(1.0))
    answer = store.claim(H200, FORWARD, candidate(), two)
    assert (answer.state, answer.measurement_id) == ("measured", number)
    assert store.claim(H200, FORWARD, candidate(), two, Terms(drivers=["580"])).granted
    assert store.release(two) == 2
    assert store.claim(H200, FORWARD, candidate(32), one).granted


def test_lists_count_what_is_there(store: Store) -> None:
    store.record(H200, FORWARD, candidate(0), SOURCE, ok(3.0))
    store.record(H200, FORWARD, candidate(1), SOURCE, wrong())
    store.record(CPU_H200, BACKWARD, candidate(0), SOURCE, ok(2.0, "estimated"))
    store.record(H200, FORWARD, candidate(0), SOURCE, ok(3.1), stage="final")
    problems = {(s.problem, s.device): s for s in store.problems()}
    assert problems[FORWARD, "h200"].outcomes == {"ok": 1, "wrong_result": 1}
    assert problems[FORWARD, "h200"].best_ms == {"measured": 3.0}
    assert problems[BACKWARD, "cpu:h200"].best_ms == {"estimated": 2.0}
    assert [s.problem for s in store.problems(op="backward")] == [BACKWARD]
    devices = [(d.name, d.problems, d.trials, d.winners) for d in store.devices()]
    assert devices == [("cpu:h200", 1, 1, 1), ("h200", 1, 2, 1)]
    assert [r.measurement.ms for r in store.trials(op="forward", limit=2)] == [3.1, None]
    assert [r.measurement.ms for r in store.trials(template="other")] == []


def test_history_and_improvements(store: Store) -> None:
    ids = [store.record(H200, FORWARD, candidate(i), SOURCE, ok(ms)) for i, ms in enumerate([3.0, 4.0, 2.0, 2.5])]
    again = store.record(H200, FORWARD, candidate(2), SOURCE, ok(2.1), stage="final")
    changed = store.record(H200, FORWARD, candidate(2, template_hash="1" * 16), SOURCE, ok(2.2))
    assert [record.id for record in store.history(ids[2])] == [ids[2], again, changed]
    assert [record.id for record in store.improvements(FORWARD, "h200", "measured")] == [ids[0], ids[2]]


def test_a_look_up_reads_it(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_shipped", lambda capability: {})
    family = builtin_templates("forward")[0]
    tuned = Space(family, FORWARD, H200.spec).candidate(family.defaults)
    assert best("forward", db=url, device="h200").answer == "start"
    store.record(H200, FORWARD, tuned, SOURCE, ok(0.02))
    found = best("forward", db=url, device="h200")
    assert (found.answer, found.ms, found.candidate) == ("exact", 0.02, tuned)
    store.record(H200, FORWARD, candidate(), SOURCE, ok(0.01))  # of a template that is not there
    found = best("forward", db=url, device="h200")
    assert (found.answer, found.ms) == ("exact", 0.02)
    assert [best("forward", db=url, device="h200", T=T).answer for T in (512, 2048)] == ["nearest", "nearest"]
    assert best("forward", db=url, device="h100").answer == "architecture"
    assert best("forward", db=url, device="h200", HS=32).answer == "start"


def _winner(store: Store, device: str = "h200") -> Any:
    winner = store.winner(FORWARD, device)
    return None if winner is None else winner.record.id


def test_an_estimate_of_a_newer_model_wins_over_older_ones(store: Store) -> None:
    old = store.record(CPU_H200, FORWARD, candidate(32), SOURCE, ok(0.5, "estimated", driver=""))
    new = store.record(CPU_H200, FORWARD, candidate(32), SOURCE, ok(2.0, "estimated", driver=DRIVER))
    slower = store.record(CPU_H200, FORWARD, candidate(64), SOURCE, ok(3.0, "estimated", driver=DRIVER))

    def winner() -> int:
        found = store.winner(FORWARD, "cpu:h200", "estimated")
        assert found is not None
        return found.record.id

    assert winner() == new  # though 0.5 ms is less
    assert not store.name_winner(old)
    assert not store.name_winner(slower)
    assert winner() == new
    later = store.record(CPU_H200, FORWARD, candidate(64), SOURCE, ok(0.1, "estimated", driver="estimates, model 1"))
    assert winner() == new
    assert [record.id for record in store.trials(fastest=True)] == [new, slower, later, old]
    assert [record.id for record in store.improvements(FORWARD, "cpu:h200", "estimated")] == [new]


def test_a_search_does_not_count_estimates_of_older_models(store: Store) -> None:
    store.record(CPU_H200, FORWARD, candidate(), SOURCE, ok(0.5, "estimated", driver="estimates, model 1"))
    assert list(store.measurements(FORWARD, "cpu:h200", driver=DRIVER)) == []
    assert store.claim(CPU_H200, FORWARD, candidate(), Owner.here(), Terms(drivers=[DRIVER])).granted
    assert CpuDevice(gpu("h200")).environment()["driver"] == DRIVER


def test_models_by_number() -> None:
    assert model_of(DRIVER) == MODEL > model_of("estimates, model 1") == model_of("") == model_of("570.1") == 1
