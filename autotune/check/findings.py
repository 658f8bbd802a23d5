"""Raw findings of a traced run in words: kernels, lines, blocks, threads and buffers by name."""

from collections.abc import Iterator
from typing import Any, Literal

from numpy.typing import NDArray

from autotune.check.library import DYNAMIC_SHARED, NO_SPACE, STATIC_SHARED
from autotune.check.lines import Lines, call_site
from autotune.check.model import Finding, FindingKind, Party, Place
from autotune.plan import Dim3, Launch, LaunchPlan

_KINDS: tuple[FindingKind, ...] = (
    "out of bounds", "outside of every tensor", "misaligned", "shared memory race", "global memory race",
    "race between blocks", "read of what nobody wrote", "asynchronous copy not waited for", "divergent barrier",
    "deadlock", "wrong warp mask", "input written", "index out of bounds", "crash",
)  # fmt: skip
_MEETINGS: tuple[FindingKind, ...] = ("divergent barrier", "deadlock", "wrong warp mask")

Access = Literal["read", "write", ""]


def describe(plan: LaunchPlan, raw: NDArray[Any], lines: Lines, failure: str) -> tuple[Finding, ...]:
    """Findings in the order of their discovery; one each of kind, place and buffer.

    `failure`: how a launch ended, if not well; it becomes a finding if no other tells the same.
    """
    lines.resolve(call_site(int(pc)) for name in ("pc", "other_pc") for pc in raw[name] if pc)
    findings = list(_merged(_described(plan, record, lines) for record in raw if not _is_one_call(record, lines)))
    if failure and not findings:
        kernel = plan.launches[-1].kernel
        origin = (0, 0, 0)
        findings.append(Finding("crash", kernel, Place(0), origin, origin, "", 0, "", 0, failure, None, 1))
    return tuple(findings)


def _merged(findings: Iterator[Finding]) -> Iterator[Finding]:
    seen: set[object] = set()
    for found in findings:
        key = (found.kind, found.kernel, found.place, found.space, found.other and found.other.place)
        if key not in seen:
            seen.add(key)
            yield found


def _is_one_call(record: Any, lines: Lines) -> bool:
    """Whether threads that met from two addresses of code came from one call in the source, which is no divergence."""
    if _KINDS[record["kind"]] != "divergent barrier" or not record["other_pc"]:
        return False
    one, other = (lines.frames(call_site(int(record[name]))) for name in ("pc", "other_pc"))
    return one == other


def _described(plan: LaunchPlan, record: Any, lines: Lines) -> Finding:
    launch = plan.launches[int(record["launch"])]
    kind = _KINDS[record["kind"]]
    access: Access = "" if kind in _MEETINGS else _access(record["is_write"])
    space = _space(plan, int(record["space"]))
    return Finding(
        kind=kind,
        kernel=launch.kernel,
        place=lines.place(call_site(int(record["pc"]))),
        block=_index(int(record["block"]), launch.grid),
        thread=_index(int(record["thread"]), launch.block),
        access=access,
        nbytes=int(record["bytes"]),
        space=space,
        offset=int(record["offset"]),
        detail=_detail(plan, kind, access, space, record),
        other=_other(kind, launch, record, lines),
        count=int(record["count"]),
    )


def _access(is_write: Any) -> Access:
    return "write" if is_write else "read"


def _other(kind: FindingKind, launch: Launch, record: Any, lines: Lines) -> Party | None:
    if not record["other_pc"] and kind not in _MEETINGS:
        return None
    place = lines.place(call_site(int(record["other_pc"]))) if record["other_pc"] else Place(0)
    access: Access = "" if kind in _MEETINGS else _access(record["other_is_write"])
    block = _index(int(record["other_block"]), launch.grid)
    return Party(place, block, _index(int(record["other_thread"]), launch.block), access)


def _space(plan: LaunchPlan, space: int) -> str:
    names = {DYNAMIC_SHARED: "dynamic shared memory", STATIC_SHARED: "static shared memory", NO_SPACE: ""}
    return names[space] if space in names else plan.buffers[space].name


def _detail(plan: LaunchPlan, kind: FindingKind, access: str, space: str, record: Any) -> str:
    nbytes, offset, mask = int(record["bytes"]), int(record["offset"]), int(record["mask"])
    where = f"{space} at byte {offset}" if space else f"address {offset:#x}"
    if kind == "index out of bounds":
        return f"index {offset} of an array of {mask}"
    if kind == "misaligned":
        return f"{access} of {where}, which is not a multiple of {mask}"
    if kind == "wrong warp mask":
        return f"mask {mask:#010x}"
    if kind == "divergent barrier":
        return f"lanes {mask:#010x} of a warp have exited" if mask else "one barrier, called from two lines"
    if kind == "deadlock":
        return "threads wait for one another"
    sizes = {buffer.name: buffer.nbytes for buffer in plan.buffers}
    size = f" ({sizes[space]} bytes)" if space in sizes and kind == "out of bounds" else ""
    return f"{access} of {nbytes} bytes of {where}{size}"


def _index(number: int, extent: Dim3) -> Dim3:
    return number % extent[0], number // extent[0] % extent[1], number // extent[0] // extent[1]
