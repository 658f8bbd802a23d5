"""FlashAttention-4, the package flash-attn-4."""

from typing import Any

from autotune.bench.torch_peer import Attend, PackagePeer, by_rows
from autotune.core.problem import Problem


class FlashAttn4(PackagePeer):
    """Written with the CuTe DSL: the first call of a kind compiles, which no round sees."""

    name, title = "flash4", "flash-attn-4"
    package, module, function = "flash-attn-4", "flash_attn.cute", "flash_attn_func"

    def why_not(self, problem: Problem) -> str | None:
        return "it takes fp16 and bf16" if problem.dtype == "fp32" else None

    def attend(self, problem: Problem) -> Attend:
        attention, causal = self.imported.flash_attn_func, bool(problem["causal"])

        def forward(q: Any, k: Any, v: Any) -> Any:
            result = attention(by_rows(q), by_rows(k), by_rows(v), causal=causal)
            return by_rows(result[0] if isinstance(result, tuple) else result)

        return forward
