"""Winners compared by their machine code: what stays exact when a family's text changes, and what does not."""

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.answers import lookup
from autotune.answers.lookup import best
from autotune.answers.recheck import Way, recheck_store
from autotune.cli.main import run
from autotune.compilers.cache import BuildCache
from autotune.compilers.machine_code import machine_code
from autotune.compilers.nvcc import build_cubin
from autotune.compilers.toolchain import find_nvcc
from autotune.core import resources
from autotune.core.candidate import Candidate
from autotune.core.measurement import Version
from autotune.families import template as template_module
from autotune.families.op_ref import load_own
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import builtin_templates, find_template
from autotune.ops.registry import get_op
from autotune.store import Store, entries, open_store, shipped
from autotune.store.line_files import read_lines, write_lines
from autotune.store.shipped import shipped_winners
from autotune.store.transfer import export_lines
from tests.store.store_records import CPU_H200, H200, SOURCE, ok

Capture = pytest.CaptureFixture[str]
PROBLEM = get_op("permute").problem()
FAMILY = "permute/copy.cu.j2"
TIDIED = {  # another text, the same machine code
    "constexpr int ROW = (HS + VEC - 1) / VEC;  // accesses that a row takes":
        "// What a row takes:\nconstexpr int PER_ROW = (HS + VEC - 1) / VEC;",
    "T) * ROW;": "T) * PER_ROW;", "/ ROW;": "/ PER_ROW;", "% ROW *": "% PER_ROW *",
    "const long long accesses": "const auto number_of_accesses", "access >= accesses": "access >= number_of_accesses",
    "permute_heads": "permuted",
}  # fmt: skip
WRITTEN_TWICE = {"target[(col + e) * y.stride[3]] = source": "target[(col + e) * y.stride[3]] = element(2) * source"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    return BuildCache(tmp_path_factory.mktemp("cache"))


def forget() -> None:
    for known in (builtin_templates, shipped_winners, entries._shipped):
        known.cache_clear()
    lookup._ANSWERS.clear()


@pytest.fixture
def house(tmp_path: Path, cache: BuildCache, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout whose templates may be changed, and that ships nothing yet."""
    real = resources.resource_root("templates")
    shutil.copytree(real / "permute", tmp_path / "templates" / "permute")
    shutil.copytree(real / "common", tmp_path / "templates" / "common")
    (tmp_path / "db" / "winners").mkdir(parents=True)
    for module in (template_module, shipped):
        monkeypatch.setattr(module, "resource_root", lambda name: tmp_path / name)
    monkeypatch.setenv("AUTOTUNE_CACHE", str(cache.root))
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "a.db"))
    forget()
    yield tmp_path
    forget()


def change(house: Path, words: dict[str, str]) -> str:
    """Change the family's text; returns its version then."""
    path = house / "templates" / FAMILY
    text = path.read_text()
    for old, new in words.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    forget()
    return find_template("permute", "copy").hash


@pytest.fixture
def store(house: Path, cache: BuildCache) -> Iterator[Store]:
    """A database with a winner of the family: a trial, then a final; and an estimate of the same."""
    template = find_template("permute", "copy")
    source = render(template, PROBLEM, template.defaults, H200.spec)
    code = machine_code(build_cubin(source, H200.spec.arch, cache).path, source.plan)
    measured = replace(ok(1.5, compiler=str(find_nvcc())), machine_code=code)
    with open_store() as opened:
        opened.record(H200, PROBLEM, source.candidate, source.hash, measured)
        final = opened.record(H200, PROBLEM, source.candidate, source.hash, measured, stage="final")
        opened.name_winner(final)
        guessed = replace(ok(9.0, "estimated", compiler=str(find_nvcc())), machine_code=code)
        opened.record(CPU_H200, PROBLEM, source.candidate, source.hash, guessed)
        yield opened


def standings(store: Store, cache: BuildCache, *, adopt: bool = False) -> list[str]:
    return [one.standing for one in recheck_store(store, Way(cache, adopt=adopt))]


def answer() -> tuple[str, float | None]:
    found = best("permute", device="h200")
    return found.answer, found.ms


def test_the_same_text_is_the_same(store: Store, cache: BuildCache) -> None:
    before = list(export_lines(store, winners_only=False))
    assert standings(store, cache) == ["same", "same"]
    assert list(export_lines(store, winners_only=False)) == before


def test_a_parameter_that_is_new_has_its_default(house: Path, store: Store, cache: BuildCache) -> None:
    """The record's machine code is that of the first value; the winner has it from then on."""
    change(house, {"[params]\n": "[params]\nSTREAMING = [false, true]\n"})
    assert answer()[0] != "exact"
    assert standings(store, cache) == ["renewed", "renewed"]
    assert answer() == ("exact", 1.5)
    (winner,) = store.winners(device="h200")
    assert winner.record.candidate.config["STREAMING"] is False


def test_a_winner_stays_exact_when_its_text_is_tidied(house: Path, store: Store, cache: BuildCache) -> None:
    (old,) = store.winners(device="h200")
    version = change(house, TIDIED)
    assert answer()[0] == "nearest"
    assert standings(store, cache) == ["renewed", "renewed"]
    assert answer() == ("exact", 1.5)
    (winner,) = store.winners(device="h200")
    assert winner.record.candidate == replace(old.record.candidate, template_hash=version)
    first = Version(old.record.candidate.template_hash, old.record.source_hash)
    assert winner.record.measurement == replace(old.record.measurement, measured_as=first)
    assert winner.record.created_at == old.record.created_at
    assert store.measurement(old.record.id) == old.record
    stages = [(r.candidate.template_hash == version, r.stage) for r in store.history(winner.record.id)]
    assert stages == [(False, "trial"), (False, "final"), (True, "trial"), (True, "final")]

    assert standings(store, cache) == ["same", "same"]
    change(house, {new: old for old, new in reversed(TIDIED.items())})
    assert standings(store, cache) == ["renewed", "renewed"]
    (again,) = store.winners(device="h200")
    assert again.record == old.record  # its own text is back, and no record was added


def test_a_real_change_is_named(house: Path, store: Store, cache: BuildCache, capsys: Capture) -> None:
    before = list(export_lines(store, winners_only=False))
    change(house, WRITTEN_TWICE)
    assert run(["db", "recheck", "--no-shipped"]) == 1
    shown = capsys.readouterr().out
    assert f"{house / 'a.db'}: 2 winners: 2 changed" in shown
    assert f"changed: {PROBLEM} on h200, copy: its machine code is " in shown
    assert answer()[0] == "nearest"
    assert list(export_lines(store, winners_only=False)) == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"THREADS  = [32, 64, 128, 256,": "THREADS  = [32, 64, 128,"}, "it is not valid any more: THREADS=256"),
        ({"const int head =": "const whole head ="}, "it does not compile any more: "),
        ({"{{ HS }}": "{{ HEAD }}"}, "'HEAD' is undefined"),
        ({'block  = ["THREADS"]': 'block  = ["THREADS", "2"]'}, "its machine code is "),  # how it is launched
    ],
)
def test_what_is_no_kernel_any_more_has_changed(
    house: Path, store: Store, cache: BuildCache, words: dict[str, str], why: str
) -> None:
    if "THREADS  = [32" in next(iter(words)):
        words = {**words, "THREADS  = 256": "THREADS  = 128"}
    change(house, words)
    one, _ = recheck_store(store, Way(cache, adopt=False))
    assert one.standing == "changed"
    assert why in one.why


def test_another_compiler_is_said_and_decides_nothing(
    house: Path, store: Store, cache: BuildCache, capsys: Capture
) -> None:
    record = store.measurement(1)
    assert record is not None
    elsewhere = replace(record.measurement, environment={"compiler": "nvcc 12.4.1", "driver": "1"})
    with open_store(house / "b.db") as other:
        other.record(H200, PROBLEM, record.candidate, SOURCE, elsewhere)
    change(house, WRITTEN_TWICE)
    assert run(["db", "recheck", "--no-shipped", "--db", str(house / "b.db")]) == 0
    said = f"1 other compiler: it was built by nvcc 12.4.1, here is {find_nvcc()}"
    assert said in capsys.readouterr().out


def without_code(store: Store, house: Path) -> Store:
    """The same winner as an older version recorded it."""
    record = store.measurement(2)
    assert record is not None
    other = open_store(house / "old.db")
    old = replace(record.measurement, machine_code=None)
    for stage in ("trial", "final"):
        number = other.record(H200, PROBLEM, record.candidate, record.source_hash, old, stage=stage)
    other.name_winner(number)
    return other


def test_machine_code_is_adopted_while_the_text_is_todays(house: Path, store: Store, cache: BuildCache) -> None:
    with without_code(store, house) as old:
        assert standings(old, cache) == ["unknown"]
        assert standings(old, cache, adopt=True) == ["adopted"]
        one, two = store.measurement(1), store.measurement(2)
        assert [r.measurement for r in old.measurements(stage=None)] == [r.measurement for r in (one, two) if r]
        change(house, TIDIED)
        assert standings(old, cache) == ["renewed"]


def test_machine_code_is_not_adopted_from_another_text(house: Path, store: Store, cache: BuildCache) -> None:
    with without_code(store, house) as old:
        change(house, TIDIED)
        assert standings(old, cache, adopt=True) == ["unknown"]
        assert {record.measurement.machine_code for record in old.measurements(stage=None)} == {None}


def test_families_that_are_not_here_are_said(house: Path, store: Store, cache: BuildCache) -> None:
    record = store.measurement(1)
    assert record is not None
    with open_store(house / "b.db") as other:
        other.record(H200, PROBLEM, Candidate("mine", "ab" * 8, ()), SOURCE, record.measurement)
        (one,) = recheck_store(other, Way(cache, adopt=True))
    assert (one.standing, one.why) == ("no family", "permute has no family mine here")


def test_a_family_of_ones_own_is_looked_at_when_named(house: Path, cache: BuildCache, capsys: Capture) -> None:
    """Its reference counts: what was right by one may be wrong by another, whatever the machine code."""
    example = Path(__file__).parents[2] / "examples" / "softmax"
    for file in ("softmax.cu.j2", "softmax_reference.py"):
        shutil.copy(example / file, house / file)
    path, reference = house / "softmax.cu.j2", "softmax_reference:row_softmax"
    family = load_own(path, reference)
    problem = get_op(family.op).problem()
    source = render(family, problem, Space(family, problem, H200.spec).default(), H200.spec)
    code = machine_code(build_cubin(source, H200.spec.arch, cache).path, source.plan, family.reference)
    with open_store() as store:
        measured = replace(ok(1.5, compiler=str(find_nvcc())), machine_code=code)
        store.record(H200, problem, source.candidate, source.hash, measured)
    assert run(["db", "recheck", "--no-shipped"]) == 0
    assert "1 winner: 1 no family" in capsys.readouterr().out
    named = ["db", "recheck", "--no-shipped", "--template", str(path), "--reference", reference]
    assert run(named) == 0
    assert "1 winner: 1 same" in capsys.readouterr().out
    path.write_text(path.read_text() + "// the end\n")
    assert run(named) == 0
    assert "1 winner: 1 renewed" in capsys.readouterr().out
    corrected = house / "softmax_reference.py"
    corrected.write_text(corrected.read_text() + "\n\nCORRECTED = True\n")
    sys.modules.pop("softmax_reference", None)
    assert run(named) == 1
    assert "1 winner: 1 changed" in capsys.readouterr().out


def test_a_later_text_that_has_been_measured_itself_wins_by_that(house: Path, store: Store, cache: BuildCache) -> None:
    (old,) = store.winners(device="h200")
    version = change(house, TIDIED)
    template = find_template("permute", "copy")
    source = render(template, PROBLEM, template.defaults, H200.spec)
    slower = replace(old.record.measurement, timing=ok(1.75).timing)
    number = store.record(H200, PROBLEM, source.candidate, source.hash, slower)
    assert standings(store, cache)[0] == "renewed"
    (winner,) = store.winners(device="h200")
    assert winner.record.candidate.template_hash == version
    assert winner.record.stage == "final"  # a final is timed in company: it counts, by whatever text
    assert store.measurement(number) is not None


@pytest.fixture
def shipping(house: Path, store: Store) -> Path:
    """The winner measured, shipped."""
    path = house / "db" / "winners" / "h200.jsonl"
    write_lines(path, export_lines(store, device="h200", winners_only=True))
    forget()
    (house / "a.db").unlink()
    return path


def test_shipped_winners_are_written_again(house: Path, shipping: Path, capsys: Capture) -> None:
    (before,) = read_lines(shipping)
    first = shipping.read_bytes()
    assert run(["db", "recheck", "--json"]) == 0
    assert [one["standing"] for one in json.loads(capsys.readouterr().out)] == ["same"]
    assert shipping.read_bytes() == first
    version = change(house, TIDIED)
    assert run(["db", "recheck", "--dry-run"]) == 0
    assert f"{shipping}: 1 winner: 1 renewed" in capsys.readouterr().out
    assert shipping.read_bytes() == first
    assert answer()[0] == "nearest"
    assert run(["db", "recheck", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    (after,) = read_lines(shipping)
    assert (shown["standing"], shown["template_hash"]) == ("renewed", version)
    assert shown["machine_code"] == before.measurement.machine_code
    assert after.measurement.measured_as == Version(before.candidate.template_hash, before.source_hash)
    assert after.measurement.timing == before.measurement.timing
    forget()
    assert answer() == ("exact", 1.5)


def test_what_an_installed_package_ships_is_left_alone(
    house: Path, shipping: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", resources.resource_root("db").parent)
    first = shipping.read_bytes()
    change(house, TIDIED)
    assert run(["db", "recheck"]) == 0
    assert "1 renewed" in capsys.readouterr().out
    assert shipping.read_bytes() == first


def test_a_named_database_must_be_there(house: Path, capsys: Capture) -> None:
    assert run(["db", "recheck", "--db", str(house / "none.db")]) == 1
    assert "there is no database" in capsys.readouterr().err
    assert run(["db", "recheck", "--no-own"]) == 0


def test_show_tells_what_was_measured(house: Path, store: Store, cache: BuildCache, capsys: Capture) -> None:
    (old,) = store.winners(device="h200")
    change(house, TIDIED)
    recheck_store(store, Way(cache, adopt=False))
    (winner,) = store.winners(device="h200")
    assert run(["show", str(winner.record.id)]) == 0
    shown = capsys.readouterr().out
    assert f"machine code   {old.record.measurement.machine_code}" in shown
    assert f"measured as    {old.record.candidate.template_hash}, source {old.record.source_hash}" in shown
    assert run(["show", str(winner.record.id), "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["measurement"]["machine_code"] == old.record.measurement.machine_code
    assert data["measurement"]["measured_as"]["source_hash"] == old.record.source_hash
