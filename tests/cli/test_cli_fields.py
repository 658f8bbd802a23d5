"""Fields of attention, products and softmax have options of their own in the commands that take a problem."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from autotune.cli import main as cli
from autotune.ops.registry import get_op

COMMANDS = ("search", "best", "export", "check")
OPS = ("forward", "backward", "matmul", "softmax", "softmax_backward")


def options_of(command: str) -> set[str]:
    group: Any = typer.main.get_command(cli.build_app((command, "show")))
    return {name for parameter in group.commands[command].params for name in parameter.opts}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_field_is_an_option(command: str) -> None:
    options = options_of(command)
    fields = {field.name for op in OPS for field in get_op(op).fields}
    assert {f"--{name.replace('_', '-')}" for name in fields} - options == set()


def best(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    arguments = ["best", *arguments, "--device", "h200", "--db", str(tmp_path / "a.db"), "--json"]
    assert cli.run(arguments) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_matrix_product(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--op", "matmul", "--B", "1", "--M", "512", "--N", "256", "--K", "64", "--layout", "tn"]
    found = best([*words, "--mask", "a_lower", "--alpha", "0.5"], tmp_path, capsys)
    expected = {"B": 1, "NH": 12, "M": 512, "N": 256, "K": 64, "layout": "tn", "mask": "a_lower", "alpha": 0.5}
    assert expected.items() <= found["problem"].items()
    assert found["answer"] == "default"


def test_a_softmax(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = best(["--op", "softmax", "--T", "70", "--no-causal", "--scale", "0.25"], tmp_path, capsys)
    assert {"T": 70, "T_kv": 70, "causal": False, "scale": 0.25}.items() <= found["problem"].items()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--op", "matmul", "--HS", "64"], "no field 'HS'"),
        (["--op", "forward", "--M", "64"], "no field 'M'"),
        (["--op", "matmul", "--mask", "left"], "mask='left' is not one of none, c_lower, a_lower, a_upper"),
        (["--op", "matmul", "--alpha", "much"], "alpha='much' is not a finite number"),
        (["--op", "softmax", "--scale", "nan"], "is not a finite number"),
    ],
)
def test_wrong_fields(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(["best", *arguments, "--device", "h200", "--db", str(tmp_path / "a.db")])
    assert (code, said in capsys.readouterr().err) == (2, True)
