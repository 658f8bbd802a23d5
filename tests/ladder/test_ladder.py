"""A real climb of two versions on the emulator: by command, twice."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.devices.client import WorkerClient
from autotune.devices.messages import Prepare
from autotune.ladder import versions
from autotune.store import open_store

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def two_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """V2 and V7 of the forward ladder, a database of its own; the build cache is the user's."""
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "autotune.db"))
    for name in ("AUTOTUNE_DEVICE", "AUTOTUNE_TARGET"):
        monkeypatch.delenv(name, raising=False)
    chosen = tuple(version for version in versions.FORWARD.versions if version.name in ("V2", "V7"))
    monkeypatch.setitem(versions.LADDERS, "forward", replace(versions.FORWARD, versions=chosen))


def test_a_small_climb(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned: list[int] = []
    spawn = WorkerClient._spawn

    def counted(client: WorkerClient, ahead: Prepare | None) -> None:
        spawned.append(1)
        spawn(client, ahead)

    monkeypatch.setattr(WorkerClient, "_spawn", counted)
    command = ["ladder", "--op", "forward", "--dtype", "fp32", "--device", "cpu"]
    once = [*command, "--T", "40", "--trials", "1"]
    assert run([*command, "--T", "41", "--timeout", "0"]) == 3
    assert "skipped: the time was up before it" in capsys.readouterr().out
    assert len(spawned) == 1
    spawned.clear()
    assert run([*once, "--json"]) == 0
    shown = capsys.readouterr()
    data = json.loads(shown.out)
    assert "V2: all, minimal_flash" in shown.err
    assert (data["kind"], data["device"], data["problem"]["T"], data["problem"]["NH"]) == ("estimated", "h200", 40, 2)
    second, seventh = data["versions"]
    assert (second["own"]["template"], seventh["own"]["template"]) == ("minimal_flash", "warp_per_query")
    assert seventh["factor_first"] == pytest.approx(second["ms"] / seventh["ms"])
    assert 0 < seventh["roofline"] < 1
    assert len(spawned) == 3  # both are versions of one problem; each winner is examined in a process of its own
    with open_store() as store:
        before = [(record.candidate.template, record.measurement.outcome) for record in store.measurements()]
    assert before == [("minimal_flash", "ok"), ("warp_per_query", "ok")]

    assert (
        run([*command, "--T", "40", "--trials", "3", "--timeout", "0"]) == 0
    )  # no time for more: what is known is shown
    shown = capsys.readouterr()
    assert f"{second['ms']:.4g}" in shown.out
    assert "times are ESTIMATES for NVIDIA H200" in shown.out
    assert "est. ms" in shown.out
    with open_store() as store:
        assert len(list(store.measurements())) == len(before)
