"""Commands called in this process: what they answer, and what they say when they fail."""

import json
from typing import Any

import pytest

from autotune.cli.main import run

Capture = pytest.CaptureFixture[str]


def call(capsys: Capture, *arguments: str) -> Any:
    assert run([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def fails(capsys: Capture, code: int, *arguments: str) -> str:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err
