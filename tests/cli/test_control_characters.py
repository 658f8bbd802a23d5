"""What a terminal would obey is escaped wherever names, messages and compilers' output are shown."""

import json
import shlex
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.compilers.running import compile_source
from autotune.core.errors import CompileError
from autotune.core.outcome import Outcome
from autotune.core.words import printable
from autotune.store import open_store
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, failed, ok

Capture = pytest.CaptureFixture[str]

CLEAR = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r\x7f"


def obeyed(text: str) -> set[str]:
    return {character for character in text if not character.isprintable() and character != "\n"}


def test_what_is_escaped() -> None:
    assert printable(CLEAR) == r"\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r\x7f"
    assert printable("two\nlines\tT ≤ T_kv …é☃") == "two\nlines\tT ≤ T_kv …é☃"
    assert printable("\udcff") == r"\udcff"


def test_messages_of_records(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.db"
    with open_store(path) as store:
        store.record(H200, FORWARD, candidate(), SOURCE, failed(Outcome.COMPILE_ERROR, f"error: {CLEAR}"))
        store.record(H200, FORWARD, candidate(32, template=f"t{CLEAR}"), SOURCE, ok(1.0))
    for arguments in (["list", "trials"], ["list", "winners"], ["show", "1"], ["show", "2"], ["show", SOURCE]):
        assert run([*arguments, "--db", str(path)]) == 0
        assert obeyed(capsys.readouterr().out) == set(), arguments
    assert run(["list", "trials", "--db", str(path), "--json"]) == 0
    out = capsys.readouterr().out
    assert obeyed(out) == set()
    assert f"error: {CLEAR}" in {row.get("message") for row in json.loads(out)}


def test_errors(tmp_path: Path, capsys: Capture) -> None:
    name = str(tmp_path / f"a{CLEAR}.db")
    for arguments in (
        ["list", "trials", "--db", name], ["best", "--op", CLEAR], ["best", "--device", CLEAR, "--db", name],
        ["best", "--template", f"{CLEAR}.cu.j2"], ["search", "--param", f"{CLEAR}=1"], ["best", "--set", f"{CLEAR}=1"],
        ["show", CLEAR, "--db", name], ["db", "import", CLEAR], [CLEAR], ["list", CLEAR],
    ):  # fmt: skip
        assert run(arguments) != 0
        out, err = capsys.readouterr()
        assert obeyed(out + err) == set(), arguments
        assert err.count("\n") == 1


def test_compilers_output(tmp_path: Path) -> None:
    (tmp_path / "said").write_text(f"kernel.cu(1): error: {CLEAR}\n")
    with pytest.raises(CompileError) as raised:
        compile_source("sh", ["/bin/sh", "-c", "cat said; exit 1"], tmp_path, 60.0, lambda output: output.strip("\n"))
    assert obeyed(str(raised.value)) == set()
    assert r"error: \x1b[2J" in str(raised.value)


@pytest.mark.parametrize("name", ["a\nint x;.cu", "a\x1b.cu", "\udcff.cu", "\u202e.cu"])
def test_an_exported_file_has_a_printable_name(name: str, tmp_path: Path, capsys: Capture) -> None:
    arguments = ["export", "--device", "h200", "--db", str(tmp_path / "no.db"), "-o", str(tmp_path / name)]
    assert run(arguments) == 2
    assert "has characters that cannot be printed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_lines_for_a_shell_are_quoted(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["export", "--device", "h200", "--db", str(tmp_path / "no.db"), "-o", "a b;touch $HOME'.cu"]
    assert run(arguments) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: ")]
    words = shlex.split(line.removeprefix("next: "))
    assert "a b;touch $HOME'.cu" in words
    assert words[-1] == "./a b;touch $HOME'"
