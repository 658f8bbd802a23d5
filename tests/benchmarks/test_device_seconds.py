"""`python -m benchmarks.device_seconds`: what it counts, on the emulator."""

import re

import pytest

from benchmarks.device_seconds import STEPS, main


def test_every_step_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--op", "softmax", "--T", "64", "--device", "cpu:h200", "--rounds", "1", "--template", "warp_per_row"])
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"softmax .*T=64 .* on cpu:h200, \d+ cores, 0 compilers beside", first)
    found = re.findall(r"(\w+) (-?\d+\.\d)", second)
    assert [name for name, _ in found] == ["whole", *STEPS, "waited"]
    ms = {name: float(value) for name, value in found}
    assert min(ms["run"], ms["whole"]) > 0.0
    assert ms["time"] == 0.0  # the emulator's times are estimates
    assert ms["whole"] == pytest.approx(sum(value for name, value in ms.items() if name != "whole"), abs=0.7)
