"""Raw findings of a traced run in words: kernels, lines, blocks, threads and buffers by name."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autotune.core.plan import Dim3, Launch, LaunchPlan
from autotune.emulator.library import Failure
from autotune.families.source import SOURCE_NAME
from autotune.trace.observed import Finding, FindingKind, Party, Place
from autotune.trace.source_lines import Lines, call_site
from autotune.trace.statics import SharedVariable, shared_variables
from autotune.trace.traced_library import DYNAMIC_SHARED, NO_SPACE, STATIC_SHARED

_KINDS: tuple[FindingKind, ...] = (
    "out of bounds", "outside of every tensor", "misaligned", "shared memory race", "global memory race",
    "race between blocks", "read of what nobody wrote", "asynchronous copy not waited for", "divergent barrier",
    "deadlock", "wrong warp mask", "input written", "index out of bounds", "crash", "missing proxy fence",
    "overwritten while being read", "kernel before not waited for",
)  # fmt: skip
_RACES: tuple[FindingKind, ...] = ("shared memory race", "global memory race", "race between blocks")
_MEETINGS: tuple[FindingKind, ...] = ("divergent barrier", "deadlock", "wrong warp mask")

_TOLD_PLACE = re.compile(rf"\b{re.escape(SOURCE_NAME)}:(\d+)")

Access = Literal["read", "write", ""]


def words_of(failure: Failure) -> str:
    """How a launch ended."""
    return failure.message or f"illegal {failure.access} at address {failure.address or 0:#x}, far from every buffer"


def describe(
    plan: LaunchPlan, raw: NDArray[Any], binary: Path, lines: Lines, crash: tuple[str, Failure] | None
) -> tuple[Finding, ...]:
    """Findings in the order of their discovery; one each of kind, place and buffer.

    `crash`: the kernel whose launch failed, and how; it becomes a finding if there is no other.
    """
    lines.resolve(call_site(int(pc)) for name in ("pc", "other_pc") for pc in raw[name] if pc)
    words = _Words(plan, lines, shared_variables(binary))
    crashes = raw["kind"] == _KINDS.index("crash")
    findings = list(_merged(words.describe(record) for record in raw[~crashes] if not words.is_one_call(record)))
    if crash is not None and not findings:
        findings.append(words.crash(*crash, raw[crashes]))
    return tuple(finding for finding in findings if not _follows(finding, findings))


def _merged(findings: Iterator[Finding]) -> Iterator[Finding]:
    seen: set[object] = set()
    for found in findings:
        key = (found.kind, found.kernel, found.space, _places(found))
        if key not in seen:
            seen.add(key)
            yield found


def _places(found: Finding) -> object:
    """Where it is. Which access of a race comes second depends on the order in which threads ran."""
    if found.other is None or found.kind not in _RACES:
        return found.place, found.other and found.other.place
    return frozenset([(found.place, found.access), (found.other.place, found.other.access)])


def _follows(finding: Finding, findings: Sequence[Finding]) -> bool:
    """Whether a finding is but another face of a worse one.

    Threads run one after the other, so what a racing read sees may not have been written *yet*; and an index that an
    array does not have leads to whatever lies there.
    """
    if finding.kind not in {"read of what nobody wrote", "out of bounds"}:
        return False
    for other in findings:
        if other.kind == "index out of bounds" and other.place == finding.place:
            return True
        if other.kind in _RACES and other.space == finding.space and finding.kind == "read of what nobody wrote":
            places = (other.place, other.other.place if other.other else other.place)
            if finding.kernel == other.kernel and finding.place in places:
                return True
    return False


class _Words:
    def __init__(self, plan: LaunchPlan, lines: Lines, variables: Sequence[SharedVariable]) -> None:
        self._plan = plan
        self._lines = lines
        self._variables = variables
        self._sizes = {buffer.name: buffer.nbytes for buffer in plan.buffers}

    def is_one_call(self, record: Any) -> bool:
        """Whether threads that met from two addresses of code came from one call in the source: no divergence."""
        if _KINDS[record["kind"]] != "divergent barrier" or not record["other_pc"]:
            return False
        one, other = (self._lines.frames(call_site(int(record[name]))) for name in ("pc", "other_pc"))
        return one == other

    def describe(self, record: Any) -> Finding:
        launch = self._plan.launches[int(record["launch"])]
        kind = _KINDS[record["kind"]]
        access: Access = "" if kind in _MEETINGS else _access(record["is_write"])
        space, offset = self._space(int(record["space"]), int(record["offset"]))
        return Finding(
            kind=kind,
            kernel=launch.kernel,
            place=self._lines.place(call_site(int(record["pc"]))),
            block=_index(int(record["block"]), launch.grid),
            thread=_index(int(record["thread"]), launch.block),
            access=access,
            nbytes=int(record["bytes"]),
            space=space,
            offset=offset,
            detail=self._detail(kind, access, space, offset, record),
            other=self._other(kind, launch, record),
            count=int(record["count"]),
        )

    def crash(self, kernel: str, failure: Failure, raw: NDArray[Any]) -> Finding:
        """A failed launch; `raw`: where each thread crashed that did, of which the failure is about one."""
        place = Place(0)
        for record in raw:
            launch = self._plan.launches[int(record["launch"])]
            block, thread = _index(int(record["block"]), launch.grid), _index(int(record["thread"]), launch.block)
            if (block, thread) == (failure.block, failure.thread):
                place = self._lines.place(call_site(int(record["pc"])))
        said = words_of(failure)
        if told := _TOLD_PLACE.search(said):  # a trap, an assertion
            place = Place(int(told.group(1)))
        return Finding("crash", kernel, place, failure.block, failure.thread, "", 0, "", 0, said, None, 1)

    def _other(self, kind: FindingKind, launch: Launch, record: Any) -> Party | None:
        if not record["other_pc"] and kind not in _MEETINGS:
            return None
        place = self._lines.place(call_site(int(record["other_pc"]))) if record["other_pc"] else Place(0)
        access: Access = "" if kind in _MEETINGS else _access(record["other_is_write"])
        block = _index(int(record["other_block"]), launch.grid)
        return Party(place, block, _index(int(record["other_thread"]), launch.block), access)

    def _space(self, space: int, offset: int) -> tuple[str, int]:
        if space == STATIC_SHARED:
            before = [v for v in self._variables if v.offset <= offset and not v.guard]
            return (f"shared {before[-1].name}", offset - before[-1].offset) if before else ("shared memory", offset)
        names = {DYNAMIC_SHARED: "dynamic shared memory", NO_SPACE: ""}
        return names[space] if space in names else self._plan.buffers[space].name, offset

    def _kernel(self, launch: int) -> str:
        launches = self._plan.launches
        return launches[launch].kernel if launch < len(launches) else "a kernel"

    def _detail(self, kind: FindingKind, access: str, space: str, offset: int, record: Any) -> str:
        mask = int(record["mask"])
        where = f"{space} at byte {offset}" if space else f"address {offset:#x}"
        size = f" ({self._sizes[space]} bytes)" if space in self._sizes and kind == "out of bounds" else ""
        details: dict[FindingKind, str] = {
            "index out of bounds": f"index {offset} of an array of {mask}",
            "misaligned": f"{access} of {where}, which is not a multiple of {mask}",
            "wrong warp mask": f"mask {mask:#010x}",
            "divergent barrier": f"lanes {mask:#010x} of a warp have exited"
            if mask
            else "one barrier, called from two lines",
            "kernel before not waited for": f"{access} of {where}, which {self._kernel(mask)} may still be using",
            "deadlock": _lacking(where, mask, record) if space else "threads wait for one another",
        }
        return details.get(kind, f"{access} of {int(record['bytes'])} bytes of {where}{size}")


def _lacking(where: str, arrivals: int, record: Any) -> str:
    """What a thread waits for at an mbarrier."""
    nbytes = int(np.int64(record["bytes"]).astype(np.int32))
    return f"waits for the mbarrier in {where}, whose phase lacks {arrivals} arrivals and {nbytes} bytes"


def _access(is_write: Any) -> Access:
    return "write" if is_write else "read"


def _index(number: int, extent: Dim3) -> Dim3:
    return number % extent[0], number // extent[0] % extent[1], number // extent[0] // extent[1]
