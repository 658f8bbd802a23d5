"""`flash_simt` and `unfused`, the families of plain fp32 arithmetic: what they support, tiles that are skipped."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.errors import NoFeasibleConfiguration
from autotune.core.outcome import Outcome
from autotune.families.catalogue import Families
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates, find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.kernels.attention_cases import SPEC, verdict
from tests.kernels.backward_runs import BACKWARD, GRADIENTS, default, inputs_of, run

NAMES = ("flash_simt", "unfused")
BACKWARD_FAMILIES = [find_template("backward", name) for name in NAMES]
HEAD_SIZES = {"forward": range(8, 257, 8), "backward": (*range(8, 113, 8), 128, 160, 192, 224, 256)}
ODD_SIZES = (1, 12, 100, 264, 320, 512)
"""That no family on tensor cores takes."""


@pytest.mark.parametrize("op", HEAD_SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_head_sizes_up_to_256_have_configurations(op: str, name: str) -> None:
    family, known = find_template(op, name), get_op(op)
    for HS in HEAD_SIZES[op]:
        for dtype in ("fp16", "bf16", "fp32"):
            problem = known.problem(HS=HS, dtype=dtype)
            assert family.why_unsupported(problem, SPEC) is None
            assert Space(family, problem, SPEC).size > 100
    assert family.why_unsupported(known.problem(HS=520), SPEC) is not None


@pytest.mark.parametrize("op", HEAD_SIZES)
def test_every_head_size_up_to_512_has_a_family(op: str) -> None:
    """Everywhere; and what has none is told why by each family."""
    family = find_template(op, "unfused")
    for HS in (*range(1, 66), *range(248, 274), *range(504, 513)):
        problem = get_op(op).problem(HS=HS)
        assert family.why_unsupported(problem, gpu("t4")) is None
        assert family.why_unsupported(problem, SPEC) is None
    for HS in ODD_SIZES:
        assert Space(family, get_op(op).problem(HS=HS, dtype="fp32"), gpu("t4")).size > 10
    with pytest.raises(NoFeasibleConfiguration) as refused:
        Families(builtin_templates(op)).default(get_op(op).problem(HS=520), SPEC)
    for reason in (
        "unfused: it needs max(HS, HS_v) <= 512 (a thread's columns of a result fill its registers)",
        "flash_wgmma: it needs max(HS, HS_v) <= 256 (a product of wgmma has at most 256 columns)",
    ):
        assert reason in str(refused.value)


@pytest.mark.parametrize("HS", ODD_SIZES)
@pytest.mark.parametrize("op", HEAD_SIZES)
def test_odd_and_large_head_sizes_are_right(op: str, HS: int, cache: BuildCache) -> None:
    """By what a look-up without a winner answers; rows packed, so that beyond a row another head's begins."""
    problem = get_op(op).problem(B=1, NH=2, NH_kv=1, T=37, T_kv=37, HS=HS, dtype="fp16", layout="packed")
    families = Families(builtin_templates(op))
    candidate = families.default(problem, SPEC)
    fast = {1: "flash_mma", 12: "flash_wgmma", 100: "flash_wgmma"}
    assert candidate.template == (fast.get(HS, "flash_simt") if op == "forward" else "unfused")
    found = verdict(families[candidate.template], problem, candidate.config, cache)
    assert (found.outcome, found.message) == (Outcome.OK, "")


@pytest.mark.parametrize("family", BACKWARD_FAMILIES, ids=NAMES)
@pytest.mark.parametrize("skip_masked", [True, False])
def test_rows_without_a_key_and_keys_without_a_query(family: Template, skip_masked: bool, cache: BuildCache) -> None:
    """With T > T_kv most queries see no key; with the mask moved the other way every key is seen by the last query."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=203, T_kv=70, HS=32, dtype="fp16", causal=True)
    got = run(family, problem, default(family, problem, SKIP_MASKED=skip_masked), inputs_of(problem, 2), {}, cache)
    assert (got["dq"][:, :, : 203 - 70] == 0).all()
    assert all(np.isfinite(got[name]).all() for name in GRADIENTS)
    assert (got["dq"][:, :, 203 - 69 :] != 0).any(axis=-1).all()
