"""Exported files, their own check included, really executed."""

import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from autotune.answers.best import Best
from autotune.answers.export_text import export_text
from autotune.answers.lookup import best
from autotune.families.space import Space
from autotune.families.template import Template
from tests.answers.exported_program import run_exported
from tests.every_family import families_of, home, name_of, supported

SMALL: dict[str, Any] = {"B": 1, "NH": 2, "T": 65, "HS": 32}
CASES: dict[str, dict[str, Any]] = {
    "fp16": {**SMALL, "dtype": "fp16"},
    "bf16, packed": {**SMALL, "dtype": "bf16", "layout": "packed"},
    "rows without keys, grouped heads": {**SMALL, "NH_kv": 1, "T": 70, "T_kv": 33, "dtype": "fp32", "layout": "bhtd"},
    "all keys, wider values": {**SMALL, "T_kv": 40, "causal": False, "HS_v": 48},
}
OUTPUTS = {"forward": ("out", "lse"), "backward": ("out", "lse", "dq", "dk", "dv")}


def exports() -> Iterator[Any]:
    """Each family with one of the cases, in turns."""
    for op in OUTPUTS:
        for family, case in zip(families_of(op), cycle(CASES)):
            yield pytest.param(family, CASES[case], id=f"{name_of(family)}-{case}")


@pytest.mark.parametrize(("family", "fields"), list(exports()))
def test_an_export_passes_its_own_check(family: Template, fields: dict[str, Any], tmp_path: Path) -> None:
    problem, spec = supported(family, fields, home(family)), home(family)
    space = Space(family, problem, spec)
    answer = Best("default", "none", None, problem, spec, space.candidate(space.default()), template=family)
    done = run_exported(export_text(answer, f"{family.op}.cu", True), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "PASS"
    checked = dict(re.findall(r"check +(\w+) .* (\d+ of \d+) elements compared, 0 not finite: ok", done.stdout))
    assert tuple(checked) == OUTPUTS[family.op]
    for name in OUTPUTS[family.op][-2:]:
        compared, _, total = checked[name].partition(" of ")
        assert compared == total


def test_the_cases_are_all_executed() -> None:
    for op in OUTPUTS:
        assert len([case for case in exports() if case.values[0].op == op]) >= len(CASES)


@pytest.fixture
def found(tmp_path: Path) -> Best:
    several = {**SMALL, "T": 300}  # several tiles of any family's: half of them is less than all
    return best("backward", device="h200", db=tmp_path / "none.db", **several)


SABOTAGE = {
    "a wrong scale": (", scale);", ", scale * 1.01f);"),
    "half the output": ("host::ceil_div(T_kv, ", "host::ceil_div(T_kv / 2, "),
    "nothing written": ("if (!(B >= 1", "return cudaSuccess; if (!(B >= 1"),
}


@pytest.mark.parametrize("fault", SABOTAGE)
def test_wrong_kernels_fail(fault: str, found: Best, tmp_path: Path) -> None:
    text = export_text(found, "backward.cu", True)
    old, new = SABOTAGE[fault]
    assert old in text
    done = run_exported(text.replace(old, new), tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "FAIL"
    assert "WRONG" in done.stdout
