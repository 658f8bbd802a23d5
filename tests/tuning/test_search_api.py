"""The call `autotune.search`, and how what is asked for becomes an op, families and a device."""

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.core.errors import DeviceMissing, NoFeasibleConfiguration, TemplateError, UsageError
from autotune.devices import factory
from autotune.devices.factory import CpuOpener, CudaOpener, choose_device
from autotune.gpus.known import gpu
from autotune.tuning.choose import choose_families, choose_subject, require_some
from autotune.tuning.joint_space import Families
from autotune.tuning.search_options import Options
from tests.search_doubles import family

SOFTMAX = Path(__file__).parents[2] / "examples" / "softmax" / "softmax.cu.j2"
REFERENCE = "softmax_reference:row_softmax"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU and without settings."""
    for name in ("AUTOTUNE_DEVICE", "AUTOTUNE_TARGET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(factory, "present_gpu", lambda index=0: None)
    monkeypatch.setattr(factory, "has_pycuda", lambda: True)


@pytest.mark.parametrize("first", ["", "import autotune.tuning.ledger;", "from autotune.tuning.search import search;"])
def test_it_can_be_called_whatever_was_imported_before(first: str) -> None:
    script = f"""{first}
import autotune
for _ in range(2):
    try:
        autotune.search(T=0)
    except autotune.core.errors.UsageError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "op 'forward': T=0 must be at least 1\n" * 2


def test_an_op_brings_all_its_families() -> None:
    subject = choose_subject("forward")
    assert {"flash_simt", "unfused"} <= {template.name for template in subject.templates}
    assert subject.problem({"T": 64})["T_kv"] == 64
    assert [template.name for template in choose_subject("forward", ["unfused"]).templates] == ["unfused"]


def test_a_template_file_brings_its_op() -> None:
    subject = choose_subject(None, [str(SOFTMAX)], REFERENCE)
    assert subject.op.name == "row_softmax"
    assert subject.source.resolve().name == "row_softmax"


def test_families_with_one_name_are_refused(tmp_path: Path) -> None:
    copy = tmp_path / SOFTMAX.name
    copy.write_text(SOFTMAX.read_text())
    with pytest.raises(UsageError, match="two templates are called 'softmax'"):
        choose_subject(None, [str(SOFTMAX), str(copy)], REFERENCE)


def test_what_no_family_supports_says_why() -> None:
    subject = choose_subject("forward")
    with pytest.raises(NoFeasibleConfiguration, match=r"flash_simt: it needs"):
        choose_families(subject.templates, subject.problem({"HS": 4096}), gpu("h200"))


def test_a_space_without_configurations_says_why() -> None:
    empty = Families([family("none", valid=lambda config: False, A=[1])])
    with pytest.raises(NoFeasibleConfiguration, match="none: the predicate says no"):
        require_some(empty)


def test_the_device_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device(None, None) == choose_device("cpu", None) == CpuOpener(gpu("h200"))
    assert choose_device(None, "a100") == choose_device("cpu:a100", None) == CpuOpener(gpu("a100"))
    with pytest.raises(UsageError, match="leave out --target h200"):
        choose_device("cpu:a100", "h200")
    with pytest.raises(UsageError, match="no search runs on 'replay:a100'"):
        choose_device("replay:a100", None)
    for name in ("cuda", "cuda:1", "h200"):
        with pytest.raises(DeviceMissing, match="--device cpu"):
            choose_device(name, None)
    monkeypatch.setenv("AUTOTUNE_TARGET", "rtx4090")
    assert choose_device(None, None) == CpuOpener(gpu("rtx4090"))
    monkeypatch.setenv("AUTOTUNE_DEVICE", "cuda")
    with pytest.raises(DeviceMissing):
        choose_device(None, None)


def test_the_device_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "present_gpu", lambda index=0: gpu("a100") if index < 2 else None)
    assert choose_device(None, None) == choose_device("cuda", None) == choose_device("a100", None) == CudaOpener(0)
    assert choose_device("cuda:1", None) == CudaOpener(1)
    assert choose_device("cpu", None) == CpuOpener(gpu("a100"))
    assert choose_device(None, "h200") == CpuOpener(gpu("h200"))
    with pytest.raises(DeviceMissing, match="no h200 here"):
        choose_device("h200", None)
    with pytest.raises(UsageError, match="unknown GPU 'foo'"):
        choose_device("foo", None)
    with pytest.raises(DeviceMissing, match="GPU 5"):
        choose_device("cuda:5", None)
    with pytest.raises(UsageError, match="--target goes with --device cpu"):
        choose_device("cuda", "h200")


def test_a_gpu_without_pycuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "present_gpu", lambda index=0: gpu("a100"))
    monkeypatch.setattr(factory, "has_pycuda", lambda: False)
    assert choose_device(None, None) == CpuOpener(gpu("a100"))
    with pytest.raises(DeviceMissing, match=r"pip install 'autotune-kernels\[gpu\]'"):
        choose_device("cuda", None)


def test_budgets() -> None:
    cpu, cuda = CpuOpener(gpu("h200")), CudaOpener()
    assert (Options().budget(cpu).trials, Options().budget(cpu).timeout_s) == (40, 150.0)
    assert (Options().budget(cuda).trials, Options().budget(cuda).timeout_s) == (100, None)
    assert (Options(sampler="grid").budget(cpu).trials, Options(sampler="grid").budget(cpu).timeout_s) == (None, None)
    assert (Options(trials=7).budget(cpu).trials, Options(trials=7).budget(cpu).timeout_s) == (7, None)
    assert (Options(timeout_s=9.0).budget(cpu).trials, Options(timeout_s=9.0).budget(cpu).timeout_s) == (None, 9.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(sampler="luck"), "unknown sampler 'luck'"),
        (Options(trials=0), "trials=0 must be at least 1"),
        (Options(jobs=0), "jobs=0"),
        (Options(seed=-1), "seed=-1"),
        (Options(timeout_s=0.0), r"timeout=0\.0"),
        (Options(timeout_s=float("nan")), "timeout=nan"),
    ],
)
def test_options_out_of_range(options: Options, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options.checked()


def test_a_template_that_is_not_there() -> None:
    with pytest.raises(TemplateError, match="flash_simt"):
        choose_subject("forward", ["flash"])
