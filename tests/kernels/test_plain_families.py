"""`flash_simt` and `unfused`, the families of plain fp32 arithmetic: what they support, tiles that are skipped."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.ops.registry import get_op
from tests.kernels.attention_cases import SPEC
from tests.kernels.backward_runs import BACKWARD, GRADIENTS, default, inputs_of, run

NAMES = ("flash_simt", "unfused")
BACKWARD_FAMILIES = [find_template("backward", name) for name in NAMES]
HEAD_SIZES = {"forward": range(8, 257, 8), "backward": (*range(8, 113, 8), 128, 160, 192, 224, 256)}


@pytest.mark.parametrize("op", HEAD_SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_head_sizes_up_to_256_have_configurations(op: str, name: str) -> None:
    family, known = find_template(op, name), get_op(op)
    for HS in HEAD_SIZES[op]:
        for dtype in ("fp16", "bf16", "fp32"):
            problem = known.problem(HS=HS, dtype=dtype)
            assert family.why_unsupported(problem, SPEC) is None
            assert Space(family, problem, SPEC).size > 100
    assert family.why_unsupported(known.problem(HS=264), SPEC) is not None
    assert family.why_unsupported(known.problem(HS=12), SPEC) is not None


@pytest.mark.parametrize("family", BACKWARD_FAMILIES, ids=NAMES)
@pytest.mark.parametrize("skip_masked", [True, False])
def test_rows_without_a_key_and_keys_without_a_query(family: Template, skip_masked: bool, cache: BuildCache) -> None:
    """With T > T_kv most queries see no key; with the mask moved the other way every key is seen by the last query."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=203, T_kv=70, HS=32, dtype="fp16", causal=True)
    got = run(family, problem, default(family, problem, SKIP_MASKED=skip_masked), inputs_of(problem, 2), {}, cache)
    assert (got["dq"][:, :, : 203 - 70] == 0).all()
    assert all(np.isfinite(got[name]).all() for name in GRADIENTS)
    assert (got["dq"][:, :, 203 - 69 :] != 0).any(axis=-1).all()
