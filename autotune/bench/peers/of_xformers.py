"""xFormers' `memory_efficient_attention`."""

from typing import Any

from autotune.bench.torch_peer import Attend, PackagePeer, by_rows
from autotune.core.problem import Problem


class XFormers(PackagePeer):
    """It chooses among kernels of its own. Grouped heads have an axis of their own, along which keys repeat."""

    name, title = "xformers", "xFormers"
    package, module, function = "xformers", "xformers.ops", "memory_efficient_attention"

    def attend(self, problem: Problem) -> Attend:
        ops = self.imported
        bias = ops.fmha.attn_bias.LowerTriangularFromBottomRightMask() if problem["causal"] else None
        NH_kv = problem.integer("NH_kv")
        group = problem.integer("NH") // NH_kv

        def forward(q: Any, k: Any, v: Any) -> Any:
            if group == 1:
                return by_rows(ops.memory_efficient_attention(by_rows(q), by_rows(k), by_rows(v), attn_bias=bias))
            grouped = by_rows(q).unflatten(2, (NH_kv, group))
            keys, values = (by_rows(t).unsqueeze(3).expand(-1, -1, -1, group, -1) for t in (k, v))
            return by_rows(ops.memory_efficient_attention(grouped, keys, values, attn_bias=bias).flatten(2, 3))

        return forward
