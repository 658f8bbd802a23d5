"""`autotune bench` with a real PyTorch on the CPU: exact values, peers, and ours on an emulated driver."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")

from autotune.answers import calls  # noqa: E402
from autotune.answers import kernel as kernels  # noqa: E402
from autotune.answers.kernel import Kernel  # noqa: E402
from autotune.answers.lookup import best  # noqa: E402
from autotune.bench import exact as module  # noqa: E402
from autotune.bench.compare import compare  # noqa: E402
from autotune.bench.exact import difference, error, exact  # noqa: E402
from autotune.bench.measured import Became, Error  # noqa: E402
from autotune.bench.ours import Ours, empty_outputs  # noqa: E402
from autotune.bench.peers import PEERS  # noqa: E402
from autotune.bench.peers.of_torch import SdpaPeer, backends  # noqa: E402
from autotune.bench.torch_timing import Tensors, versions  # noqa: E402
from autotune.cli.main import run  # noqa: E402
from autotune.core.problem import Problem  # noqa: E402
from autotune.gpus.known import gpu  # noqa: E402
from autotune.ops.registry import get_op  # noqa: E402
from tests.bench.bench_doubles import FakeLab  # noqa: E402
from tests.driver_double import EmulatedDriver, emulated  # noqa: E402

CASES: tuple[dict[str, Any], ...] = (
    {"B": 2, "NH": 4, "NH_kv": 2, "T": 40, "T_kv": 40, "causal": True},
    {"B": 1, "NH": 3, "NH_kv": 1, "T": 37, "T_kv": 21, "causal": True},  # queries that see no key
    {"B": 1, "NH": 2, "NH_kv": 2, "T": 21, "T_kv": 37, "causal": True},
    {"B": 2, "NH": 2, "NH_kv": 1, "T": 33, "T_kv": 50, "causal": False},
)


def problem(op: str, **fields: Any) -> Problem:
    return get_op(op).problem(**{"HS": 32, "dtype": "fp32", **fields})


def reference(of: Problem, tensors: Tensors) -> dict[str, Any]:
    """By the reference that verification uses."""
    inputs = {name: getattr(tensors, name).double().numpy() for name in ("q", "k", "v")}
    forward = get_op("forward").problem(**of.fields)
    result = get_op("forward").reference(forward, inputs)
    if of.op == "forward":
        return {"out": result["out"]}
    dout = {"dout": tensors.dout.double().numpy()}
    return dict(get_op("backward").reference(of, {**inputs, **result, **dout}))


@pytest.mark.parametrize("rows", [1 << 25, 300], ids=["whole", "in blocks of rows"])
@pytest.mark.parametrize("fields", CASES)
@pytest.mark.parametrize("op", ["forward", "backward"])
def test_exact_values_are_the_references(
    op: str, fields: dict[str, Any], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SCORES", rows)
    asked = problem(op, **fields)
    tensors = Tensors.of(torch, asked, 3, "cpu")
    right = reference(asked, tensors)
    found = exact(torch, asked, tensors)
    assert found.checked == found.slices == asked.integer("B") * asked.integer("NH_kv")
    assert found.values.keys() == right.keys()
    for name, one in found.errors({n: torch.from_numpy(array) for n, array in right.items()}).items():
        assert one.largest < 1e-12, name
        assert one.relative < 1e-13, name


def test_of_long_problems_slices_are_exact() -> None:
    asked = problem("forward", B=3, NH=4, NH_kv=2, T=40, T_kv=40)
    tensors = Tensors.of(torch, asked, 3, "cpu")
    whole = get_op("forward").flops(asked.replace(causal=False))
    for share, places in ((1.0, (0, 1, 2, 3, 4, 5)), (0.5, (0, 2, 5)), (0.0, (0, 5))):
        found = exact(torch, asked, tensors, whole * share)
        assert (found.places, found.checked, found.slices) == (places, len(places), 6)
        right = torch.from_numpy(reference(asked, tensors)["out"])
        assert found.errors({"out": right})["out"].largest < 1e-12
        wrong = right.clone()
        wrong[2, 3, 7, 5] += 0.5  # slice 5
        assert found.errors({"out": wrong})["out"].largest == pytest.approx(0.5)
    single = exact(
        torch, problem("forward", B=1, NH=1, T=8), Tensors.of(torch, problem("forward", B=1, NH=1, T=8), 0, "cpu"), 0.0
    )
    assert single.places == (0,)


def test_errors() -> None:
    right = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert error(torch.tensor([3.0, 4.5]), right) == Error(0.5, 0.1)
    for bad in (math.nan, math.inf):
        assert error(torch.tensor([3.0, bad]), right) == Error(math.inf, math.inf)
    nothing = torch.zeros(2, dtype=torch.float64)
    assert error(torch.zeros(2), nothing) == Error(0.0, 0.0)
    assert error(torch.full((2,), 0.5), nothing) == Error(0.5, 0.5)


def test_gradients_of_a_single_key_are_nothing_but_rounding() -> None:
    single = problem("backward", B=1, NH=2, T=3, T_kv=1, dtype="fp16", causal=False)
    math_backend = backends(torch)[3]
    row = compare(single, [math_backend], CpuLab(), rounds=1)
    (entry,) = row.entries
    assert entry.became is Became.OK, entry
    assert entry.errors["dq"].relative < 1e-3
    assert entry.errors["dv"].relative < 1e-3


class TopLeft(SdpaPeer):
    """Computes what PyTorch's causal mask says, whatever the problem."""

    def why_not(self, problem: Problem) -> str | None:
        return None


@pytest.mark.parametrize(("T", "T_kv", "became"), [(21, 37, Became.WRONG), (37, 21, Became.WRONG), (37, 37, Became.OK)])
@pytest.mark.parametrize("op", ["forward", "backward"])
def test_another_mask_is_wrong(op: str, T: int, T_kv: int, became: Became) -> None:
    row = compare(problem(op, B=1, NH=1, T=T, T_kv=T_kv), [TopLeft("math", "math", "MATH")], CpuLab(), rounds=1)
    assert row.entries[0].became is became


def test_the_difference_of_two_results() -> None:
    one, two = {"dq": torch.ones(4), "dk": torch.ones(4)}, {"dq": torch.ones(4), "dk": torch.full((4,), 2.0), "x": None}
    assert difference(one, two) == 0.5
    assert math.isnan(difference({**one, "dq": torch.full((4,), math.nan)}, two))


class CpuLab(FakeLab):
    """PyTorch's tensors in the host's memory; times are made up."""

    spec, index, torch = gpu("h200"), 0, torch

    def tensors(self, problem: Problem) -> Tensors:
        return Tensors.of(torch, problem, 1, "cpu")

    def judge(self, problem: Problem, tensors: Tensors) -> Any:
        return exact(torch, problem, tensors)

    def kernel(self, call: Any, budget: Any) -> Any:
        self.ms = 1.0
        return super().kernel(call, budget)


class EmulatedOurs(Ours):
    """Ours on a driver whose kernels are emulated."""

    def kernel(self, problem: Problem) -> Kernel:
        if problem not in self._kernels:
            driver: Any = self._driver
            self._kernels[problem] = emulated(Kernel(self._look(problem), self._look), driver)
        return self._kernels[problem]


def look(of: Problem) -> Any:
    fields: dict[str, Any] = of.fields
    return best(of.op, db="/nonexistent/none.db", device=gpu("h200"), template="flash_simt", **fields)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    monkeypatch.setattr(kernels, "is_on_device", lambda _: True)
    monkeypatch.setattr(calls, "raw_stream", lambda gpu: 7)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    return EmulatedDriver()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("op", ["forward", "backward"])
def test_ours_and_pytorchs_are_compared(op: str, in_place: bool, driver: EmulatedDriver) -> None:
    asked = problem(op, B=1, NH=2, NH_kv=1, T=40)
    any_driver: Any = driver
    ours = EmulatedOurs(torch, look, any_driver, in_place=in_place)
    row = compare(asked, [ours, *backends(torch)], CpuLab(), rounds=1)
    became = {entry.name: entry.became for entry in row.entries}
    assert (became["autotune"], became["math"]) == (Became.OK, Became.OK), row
    assert became["cudnn"] is Became.FAILED  # it has no kernel for the CPU
    for name in ("autotune", "math"):
        errors = next(entry for entry in row.entries if entry.name == name).errors
        assert all(0 < one.relative < 1e-6 for one in errors.values()), (name, errors)
    assert (row.checked, row.slices) == (1, 1)
    said = row.entries[0].said
    assert (said["answer"], said["template"]) in {("default", "flash_simt"), ("start", "flash_simt")}
    names = {"forward": ["out"], "backward": ["dq", "dk", "dv"]}
    assert [*row.entries[0].errors] == names[op]
    assert {stream for _, stream in driver.launched} == {7}


def test_what_ours_does_not_write_is_nan() -> None:
    packed = problem("backward", B=1, NH=4, NH_kv=2, T=8, layout="packed")
    made = empty_outputs(torch, packed, "cpu")
    specs = {tensor.name: tensor for tensor in get_op("backward").tensors(packed)}
    assert made.keys() == {"dq", "dk", "dv"}
    for name, tensor in made.items():
        assert tuple(tensor.shape) == specs[name].shape
        assert tensor.stride() == specs[name].strides
        assert bool(tensor.isnan().all())


def test_a_problem_that_no_family_computes_is_not_computed() -> None:
    any_driver: Any = None
    ours = Ours(torch, look, any_driver)
    why = ours.why_not(problem("forward", B=1, NH=1, T=8, HS=4096))
    assert why is not None
    assert "4096" in why or "flash_simt" in why
    assert ours.why_not(problem("forward", B=1, NH=1, T=8)) is None


def test_versions() -> None:
    assert versions(torch)["torch"] == torch.__version__


def test_tensors_are_laid_out_as_asked() -> None:
    for layout, strides in (("bthd", (320, 32, 64, 1)), ("bhtd", (320, 160, 32, 1))):
        tensors = Tensors.of(torch, problem("forward", B=1, NH=2, T=5, layout=layout), 0, "cpu")
        assert tensors.q.stride() == strides
    again = Tensors.of(torch, problem("forward", B=1, NH=2, T=5), 0, "cpu")
    np.testing.assert_array_equal(
        again.q.numpy(), Tensors.of(torch, problem("forward", B=1, NH=2, T=5), 0, "cpu").q.numpy()
    )


def test_the_command_compares(
    driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from autotune.bench import ours, torch_lab
    from autotune.devices import driver as drivers

    def looked_up(spec: Any, db: str | None, *, full_precision: bool) -> Any:
        assert (spec.name, db, full_precision) == ("h200", str(tmp_path / "mine.db"), True)
        return look

    built: list[Problem] = []

    def build_all(problems: list[Problem], looks: Any) -> int:
        assert looks is look
        built.extend(problems)
        return len(built)

    for home, name, double in (
        (torch_lab, "open_lab", lambda device, seed: CpuLab()), (ours, "Ours", EmulatedOurs),
        (drivers, "cuda_driver", lambda: driver), (ours, "look_up", looked_up),
        (ours, "build_all", build_all),
    ):  # fmt: skip
        monkeypatch.setattr(home, name, double)
    sizes = ["--B", "1", "--NH", "2", "--NH-kv", "1", "--T", "40,24", "--HS", "32", "--dtype", "fp32"]
    options = ["--rounds", "2", "--db", str(tmp_path / "mine.db"), "--full-precision", "--json"]
    assert run(["bench", "--op", "backward", *sizes, *options]) == 0
    printed = capsys.readouterr()
    data = json.loads(printed.out)
    assert [(problem.op, problem["T"]) for problem in built] == [
        ("backward", 40), ("backward", 24), ("forward", 40), ("forward", 24),
    ]  # fmt: skip
    assert [row["problem"]["T"] for row in data["rows"]] == [40, 24]
    assert data["versions"]["torch"] == torch.__version__
    for row in data["rows"]:
        found = {one["name"]: one for one in row["contenders"]}
        assert [*found] == ["autotune", *(peer.name for peer in PEERS)]
        assert (found["autotune"]["became"], found["math"]["became"]) == ("ok", "ok")
        assert found["autotune"]["template"] == "flash_simt"
        assert found["flash4"]["became"] in {"absent", "unsupported"}
        assert len(found["math"]["rounds"]) == 2
    missing, *lines = printed.err.splitlines()
    assert missing.startswith("note: there is no database")
    assert lines[0] == "4 kernels are built; 2 problems, 2 rounds, on NVIDIA H200"
    assert [line.partition(" ")[0] for line in lines[1:]] == ["1/2", "2/2"]


# --- the benchmarks, which are made of the same parts


@pytest.fixture
def on_cpu(driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`benchmarks.against_peers` as if on a GPU."""
    from benchmarks import against_peers

    for name, double in (
        ("open_lab", lambda device: CpuLab()), ("Ours", EmulatedOurs), ("cuda_driver", lambda: driver),
        ("look_up", lambda spec, db: look), ("build_all", lambda problems, look: len(problems)),
    ):  # fmt: skip
        monkeypatch.setattr(against_peers, name, double)
    return against_peers


def test_against_peers_writes_what_it_wrote(on_cpu: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--op", "backward", "--B", "1", "--NH", "2", "--T", "40", "--HS", "32", "--dtype", "fp32"]
    asked += ["--target", "math=0.5", "--out", str(tmp_path)]
    assert on_cpu.main(asked) == 0
    printed = capsys.readouterr().out
    assert "; 2 look-ups, built in 0 s" in printed
    assert "   1/1" in printed
    (line,) = (tmp_path / "rows.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert list(record) == [
        "problem", "candidate", "template_hash", "answer", "flops", "ms", "rounds", "difference", "refused",
    ]  # fmt: skip
    assert record["problem"]["T"] == 40
    assert record["ms"]["autotune"] == record["ms"]["math"] == 1.0
    assert record["rounds"]["autotune"] == record["rounds"]["math"] == [1.0] * 3
    assert 0 < record["difference"] < 1e-5
    assert "cudnn" in record["refused"]
    assert "flash4" not in record["ms"]
    data = json.loads((tmp_path / "peers.json").read_text())
    assert data["rows"] == [record]
    assert data["environment"].keys() == {"device", "driver", "cuda", "host", "torch", "cudnn"}
    table = (tmp_path / "peers.md").read_text().splitlines()
    assert table[0].startswith("| op | dtype | HS | causal | T | B | NH | autotune | ")
    assert table[2].startswith("| backward | fp32 | 32 | 1 | 40 | 1 | 2 | 1.0000 (0) |")
    assert table[2].endswith("| yes | flash_simt |")
    assert on_cpu.main(asked) == 0  # what is there is not measured again
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1
    assert "1/1" not in capsys.readouterr().out


def test_accuracy_compares_with_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import accuracy

    asked = problem("backward", B=1, NH=2, T=24, dtype="fp32")
    make, by_math = Tensors.of, accuracy.by_pytorch("math")
    monkeypatch.setattr(Tensors, "of", lambda torch, problem, seed: make(torch, problem, seed, "cpu"))
    found = accuracy.compare(asked, lambda p, t: ("itself", by_math(p, t)))
    assert [one.output for one in found] == ["dq", "dk", "dv"]
    assert all(0 < one.ours.relative < 1e-6 for one in found)
