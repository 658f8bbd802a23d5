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


def test_only_wrappers_have_code_that_another_compiler_does_not_see() -> None:
    """What depends on the compiler or on the architecture is executed there or here alone: nobody compares the two."""
    branch = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b[^\n]*", re.MULTILINE)
    for path in resource_root("templates").rglob("*.cu*"):
        if path.parent != COMMON / "ptx":
            text = path.read_text(encoding="utf-8")
            assert branch.findall(text) == [], path
            assert not re.search(r"__CUDA_ARCH|__CUDACC__|__NVCC__|EMULATOR", text), path


def test_every_wrapper_is_compared_with_its_twin() -> None:
    """Tests of this folder run on the emulator, and by tests/gpu/test_wrappers.py on a GPU."""
    tested = "".join(
        p.read_text(encoding="utf-8") for p in Path(__file__).parent.rglob("*") if p.suffix in (".py", ".cu")
    )
    defined = re.compile(r"^__device__ __forceinline__ (?:static )?[\w:<>]+ (\w+)\(", re.MULTILINE)
    for path in (COMMON / "ptx").glob("*.cuh"):
        for name in defined.findall(path.read_text(encoding="utf-8")):
            root = re.sub("_(?:transposed|remote|multicast)$", "", name)  # tested by their suffix, too
            assert re.search(rf"\b{root}", tested) or name in _OF_OTHERS, f"{path.name}: {name}"


_OF_OTHERS = {"hold_registers", "tf32_rounded", "tf32_truncated"}
"""A part of other wrappers; and arithmetic that tests/gpu/test_tf32_rounding.py compares with the instruction."""
