"""The command line: one line for an error, the right exit code, and nothing heavy imported before it is needed."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune import __version__
from autotune.cli import main as cli
from autotune.core.errors import AutotuneError, DeviceMissing, NoFeasibleConfiguration, StoreError, UsageError


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "autotune.db"))
    monkeypatch.delenv("AUTOTUNE_DEBUG", raising=False)
    monkeypatch.delenv("AUTOTUNE_DEVICE", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def error_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and the one line on stderr."""
    code = cli.run(arguments)
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert len(lines) == 1, printed.err
    assert lines[0].startswith("error: ")
    assert "Traceback" not in printed.err + printed.out
    return code, lines[0]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"autotune {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 0
    shown = re.findall(r"^│ (\w+) ", capsys.readouterr().out, re.MULTILINE)
    assert shown == list(cli.COMMANDS)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, "--help"]) == 0
    assert f"Usage: autotune {command}" in capsys.readouterr().out


FIELDS = (
    (["--op", "sideways"], 2, "unknown op 'sideways'; known: forward, backward"),
    (["--T", "0"], 2, "T=0 must be at least 1"),
    (["--T", "many"], 2, "T='many' is not a whole number"),
    (["--HS", "600"], 3, "max(HS, HS_v) <= 512"),
    (["--HS", "4096"], 3, "HS_v) <="),
    (["--NH", "12", "--NH-kv", "5"], 2, "NH=12 is not divisible by NH_kv=5"),
    (["--dtype", "fp8"], 2, "dtype='fp8' is not one of fp16, bf16, fp32"),
    (["--layout", "packed", "--T", "8", "--T-kv", "9"], 2, "T_kv=9 must equal T=8"),
    (["--set", "colour=red"], 2, "no field 'colour'"),
    (["--db", "mysql://somewhere/db"], 2, "mysql"),
    (["--db", "postgresql+psycopg://me@host:port/db"], 2, "malformed database URL"),
)


@pytest.mark.parametrize("command", ["best", "export", "search"])
@pytest.mark.parametrize(("arguments", "code", "said"), FIELDS)
def test_impossible_problems(
    command: str, arguments: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    where = ["--device", "cpu"]
    op = [] if "--op" in arguments else ["--op", "forward"]
    assert error_of([command, *op, *arguments, *where], capsys)[0] == code
    message = error_of([command, *op, *arguments, *where], capsys)[1]
    assert said in message
    assert list(tmp_path.glob("*.cu")) == []


GOOD = """{#---
summary = "copies"
op = "copy"
[problem]
n = 64
[tensors]
x = { shape = ["n"], role = "input" }
y = { shape = ["n"], role = "output" }
[params]
THREADS = [32, 64]
[[launch]]
kernel = "copy"
grid = ["ceil_div(n, THREADS)"]
block = ["THREADS"]
args = ["x", "y", "n"]
---#}
extern "C" __global__ void copy(const float* x, float* y, int n)
{
    const int i = blockIdx.x * {{ THREADS }} + threadIdx.x;
    if (i < n) y[i] = x[i];
}
"""
FAULTS = {
    "unclosed": ("---#}", "", "copy.cu.j2: the front matter is never closed"),
    "not TOML": ("[params]", "[params", "copy.cu.j2: front matter is not valid TOML"),
    "unknown key": ('summary = "copies"', 'summary = "copies"\nsumary = 1', "'sumary'"),
    "no launch": ("[[launch]]", "[cost]\n[[constraints]]", "constraint"),
    "unknown name in an expression": ("ceil_div(n, THREADS)", "ceil_div(n, THREDS)", "copy.cu.j2: "),
    "expression that leaves the sandbox": ('["ceil_div(n, THREADS)"]', "[\"''.__class__.__mro__\"]", "not allowed: "),
    "expression that does not parse": ("ceil_div(n, THREADS)", "ceil_div(n,", "ceil_div(n,"),
    "undefined name in the body": ("{{ THREADS }}", "{{ THREDS }}", "copy.cu.j2: 'THREDS' is undefined"),
    "body that leaves the sandbox": ("{{ THREADS }}", "{{ ''.__class__.__mro__ }}", "copy.cu.j2: not allowed: "),
    "kernel that is not there": ('kernel = "copy"', 'kernel = "paste"', "copy.cu.j2: [[launch]] names kernel 'paste'"),
    "argument of another kind": ('"y", "n"]', '"y", "1.5 * n"]', "copy.cu.j2: kernel copy takes int as parameter 3"),
    "body that does not parse": ("{{ THREADS }}", "{% if %}", "copy.cu.j2: line 19"),
}


@pytest.mark.parametrize("command", ["export", "search"])
@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_templates(
    command: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old, new, said = FAULTS[fault]
    assert old in GOOD
    (tmp_path / "copy.cu.j2").write_text(GOOD.replace(old, new, 1))
    (tmp_path / "copy_reference.py").write_text("def copy(problem, inputs):\n    return inputs['x']\n")
    arguments = [command, "--template", "copy.cu.j2", "--reference", "copy_reference:copy", "--device", "cpu"]
    code, message = error_of(arguments, capsys)
    assert code == 2
    assert said in message
    assert not (tmp_path / "copy.cu").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "No such command 'nothing' (see autotune --help)"),
        (["best", "--colour"], "No such option: --colour "),
        (["export", "--op"], "(see autotune export --help)"),
        (["show"], "(see autotune show --help)"),
        (["search", "--trials", "few"], "--trials"),
        (["list", "things"], "Invalid value for 'what': 'things' is not one of 'problems', "),
    ],
)
def test_wrong_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, message = error_of(arguments, capsys)
    assert code == 2
    assert said in message


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (AutotuneError("plain"), 1, "error: plain"),
        (UsageError("two\n  lines"), 2, "error: two lines"),
        (NoFeasibleConfiguration("none"), 3, "error: none"),
        (DeviceMissing("no GPU"), 4, "error: no GPU"),
        (StoreError("corrupt"), 1, "error: corrupt"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
        (ZeroDivisionError("x"), 1, "error: a bug in autotune: ZeroDivisionError: x; set AUTOTUNE_DEBUG=1"),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise error

    monkeypatch.setattr(cli, "_invoke", fail)
    assert error_of(["best"], capsys) == (code, error_of(["best"], capsys)[1])
    assert error_of(["best"], capsys)[1].startswith(said)


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DEBUG", "1")
    assert cli.run(["best", "--T", "0"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback")
    assert printed.splitlines()[-1] == "error: op 'forward': T=0 must be at least 1"


def autotune(
    *arguments: str, code: str = "from autotune.cli.main import main; main()"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"})


LOADED = "import sys; from autotune.cli.main import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["search", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    modules = autotune(*arguments, code=LOADED).stderr.split()
    assert "autotune.cli.main" in modules
    assert {"optuna", "sqlalchemy", "numpy", "alembic", "jinja2"}.isdisjoint(modules)


def test_a_look_up_imports_no_search_and_no_database_layer() -> None:
    modules = autotune("best", "--T", "512", "--device", "h200", code=LOADED).stderr.split()
    assert "autotune.answers.lookup" in modules
    assert {"optuna", "sqlalchemy", "alembic", "autotune.cli.search"}.isdisjoint(modules)


def test_as_a_process(tmp_path: Path) -> None:
    done = autotune("export", "--T", "512", "--device", "h200", "--json", "-o", str(tmp_path / "f.cu"))
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    assert written["problem"]["T"] == 512
    assert written["device"] == "h200"
    assert written["path"] == str(tmp_path / "f.cu")
    assert written["source_hash"] in (tmp_path / "f.cu").read_text()
    failed = autotune("export", "--op", "sideways")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: unknown op 'sideways'")


def test_a_reader_that_goes_away_is_neither_success_nor_failure() -> None:
    command = [sys.executable, "-m", "autotune", "list", "gpus"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(timeout=60) == cli.READER_GONE
        assert process.stderr.read() == b""


def test_output_for_which_there_is_no_room(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(arguments: list[str]) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cli, "_invoke", full)
    assert cli.run(["best"]) == 1
    assert capsys.readouterr().err == "error: the output could not be written: No space left on device\n"
