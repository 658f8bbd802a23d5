"""Files that a user asks for and that cannot be written: a failure (1), not a wrong request (2), by every command."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from autotune.answers import profiling
from autotune.cli.main import run
from autotune.core.errors import AutotuneError
from autotune.report import pictures
from tests.cli.calling import Capture, fails

FULL = Path("/dev/full")

WRITERS = (
    ("export", "--op", "forward", "--device", "h200"),
    ("db", "export"),
    ("db", "export", "--winners", "--json"),
    ("db", "export", "--format", "t4", "--device", "h200", "--problem", "{problem}", "--template", "{template}"),
    ("report", "--no-examine"),
)


def _filled(command: Sequence[str]) -> list[str]:
    from autotune.families.template import builtin_templates
    from tests.store.store_records import FORWARD

    return [part.format(problem=FORWARD.key, template=builtin_templates("forward")[0].name) for part in command]


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", WRITERS, ids=" ".join)
def test_a_full_disk(command: Sequence[str], db: Path, capsys: Capture) -> None:
    said = fails(capsys, 1, *_filled(command), "-o", str(FULL))
    assert said == "error: cannot write /dev/full: No space left on device\n"


@pytest.mark.parametrize("command", WRITERS, ids=" ".join)
def test_a_file_that_cannot_be_replaced(command: Sequence[str], db: Path, capsys: Capture) -> None:
    assert "cannot write" in fails(capsys, 1, *_filled(command), "-o", str(db))


@pytest.mark.parametrize("command", WRITERS, ids=" ".join)
def test_a_read_only_file_system(
    command: Sequence[str], db: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**where: object) -> object:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("autotune.core.files.tempfile.mkstemp", refuse)
    path = tmp_path / "out.html"
    said = fails(capsys, 1, *_filled(command), "-o", str(path))
    assert said == f"error: cannot write {path}: Read-only file system\n"


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_pictures_and_counters(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    folder = tmp_path / "folder.svg"
    folder.mkdir()
    with pytest.raises(AutotuneError, match=r"cannot write .*folder\.svg") as picture:
        pictures.save_plot(Figure(), folder)
    with pytest.raises(AutotuneError, match=r"cannot write /dev/full") as counters:
        profiling._write(FULL, "text")
    assert [error.value.exit_code for error in (picture, counters)] == [1, 1]


def test_a_journal_that_cannot_be_written(
    db: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")

    def refuse(path: str) -> object:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("optuna.storages.journal.JournalFileBackend", refuse)
    journal = tmp_path / "journal.log"
    said = fails(capsys, 1, "db", "export", "--optuna", str(journal))
    assert said == f"error: cannot write the journal {journal}: Read-only file system\n"


@pytest.mark.parametrize("command", [("export", "--op", "forward"), ("report",)], ids=" ".join)
def test_a_folder_that_is_not_there_is_still_a_wrong_request(
    command: tuple[str, ...], db: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert run([*command, "-o", str(tmp_path / "no" / "file")]) == 2
    assert "does not exist" in capsys.readouterr().err
