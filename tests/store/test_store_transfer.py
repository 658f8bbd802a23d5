"""Export and import: the same records again, verified line by line, all or nothing."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import AutotuneError, StoreError, UsageError
from autotune.core.measurement import Energy, Version
from autotune.core.outcome import Outcome
from autotune.gpus.cap import Cap
from autotune.gpus.identity import DeviceIdentity
from autotune.store import Store, open_store, transfer
from autotune.store.json_lines import Line, LineError, parse_line
from autotune.store.line_files import read_lines
from autotune.store.shipped import load_winners, shipped_winners
from autotune.store.transfer import Identities, export_file, export_lines, import_file, import_lines
from tests.store.store_records import BACKWARD, CPU_H200, FORWARD, H200, HASH, SOURCE, candidate, failed, ok, wrong


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database, exported: every outcome, two kinds of times, and a finalist that beat a luckier trial."""
    made = tmp_path_factory.mktemp("made")
    with open_store(made / "a.db") as store:
        for i, outcome in enumerate(sorted(set(Outcome) - {Outcome.OK, Outcome.WRONG_RESULT})):
            store.record(H200, FORWARD, candidate(100 + i), "", failed(outcome))
        store.record(H200, FORWARD, candidate(50), SOURCE, wrong())
        for i, ms in enumerate([1.0, 1.1]):
            store.record(H200, FORWARD, candidate(i), SOURCE, replace(ok(ms), machine_code=f"{i}f" * 16))
        finals = [(0, 1.3), (1, 1.2)]
        *_, final = (store.record(H200, FORWARD, candidate(i), SOURCE, ok(ms), stage="final") for i, ms in finals)
        store.name_winner(final)
        store.record(CPU_H200, BACKWARD, candidate(0), SOURCE, ok(9.0, "estimated"))
        assert export_file(store, made / "all.jsonl") == 14
    return made


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copy(folder / "a.db", tmp_path / "a.db")
    with open_store(tmp_path / "a.db") as opened:
        yield opened


@pytest.fixture
def file(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(folder / "all.jsonl", tmp_path / "all.jsonl"))


def test_a_device_that_came_while_its_store_was_read_is_found(tmp_path: Path) -> None:
    """As when one search reads what another, that runs at once, has just begun to write."""
    with open_store(tmp_path / "a.db") as store:
        store.record(CPU_H200, BACKWARD, candidate(0), SOURCE, ok(9.0, "estimated"))
        devices, lines = Identities(store), export_lines(store, winners_only=False)
        assert next(lines).identity == CPU_H200
        store.name_winner(store.record(H200, FORWARD, candidate(0), SOURCE, ok(1.0), stage="final"))
        assert [line.identity for line in lines][-1] == H200
        assert set(devices) == {CPU_H200.name}
        assert devices[H200.name] == H200
        with pytest.raises(KeyError):
            devices["other"]


def test_a_round_trip_gives_the_same_file(store: Store, file: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "b.db") as other:
        report = import_file(other, file)
        assert (report.added, report.known, report.winners) == (12, 2, 2)
        assert export_file(other, tmp_path / "again.jsonl") == 14
        for one, two in zip(store.measurements(stage=None), other.measurements(stage=None), strict=True):
            assert repr(one) == repr(two)
        winners = [(w.record.problem, w.record.measurement.ms, w.record.stage) for w in other.winners()]
    assert winners == [(BACKWARD, 9.0, "trial"), (FORWARD, 1.2, "final")]
    assert (tmp_path / "again.jsonl").read_bytes() == file.read_bytes()


def test_energies_and_limits_make_the_round_trip(tmp_path: Path) -> None:
    capped = DeviceIdentity("cuda", H200.spec, Cap(1200, 400))
    measured = replace(ok(1.0), energy=Energy(450.0, 430.0, 1.05, 900, 0.95, "counter", 80.0, 1200.0, 55.0))
    with open_store(tmp_path / "a.db") as store, open_store(tmp_path / "b.db") as other:
        number = store.record(capped, FORWARD, candidate(0), SOURCE, measured)
        plain = store.record(H200, FORWARD, candidate(0), SOURCE, ok(0.8))
        export_file(store, tmp_path / "all.jsonl")
        import_file(other, tmp_path / "all.jsonl")
        found = [(w.record.device, w.record.measurement) for w in other.winners()]
        assert found == [("h200", ok(0.8)), ("h200@1200MHz+400W", measured)]
        assert {d.name for d in other.devices()} == {"h200", "h200@1200MHz+400W"}
        store.add_energy(plain, Energy(9.0, 9.0, 1.0, 1, 1.0, "counter"))
        store.add_energy(plain, Energy(8.0, 9.0, 1.0, 1, 1.0, "counter"))  # the first one stands
        store.add_energy(number, Energy(7.0, 9.0, 1.0, 1, 1.0, "counter"))
        assert [r.measurement.mj for r in store.measurements(stage=None)] == [450.0, 9.0]
        store.reject(plain, "wrong elsewhere")
        assert [r.measurement.mj for r in store.measurements(stage=None)] == [450.0, None]
        for none in (0.0, float("nan")):
            with pytest.raises(StoreError, match="no energy a call can take"):
                store.record(H200, FORWARD, candidate(9), SOURCE, replace(ok(1.0), energy=Energy(none, 1, 1, 1, 1, "")))
    assert "cap" not in json.loads((tmp_path / "all.jsonl").read_text().splitlines()[1])["device"]


@pytest.mark.parametrize(
    ("what", "value", "said"),
    [("cap", "fast", "cap 'fast' is none"), ("mj", -1.0, "energy's mj=-1.0"), ("method", 3, "method=3 is not a text")],
)
def test_an_energy_or_a_limit_that_is_none_is_refused(what: str, value: Any, said: str, tmp_path: Path) -> None:
    data = json.loads(Line(
        record="measurement", identity=H200, problem=FORWARD, candidate=candidate(0), source_hash=SOURCE, stage="trial",
        package_version="1", created_at=datetime(2026, 1, 1, tzinfo=UTC),
        measurement=replace(ok(1.0), energy=Energy(1.0, 1.0, 1.0, 1, 1.0, "counter")),
    ).text())  # fmt: skip
    (data["device"] if what == "cap" else data["measurement"]["energy"])[what] = value
    with pytest.raises(LineError, match=said):
        parse_line(json.dumps(data))


def test_lines_of_older_versions_are_sound(file: Path, tmp_path: Path) -> None:
    """They do not tell the machine code; what is known of it is kept beside them."""
    for number in range(1, 15):
        for name in ("machine_code", "measured_as"):
            _change(file, number, _drop("measurement", name))
    with open_store(tmp_path / "b.db") as other:
        assert import_file(other, file).added == 12
        assert {record.measurement.machine_code for record in other.measurements(stage=None)} == {None}
        first = Version(HASH, SOURCE)
        renewed = replace(ok(1.0), machine_code="cd" * 16, measured_as=first)
        other.record(H200, FORWARD, candidate(200), SOURCE, renewed)
        export_file(other, tmp_path / "again.jsonl")
    found = {
        (line.measurement.machine_code, line.measurement.measured_as) for line in read_lines(tmp_path / "again.jsonl")
    }
    assert found == {(None, None), ("cd" * 16, first)}


def test_a_second_import_adds_nothing(store: Store, file: Path, tmp_path: Path) -> None:
    report = import_file(store, file)
    assert (report.added, report.known) == (0, 14)
    assert export_file(store, tmp_path / "again.jsonl") == 14
    assert (tmp_path / "again.jsonl").read_bytes() == file.read_bytes()


def test_an_import_that_was_interrupted_is_finished_by_repeating_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed in pieces; what winners stand in the end is the same, those that must not spill included."""
    lines = list(read_lines(folder / "all.jsonl"))
    spilling = replace(ok(0.5), resources=(replace(ok(0.5).resources[0], spill_bytes=8),))
    lines.insert(0, replace(lines[8], candidate=candidate(60), measurement=spilling))  # faster, and passed over there
    with open_store(tmp_path / "whole.db") as whole:
        import_lines(whole, lines)
        export_file(whole, tmp_path / "whole.jsonl")
    monkeypatch.setattr(transfer, "PIECE", 4)

    def interrupted() -> Iterator[Line]:
        yield from lines[:10]
        raise KeyboardInterrupt

    with open_store(tmp_path / "b.db") as other:
        with pytest.raises(KeyboardInterrupt):
            import_lines(other, interrupted())
        assert len(list(other.measurements(stage=None))) == 8
        report = import_lines(other, lines)
        assert (report.added, report.known) == (len(lines) - 2 - 8, 2 + 8)  # two lines repeat a record as a winner
        export_file(other, tmp_path / "pieces.jsonl")
    assert (tmp_path / "pieces.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert '"spill_bytes":8' in (tmp_path / "whole.jsonl").read_text()


def test_others_write_between_the_pieces_of_an_import(
    store: Store, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PIECE", 5)

    def slowly() -> Iterator[Line]:
        for number, line in enumerate(read_lines(file)):
            if number == 7:
                store.record(CPU_H200, FORWARD, candidate(200), SOURCE, ok(1.0, "estimated"))
            yield line

    with open_store(store.location) as other:
        assert import_lines(other, slowly()).known == 14


def test_a_faster_winner_of_ones_own_stays(store: Store, file: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "b.db") as other:
        number = other.record(H200, FORWARD, candidate(77), SOURCE, ok(0.9), stage="final")
        other.name_winner(number)
        import_file(other, file)
        winner = other.winner(FORWARD, "h200")
        assert winner is not None
        assert winner.record.measurement.ms == 0.9


def test_only_winners_are_exported_when_asked(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    assert export_file(store, path, device="h200", winners_only=True) == 1
    (line,) = load_winners(path)
    assert (line.problem, line.candidate, line.identity) == (FORWARD, candidate(1), H200)
    assert line.measurement == ok(1.2)


def test_a_file_of_winners_holds_nothing_else(file: Path) -> None:
    with pytest.raises(UsageError, match="holds a record that is no winner"):
        load_winners(file)


def test_the_shipped_winners_are_sound() -> None:
    for line in shipped_winners():
        assert line.is_winner
        assert line.identity.kind == "cuda"
        timing = line.measurement.timing
        assert timing is not None
        assert timing.kind == "measured"


def _change(path: Path, number: int, change: Any) -> None:
    lines = path.read_text().splitlines()
    data = json.loads(lines[number - 1])
    change(data)
    lines[number - 1] = json.dumps(data)
    path.write_text("\n".join(lines) + "\n")


def _set(*keys: str, to: Any) -> Any:
    def change(data: dict[str, Any]) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = to

    return change


def _drop(*keys: str) -> Any:
    def change(data: dict[str, Any]) -> None:
        for key in keys[:-1]:
            data = data[key]
        del data[keys[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("record", to="guess"), "record='guess' is not one of measurement, winner"),
        (_set("measurement", "outcome", to="great"), "'great' is not a valid Outcome"),
        (_set("measurement", "timing", "median_ms", to=0), "median_ms=0 is not a positive, finite number"),
        (_set("measurement", "timing", "median_ms", to=-1.0), "median_ms=-1.0 is not a positive"),
        (_set("measurement", "timing", "min_ms", to={"$float": "inf"}), "min_ms=inf is not a positive, finite"),
        (_set("measurement", "timing", "q1_ms", to=2.0), "the times are not in order"),
        (_set("measurement", "timing", "kind", to="estimated"), "a time on h200 cannot be 'estimated'"),
        (_set("measurement", "timing", to=None), "the outcome is ok, but there is no time"),
        (_set("measurement", "build_seconds", to={"$float": "nan"}), "build_seconds=nan"),
        (_set("measurement", "verification", "checks", to=[]), "its verification did not pass"),
        (_set("measurement", "environment", to={"driver": 570}), "the environment holds something else than texts"),
        (_set("measurement", "machine_code", to="SASS"), "machine_code 'SASS' is not a hash"),
        (_set("measurement", "machine_code", to=17), "machine_code 17 is not a hash"),
        (_set("measurement", "attempts", to=0), "attempts=0 is neither 1 nor 2"),
        (_set("measurement", "attempts", to=True), "attempts=True is neither 1 nor 2"),
        (_set("measurement", "measured_as", to={"template_hash": HASH}), "source_hash"),
        (_set("measurement", "measured_as", to={"template_hash": HASH, "source_hash": ""}), "measured_as '' is not"),
        (_drop("candidate", "template_hash"), "the candidate lacks template_hash"),
        (_set("candidate", "template_hash", to="of course"), "template_hash 'of course' is not a hash"),
        (_set("candidate", "config", to={"BLOCK_M": [64]}), r"BLOCK_M=\[64\] in the configuration is not a value"),
        (_set("source_hash", to=""), "source_hash '' is not a hash"),
        (_set("problem", "T", to=0), "T=0 must be at least 1"),
        (_set("problem", "NH_kv", to=5), "NH=12 is not divisible by NH_kv=5"),
        (_drop("problem", "T"), "the problem lacks T"),
        (_drop("problem", "op"), "a problem needs a text field 'op'"),
        (_set("device", "spec", "sm_count", to="many"), "the device's sm_count='many'"),
        (_set("device", "kind", to="abacus"), "kind='abacus' is not one of"),
        (_set("device", "spec", "colour", to="green"), "colour"),
        (_set("extra", to=1), "the record has unknown extra"),
        (_drop("stage"), "the record lacks stage"),
        (_set("created_at", to="yesterday"), "yesterday"),
        (_set("created_at", to="2026-01-01T00:00:00"), "lacks its time zone"),
    ],
)
def test_an_unsound_line_is_named_and_nothing_is_added(file: Path, tmp_path: Path, change: Any, message: str) -> None:
    _change(file, 8, change)  # an ok trial
    with open_store(tmp_path / "b.db") as other:
        with pytest.raises(UsageError, match=f"all.jsonl, line 8: .*{message}"):
            import_file(other, file)
        assert list(other.measurements(stage=None)) == []


def test_a_winner_must_be_ok(file: Path, tmp_path: Path) -> None:
    _change(file, 1, _set("record", to="winner"))
    with pytest.raises(UsageError, match="line 1: a winner's measurement must be ok, this one is compile_error"):
        list(read_lines(file))


@pytest.mark.parametrize("text", ["{", "[]", "17", '{"a": NaN}', "\x00"])
def test_what_is_no_record_at_all_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("\n" + text + "\n")
    with pytest.raises(UsageError, match=r"bad\.jsonl, line 2: "):
        list(read_lines(path))


def test_files_that_cannot_be_read_or_written(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none\.jsonl: No such file"):
        list(read_lines(tmp_path / "none.jsonl"))
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"latin\.jsonl is not UTF-8"):
        list(read_lines(tmp_path / "latin.jsonl"))
    with pytest.raises(AutotuneError, match="cannot write") as failure:
        export_file(store, tmp_path / "no" / "folder.jsonl")
    assert failure.value.exit_code == 1


def test_fields_in_another_order_are_the_same_problem(file: Path) -> None:
    data = json.loads(file.read_text().splitlines()[7])
    data["problem"] = dict(reversed(data["problem"].items()))
    assert parse_line(json.dumps(data)).problem == FORWARD
