"""A new device is one file and a row: it is named, searched on, looked up and called as those that ship are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.core.errors import UsageError
from autotune.devices.factory import choose_device
from autotune.gpus.identity import DEVICES, DeviceIdentity, parse_device
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store import open_store
from tests.new_device import ROW, ToyOpener

FIELDS: dict[str, Any] = {"B": 1, "NH": 2, "T": 8, "HS": 32}


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is there during these tests."""
    for kind, row in ROW.items():
        monkeypatch.setitem(DEVICES, kind, row)


def test_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(parse_device("toy:a100")) == "toy:a100"
    assert DeviceIdentity("toy", gpu("a100")).name == "toy:a100"
    assert choose_device("toy:a100") == choose_device("toy", "a100") == ToyOpener(gpu("a100"))
    monkeypatch.delitem(DEVICES, "toy")
    assert parse_device("toy:a100").kind == "cuda"  # a GPU that nobody knows
    with pytest.raises(UsageError, match="unknown GPU 'toy:a100'"):
        choose_device("toy:a100")


def test_a_search_and_a_call(tmp_path: Path) -> None:
    db = tmp_path / "toys.db"
    result = autotune.search("permute", device="toy:a100", trials=1, db=str(db), **FIELDS)
    assert result.best is not None
    with open_store(str(db)) as store:
        assert {winner.record.device for winner in store.winners()} == {"toy:a100"}
    op = get_op("permute")
    problem = op.problem(**FIELDS)
    inputs = op.inputs(problem, 1)
    kernel = autotune.kernel("permute", device="toy", db=db, **FIELDS)
    (name,) = kernel.outputs
    np.testing.assert_array_equal(kernel(**inputs)[name], op.reference(problem, inputs)[name])
