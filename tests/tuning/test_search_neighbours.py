"""A search begins with what won for problems nearby."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.candidate import Candidate
from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.store import Store, open_store
from autotune.store.shipped import shipped_winners
from autotune.tuning import neighbours as module
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.neighbours import neighbours
from tests.search_doubles import IDENTITY, PROBLEM, family, took

EXACT = ("HS", "dtype", "causal", "layout")
FAMILY = family(A=(1, 2), B=(1, 2))
VALID = [FAMILY.candidate(config) for config in FAMILY.space.configs()]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(module, "shipped_winners", lambda: ())
    return open_store(tmp_path / "near.db")


def won(store: Store, problem: Problem, candidate: Candidate, ms: float = 1.0, on: DeviceIdentity = IDENTITY) -> None:
    store.record(on, problem, candidate, "hash", took(ms))


def test_nearest_first_and_alike_problems_before_others(store: Store) -> None:
    won(store, PROBLEM.replace(T=1024, T_kv=1024), VALID[1])
    won(store, PROBLEM.replace(T=128, T_kv=128), VALID[2])
    won(store, PROBLEM.replace(HS=128), VALID[3])
    won(store, PROBLEM.replace(causal=False), VALID[0])
    found = neighbours(Records(store, IDENTITY, PROBLEM), Families([FAMILY]), EXACT)
    assert found == (VALID[2], VALID[1], VALID[0])


def test_other_versions_are_taken_as_of_today(store: Store) -> None:
    old = Candidate(VALID[1].template, "another hash", VALID[1].values)
    won(store, PROBLEM.replace(T=128), old)
    assert neighbours(Records(store, IDENTITY, PROBLEM), Families([FAMILY]), EXACT) == (VALID[1],)


def test_invalid_configurations_and_other_families_are_left_out(store: Store) -> None:
    won(store, PROBLEM.replace(T=128), Candidate("gone", "hash", VALID[1].values))
    narrow = family(valid=lambda config: config != VALID[2].config, A=(1, 2), B=(1, 2))
    won(store, PROBLEM.replace(T=256), VALID[2])
    assert neighbours(Records(store, IDENTITY, PROBLEM), Families([narrow]), EXACT) == ()


def test_at_most_a_few_and_each_once(store: Store) -> None:
    for i, T in enumerate((128, 256, 512, 1024, 2048)):
        won(store, PROBLEM.replace(T=T), VALID[i // 2])
    found = neighbours(Records(store, IDENTITY, PROBLEM), Families([FAMILY]), EXACT)
    assert found == (VALID[0], VALID[1], VALID[2])


def test_runners_up_of_the_nearest_follow_the_winners(store: Store) -> None:
    near, far = PROBLEM.replace(T=128, T_kv=128), PROBLEM.replace(T=1024, T_kv=1024)
    for candidate, ms in zip(VALID, (1.05, 1.0, 1.2, 1.02), strict=True):
        won(store, near, candidate, ms)
    won(store, far, VALID[2], 5.0)
    found = neighbours(Records(store, IDENTITY, PROBLEM), Families([FAMILY]), EXACT)
    assert found == (VALID[1], VALID[2], VALID[3], VALID[0])  # the last one is within 10 % of its winner


def test_other_masks_and_16_bit_types_help_where_winners_are_few(store: Store) -> None:
    won(store, PROBLEM.replace(causal=False), VALID[0])
    won(store, PROBLEM.replace(dtype="bf16", T=128, T_kv=128), VALID[1])
    won(store, PROBLEM.replace(dtype="fp32"), VALID[2])
    won(store, PROBLEM.replace(HS=128), VALID[3])
    found = neighbours(Records(store, IDENTITY, PROBLEM), Families([FAMILY]), EXACT)
    assert found == (VALID[0], VALID[1])
    for T in (128, 256):
        won(store, PROBLEM.replace(T=T, T_kv=T), VALID[3 if T == 128 else 2])
    found = neighbours(Records(store, IDENTITY, PROBLEM), Families([FAMILY]), EXACT)
    assert found == (VALID[3], VALID[2], VALID[0])


H100, A100 = DeviceIdentity("cuda", gpu("h100")), DeviceIdentity("cuda", gpu("a100"))
assert H100.spec.arch == IDENTITY.spec.arch != A100.spec.arch


def test_other_gpus_of_the_architecture_help_where_winners_are_few(store: Store) -> None:
    """Those of the same problems before this GPU's of other masks; other architectures never."""
    won(store, PROBLEM, VALID[0], on=A100)
    won(store, PROBLEM, VALID[3], on=DeviceIdentity("replay", H100.spec))
    won(store, PROBLEM.replace(causal=False), VALID[1])
    won(store, PROBLEM.replace(causal=False), VALID[3], on=H100)
    records = Records(store, IDENTITY, PROBLEM)
    assert neighbours(records, Families([FAMILY]), EXACT) == (VALID[1],)
    won(store, PROBLEM, VALID[2], on=H100)
    assert neighbours(records, Families([FAMILY]), EXACT) == (VALID[2], VALID[1])
    for T, number in ((128, 0), (256, 1), (512, 3)):
        won(store, PROBLEM.replace(T=T, T_kv=T), VALID[number])
    assert neighbours(records, Families([FAMILY]), EXACT) == (VALID[0], VALID[1], VALID[3])


def test_shipped_winners_of_another_gpu_are_begun_with(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there may be, nearest first; what was won for the very problem among them."""
    (line, *_) = shipped_winners()
    near = [
        replace(line, problem=PROBLEM.replace(T=T, T_kv=T), candidate=candidate)
        for T, candidate in ((4096, VALID[0]), (PROBLEM["T"], VALID[1]), (2048, VALID[2]), (8192, VALID[3]))
    ]
    monkeypatch.setattr(module, "shipped_winners", lambda: tuple(near))
    here = Records(store, IDENTITY, PROBLEM)
    found = neighbours(here, Families([FAMILY]), EXACT)
    assert found[0] == VALID[1]
    there = Records(store, H100 if line.identity.spec.name == "h200" else IDENTITY, PROBLEM)
    assert neighbours(there, Families([FAMILY]), EXACT) == found
    assert neighbours(Records(store, A100, PROBLEM), Families([FAMILY]), EXACT) == ()
