"""From plain CUDA to a C++ translation unit for the emulator.

Nearly all of CUDA is C++ once the right header comes first. What is not: `extern __shared__` arrays, which become
pointers to the block's dynamic shared memory, and kernels, which are called by name and so go into a table.
"""

import re
from collections.abc import Iterable

_DYNAMIC_SHARED = re.compile(
    r"""extern \s+ (?P<before>(?:(?:__align__|alignas)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)?) __shared__ \s+
        (?:(?:__align__|alignas)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)?
        (?P<type>(?:volatile\s+)?[A-Za-z_][\w:<>,\s]*?) \s* (?P<name>[A-Za-z_]\w*) \s*
        \[\s*\] (?P<dimensions>(?:\s*\[[^\]]+\])*) \s* ;""",
    re.VERBOSE,
)
_ALIGNMENT = re.compile(r"(?:__align__|alignas)\s*\(\s*(\d+)\s*\)")
_FOR_ALL_LANES = re.compile(r"\binline void \w+\(\w+\s*\*\s*const \w+\[32\]\)")
_UNSET = re.compile(
    r"^[ \t]*(?:float[24]?|double|u?int(?:8|16|32|64)_t|int|unsigned|long long|short|element|__half|__nv_bfloat16)[ ]+"
    r"(?P<names>[A-Za-z_]\w*(?:\[[^\];=]*\])*(?:, [A-Za-z_]\w*(?:\[[^\];=]*\])*)*);",
    re.MULTILINE,
)
_NAME = re.compile(r"([A-Za-z_]\w*)(?:\[[^\];=]*\])*(?:,|$)")
_OPENS_BODY = re.compile(r"\)(?:\s*(?:const|noexcept|mutable|->[^;{}]*))*\s*$")
_UNROLL = re.compile(r"#pragma unroll[ \t]*(?=\n)")
_UNROLLED = "#pragma GCC unroll 8"
_FOR = re.compile(r"\s*for\s*\(")
_LOOP = re.compile(r"\bfor\s*\(|\bwhile\s*\(|#pragma unroll")
_PRODUCT = re.compile(r"\+=[^;]*\*|\bfmaf?\(")
_COMMENT_OR_STRING = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)


def translate(text: str, file_name: str) -> str:
    """CUDA source or header as C++, with line numbers that still refer to `file_name`."""
    pieces = [f'#line 1 "{file_name}"\n']
    end = 0
    for match in _DYNAMIC_SHARED.finditer(text):
        if _in_comment(text, match.start()):
            continue
        pieces += [text[end : match.start()], _pointer(match, _depth(text[: match.start()]))]
        end = match.end()
    return "".join([*pieces, text[end:]])


def unroll_products(text: str) -> str:
    """Innermost loops of products unrolled as nvcc does it, which g++ leaves as loops of one multiply-add.

    No other loop: those gain little and can make compiling several times as long.
    """
    return _UNROLL.sub(lambda match: _UNROLLED if _is_product(text, match.end()) else match[0], text)


def unset_variables(text: str) -> str:
    """Local variables and arrays of numbers that are declared without a value hold garbage, as shared memory does: NaN,
    or in every second run a number.

    A register of a GPU may hold anything; here it would be 0 by luck, or what the compiler likes.
    """
    code = _COMMENT_OR_STRING.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    bodies = _bodies(code)
    pieces, end = [], 0
    for match in _UNSET.finditer(code):
        if any(start < match.start() < stop for start, stop in bodies):
            pieces += [
                text[end : match.end()],
                *(f" ::emulator::unset({name});" for name in _NAME.findall(match["names"])),
            ]
            end = match.end()
    return "".join([*pieces, text[end:]])


def _bodies(code: str) -> list[tuple[int, int]]:
    """Where functions and lambdas begin and end, outermost ones alone. No local types are declared in kernels."""
    found: list[tuple[int, int]] = []
    depth = start = 0
    for match in re.finditer(r"[{}]", code):
        if depth:
            depth += 1 if match[0] == "{" else -1
            if depth == 0:
                found.append((start, match.start()))
        elif match[0] == "{" and _OPENS_BODY.search(code[max(0, match.start() - 400) : match.start()]):
            depth, start = 1, match.start()
    return found


def for_tracing(text: str) -> str:
    """Source whose functions that compute a warp-wide instruction's result for all lanes (`T* const lanes[32]`) make no
    calls to the tracer: nothing is counted in them."""
    return _FOR_ALL_LANES.sub(r"EMULATOR_UNTRACED \g<0>", text)


def _is_product(text: str, position: int) -> bool:
    """Whether an innermost `for` that adds up products follows."""
    head = _FOR.match(text, position)
    if head is None:
        return False
    start = _closed(text, head.end() - 1, "(", ")")
    start += len(text[start:]) - len(text[start:].lstrip())
    end = _closed(text, start, "{", "}") if text[start : start + 1] == "{" else text.find(";", start)
    body = text[start:end]
    return bool(_PRODUCT.search(body)) and not _LOOP.search(body)


def _closed(text: str, position: int, opening: str, closing: str) -> int:
    """The position behind the bracket that closes the one at `position`."""
    depth = 0
    for i in range(position, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if depth == 0:
            return i + 1
    return len(text)


def shared_alignment(text: str) -> int:
    """The largest alignment that a declaration of dynamic shared memory asks for by number; at least 16."""
    declared = (match[0] for match in _DYNAMIC_SHARED.finditer(text) if not _in_comment(text, match.start()))
    return max([16, *(int(number) for found in declared for number in _ALIGNMENT.findall(found))])


def kernel_table(kernels: Iterable[str], alignment: int) -> str:
    """The table through which `emulator_launch` finds kernels, and the alignment of their dynamic shared memory; goes
    behind the source."""
    entries = [f'::emulator::entry<&{name}>("{name}"), ' for name in kernels]
    return (
        '\n#line 1 "kernels of the launch plan"\n'
        f'extern "C" const ::emulator::Entry emulator_entries[] = {{{"".join(entries)}{{}}}};\n'
        f'extern "C" const size_t emulator_shared_alignment = {alignment};\n'
    )


def _pointer(match: re.Match[str], depth: int) -> str:
    kind, name, dimensions = match["type"].strip(), match["name"], match["dimensions"].strip()
    target = f"{kind} (*){dimensions}" if dimensions else f"{kind}*"
    value = f"reinterpret_cast<{target}>(::emulator::dynamic_shared())"
    lines = "\n" * match[0].count("\n")
    if depth == 0:  # outside of functions, where no block exists yet to ask for its memory
        return f"\n#define {name} ({value})\n#line {match.string[: match.end()].count(chr(10)) + 1}\n"
    declared = f"{kind} (* const {name}){dimensions}" if dimensions else f"{kind}* const {name}"
    return f"{declared} = {value};{lines}"


def _in_comment(text: str, position: int) -> bool:
    return any(match.start() <= position < match.end() for match in _COMMENT_OR_STRING.finditer(text))


def _depth(text: str) -> int:
    """How many braces are open, those of `extern "C"` and namespaces not counted."""
    code = _COMMENT_OR_STRING.sub('""', text)
    depth = 0
    openers: list[bool] = []
    for match in re.finditer(r"(extern\s+\"\"\s*|\bnamespace\b[\w\s:]*)?\{|\}", code):
        if match[0] == "}":
            depth -= openers.pop() if openers else 0
            continue
        openers.append(match[1] is None)
        depth += openers[-1]
    return depth
