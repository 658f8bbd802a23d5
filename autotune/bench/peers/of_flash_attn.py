"""FlashAttention-2, the package flash-attn."""

from autotune.bench.torch_peer import Attend, PackagePeer, by_rows
from autotune.core.problem import Problem


class FlashAttn(PackagePeer):
    """Its masks are aligned bottom-right, as ours are, since version 2.1."""

    name, title = "flash_attn", "flash-attn"
    package, module, function = "flash-attn", "flash_attn", "flash_attn_func"

    def why_not(self, problem: Problem) -> str | None:
        if problem.dtype == "fp32":
            return "it takes fp16 and bf16"
        if problem["HS_v"] != problem["HS"]:
            return "it takes values of the keys' head size"
        return "it takes head sizes up to 256" if problem.integer("HS") > 256 else None

    def attend(self, problem: Problem) -> Attend:
        attention, causal = self.imported.flash_attn_func, bool(problem["causal"])
        return lambda q, k, v: by_rows(attention(by_rows(q), by_rows(k), by_rows(v), causal=causal))
