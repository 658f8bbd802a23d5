"""Winners timed anew: what is searched for each."""

from autotune.core.candidate import make_candidate
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.store.shipped import shipped_winners
from benchmarks.renew_winners import alike, subject_of, winners

SPEC, TEMPLATE = gpu("h200"), find_template("backward", "flash_wgmma")


def test_rows_are_the_familys_winners_the_short_ones_first() -> None:
    found = list(winners("backward", "flash_wgmma", "HS=128 "))
    shipped = [(line.problem, line.candidate) for line in shipped_winners()]
    assert len(found) > 5
    assert all(row in shipped and row[1].template == "flash_wgmma" and row[0]["HS"] == 128 for row in found)
    pairs = [int(problem["T"]) * int(problem["T_kv"]) for problem, _ in found]
    assert pairs == sorted(pairs)


def test_a_winner_is_searched_with_the_values_of_what_varies() -> None:
    problem, winner = next(winners("backward", "flash_wgmma", "HS=128 "))
    subject = subject_of(TEMPLATE, problem, winner, ["NEXT_KERNEL"], SPEC)
    assert subject is not None
    (narrow,) = subject.templates
    assert narrow.hash == TEMPLATE.hash
    configs = list(Space(narrow, problem, SPEC).configs())
    assert sorted(str(config.pop("NEXT_KERNEL")) for config in configs) == ["at_end", "at_start", "waits"]
    same = {name: value for name, value in winner.config.items() if name != "NEXT_KERNEL"}
    assert all(config == same for config in configs)


def test_a_parameter_the_family_has_got_since_has_its_default() -> None:
    _, winner = next(winners("backward", "flash_wgmma", ""))
    older = make_candidate(winner.template, "0" * 16, {n: v for n, v in winner.config.items() if n != "NEXT_KERNEL"})
    assert alike(TEMPLATE, older, [])["NEXT_KERNEL"] == ("waits",)


def test_what_is_no_configuration_any_more_is_left_out() -> None:
    problem, winner = next(winners("backward", "flash_wgmma", "HS=128 "))
    assert subject_of(TEMPLATE, problem.replace(HS=256), winner, [], SPEC) is None
