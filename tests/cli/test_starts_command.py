"""`autotune db starts`: starts checked, proposed from winners, and written from records."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.answers.starting import condition, faults
from autotune.cli.main import run
from autotune.core import resources
from autotune.core.outcome import Outcome
from autotune.families import template as template_module
from autotune.families.space import Space
from autotune.families.starts import SUFFIX, read_starts, starts_text
from autotune.families.template import Template, builtin_templates, find_template, load_template
from autotune.gpus.known import gpu
from autotune.ops.registry import BUILTIN, get_op
from autotune.store import open_store
from autotune.store.shipped import shipped_winners
from tests.store.store_records import CPU_H200, H200, SOURCE, failed, ok

Capture = pytest.CaptureFixture[str]
PROBLEM = get_op("permute").problem()


def families() -> list[Template]:
    return [family for op in BUILTIN for family in builtin_templates(op)]


@pytest.mark.parametrize("family", families(), ids=lambda family: f"{family.op}-{family.name}")
def test_shipped_starts_hold_where_they_say(family: Template) -> None:
    assert list(faults(family)) == []


def test_no_file_of_starts_lacks_its_family() -> None:
    files = {path for op in BUILTIN for path in (resources.resource_root("templates") / op).glob(f"*{SUFFIX}")}
    assert files == {family.path.with_name(family.name + SUFFIX) for family in families() if family.starts}


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Template]:
    """A family in a checkout whose files may be written, with one start, and an empty database."""
    real = resources.resource_root("templates")
    shutil.copytree(real / "permute", tmp_path / "templates" / "permute")
    shutil.copytree(real / "common", tmp_path / "templates" / "common")
    monkeypatch.setattr(template_module, "resource_root", lambda name: tmp_path / name)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "a.db"))
    builtin_templates.cache_clear()
    found = find_template("permute", "copy")
    assert len(found.starts) == 1
    yield found
    builtin_templates.cache_clear()


def again(family: Template) -> Template:
    return load_template(family.path)


def call(capsys: Capture, code: int, *arguments: str) -> Any:
    assert run(["db", "starts", *arguments, "--json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def fails(capsys: Capture, *arguments: str) -> str:
    assert run(["db", "starts", *arguments]) in {1, 2}
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def measured(family: Template, **values: Any) -> int:
    """A trial of the family in the database; its number."""
    candidate = Space(family, PROBLEM, H200.spec).candidate({**family.defaults, **values})
    with open_store() as store:
        return store.record(H200, PROBLEM, candidate, SOURCE, ok(1.25 - 0.001 * len(list(store.measurements()))))


def test_a_record_becomes_a_start(family: Template, capsys: Capture) -> None:
    number = measured(family, THREADS=128, VEC=8)
    added = call(capsys, 0, "add", str(number), "--when", "HS == 64 and dtype != 'fp32'", "--note", "wide rows")
    assert (added["place"], added["values"]) == (2, {"THREADS": 128, "VEC": 8})
    start = again(family).starts[1]
    assert (start.device, start.problem, start.origin, start.note) == (
        "h200", PROBLEM.key, "winner, 1.25 ms", "wide rows"
    )  # fmt: skip
    assert again(family).hash == family.hash
    assert list(faults(again(family))) == []
    builtin_templates.cache_clear()
    assert run(["db", "starts", "add", str(measured(family, EACH=8)), "--when", "true", "--at", "1"]) == 0
    assert "start 1 of 3" in capsys.readouterr().out
    assert [dict(start.values) for start in again(family).starts] == [
        {"EACH": 8},
        {"VEC": 8},
        {"THREADS": 128, "VEC": 8},
    ]


def test_a_slower_record_is_called_a_trial_and_an_estimate_so(family: Template, capsys: Capture) -> None:
    measured(family, THREADS=128)
    candidate = Space(family, PROBLEM, H200.spec).candidate({**family.defaults, "THREADS": 512})
    with open_store() as store:
        store.record(H200, PROBLEM, candidate, SOURCE, ok(2.0))
        store.record(CPU_H200, PROBLEM, candidate, SOURCE, ok(3.0, "estimated"))
    call(capsys, 0, "add", "2", "--when", "true")
    call(capsys, 0, "add", "3", "--when", "causal is not defined or true")
    assert [start.origin for start in again(family).starts[1:]] == ["trial, 2 ms", "winner, estimated 3 ms"]


def test_what_makes_no_start_is_said(
    family: Template, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    number = str(measured(family, THREADS=128))
    before = family.path.with_name("copy" + SUFFIX).read_bytes()
    assert "does not hold for its problem" in fails(capsys, "add", number, "--when", "HS == 128")
    assert "'WIDTH' is undefined" in fails(capsys, "add", number, "--when", "WIDTH == 1")
    assert "there is no record 99" in fails(capsys, "add", "99", "--when", "true")
    assert "no winner has the source 'abcdef12'" in fails(capsys, "add", "abcdef12", "--when", "true")
    default = str(measured(family))
    assert "is the default of copy, which is tried in any case" in fails(capsys, "add", default, "--when", "true")
    with open_store() as store:
        candidate = Space(family, PROBLEM, H200.spec).candidate({**family.defaults, "THREADS": 64})
        wrong = store.record(H200, PROBLEM, candidate, SOURCE, failed(Outcome.CRASH))
    assert "this one's is crash" in fails(capsys, "add", str(wrong), "--when", "true")
    same = str(measured(family, VEC=8))
    assert "start 1 of copy is the same" in fails(capsys, "add", same, "--when", family.starts[0].when.text)
    assert "not of flash_mma" in fails(
        capsys,
        "add",
        number,
        "--when",
        "true",
        "--template",
        str(resources.resource_root("templates") / "forward" / "flash_mma.cu.j2"),
    )
    monkeypatch.setattr(resources, "_PACKAGE", resources.resource_root("db").parent)
    assert "an installed package's starts stay as they are" in fails(capsys, "add", number, "--when", "true")
    assert family.path.with_name("copy" + SUFFIX).read_bytes() == before


def test_faults_are_named(family: Template, capsys: Capture) -> None:
    (start,) = family.starts
    known = {parameter.name: parameter.values for parameter in family.parameters}
    wrong = [
        start,
        start,
        replace(start, device="abacus"),
        replace(start, problem="permute T=none", values=(("EACH", 1),)),
        replace(start, problem=start.problem.replace("fp16", "fp32"), values=(("EACH", 4),)),
        replace(start, values=(("VEC", 8), ("THREADS", 1024)), problem=start.problem.replace("permute", "sort")),
    ]
    path = family.path.with_name("copy" + SUFFIX)
    path.write_text("# by hand\n" + starts_text(wrong))
    assert read_starts(path, known) == tuple(wrong)
    builtin_templates.cache_clear()
    (shown,) = call(capsys, 1, "check", "--op", "permute")
    texts = shown["faults"]
    assert [text.partition(" (")[0] for text in texts[:-1]] == [f"start {number}" for number in (2, 3, 3, 4, 5, 6)]
    for text, what in zip(
        texts,
        ("repeats another", "repeats another", "abacus", "T='none'", "does not hold for its problem", "'sort'",
         "copy.starts.toml is not as"), strict=True,
    ):  # fmt: skip
        assert what in text


def test_winners_propose_starts(family: Template, capsys: Capture) -> None:
    for problem in (PROBLEM, PROBLEM.replace(T=2048), PROBLEM.replace(B=8)):
        values = {"VEC": 8} if problem["B"] == 8 else {"THREADS": 128}
        candidate = Space(family, problem, H200.spec).candidate({**family.defaults, **values})
        with open_store() as store:
            store.record(H200, problem, candidate, SOURCE, ok(1.0))
    (one,) = call(capsys, 0, "propose", "--op", "permute")
    assert (one["winners"], one["begun_with"], one["times"]) == (3, 1, 2)
    assert one["missing"] == {**family.defaults, "THREADS": 128}
    assert one["when"] == condition(PROBLEM)
    assert run(["db", "starts", "add", one["record"], "--when", one["when"]]) == 0
    builtin_templates.cache_clear()
    capsys.readouterr()
    (one,) = call(capsys, 0, "propose", "--op", "permute")
    assert (one["winners"], one["begun_with"], one["missing"]) == (3, 3, None)


def test_most_shipped_winners_are_begun_with(capsys: Capture) -> None:
    """As the starts say of themselves: those that name a winner as their origin are among its problem's starts."""
    won = {(line.problem.key, line.candidate.template): line for line in shipped_winners()}
    named = [(family, start) for family in families() for start in family.starts if start.origin.startswith("winner")]
    assert named
    for family, start in named:
        line = won.get((start.problem, family.name))
        if (
            line is not None
            and line.measurement.ms is not None
            and start.origin == f"winner, {line.measurement.ms:.4g} ms"
        ):
            assert line.candidate.config in Space(family, line.problem, gpu(start.device)).starts()
