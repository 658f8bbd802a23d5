"""Tensor maps from the front matter to the kernel: plans, launches on the emulator, checks, exports, refusals."""

from pathlib import Path
from typing import Any

import pytest

from autotune.answers.best import Best
from autotune.answers.export_launcher import Launcher
from autotune.answers.export_text import export_text
from autotune.compilers.cache import BuildCache
from autotune.core.errors import LaunchError, TemplateError
from autotune.core.outcome import Outcome
from autotune.core.plan import Launch, TensorMapArg
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, load_template
from autotune.ops.registry import get_op
from tests.answers.exported_program import run_exported
from tests.kernels.attention_cases import SPEC, traced, verdict
from tests.kernels.forward_runs import Run, agree, packed, place

FILE = Path(__file__).with_name("tma_rows.cu.j2")
FAMILY = load_template(FILE)
FORWARD = get_op("forward")
SHAPE: dict[str, Any] = {"B": 2, "NH": 4, "NH_kv": 2, "T": 50, "T_kv": 70, "HS": 32}


def changed(tmp_path: Path, old: str, new: str) -> Template:
    text = FILE.read_text()
    assert text.count(old) == 1
    path = tmp_path / "changed.cu.j2"
    path.write_text(text.replace(old, new))
    return load_template(path)


def plan_of(family: Template, GROUP: int = 1, **fields: Any) -> Launch:
    problem = FORWARD.problem(**{**SHAPE, "dtype": "fp16", **fields})
    config = {**Space(family, problem, SPEC).default(), "GROUP": GROUP}
    return render(family, problem, config, SPEC).plan.launches[0]


def test_maps_are_planned() -> None:
    q, k, _, sums = plan_of(FAMILY, GROUP=2).args[:4]
    assert isinstance(q, TensorMapArg)
    assert (q.extents, q.strides, q.box) == ((32, 2, 50, 2, 2), (1, 32, 128, 64, 6400), (32, 1, 32, 1, 1))
    assert q.axes == ((3, 1), (1, 1), (2, 1), (1, 2), (0, 1))
    assert isinstance(k, TensorMapArg)
    assert (k.extents, k.box, k.swizzle) == ((32, 70, 2, 2), (32, 32, 1, 1), 64)
    assert sums == TensorMapArg(
        "sums", "sums", 0, "fp32", (64, 4, 2), (1, 64, 256), (32, 1, 1), 0, "workspace", ((2, 1), (1, 1), (0, 1))
    )


def test_packed_tensors_are_mapped_where_they_lie() -> None:
    _, _, v = plan_of(FAMILY, T=70, layout="packed").args[:3]
    assert isinstance(v, TensorMapArg)
    assert (v.storage, v.offset, v.strides) == ("qkv", 6 * 32, (1, 8 * 32, 32, 70 * 8 * 32))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("fields", [
    {**SHAPE}, {**SHAPE, "HS": 64, "causal": False}, {**SHAPE, "T": 90, "layout": "bhtd"},
    {**SHAPE, "T_kv": 50, "layout": "packed"},
])  # fmt: skip
def test_a_family_with_maps_is_right(dtype: str, fields: dict[str, Any], cache: BuildCache) -> None:
    problem = FORWARD.problem(**fields, dtype=dtype)
    space = Space(FAMILY, problem, SPEC)
    for config in ({"BLOCK_N": 32, "STAGES": 1, "GROUP": 2}, {"BLOCK_N": 64, "STAGES": 2, "GROUP": 1}):
        chosen = space.candidate(config).config
        assert verdict(FAMILY, problem, chosen, cache, hidden_nan=False).outcome == Outcome.OK  # it multiplies NaN by 0


def test_nothing_is_found_in_it(cache: BuildCache) -> None:
    problem = FORWARD.problem(**SHAPE, dtype="fp16")
    for stages in (1, 2):
        found = traced(FAMILY, problem, {"BLOCK_N": 32, "STAGES": stages, "GROUP": stages}, cache)
        assert found.complete
        assert not found.findings


def test_strides_are_the_tensors_own(cache: BuildCache) -> None:
    problem = FORWARD.problem(**{**SHAPE, "NH": 2}, dtype="fp16")
    inputs = FORWARD.inputs(problem, 3)
    run = Run(FAMILY, problem, cache)
    views = {
        "q": place(inputs["q"], (2 * 50 * 40, 50 * 40, 40, 1), offset=8),
        "k": place(inputs["k"], (70 * 2 * 48, 48, 2 * 48, 1)),
        "v": packed(inputs["v"]),
    }
    agree(run(views), run.reference(inputs), 2e-3)


@pytest.mark.parametrize(
    ("strides", "offset", "said"),
    [((3200, 1600, 32, 1), 1, "multiple of 16 bytes"), ((3400, 1700, 34, 1), 0, "multiples of 8 elements"),
     ((6400, 3200, 64, 2), 0, "rows must be contiguous")],
)  # fmt: skip
def test_what_tma_does_not_take_is_refused(strides: tuple[int, ...], offset: int, said: str, cache: BuildCache) -> None:
    problem = FORWARD.problem(**{**SHAPE, "NH": 2}, dtype="fp16")
    inputs = FORWARD.inputs(problem, 3)
    views = {name: packed(array) for name, array in inputs.items()} | {"q": place(inputs["q"], strides, offset)}
    with pytest.raises(LaunchError, match=f"q: TMA cannot copy this tensor: .*{said}"):
        Run(FAMILY, problem, cache)(views)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('tensor = "v"', 'tensor = "nobody"', "'nobody' is neither a tensor"),
        (', box = ["HS", "1", "32"]', "", "needs 'box'"),
        ('box = ["32"]', 'box = ["32", "1", "1", "1"]', "does not fit 3 dimensions"),
        ("axes = [2, 1, 0]", "axes = [2, 1]", "not those of sums"),
        ("axes = [2, 1, 0]", "axes = [2, 1, 0, 0]", "not those of sums"),
        ('"1 // GROUP"', "1", "not those of q"),
        ('"1 // GROUP"', '"1 / GROUP"', "is no axis"),
        ('"1 % GROUP"', '"1 % 3"', "4 indices of axis 1 cannot be split by 3"),
        ('swizzle = "HS * sizeof(dtype)"', 'swizzle = "HS + 1"', "none of 0, 32, 64, 128"),
        ("attend(const __grid_constant__ TensorMap q_map", "attend(TensorMap q_map", "without __grid_constant__"),
        ('args = ["q_map", ', 'args = ["q", ', "takes a TensorMap as parameter 1"),
    ],
)
def test_wrong_maps(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=said):
        plan_of(changed(tmp_path, old, new))


def answer(**fields: Any) -> Best:
    problem = FORWARD.problem(**{**SHAPE, "dtype": "fp16", **fields})
    space = Space(FAMILY, problem, SPEC)
    return Best(
        "default", "none", None, problem, SPEC, space.candidate({**space.default(), "GROUP": 2}), template=FAMILY
    )


def test_an_export_makes_its_maps_for_any_shape() -> None:
    found = answer()
    launcher = Launcher(FAMILY, FORWARD, found.problem, found.source, SPEC)
    assert launcher.sizes == ("B", "NH", "NH_kv", "T", "T_kv")
    q, k = launcher.maps["q_map"], launcher.maps["k_map"]
    assert q.extents == ("32", "2", "T", "NH / 2", "B")
    assert q.strides == ("q_strides[3]", "q_strides[1]", "q_strides[2]", "q_strides[1] * 2", "q_strides[0]")
    assert k.extents == ("32", "T_kv", "NH_kv", "B")
    assert k.strides == ("k_strides[3]", "k_strides[2]", "k_strides[1]", "k_strides[0]")
    assert [parameter.spec.name for parameter in launcher.parameters if parameter.strided] == ["q", "k", "v", "out"]


@pytest.mark.parametrize("layout", ["bthd", "packed"])
def test_an_export_with_maps_passes_its_own_check(layout: str, tmp_path: Path) -> None:
    text = export_text(answer(layout=layout, T_kv=50), "forward.cu", True)
    done = run_exported(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "PASS"
