"""`python -m benchmarks.search_time`: pretended searches keep what no schedule can break."""

import pytest

from autotune.gpus.known import gpu
from autotune.tuning.choose import choose_families, choose_subject
from autotune.tuning.joint_space import Families
from benchmarks.search_time import Machine, main, pretended


@pytest.fixture(scope="module")
def families() -> Families:
    subject = choose_subject("softmax", [], None)
    return choose_families(subject.templates, subject.problem({"T": 64}), gpu("h200"))


@pytest.mark.parametrize(("cores", "device_s"), [(1, 0.01), (4, 0.01), (4, 3.0), (32, 0.1)])
def test_neither_the_device_nor_the_cores_do_more_than_they_can(
    families: Families, cores: int, device_s: float
) -> None:
    told = pretended(families, Machine(cores, 2.0, device_s, 1.0), 30, seed=3)
    assert 0.0 < told.device_share <= 1.0
    assert told.cores_share > 0.0
    assert 30 <= told.built <= 30 + told.dropped
    assert told.last_s >= 0.3 + 30 * 2.0 * 0.6 / cores  # a build takes 0.6 of what it usually does, or more
    assert told.last_s >= 1.0 + (30 - told.pruned) * device_s
    assert told.first_s >= 1.0 + device_s


def test_a_faster_device_ends_sooner_where_it_is_waited_for(families: Families) -> None:
    slow, fast = (pretended(families, Machine(16, 1.0, device_s, 1.0), 40, seed=3) for device_s in (1.0, 0.5))
    assert slow.device_share > 0.9
    assert fast.last_s < 0.7 * slow.last_s


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--op", "softmax", "--T", "64", "--trials", "12", "--seeds", "2"])
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("first verdict ")
    assert second.startswith("first verdict ")
    assert last.startswith("median of the last verdicts: ")
