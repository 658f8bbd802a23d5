"""Searches mirrored into a storage of Optuna's."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from autotune.cli.main import run
from autotune.core.candidate import Candidate, make_candidate
from autotune.core.errors import UsageError
from autotune.core.measurement import KernelResources, Measurement, Timing
from autotune.core.model_version import UNCOUNTED
from autotune.core.outcome import Outcome
from autotune.families.template import find_template
from autotune.store import Store, open_store
from autotune.tuning.mirroring import mirror_searches, study_name
from tests.search_doubles import IDENTITY, PROBLEM, VERIFIED, failed, took

FLASH = find_template("forward", "flash_simt")


def own(**config: Any) -> Candidate:
    return make_candidate("own", "hash-own", config)


def flash(**changes: Any) -> Candidate:
    return make_candidate(FLASH.name, FLASH.hash, {p.name: p.values[0] for p in FLASH.parameters} | changes)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "test.db") as opened:
        search = opened.start_search(IDENTITY, PROBLEM, {"templates": {"own": "hash-own", FLASH.name: FLASH.hash},
                                                         "sampler": "tpe", "seed": 3}, {})  # fmt: skip
        kernel = KernelResources("k", 40, 8, 0, 1024, 128, 0.5)
        uncounted = Timing("estimated", 0.1, 0.1, 0.1, 0.1, 0, f"a roofline {UNCOUNTED}")
        made = {
            own(M=64, MODE="b"): took(2.0),
            own(M=16, MODE="a"): took(1.0),
            flash(): Measurement(Outcome.OK, "", took(3.0).timing, VERIFIED, (kernel,)),
            own(M=32, MODE="a"): failed(Outcome.COMPILE_ERROR, "no such thing"),
            own(M=32, MODE="b"): failed(Outcome.PRUNED),
            own(M=64, MODE="a"): failed(Outcome.INFEASIBLE, "too large"),
            flash(**{FLASH.parameters[0].name: FLASH.parameters[0].values[1]}): failed(Outcome.CRASH),
            own(M=128, MODE="a"): Measurement(Outcome.OK, "", uncounted, VERIFIED),
        }
        for number, (candidate, measurement) in enumerate(made.items()):
            opened.record(IDENTITY, PROBLEM, candidate, f"source{number}", measurement, search.id)
        opened.record(IDENTITY, PROBLEM, own(M=1, MODE="a"), "nobody's", took(9.0))
        yield opened


@pytest.fixture(params=["rdb", "journal"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'optuna.db'}" if request.param == "rdb" else str(tmp_path / "journal.log")


def trials(target: str, store: Store) -> list[FrozenTrial]:
    storage = target if "://" in target else JournalStorage(JournalFileBackend(target))
    name = study_name(store.searches()[0].search)
    return optuna.load_study(study_name=name, storage=storage).get_trials()


def test_a_search_is_a_study(store: Store, target: str) -> None:
    (mirrored,) = mirror_searches(store, store.searches(), target)
    assert (mirrored.added, mirrored.known, mirrored.anew) == (8, 0, False)
    found = trials(target, store)
    complete, pruned, fail = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL
    assert [t.state for t in found] == [complete, complete, complete, fail, pruned, pruned, fail, pruned]
    assert [t.value for t in found[:3]] == [2.0, 1.0, 3.0]
    assert all(t.value is None for t in found[3:])
    outcomes = ["ok", "ok", "ok", "compile_error", "pruned", "infeasible", "crash", "ok"]
    assert [t.user_attrs["outcome"] for t in found] == outcomes
    assert found[3].user_attrs["message"] == "no such thing"
    assert (found[2].user_attrs["registers"], found[2].user_attrs["spill_bytes"]) == (40, 8)
    assert found[0].user_attrs["time"] == "measured"
    assert found[7].user_attrs["time"] == "estimated, not counted"
    assert all(t.datetime_start and t.datetime_complete and t.datetime_start <= t.datetime_complete for t in found)


def test_parameters_are_those_of_the_family_chosen(store: Store, target: str) -> None:
    mirror_searches(store, store.searches(), target)
    found = trials(target, store)
    assert found[0].params == {"template": "own", "own.M": 64, "own.MODE": "b"}
    assert found[0].distributions == {
        "template": CategoricalDistribution([FLASH.name, "own"]),
        "own.M": CategoricalDistribution([16, 32, 64, 128]),
        "own.MODE": CategoricalDistribution(["a", "b"]),
    }
    listed = {f"{FLASH.name}.{p.name}": CategoricalDistribution(p.values) for p in FLASH.parameters}
    assert {name: d for name, d in found[2].distributions.items() if name != "template"} == listed


def test_twice_is_once(store: Store, target: str) -> None:
    mirror_searches(store, store.searches(), target)
    before = trials(target, store)
    (again,) = mirror_searches(store, store.searches(), target)
    assert (again.added, again.known, again.anew) == (0, 8, False)
    assert trials(target, store) == before


def test_what_came_since_is_added(store: Store, target: str) -> None:
    mirror_searches(store, store.searches(), target)
    search = store.searches()[0].search
    store.record(IDENTITY, PROBLEM, own(M=16, MODE="b"), "new", took(0.5), search.id)
    (again,) = mirror_searches(store, store.searches(), target)
    assert (again.added, again.known, again.anew) == (1, 8, False)
    assert [t.value for t in trials(target, store)][-1] == 0.5


def _reject(store: Store) -> None:
    store.reject(2, "found to be wrong")


def _forget(store: Store) -> None:
    store.forget({"outcome": Outcome.CRASH})


def _new_value(store: Store) -> None:
    """Optuna takes no other choices for a parameter that it knows."""
    store.record(IDENTITY, PROBLEM, own(M=8, MODE="a"), "new", took(0.5), store.searches()[0].search.id)


@pytest.mark.parametrize(("change", "count"), [(_reject, 8), (_forget, 7), (_new_value, 9)])
def test_what_has_changed_is_mirrored_anew(
    store: Store, target: str, change: Callable[[Store], None], count: int
) -> None:
    mirror_searches(store, store.searches(), target)
    change(store)
    (again,) = mirror_searches(store, store.searches(), target)
    assert (again.added, again.anew) == (count, True)
    found = trials(target, store)
    assert len(found) == count
    wanted = [r.measurement.outcome.value for r in store.measurements(search_id=store.searches()[0].search.id)]
    assert [t.user_attrs["outcome"] for t in found] == wanted


def test_importances_can_be_computed_of_it(store: Store, target: str) -> None:
    mirror_searches(store, store.searches(), target)
    storage = target if "://" in target else JournalStorage(JournalFileBackend(target))
    study = optuna.load_study(study_name=study_name(store.searches()[0].search), storage=storage)
    assert study.metric_names == ["measured ms"]
    assert study.best_value == 1.0
    assert study.user_attrs["sampler"] == "tpe"
    assert study.user_attrs["autotune"]["device"] == "h200"


def test_studies_of_others_are_left_alone(store: Store, target: str) -> None:
    storage = target if "://" in target else JournalStorage(JournalFileBackend(target))
    name = study_name(store.searches()[0].search)
    optuna.create_study(study_name=name, storage=storage).optimize(lambda trial: trial.suggest_float("x", 0, 1), 1)
    with pytest.raises(UsageError, match="is no mirror of a search"):
        mirror_searches(store, store.searches(), target)
    assert len(trials(target, store)) == 1


def test_files_of_others_are_left_alone(store: Store, tmp_path: Path) -> None:
    for name, content, said in (
        ("notes.txt", b"my notes\n", "is no journal"),
        ("list.json", b"[1, 2]\n", "is no journal"),
        ("a.db", b"SQLite format 3\0...", "is an SQLite database: write sqlite:///"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=said):
            mirror_searches(store, store.searches(), str(tmp_path / name))
        assert (tmp_path / name).read_bytes() == content
    for target, said in (
        (f"sqlite:///{store.location}", "is the database of the searches itself"),
        (str(tmp_path / "no" / "journal.log"), "there is no folder"),
        ("nothing://me:secret@host/name", "cannot use nothing://me:\\*\\*\\*@host/name as a storage"),
    ):
        with pytest.raises(UsageError, match=said):
            mirror_searches(store, store.searches(), target)


def test_the_command(store: Store, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["db", "export", "--db", store.location, "--optuna", target]
    assert run(arguments) == 0
    said = capsys.readouterr().out
    assert "8 trials added, 0 there already (ok 4, compile_error 1, pruned 1, infeasible 1, crash 1)" in said
    assert f"1 study; next: optuna-dashboard {target}" in said
    assert run([*arguments, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["added"], row["known"], row["anew"], row["outcomes"]["ok"]) == (0, 8, False, 4)
    assert run([*arguments, "--op", "backward"]) == 0
    assert capsys.readouterr().out.startswith("0 studies;")
    assert run([*arguments, "--winners"]) == 2
    assert "--optuna takes whole searches" in capsys.readouterr().err


def test_postgresql_is_a_storage_too(store: Store, postgres: str) -> None:
    for added, known in ((8, 0), (0, 8)):
        (mirrored,) = mirror_searches(store, store.searches(), postgres)
        assert (mirrored.added, mirrored.known, mirrored.anew) == (added, known, False)
    assert [t.user_attrs["record"] for t in trials(postgres, store)] == list(range(1, 9))
