"""Kernels that overlap the one before them, from the front matter to the launch: plans, the emulator, exports."""

import subprocess
from pathlib import Path

import pytest

from autotune.answers.best import Best
from autotune.answers.export_text import export_text
from autotune.compilers.cache import BuildCache
from autotune.compilers.machine_code import machine_code
from autotune.compilers.nvcc import build_cubin
from autotune.compilers.toolchain import find_nvcc
from autotune.core.errors import LaunchError, TemplateError
from autotune.core.outcome import Outcome
from autotune.devices.emulated import CpuDevice
from autotune.devices.measure import Bench
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, load_template
from autotune.gpus.known import gpu
from autotune.ops.expected import expect
from autotune.ops.registry import get_op

FILE = Path(__file__).with_name("overlapping_copy.cu.j2")
FAMILY = load_template(FILE)
PERMUTE = get_op("permute")
PROBLEM = PERMUTE.problem(B=2, NH=3, T=8, HS=40)
SPEC = gpu("h200")


def changed(tmp_path: Path, old: str, new: str) -> Template:
    path = tmp_path / "changed.cu.j2"
    path.write_text(FILE.read_text().replace(old, new))
    return load_template(path)


@pytest.mark.parametrize("overlap", [False, True])
def test_the_second_kernel_overlaps(overlap: bool, cache: BuildCache) -> None:
    source = render(FAMILY, PROBLEM, {"OVERLAP": overlap}, SPEC)
    assert [launch.overlaps for launch in source.plan.launches] == [False, overlap]
    assert [launch.has_attributes for launch in source.plan.launches] == [False, overlap]
    bench = Bench(CpuDevice(SPEC, threads=2), PERMUTE, expect(PERMUTE, PROBLEM, seed=1))
    verdict = bench.evaluate(build_emulator(source, cache), source.plan, None)
    assert (verdict.outcome, verdict.message) == (Outcome.OK, "")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('args   = ["x.view", "between"]', 'args = ["x.view", "between"]\noverlaps = "true"', "gather.*it is nothing"),
        (
            '[[launch]]\nkernel   = "scatter"',
            '[[launch]]\nzero = "y"\n\n[[launch]]\nkernel = "scatter"',
            "clearing of y",
        ),
    ],
    ids=["the first", "after clearing"],
)
def test_only_a_launch_is_overlapped(old: str, new: str, said: str, tmp_path: Path) -> None:
    family = changed(tmp_path, old, new)
    with pytest.raises(TemplateError, match=said):
        render(family, PROBLEM, {"OVERLAP": True}, SPEC)


def test_a_gpu_that_cannot_refuses(cache: BuildCache, tmp_path: Path) -> None:
    family, a100 = changed(tmp_path, 'arch     = "sm_90"', ""), gpu("a100")
    source = render(family, PROBLEM, {"OVERLAP": True}, a100)
    with pytest.raises(LaunchError, match=r"scatter is to overlap the one before it; NVIDIA A100.* cannot"):
        CpuDevice(a100).load(build_emulator(source, cache), source.plan)


def test_it_is_part_of_what_is_executed(cache: BuildCache) -> None:
    """The cubin is the same whatever the launch says; its hash is not."""
    one, two = (render(FAMILY, PROBLEM, {"OVERLAP": overlap}, SPEC) for overlap in (False, True))
    codes = [machine_code(build_cubin(source, SPEC.arch, cache).path, source.plan) for source in (one, two)]
    assert codes[0] != codes[1]


def test_an_export_overlaps(tmp_path: Path) -> None:
    """By an attribute of the launch; nvcc takes it."""
    candidate = Space(FAMILY, PROBLEM, SPEC).candidate({"OVERLAP": True})
    text = export_text(Best("default", "none", None, PROBLEM, SPEC, candidate, template=FAMILY), "copy.cu", False)
    assert text.count("cudaLaunchAttributeProgrammaticStreamSerialization") == 1
    assert "cudaLaunchKernelEx(&config, scatter, between, y_view)" in text
    (tmp_path / "copy.cu").write_text(text)
    done = subprocess.run(
        [str(find_nvcc("sm_90").path), "-std=c++17", "-arch=sm_90", "-c", "copy.cu", "-o", "copy.o"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
