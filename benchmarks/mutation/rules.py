"""The mistakes: a regular change of CUDA text each, made wherever its pattern stands in a rendered kernel or its headers.

A rule knows no kernel. Its pattern is looked for in code without comments, strings and directives (`sites.code_of`),
and what it puts in their place is text of the same code.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

Change = Callable[[re.Match[str], str], str | None]
"""What stands in a match's place, given the whole text; None: nothing can be planted there."""


@dataclass(frozen=True)
class Rule:
    """A kind of mistake and one way to make it. `files`: only in headers whose name has this, or in the kernel's file."""

    kind: str
    name: str
    pattern: re.Pattern[str]
    change: str | Change

    def at(self, match: re.Match[str], text: str) -> str | None:
        """The text in place of a match."""
        return match.expand(self.change) if isinstance(self.change, str) else self.change(match, text)


_TERM = r"[A-Za-z_][\w.]*(?:\[[^\[\]]*(?:\[[^\[\]]*\])?[^\[\]]*\])*"
_CALL = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"  # with its arguments, three deep
_SEEN = r"(?:seen|visible|keys_seen|hidden|beyond|key_end|T_kv|first_query|own_tiles|full_tiles|warp_keys)"
_STRIDED = re.compile(r"\b([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)\.stride\[")


def _another_tensor(match: re.Match[str], text: str) -> str | None:
    """`q.stride[2]` becomes `out.stride[2]`: the next other tensor in the text that has strides by name."""
    own = match["tensor"]
    around = text[max(0, match.start() - 4000) : match.end() + 4000]
    names = [name for name in _STRIDED.findall(around) if name != own and ("." in name) == ("." in own)]
    views = re.findall(r"\bView<[^<>]*>&?\s+(\w+)[,)]", text[max(0, match.start() - 1500) : match.start()])
    others = [*names, *(name for name in views if name != own and "." not in own)]
    return f"{others[0]}.stride[{match['axis']}]" if others else None


def _another_tensors_matrix(match: re.Match[str], text: str) -> str | None:
    """`matrix_of(k, b, h)` takes its batches and heads by another tensor's strides."""
    before = text[max(0, match.start() - 3000) : match.start()]
    others = [name for name in re.findall(r"\bmatrix_of\(([\w.]+),", text) if name != match["tensor"]]
    others += [name for name in re.findall(r"\bView<[^<>]*> (\w+)[,)]", before) if name != match["tensor"]]
    if not others:
        return None
    tensor, b, h = match["tensor"], match["b"], match["h"]
    return f"({tensor}.data + ({b}) * {others[0]}.stride[0] + ({h}) * {others[0]}.stride[1])"


def _not_kept(match: re.Match[str], text: str) -> str | None:
    """`x += y` becomes `x = y`, but not a loop's step: that would be no more than a loop without end."""
    line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    loop = line.rfind("for (")
    inside = loop >= 0 and line[loop:].count("(") > line[loop:].count(")")
    return None if inside else " = "


def _rule(kind: str, name: str, pattern: str, change: str | Change) -> Rule:
    return Rule(kind, name, re.compile(pattern), change)


RULES: tuple[Rule, ...] = (
    # What an online softmax must do.
    _rule("online softmax", "not rescaled", rf"(?<![\w.])({_TERM}) \*= [^;]*factor[^;]*;", ";"),
    _rule("online softmax", "rescaled after the next sum", rf"(?<![\w.])({_TERM} \*= [^;{{}}]*factor[^;{{}}]*;)(\s*)([^;{{}}]+;)", r"\3\2\1"),
    _rule("online softmax", "rescaled twice", rf"(?<![\w.])({_TERM} \*= [^;]*factor[^;]*;)", r"{ \1 \1 }"),
    _rule("online softmax", "factor of 1", r"(?<=factor = )exp2_fast\([^;]*\)(?=;)", "1.0f"),
    _rule("online softmax", "factor of 1", r"(?<=factor\[r\] = )exp2_fast\([^;]*\)(?=;)", "1.0f"),
    _rule("online softmax", "maximum of these scores alone", r"maximum((?:\[\w+\])?) = fmaxf\((?:before|maximum(?:\[\w+\])?), ([^;]*)\);", r"maximum\1 = \2;"),
    _rule("online softmax", "stale maximum", r"maximum((?:\[\w+\])?) = fmaxf\([^;]*\);", ";"),
    _rule("online softmax", "maximum not subtracted", r" - (?:row\.|rows\[\w+\]\.|total\.)?(?:origin\(\)|maximum|highest|peak)(?=[);,\s])", ""),
    _rule("online softmax", "maximum of one score", rf"fmaxf\((\w+(?:\[\w+\])?), ({_TERM})\)", r"\2"),
    _rule("online softmax", "sum begins anew", r"\b(\w*(?:sum|sums)(?:\[[^\]]*\])?) \+= ", r"\1 = "),
    _rule("online softmax", "not normalised", r"(?<=factor = )1\.0f / [\w.\[\]]+(?=;)", "1.0f"),
    _rule("online softmax", "not normalised", r"__fdividef\(1\.0f, [\w.\[\]]+\)", "1.0f"),
    # Masks and lengths.
    _rule("masks", "one key too many", rf"(?<= )< (?=[^;]*\b{_SEEN}\b)", "<= "),
    _rule("masks", "one key too few", rf"(?<=\w )<= (?=[^;]*\b{_SEEN}\b)", "< "),
    _rule("masks", "one key too few", rf"\b((?:\w+\.)*{_SEEN}{_CALL})(?! const| \{{)", r"(\1 - 1)"),
    _rule("masks", "one key too many", rf"\b((?:\w+\.)*keys_seen{_CALL})(?! const| \{{)", r"(\1 + 1)"),
    _rule("masks", "one key too few", r"(?<=[\w)] )> 0\) (?=s\[)", ">= 0) "),
    _rule("masks", "one key too many", r"(?<=[\w)] )> 0\) (?=s\[)", "> 1) "),
    _rule("masks", "not masked", r"\bif \(masked\)", "if (false)"),
    _rule("masks", "not masked", r"\bif \(!masked\) return;", "return;"),
    _rule("masks", "not masked", r"= minus_infinity\(\);", "= 0.0f;"),
    _rule("masks", "aligned with the first key", r"query \+ T_kv - T\b", "query"),
    _rule("masks", "aligned with the first key", r"key \+ T - T_kv\b", "key"),
    _rule("masks", "one tile too few without a mask", r"(\bfull_tiles\b)(?= - |[,)])", r"(\1 + 1)"),
    _rule("masks", "rows without a key", r"\b(?:sees_keys|seen > 0) \? ([^:;]+) : [^;]+?(?=[;,)])", r"\1"),
    # Places in memory.
    _rule("strides", "another tensor's", r"\b(?P<tensor>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)\.stride\[(?P<axis>[\w\s-]+)\]", _another_tensor),
    _rule("strides", "another tensor's matrices", r"\bmatrix_of\((?P<tensor>[\w.]+), (?P<b>[\w.()]+), (?P<h>[^,;]+?)\)(?= [+]|[;,)])", _another_tensors_matrix),
    _rule("strides", "heads and batches change places", r"\bmatrix_of\(([\w.]+), ([\w.()]+), ([^,;]+?)\)(?= [+]|[;,)])", r"matrix_of(\1, \3, \2)"),
    _rule("strides", "axes change places", r"\bstride\[0\]", "stride[1]"),
    _rule("strides", "axes change places", r"\bstride\[1\]", "stride[0]"),
    _rule("strides", "columns are contiguous", r" \* \w+(?:\.\w+)?\.stride\[3\]", ""),
    _rule("strides", "columns are contiguous", r" \* col_stride\b", ""),
    _rule("strides", "rows are contiguous", r" \* \w+(?:\.\w+)?\.stride\[2\]", " * HS"),
    _rule("vectors", "where they are not allowed", rf"\ballows_vectors<[^<>]*>{_CALL}(?! const)", "true"),
    _rule("vectors", "misaligned ones", r"aligned && tensor\.stride\[axis\] % VEC == 0", "aligned"),
    _rule("vectors", "columns that are apart", r"tensor\.stride\[N - 1\] == 1 && ", ""),
    _rule("vectors", "a misaligned start", r" && reinterpret_cast<uintptr_t>\(tensor\.data\)[^;]*(?=;)", ""),
    _rule("vectors", "where they are not allowed", r"\bif \(vectors\)", "if (true)"),
    _rule("32-bit offsets", "a stride", r"\b(?P<t>\w+(?:\.\w+)?\.stride\[\w+\])", r"int(\g<t>)"),
    _rule("32-bit offsets", "a stride", r"\bconst long long (\w+) =", r"const int \1 ="),
    _rule("32-bit offsets", "a product with a stride", r"\b(?P<i>\w+) \* (?P<t>\w+(?:\.\w+)?\.stride\[\w+\])", r"int(\g<i> * \g<t>)"),
    _rule("32-bit offsets", "a stride", r"\blong long (row_stride|col_stride|stride|a_stride|b_stride)\b(?=[,)])", r"int \1"),
    _rule("32-bit offsets", "a product", r"static_cast<long long>", "static_cast<int>"),
    # Ends of tiles, lengths, heads.
    _rule("tile tails", "rows past the end", r"\bif \((?:row|query|key|place\.t|mine|own|first \+ row)\w* >= [\w.()]+\) (?:continue|break|return);", ";"),
    _rule("tile tails", "rows past the end", rf"\b(?:r|row|key|query|chunk)\w* < (?:rows|T|T_kv|a\.T|scores\.T|M|N|K|row_end|min{_CALL}) \? ", "true ? "),
    _rule("tile tails", "rows past the end", r"\bif \((?:row|query|r|key) < (?:rows|T|T_kv|M|N|K|min\([^()]*\))\) ", ""),
    _rule("tile tails", "rows past the end", r"(?<=[,(] )(T|T_kv|rows|a\.T|a\.T_kv|in\.T) - \w+(?=[,)])", r"\1"),
    _rule("tile tails", "the larger end", r"\bmin\(((?:[^(),]|\([^()]*\))+), ((?:[^(),]|\([^()]*\))+)\)", r"(\1)"),
    _rule("tile tails", "the other end", r"\bmin\(((?:[^(),]|\([^()]*\))+), ((?:[^(),]|\([^()]*\))+)\)", r"(\2)"),
    _rule("tile tails", "the last tile", r" \+ (?:BLOCK_[MNK]|STEP|ROWS|THREADS) - 1\) / ", ") / "),
    _rule("tile tails", "a row too many", r"(?<=\w )>= (?=(?:T|T_kv|a\.T|rows|map\.count|problem\.rows\(\)|M|N)\b)", "> "),
    _rule("T and T_kv", "T in its place", r"(?<!int )\b(?<!\.)T_kv\b(?=[\s,);-])", "T"),
    _rule("T and T_kv", "T in its place", r"\b(scores|in|a|mask)\.T_kv\b", r"\1.T"),
    _rule("T and T_kv", "T_kv in its place", r"\b(scores|in|a|mask)\.T\b", r"\1.T_kv"),
    _rule("T and T_kv", "T_kv in its place", r"(?<= \* )T(?= \+)", "T_kv"),
    _rule("T and T_kv", "T_kv in its place", r"(?<= < )T(?=[;) ])", "T_kv"),
    _rule("heads", "of other keys", r"\b(h|head) / \(((?:a\.)?)NH / ((?:a\.)?)NH_kv\)", r"\1 % \2NH_kv"),
    _rule("heads", "not shared", r"\b(h|head) / \((?:a\.)?NH / (?:a\.)?NH_kv\)", r"min(\1, NH_kv - 1)"),
    _rule("heads", "not shared", r"\bdivided\((head), group_inverse\)", r"\1"),
    _rule("heads", "not shared", r"\bh / group\b", "h"),
    _rule("heads", "of other keys", r"\bh / group\b", "h % group"),
    _rule("heads", "one of those that share keys", r"\bNH / NH_kv \* tiles\b", "tiles"),
    _rule("heads", "batch and head", r"\b(blockIdx\.\w|matrix|index|place|unit|number) / (NH|NH_kv|heads|HEADS)\b", r"\1 % \2"),
    _rule("heads", "batch and head", r"\b(blockIdx\.\w|matrix|index|place|unit|number) % (NH|NH_kv|heads|HEADS)\b", r"\1 / \2"),
    _rule("heads", "NH_kv in its place", r"(?<= \* )NH(?= \+)", "NH_kv"),
    _rule("heads", "NH in its place", r"(?<!int )(?<![./] )\bNH_kv\b(?=[;)])", "NH"),
    # What threads, warps and blocks must wait for.
    _rule("barriers", "of the block", r"\b__syncthreads\(\);", ";"),
    _rule("barriers", "of a warp", r"\b__syncwarp\(\);", ";"),
    _rule("barriers", "named", rf"\bnamed_barrier<[^;]*>{_CALL};", ";"),
    _rule("barriers", "named", r"\bmeet_sharers\(\);", ";"),
    _rule("barriers", "turns", r"\b(?:take_turn|pass_turn)\(\);", ";"),
    _rule("atomics", "a plain sum", r"\batomicAdd\(([^,;]+), ([^,;]+)\);", r"*(\1) += \2;"),
    _rule("atomics", "written over", r"\batomicAdd\(([^,;]+), ([^,;]+)\);", r"*(\1) = \2;"),
    _rule("atomics", "not cleared", r"\bsums\[c\] = make_float4\([^;]*\);", ";"),
    _rule("asynchronous", "not waited for", r"\bwait_for_copies<[^;]*>\(\);", ";"),
    _rule("asynchronous", "a group too few", r"\bwait_for_copies<([^;]*)>\(\);", r"wait_for_copies<(\1) + 1>();"),
    _rule("asynchronous", "no group", r"\bcommit_copies\(\);", ";"),
    _rule("asynchronous", "not waited for", r"\bwgmma_wait<\d>\(\w+\);", ";"),
    _rule("asynchronous", "a product too few", r"\bwgmma_wait<0>\((\w+)\);", r"wgmma_wait<1>(\1);"),
    _rule("asynchronous", "no group", r"\bwgmma_commit\(\);", ";"),
    _rule("asynchronous", "not waited for", r"\b(?:wait_keys|wait_values|bulk_wait\w*<0>)\(\);", ";"),
    _rule("asynchronous", "not waited for", r"\b[\w.()]*\.?wait_full\([^;]*\);", ";"),
    _rule("asynchronous", "not waited for", rf"\bmbarrier_wait{_CALL};", ";"),
    _rule("asynchronous", "another phase", r"\bparity \^ 1\b", "parity"),
    _rule("asynchronous", "another phase", r"\bparity \^= 1;", ";"),
    _rule("asynchronous", "not told", r"\bmbarrier_arrive\(empty\(at\)\);", ";"),
    _rule("asynchronous", "not told", r"\b[\w.()]+\.release\(\w+\);", ";"),
    _rule("asynchronous", "not told", rf"\brelease_(?:keys|values){_CALL};", ";"),
    _rule("asynchronous", "bytes", r"\bmbarrier_arrive_expect\(([^;]*), bytes\);", r"mbarrier_arrive_expect(\1, bytes / 2);"),
    _rule("asynchronous", "no proxy fence", r"\bfence_(?:async_shared|mbarrier_init)\(\);", ";"),
    _rule("asynchronous", "arrivals", r"\binit\((CONSUMERS / 32|readers)\)", r"init(\1 - 1)"),
    _rule("asynchronous", "arrivals", r"\bmbarrier_init\((.*), readers\);", r"mbarrier_init(\1, readers + 1);"),
    _rule("asynchronous", "stages", r"% (V_STAGES|STAGES)\b", r"% (\1 > 1 ? \1 - 1 : 1)"),
    _rule("asynchronous", "a stage too few", r"\b(STAGES) - 1\b", r"\1 - 2"),
    # Arithmetic.
    _rule("scale", "without log2 e", r"(?<!constexpr float )\bLOG2_E\b", "1.0f"),
    _rule("scale", "without ln 2", r"(?<!constexpr float )\bLN_2\b", "1.0f"),
    _rule("scale", "not scaled", r" \* (?:scores\.)?scale(?:_base2)?\b(?=[;)])", ""),
    _rule("scale", "the other base", r"(?<!float )\bscale_base2(?=[,;)])", "scale"),
    _rule("scale", "not in base 2", rf"\b(?:scores|mask)\.base2({_CALL})", r"\1"),
    _rule("scale", "not scaled", rf"\bscores\.score_gradient({_CALL})", r"\1"),
    _rule("accumulators", "not cleared", r"(\]) = \{\};", r"\1;"),
    _rule("accumulators", "not cleared", r"\b((?:float|double) \w+) = 0\.0f?;", r"\1;"),
    _rule("accumulators", "not cleared", r"\b(?:o|acc|sums?)\[[^;=]*\] = 0\.0f;", ";"),
    _rule("accumulators", "written over", r"(?<=[\w\])]) \+= (?=[^;]*[*(])", _not_kept),
    _rule("accumulators", "not kept", r"\bstep > 0\)", "0)"),
    _rule("accumulators", "of the step before", r"\bstep > 0\)", "1)"),
    _rule("gradients", "without delta", r" - (?:delta|row\.delta|\(e % 2 \? both\.w : both\.y\)|both\.[yw])(?=\))", ""),
    _rule("gradients", "delta added", r" - (delta|row\.delta|\(e % 2 \? both\.w : both\.y\)|both\.[yw])(?=\))", r" + \1"),
    _rule("gradients", "of other rows", r"\be % 2\b", "0"),
    _rule("gradients", "operands", r"\bq_tile\b(?=[,)])", "dout_tile"),
    _rule("gradients", "operands", r"\b(\w+)\((\w*dv\w*), ", r"\1(dk_rows, "),
    _rule("reductions", "half of the lanes", r"\breduce_lanes<(\w+), ([^,<>]+), ([^,<>]+)>", r"reduce_lanes<\1, 2 * (\2), \3>"),
    _rule("reductions", "half of the lanes", r"\breduce_lanes<(\w+), ([^,<>]+), ([^,<>]+)>", r"reduce_lanes<\1, \2, (\3) / 2>"),
    _rule("reductions", "not reduced", rf"\breduce_(?:lanes|warp|row|block|tile)<[^<>;]*>({_CALL})(?! const|\s*\{{)", r"(\1)"),
    _rule("reductions", "sum and maximum", r"(?<=<)Max(?=[,>])", "Sum"),
    _rule("reductions", "sum and maximum", r"(?<=<)Sum(?=[,>])", "Max"),
    # Loops and indices.
    _rule("loops", "without the first", r"\bfor \(int (\w+) = 0;", r"for (int \1 = 1;"),
    _rule("loops", "without the last", r"(?<=; )(\w+) < ([^;{}]+); (?=\+\+|\1 \+= 1)", r"\1 < \2 - 1; "),
    _rule("loops", "without the last step", r"(?<=; )(\w+) < ([^;{}]+); \1 \+= ([^){};]+)(?=\))", r"\1 + (\3) < \2; \1 += \3"),
    _rule("loops", "a step too far", r"(?<=; )(\w+) (?:\+= )((?:BLOCK_\w|STEP|THREADS|32))\)", r"\1 += \2 + 1)"),
    _rule("loops", "without the last", r"\b(\w+) >= 0; --\1", r"\1 > 0; --\1"),
    _rule("indices", "lane and warp", r"\bthreadIdx\.x % 32\b", "threadIdx.x / 32"),
    _rule("indices", "pairs of a lane", r"% 4 \* 2\b", "% 4"),
    _rule("indices", "rows of a lane", r"\+ 8 \* (\w+)\b", r"+ 4 * \1"),
    _rule("indices", "a neighbour", r"\+ (e|w|i|j|c)(?=[\]\)])", r"+ \1 + 1"),
    _rule("indices", "a neighbour", r"\[(key|row|query|col)\]", r"[\1 + 1]"),
    _rule("indices", "a block too far", r"\bblockIdx\.(\w) \* (\w+)", r"blockIdx.\1 * (\2 - 1)"),
    # Parts that blocks share out.
    _rule("splits", "weights of parts", r"\bpart_lse\[split\] - (?:highest|total)", "part_lse[split]"),
    _rule("splits", "parts without keys", r"\bif \(part_lse\[split\] == minus_infinity\(\)\) continue;", ";"),
    _rule("splits", "one part", r"\bsplit < SPLIT\b", "split < 1"),
    _rule("splits", "one part too few", r"\bsplit < SPLIT\b", "split < SPLIT - 1"),
    _rule("splits", "their ends", r"\(split \+ 1\) / SPLIT", "split / SPLIT"),
    _rule("splits", "their beginnings", r"\* split / SPLIT", "* split / SPLIT + 1"),
    _rule("splits", "of the first", r"\* SPLIT \+ split\b", "* SPLIT"),
    _rule("splits", "of all", r"\bfirst_tile \+ ", ""),
)  # fmt: skip
