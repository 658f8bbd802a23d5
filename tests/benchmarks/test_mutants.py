"""`python -m benchmarks.mutants`: rules that plant mistakes, and what notices those of one small family."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from benchmarks.mutants import Mutant, draw
from benchmarks.mutation.cases import Case, case_of, families
from benchmarks.mutation.judge import judge
from benchmarks.mutation.report import report, share_of
from benchmarks.mutation.rules import RULES
from benchmarks.mutation.sites import Site, code_of, place_of, plant, sites_of

FAMILY = "softmax/block_per_row"
EXPECTED = {  # kinds of mistakes and what is the first to notice one
    ("online softmax", "sum begins anew"): "verification",
    ("scale", "not in base 2"): "verification",
    ("vectors", "where they are not allowed"): "examination",
}


@pytest.fixture(scope="module")
def case() -> Case:
    return case_of(FAMILY, 0)


def site_of(case: Case, kind: str, name: str) -> Site:
    """The first in the family's own file, else the last of all."""
    found = [site for site in sites_of(case.render()) if (site.planted.kind, site.planted.name) == (kind, name)]
    return next((site for site in found if "/" not in site.file), found[-1])


@pytest.mark.parametrize(("kind", "name"), EXPECTED)
def test_mistakes_are_noticed(kind: str, name: str, case: Case, cache: BuildCache) -> None:
    site = site_of(case, kind, name)
    verdict = judge(case, lambda source: plant(source, site)[0], cache.root)
    assert (verdict.stage, bool(verdict.message)) == (EXPECTED[kind, name], True), plant(case.render(), site)[1]


def test_a_kernel_without_a_mistake_passes(cache: BuildCache) -> None:
    case = case_of("permute/copy", 0)
    verdict = judge(case, lambda source: source, cache.root, compare=False)
    assert (verdict.stage, verdict.message) == ("", "")
    assert judge(case, lambda source: source, cache.root).stage == "equivalent"


def test_every_family_has_places_for_mistakes() -> None:
    def kinds(name: str) -> Iterator[str]:
        return (site.planted.kind for site in sites_of(case_of(name, 0).render()))

    assert all(len(set(kinds(name))) >= 5 for name in list(families())[::4])
    assert len({rule.kind for rule in RULES}) >= 15


def test_what_is_planted_is_code_of_one_line(case: Case) -> None:
    text = 'x = 1; // x = 2;\n#include "x"\n/* x */ y("x");'
    assert code_of(text).split() == ["x", "=", "1;", "y(", ");"]
    assert len(code_of(text)) == len(text)
    source = case.render()
    for site in list(sites_of(source))[::10]:
        wrong, said = plant(source, site)
        assert wrong.hash != source.hash
        assert wrong.body.count("\n") == source.body.count("\n")
        assert " -> " in said
    with pytest.raises(LookupError, match="no file"):
        plant(source, Site("nothing.cuh", 0, 0))


def test_the_order_is_the_seeds_and_families_take_turns() -> None:
    def first(seed: int) -> list[Mutant]:
        return [mutant for mutant, _ in zip(draw(seed, ["permute/copy", FAMILY], set()), range(12), strict=False)]

    assert [mutant.name for mutant in first(0)] == [mutant.name for mutant in first(0)]
    assert [mutant.name for mutant in first(0)] != [mutant.name for mutant in first(1)]
    assert [mutant.family for mutant in first(0)[:4]] == ["permute/copy", FAMILY] * 2


def test_what_is_no_mistake_is_not_counted() -> None:
    stages = ("verification", "checker", "", "equivalent", "compiler")
    done = {
        str(i): {"name": str(i), "family": FAMILY, "kind": "loops", "rule": "r", "change": "c", "stage": stage}
        for i, stage in enumerate(stages)
    }
    assert share_of(done) == pytest.approx(2 / 3)
    [row] = report(done).rows
    assert (row.counted, row.noticed) == (3, 2)
    assert "not explained" in str(report(done))
    assert report(done).to_json()["kinds"]["in all"]["counted"] == 3


def test_a_place_is_known_by_its_text_in_every_configuration() -> None:
    """Not by a number, which another line like it would change; and in a header whatever the family."""
    places = [
        {place_of(family, source, site): plant(source, site)[1].partition(": ")[2] for site in sites_of(source)}
        for family, number in ((FAMILY, 0), (FAMILY, 1), ("softmax/warp_per_row", 0))
        for source in (case_of(family, number).render(),)
    ]
    first, second, other = (set(found) for found in places)
    assert len(first & second) > 40
    assert all(places[0][name] == places[1][name] for name in first & second)
    assert first & other
    assert not [name for name in first & other if "kernel.cu" in places[0][name]]


def test_a_place_is_known_by_its_own_line_where_that_stands_once(case: Case) -> None:
    """Text that changes beside it leaves what is known of it; a line that stands twice is known by those around."""
    source = case.render()
    lines = source.body.splitlines()

    def places(body: str) -> dict[str, str]:
        changed = replace(source, body=body)
        sites = [site for site in sites_of(changed) if "/" not in site.file]
        return {place_of(FAMILY, changed, site): plant(changed, site)[1] for site in sites}

    apart = places(
        "\n".join(f"{line}\nint beside_{i};" if line.endswith(";") else line for i, line in enumerate(lines))
    )
    before = places(source.body)
    kept = [said for place, said in before.items() if place in apart]
    lost = [said for place, said in before.items() if place not in apart]
    assert len(kept) > 40
    assert all(source.body.count(said.partition(", in: ")[2]) != 1 for said in lost)
    assert len(before) == sum("/" not in site.file for site in sites_of(source))  # two in a line are two


def test_what_is_known_of_a_place_holds_for_its_family_and_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"p": {"same": True, "why": "w", "cases": [2], "family": FAMILY}, "q": {"same": False, "why": "x"}}
    monkeypatch.setattr("benchmarks.mutation.report._explanations", lambda: known)

    def stages(**changed: object) -> tuple[int, int]:
        record = {"name": "n", "family": FAMILY, "case": 2, "kind": "k", "rule": "r", "change": "c", "stage": ""}
        total = report({"n": {**record, **changed}}).total
        return total.counted, total.noticed

    assert stages(place="p") == (0, 0)
    assert stages(place="p", case=1) == stages(place="p", family="a/b") == stages(place="q") == stages() == (1, 0)


def test_records_are_read_again(tmp_path: Path) -> None:
    from benchmarks.mutants import read

    (tmp_path / "found.jsonl").write_text('{"name": "a", "stage": ""}\n{"name": "a", "stage": "checker"}\n{"name": "b"')
    assert read(tmp_path / "found.jsonl") == {"a": {"name": "a", "stage": "checker"}}
    assert read(tmp_path / "none.jsonl") == {}
