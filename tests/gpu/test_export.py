"""Exported files built with nvcc and run on the GPU: right kernels pass, wrong ones fail."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.answers.best import Best
from autotune.answers.export_text import export_text
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.present import present_gpu
from autotune.ops.registry import get_op
from tests.gpu.exported import run

pytestmark = pytest.mark.gpu
GPU = present_gpu()
if GPU is None:
    pytest.skip("needs an NVIDIA GPU", allow_module_level=True)

PROBLEMS: dict[str, dict[str, Any]] = {
    "default": {},
    "bf16, packed": {"dtype": "bf16", "layout": "packed", "T": 239},
    "fp32, rows without keys": {"dtype": "fp32", "layout": "bhtd", "NH_kv": 4, "T": 300, "T_kv": 113},
    "long": {"B": 1, "NH": 4, "T": 8192, "causal": False},
}


def families() -> Iterator[Template]:
    for op in ("forward", "backward"):
        yield from builtin_templates(op)


def exported(template: Template, fields: dict[str, Any]) -> str:
    assert GPU is not None
    problem = get_op(template.op).problem(**fields)
    if template.why_unsupported(problem, GPU) is not None:
        pytest.skip("the family does not support it")
    space = Space(template, problem, GPU)
    found = Best("default", "none", None, problem, GPU, space.candidate(space.default()), template)
    return export_text(found, "exported.cu", main=True)


@pytest.mark.parametrize("template", list(families()), ids=lambda t: f"{t.op}-{t.name}")
@pytest.mark.parametrize("problem", PROBLEMS)
def test_exported_files_pass(template: Template, problem: str, tmp_path: Path) -> None:
    done = run(exported(template, PROBLEMS[problem]), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "PASS"
    assert float(re.findall(r"^time +([\d.]+) ms", done.stdout, re.MULTILINE)[0]) > 0
    assert float(re.findall(r"^speed +([\d.]+) TFLOP/s", done.stdout, re.MULTILINE)[0]) > 0


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_a_wrong_scale_fails(op: str, tmp_path: Path) -> None:
    template = next(template for template in builtin_templates(op) if template.name == "flash_simt")
    text = exported(template, {})
    assert ", scale);" in text
    done = run(text.replace(", scale);", ", scale * 1.02f);"), tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "FAIL"
