"""Every field of every op has an option of its own in the commands that take a problem, made from the field."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from autotune.cli import main as cli
from autotune.cli.options import AskedFields, problem_options
from autotune.ops import registry
from autotune.ops.op import Field
from autotune.ops.registry import BUILTIN, get_op
from autotune.ops.softmax import Softmax

COMMANDS = ("search", "best", "export", "check")


def options_of(command: str) -> dict[str, str]:
    """Help texts by option."""
    group: Any = typer.main.get_command(cli.build_app((command, "show")))
    return {name: parameter.help or "" for parameter in group.commands[command].params for name in parameter.opts}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_field_is_an_option(command: str) -> None:
    options = options_of(command)
    fields = {field.name: field for op in BUILTIN for field in get_op(op).fields}
    without = {name for name, field in fields.items() if not field.has_option}
    assert without == {"source", "target"}  # which are --source and --target of some commands
    assert {f"--{name.replace('_', '-')}" for name in fields.keys() - without} - options.keys() == set()
    for op in BUILTIN:
        assert re.search(rf"\b{op}\b", options["--op"])


class Dice(Softmax):
    """An op that a test adds."""

    name = "dice"
    fields = (
        Field("T", "int", 6, help="faces"),
        Field("dtype", "choice", "fp32", choices=("fp32",), help="element type"),
        Field("loaded", "bool", False, help="whether one face is heavier"),
        Field("max_throws", "int", 2, help="throws"),
    )


def test_a_new_op_is_one_class(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(registry, "_OPS", dict(registry._OPS))
    registry.register(Dice())

    @problem_options("forward", "dice")
    def command(*, asked: AskedFields) -> None:
        typer.echo(asked.choices())

    app = typer.Typer()
    app.command()(command)
    words = ["--T", "4,6", "--no-loaded", "--max-throws", "3", "--set", "x=1"]
    typer.main.get_command(app).main(words, standalone_mode=False)
    assert capsys.readouterr().out == "{'T': (4, 6), 'loaded': (False,), 'max_throws': (3,), 'x': (1,)}\n"
    typer.main.get_command(app).main(["--help"], standalone_mode=False)
    shown = " ".join(re.sub("[│\n]", " ", capsys.readouterr().out).split())
    assert "Query length; dice: faces." in shown
    assert "dice: whether one face is heavier." in shown


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
    assert found["answer"] == "start"


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
