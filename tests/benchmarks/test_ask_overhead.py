"""What an ask costs, measured in small."""

import json

import pytest

from autotune.core.errors import TemplateError
from benchmarks.ask_overhead import families, main


def test_every_space_and_number_of_trials_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--samplers", "parzen,random", "--trials", "30,60", "--spaces", "wide,softmax/block_per_row"]
    main([*asked, "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["space"].split("/")[0], row["sampler"], row["trials"]) for row in rows] == [
        (space, sampler, trials)
        for space in ("wide", "softmax") for sampler in ("parzen", "random") for trials in (30, 60)
    ]  # fmt: skip
    assert {row["valid"] for row in rows[:4]} == {2 * 192 * 20**5 * 2 // 3}
    for row in rows:
        assert row["ask_cpu_ms"] > 0.0
        assert 0.0 < row["ask_ms"] < 1e5
    main([*asked[:2], "--trials", "30", "--spaces", "wide"])
    assert "wide (819,200,000 valid) parzen" in capsys.readouterr().out


def test_a_family_that_is_not_there_is_named() -> None:
    with pytest.raises(TemplateError, match="no_such_family"):
        families("forward/no_such_family")
