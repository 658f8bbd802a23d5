"""Device names: what users write, what records have, and one reading of both."""

import re
from pathlib import Path

import pytest

import autotune
from autotune.gpus.identity import DeviceIdentity, DeviceName, gpu_of_record, parse_device
from autotune.gpus.known import gpu, gpus

NAMES = {
    "cuda": DeviceName("cuda"),
    "cuda:1": DeviceName("cuda", index=1),
    "h200": DeviceName("cuda", "h200"),
    "RTX 4090": DeviceName("cuda", "RTX 4090"),
    "cpu": DeviceName("cpu"),
    "cpu:h200": DeviceName("cpu", "h200"),
    "replay:a100": DeviceName("replay", "a100"),
    "cuda:h200": DeviceName("cuda", "cuda:h200"),  # no such thing: an unknown model
}


@pytest.mark.parametrize("text", NAMES)
def test_a_name_is_taken_apart_and_put_together(text: str) -> None:
    assert parse_device(text) == NAMES[text]
    assert str(NAMES[text]) == text


@pytest.mark.parametrize("kind", ["cuda", "cpu", "replay"])
def test_the_name_of_a_record_is_read_back(kind: str) -> None:
    for spec in gpus():
        name = DeviceIdentity(kind, spec).name
        assert parse_device(name) == DeviceName(kind, spec.name)
        assert gpu_of_record(name) == spec.name
    assert DeviceIdentity("cpu", gpu("h200")).name == "cpu:h200"


def test_nothing_else_takes_names_apart() -> None:
    root = Path(autotune.__file__).parent
    reading = re.compile(r"""(?:removeprefix|startswith)\("(?:cpu|cuda)|f"(?:cpu|cuda):|cuda\(\?""")
    found = {path.relative_to(root) for path in root.rglob("*.py") if reading.search(path.read_text(encoding="utf-8"))}
    assert found == {Path("gpus/identity.py")}
