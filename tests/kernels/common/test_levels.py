"""Headers lie by level: they include their own and lower ones only, inline PTX stays in the lowest, all have tests."""

import re
from pathlib import Path

from autotune.core.resources import resource_root

COMMON = resource_root("templates") / "common"
LEVELS = {"": 0, "ptx": 1, "tile": 2, "warp": 3, "attention": 4, "matmul": 4}
HEADERS = sorted(path.relative_to(COMMON) for path in COMMON.rglob("*.cuh"))


def level(name: str) -> str:
    return name.rpartition("/")[0]


def test_every_header_has_a_level() -> None:
    assert {level(path.as_posix()) for path in HEADERS} == set(LEVELS)


def test_includes_point_down() -> None:
    for path in HEADERS:
        mine = level(path.as_posix())
        for included in re.findall(r'#include "common/([^"]+)"', (COMMON / path).read_text(encoding="utf-8")):
            theirs = level(included)
            assert theirs == mine or LEVELS[theirs] < LEVELS[mine], f"{path} includes {included}"


def test_inline_ptx_has_a_level_and_a_twin() -> None:
    for path in resource_root("templates").rglob("*.cu*"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"\basm\b", text):
            assert path.parent == COMMON / "ptx", path
            assert "AUTOTUNE_EMULATOR" in text, path


def test_each_header_has_a_test_file_of_its_name() -> None:
    """At the same place below this folder; it includes the header, or reads it."""
    here = Path(__file__).parent
    for path in HEADERS:
        test = here / path.parent / f"test_{path.stem}.py"
        assert test.exists(), f"{path} has no {test.relative_to(here)}"
        assert f"common/{path.as_posix()}" in test.read_text(encoding="utf-8"), (
            f"{test.relative_to(here)} is not about {path}"
        )


def test_each_level_has_tests_of_headers_only() -> None:
    here = Path(__file__).parent
    tested = {
        test.relative_to(here).with_name(f"{test.stem.removeprefix('test_')}.cuh") for test in here.glob("*/test_*.py")
    }
    assert tested == {path for path in HEADERS if level(path.as_posix())}
