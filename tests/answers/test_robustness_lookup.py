"""Look-ups never answer from memory what a database no longer says: after a fork, a new file, a copy over it."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.core.candidate import make_candidate
from autotune.core.errors import UsageError
from autotune.families.catalogue import Families
from autotune.families.space import Space
from autotune.families.template import builtin_templates, find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store import open_store
from autotune.store.reader import SqliteReader
from tests.store.store_records import H200, SOURCE, ok

FORWARD = get_op("forward").problem()


def record(path: Path, position: int, ms: float) -> None:
    space = Space(find_template("forward", "flash_simt"), FORWARD, gpu("h200"))
    with open_store(path) as store:
        store.record(H200, FORWARD, space.candidate(space[position]), SOURCE, ok(ms))


def asked(path: Path) -> float | None:
    return autotune.best("forward", device="h200", db=path).ms


def test_a_forked_process_sees_what_is_written_after_the_fork(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    record(path, 0, 5.0)
    assert asked(path) == 5.0
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        os._exit(0 if asked(path) == 0.25 else 1)
    record(path, 1, 0.25)
    os.write(go, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asked(path) == 0.25


def test_a_database_that_another_is_copied_over_is_read_anew(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    record(path, 0, 0.5)
    record(other, 1, 0.25)  # as many changes as in the first
    assert asked(path) == 0.5
    shutil.copyfile(other, path)
    assert asked(path) == 0.25


@pytest.mark.parametrize("between", [True, False])
def test_a_database_made_again_is_another(tmp_path: Path, between: bool) -> None:
    path = tmp_path / "a.db"
    reader = SqliteReader(path)
    seen = set()
    for _ in range(3):
        open_store(path).close()
        seen.add(reader.stamp())
        for file in tmp_path.iterdir():
            file.unlink()
        if between:
            assert reader.stamp() is None
    assert len(seen) == 3


@pytest.mark.parametrize("op", ["forward", "backward"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("HS", [64, 96, 128])
@pytest.mark.parametrize("name", ["h200", "a100"])
def test_the_default_is_a_family_on_tensor_cores(op: str, dtype: str, HS: int, name: str) -> None:
    """Where nothing like it was tuned: a few percent of scratch memory decide nothing."""
    problem = get_op(op).problem(dtype=dtype, HS=HS)
    candidate = Families(builtin_templates(op)).default(problem, gpu(name))
    hopper = name == "h200" and dtype != "fp32" and not find_template(op, "flash_wgmma").unproven
    assert candidate.template == ("flash_wgmma" if hopper else "flash_tf32x3" if dtype == "fp32" else "flash_mma")


def test_a_family_that_nobody_has_run_on_a_gpu_answers_last(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, families = FORWARD, Families(builtin_templates("forward"))
    [first] = [t for t in families.templates if t.name == families.default(problem, gpu("h200")).template]
    counted = replace(first, starts=tuple(replace(start, origin="counted, not measured") for start in first.starts))
    assert not first.unproven
    assert counted.unproven
    others = tuple(counted if template is first else template for template in families.templates)
    assert Families(others).default(problem, gpu("h200")).template not in {first.name, "naive", "unfused"}


def test_a_configuration_that_is_not_valid_is_no_exact_answer(tmp_path: Path) -> None:
    """As an edited record has it: a value that is not listed, a missing one, one of another type."""
    family = find_template("forward", "flash_mma")
    sound = Space(family, FORWARD, gpu("h200")).default()
    path = tmp_path / "a.db"
    changes: tuple[dict[str, Any], ...] = ({"HEADS_AT_ONCE": 7}, {"HEADS_AT_ONCE": True}, {"BLOCK_M": 10**22})
    with open_store(path) as store:
        for number, changed in enumerate(changes):
            candidate = make_candidate("flash_mma", family.hash, {**sound, **changed})
            store.record(H200, FORWARD, candidate, SOURCE, ok(0.001 * (number + 1)))
        missing = {name: value for name, value in sound.items() if name != "HEADS_AT_ONCE"}
        store.record(H200, FORWARD, make_candidate("flash_mma", family.hash, missing), SOURCE, ok(0.0005))
    found = autotune.best("forward", device="h200", db=path)
    assert found.origin == "shipped"
    assert Space(found.template, FORWARD, gpu("h200")).contains(found.candidate.config)


def test_a_configuration_that_breaks_a_constraint_is_not_rendered(tmp_path: Path) -> None:
    """Constraints cost more than a look-up, so they are looked at when there is something to build."""
    family = find_template("forward", "flash_mma")
    edited = {**Space(family, FORWARD, gpu("h200")).default(), "BLOCK_M": 256, "WARPS": 1}
    path = tmp_path / "a.db"
    with open_store(path) as store:
        store.record(H200, FORWARD, make_candidate("flash_mma", family.hash, edited), SOURCE, ok(0.001))
    with pytest.raises(UsageError, match=r"is not valid: every warp.* name another database"):
        autotune.export("forward", device="h200", db=path, output=tmp_path / "x.cu")
    assert not (tmp_path / "x.cu").exists()
