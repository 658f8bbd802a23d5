"""The documents keep up with the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from autotune.cli.docs import document
from autotune.cli.main import build_app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")])


def leaves(group: Any, path: str = "autotune") -> list[tuple[str, Any]]:
    found = []
    for name, command in group.commands.items():
        full = f"{path} {name}"
        found += leaves(command, full) if hasattr(command, "commands") else [(full, command)]
    return found


COMMANDS = leaves(typer.main.get_command(build_app()))


def test_cli_page_is_current() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == document(), "run `make docs`"


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_and_option_is_described(name: str, command: Any) -> None:
    assert f"## {name}\n" in (ROOT / "docs" / "cli.md").read_text()
    assert len(command.help) > 20
    undescribed = [parameter.name for parameter in command.params if not parameter.help]
    assert undescribed == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_marks(path: Path) -> None:
    text = path.read_text()
    assert text.strip()
    assert "TODO" not in text
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_changelog_has_the_version() -> None:
    from autotune import __version__

    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(__version__)}\b", text, re.MULTILINE)
    assert len(re.findall(r"^- ", text, re.MULTILINE)) >= 3


def test_decisions_are_paragraphs_with_headings() -> None:
    sections = re.split(r"^## ", (ROOT / "docs" / "decisions.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(sections) >= 7
    for section in sections:
        heading, _, body = section.partition("\n")
        assert len(body.split()) > 20, heading
        assert "\n\n" not in body.strip(), f"one paragraph: {heading}"


def test_every_family_is_described() -> None:
    from autotune.families.template import builtin_templates
    from autotune.ops.registry import op_names

    text = (ROOT / "docs" / "kernels.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted((op, family.name) for op in op_names() for family in builtin_templates(op))


def test_every_family_and_its_parameters_are_explained() -> None:
    from autotune.families.template import builtin_templates
    from autotune.ops.registry import op_names

    text = (ROOT / "docs" / "families.md").read_text()
    sections = {}
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        sections[heading] = body
    families = {f"`{op}` `{family.name}`": family for op in op_names() for family in builtin_templates(op)}
    assert sorted(sections) == sorted(families)
    for heading, family in families.items():
        assert "```" in sections[heading], f"{heading}: the grid is drawn"
        missing = [p.name for p in family.parameters if f"`{p.name}`" not in sections[heading]]
        assert missing == [], heading
