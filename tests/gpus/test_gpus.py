import json
from dataclasses import replace

import pytest

from autotune.cli.main import run
from autotune.core.errors import UsageError
from autotune.core.resources import resource_root
from autotune.gpus.known import by_title, gpu, gpus, short_name, source_of
from autotune.gpus.present import _Reading, _spec, driver_version, gpu_count, present_gpu
from autotune.report.gpus import page

H200 = _Reading(
    "NVIDIA H200",
    150_000_000_000,
    {
        "max_threads_per_block": 1024, "registers_per_block": 65536, "clock_khz": 1_980_000, "sm_count": 132,
        "memory_clock_khz": 3_201_000, "bus_bits": 6144, "l2_bytes": 62_914_560, "max_threads_per_sm": 2048,
        "major": 9, "minor": 0, "shared_memory_per_sm": 233_472, "registers_per_sm": 65536,
        "max_shared_memory": 232_448, "max_blocks_per_sm": 32, "reserved_shared_memory": 1024,
    },
)  # fmt: skip


def test_published_figures_of_the_h200() -> None:
    spec = gpu("h200")
    assert (spec.title, spec.arch, spec.compute_capability) == ("NVIDIA H200", "sm_90a", 90)
    assert (spec.sm_count, spec.bandwidth_gbs, spec.fp32_tflops, spec.tensor_tflops) == (132, 4800, 66.9, 989.4)
    assert (spec.max_shared_memory, spec.shared_memory_per_sm) == (227 * 1024, 228 * 1024)
    assert spec.reserved_shared_memory == 1024


@pytest.mark.parametrize(
    ("name", "arch", "max_kb", "threads", "blocks"),
    [
        ("t4", "sm_75", 64, 1024, 16),
        ("a100", "sm_80", 163, 2048, 32),
        ("a10", "sm_86", 99, 1536, 16),
        ("l4", "sm_89", 99, 1536, 24),
        ("h100", "sm_90a", 227, 2048, 32),
        ("b200", "sm_100a", 227, 2048, 32),
        ("rtx5090", "sm_120", 99, 1536, 24),
    ],
)
def test_limits_by_compute_capability(name: str, arch: str, max_kb: int, threads: int, blocks: int) -> None:
    spec = gpu(name)
    assert spec.arch == arch
    assert (spec.max_shared_memory, spec.max_threads_per_sm, spec.max_blocks_per_sm) == (max_kb * 1024, threads, blocks)


@pytest.mark.parametrize("spec", gpus(), ids=lambda spec: spec.name)
def test_published_fp32_rates_follow_from_lanes_and_clock(spec: object) -> None:
    found = gpu(getattr(spec, "name", ""))
    lanes = 64 if found.compute_capability <= 80 else 128
    computed = 2 * lanes * found.sm_count * found.clock_mhz * 1e6 / 1e12
    assert found.fp32_tflops == pytest.approx(computed, rel=0.015)


def test_names_and_titles_are_unique() -> None:
    assert len({spec.name for spec in gpus()}) == len({spec.title for spec in gpus()}) == len(gpus())


@pytest.mark.parametrize("name", ["H200", " h200 ", "NVIDIA H200", "nvidia h200"])
def test_a_name_in_any_spelling(name: str) -> None:
    assert gpu(name).name == "h200"


def test_rtx_names_with_a_dash() -> None:
    assert gpu("RTX-4090").name == "rtx4090"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("NVIDIA A100", "a100"),
        ("A100-SXM4-40GB", "a100-40gb"),
        ("GeForce RTX 4090", "rtx4090"),
        ("tesla t4", "t4"),
        ("nvidia_h100", "h100"),
    ],
)
def test_loose_names(given: str, name: str) -> None:
    assert gpu(given).name == name


@pytest.mark.parametrize("name", ["v100", "Tesla V100-SXM2-16GB", "NVIDIA TITAN V", "p100"])
def test_models_that_compilers_have_left_behind_are_not_offered(name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is too old: CUDA 13 compiles for compute capability 7.5 and later"):
        gpu(name)
    assert min(spec.compute_capability for spec in gpus()) == 75


def test_a_model_of_another_kind_gets_no_far_fetched_match() -> None:
    with pytest.raises(UsageError, match=r"^unknown GPU 'mi300'; known: t4"):
        gpu("mi300")
    with pytest.raises(UsageError, match="did you mean h100"):
        gpu("NVIDIA H100 PCIe")


def test_an_unknown_name_gets_close_matches_and_all_that_are_known() -> None:
    with pytest.raises(UsageError) as caught:
        gpu("h20")
    message = str(caught.value)
    assert message.startswith("unknown GPU 'h20'; did you mean h200? known: t4, ")
    assert "\n" not in message
    with pytest.raises(UsageError, match="unknown GPU 'xyz'; known: t4"):
        gpu("xyz")


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
    ],
)
def test_drivers_titles(title: str, name: str) -> None:
    spec = by_title(title)
    assert spec is not None
    assert spec.name == name


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100-80gb-hbm3-mig-1g.10gb"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop-gpu"),
        ("NVIDIA H200 NVL", "h200-nvl"),
    ],
)
def test_siblings_of_a_model_are_not_the_model(title: str, name: str) -> None:
    assert by_title(title) is None
    assert short_name(title) == name


def test_a_known_gpu_has_published_rates_and_the_drivers_limits() -> None:
    spec = _spec(replace(H200, attributes={**H200.attributes, "max_shared_memory": 200_000}))
    assert (spec.name, spec.arch, spec.bandwidth_gbs, spec.tensor_tflops) == ("h200", "sm_90a", 4800, 989.4)
    assert spec.max_shared_memory == 200_000
    assert spec.memory_bytes == 150_000_000_000


def test_an_unknown_gpu_is_described_by_its_attributes() -> None:
    spec = _spec(replace(H200, title="NVIDIA H900 Super"))
    assert (spec.name, spec.title, spec.arch) == ("h900-super", "NVIDIA H900 Super", "sm_90a")
    assert spec.bandwidth_gbs == pytest.approx(2 * 3.201e9 * 6144 / 8 / 1e9, abs=0.1)
    assert spec.fp32_tflops == pytest.approx(2 * 128 * 132 * 1.98e9 / 1e12, abs=0.1)
    assert (spec.sm_count, spec.clock_mhz, spec.l2_bytes) == (132, 1980, 62_914_560)


def test_a_slice_of_a_known_gpu_has_a_name_of_its_own() -> None:
    spec = _spec(replace(H200, attributes={**H200.attributes, "sm_count": 60}))
    assert spec.name == "h200-60sm"
    assert spec.sm_count == 60
    assert spec.fp32_tflops == pytest.approx(30.4, abs=0.1)


def test_asking_for_a_gpu_that_is_not_there_is_no_error() -> None:
    assert present_gpu(1000) is None
    assert present_gpu(-1) is None
    if gpu_count() == 0:
        assert present_gpu() is None
    else:
        assert driver_version() is not None


def test_every_gpu_has_its_source() -> None:
    assert all(source_of(spec) for spec in gpus())
    assert source_of(replace(gpu("h200"), name="my-gpu")) == ""


def test_the_page_of_gpus_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert (resource_root("templates").parent / "docs" / "gpus.md").read_text() == page()


def test_gpus_are_listed_without_a_database(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", "/nowhere/at/all.db")
    assert run(["list", "gpus"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[1:]] == [spec.name for spec in gpus()]
    assert run(["list", "gpus", "--json"]) == 0
    (h200,) = [row for row in json.loads(capsys.readouterr().out) if row["name"] == "h200"]
    assert (h200["sm_count"], h200["rates"]["special"], h200["source"]) == (132, 16, source_of(gpu("h200")))
