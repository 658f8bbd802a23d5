"""Clusters from the front matter to the launch: plans, the emulator, exports, refusals."""

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
from autotune.core.plan import LaunchPlan
from autotune.devices.emulated import CpuDevice
from autotune.devices.measure import Bench
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, load_template
from autotune.gpus.known import gpu
from autotune.ops.expected import expect
from autotune.ops.registry import get_op

FILE = Path(__file__).with_name("clustered_copy.cu.j2")
FAMILY = load_template(FILE)
PERMUTE = get_op("permute")
PROBLEM = PERMUTE.problem(B=2, NH=3, T=8, HS=40)
SPEC = gpu("h200")


def plan_of(family: Template, CLUSTER: int = 2) -> LaunchPlan:
    return render(family, PROBLEM, {"CLUSTER": CLUSTER}, SPEC).plan


def changed(tmp_path: Path, old: str, new: str) -> Template:
    path = tmp_path / "changed.cu.j2"
    path.write_text(FILE.read_text().replace(old, new))
    return load_template(path)


@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_blocks_take_work_by_their_ranks(cluster: int, cache: BuildCache) -> None:
    """The emulator tells blocks their ranks: every row is copied once."""
    source = render(FAMILY, PROBLEM, {"CLUSTER": cluster}, SPEC)
    [launch] = source.plan.launches
    assert (launch.grid, launch.cluster, launch.clustered) == ((8, 3, 2), (cluster, 1, 1), cluster > 1)
    bench = Bench(CpuDevice(SPEC, threads=2), PERMUTE, expect(PERMUTE, PROBLEM, seed=1))
    verdict = bench.evaluate(build_emulator(source, cache), source.plan, None)
    assert (verdict.outcome, verdict.message) == (Outcome.OK, "")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["CLUSTER"]', '["3"]', r"a grid of \(8, 3, 2\) blocks is not made of clusters of \(3, 1, 1\)"),
        ('["CLUSTER"]', '["8", "3"]', "at most 8 blocks"),
        ('["CLUSTER"]', '["1", "1", "1", "1"]', "at most 3 axes"),
        ('["CLUSTER"]', '["0"]', "at least 1"),
        ('["CLUSTER"]', "[]", "needs 'cluster', a list"),
    ],
)
def test_wrong_clusters(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=said):
        plan_of(changed(tmp_path, old, new))


def test_a_gpu_without_clusters_refuses_them(cache: BuildCache, tmp_path: Path) -> None:
    family, a100 = changed(tmp_path, 'arch     = "sm_90"', ""), gpu("a100")
    source = render(family, PROBLEM, {"CLUSTER": 2}, a100)
    with pytest.raises(LaunchError, match=r"permute_heads is launched in clusters; NVIDIA A100.* has none"):
        CpuDevice(a100).load(build_emulator(source, cache), source.plan)


def test_a_cluster_is_part_of_what_is_executed(cache: BuildCache, tmp_path: Path) -> None:
    """The cubin is the same whatever the launch says; its hash is not."""
    sources = [render(f, PROBLEM, {"CLUSTER": 1}, SPEC) for f in (FAMILY, changed(tmp_path, '["CLUSTER"]', '["2"]'))]
    one, two = (machine_code(build_cubin(s, SPEC.arch, cache).path, s.plan) for s in sources)
    assert one != two


def test_an_export_launches_in_clusters(tmp_path: Path) -> None:
    """By an attribute of the launch; nvcc takes it."""
    found = Best(
        "default", "none", None, PROBLEM, SPEC, Space(FAMILY, PROBLEM, SPEC).candidate({"CLUSTER": 4}), template=FAMILY
    )
    text = export_text(found, "copy.cu", False)
    assert "attributes[0].val.clusterDim.x = static_cast<unsigned>(4);" in text
    assert "cudaLaunchKernelEx(&config, permute_heads, x_view, y_view)" in text
    (tmp_path / "copy.cu").write_text(text)
    done = subprocess.run(
        [str(find_nvcc("sm_90").path), "-std=c++17", "-arch=sm_90", "-c", "copy.cu", "-o", "copy.o"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
