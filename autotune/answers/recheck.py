"""Whether winners still are what was measured: built from today's families, and compared by their machine code.

It needs the compiler that a winner was built with, and no GPU. A winner whose family's text has changed, but whose
machine code has not, is renewed: its figures stand for today's text from then on. So look-ups compare hashes of texts,
build nothing, and still answer `exact` after a family has been tidied.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.machine_code import machine_code
from autotune.compilers.nvcc import CubinRequest
from autotune.compilers.pool import BuildPool
from autotune.compilers.toolchain import find_nvcc
from autotune.core.errors import CompileError, ExpressionError, TemplateError
from autotune.core.measurement import Version
from autotune.core.values import Config, Value
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.ops.registry import BUILTIN
from autotune.store import Store
from autotune.store.json_lines import Line, as_winner
from autotune.store.line_files import write_lines
from autotune.store.shipped import load_winners
from autotune.store.transfer import Identities, line_of

Standing = Literal["same", "renewed", "adopted", "changed", "unknown", "other compiler", "no family"]
"""Of a winner.

same: text and machine code are those recorded. renewed: the text is another, the machine code is not.
adopted: its machine code had not been recorded, its text is today's. changed: another machine code, or none.
unknown: no machine code is recorded. other compiler, no family: what it was built with, or from, is not here.
"""


@dataclass(frozen=True)
class Rechecked:
    """A winner with its standing, and what is to be recorded in its place, if anything."""

    line: Line
    standing: Standing
    why: str = ""
    now: Line | None = None


@dataclass(frozen=True)
class _Underway:
    line: Line
    template: Template
    source: KernelSource
    build: "Future[Artifact]"


@dataclass(frozen=True)
class Way:
    """How winners are checked again.

    Args:
        cache: where builds are kept.
        adopt: give winners that have none the machine code of their own text, where that is today's.
        own: families beside those that ship.
        jobs: builds at a time; default one a core.
        write: record what has been found.
    """

    cache: BuildCache
    adopt: bool = False
    own: Sequence[Template] = ()
    jobs: int | None = None
    write: bool = True


def recheck(lines: Sequence[Line], way: Way) -> Iterator[Rechecked]:
    """Each winner's standing, in the order of the lines.

    Raises:
        BuildError: there is no compiler for a GPU of the winners, or it failed.
    """
    with BuildPool(way.cache, way.jobs) as pool:
        begun = [_begin(line, pool, way) for line in lines]
        for one in begun:
            yield _judged(one) if isinstance(one, _Underway) else one


def recheck_file(path: Path, way: Way) -> list[Rechecked]:
    """The standing of a file's winners; where any is to be recorded anew, the file is written again.

    Raises:
        UsageError: the file is not sound, or cannot be written.
        BuildError: see `recheck`.
    """
    found = list(recheck(load_winners(path), way))
    if way.write and any(one.now is not None for one in found):
        write_lines(path, [one.now or one.line for one in found])
    return found


def recheck_store(store: Store, way: Way) -> list[Rechecked]:
    """The standing of a store's winners; what is to be recorded anew is added to their records, which stay.

    Raises:
        BuildError: see `recheck`.
        StoreError: the database cannot be read, or written.
    """
    winners, devices = store.winners(), Identities(store)
    lines = [as_winner(line_of(winner.record, devices[winner.record.device])) for winner in winners]
    found = []
    for winner, one in zip(winners, recheck(lines, way), strict=True):
        lost = way.write and one.now is not None and not store.renew_winner(winner.record.id, one.now)
        why = "another record has become the winner meanwhile, or its new text has failed"
        found.append(Rechecked(one.line, "changed", why) if lost else one)
    return found


def _begin(line: Line, pool: BuildPool, way: Way) -> Rechecked | _Underway:
    """Begin to build a winner, unless its standing is known without."""
    candidate, spec, problem = line.candidate, line.identity.spec, line.problem
    shipped = builtin_templates(problem.op) if problem.op in BUILTIN else ()
    known = (t for t in (*way.own, *shipped) if (t.op, t.name) == (problem.op, candidate.template))
    template = next(known, None)
    if template is None or line.identity.kind == "replay":
        return Rechecked(line, "no family", f"{problem.op} has no family {candidate.template} here")
    recorded = line.measurement.environment.get("compiler", "")
    nvcc = str(find_nvcc(spec.arch))
    if recorded != nvcc:
        return Rechecked(line, "other compiler", f"it was built by {recorded or 'none that is named'}, here is {nvcc}")
    text_is_todays = template.hash == candidate.template_hash
    if line.measurement.machine_code is None and not (way.adopt and text_is_todays):
        how = "--adopt records it" if text_is_todays else f"its text is another: {candidate.template_hash}"
        return Rechecked(line, "unknown", f"its machine code is not recorded; {how}")
    config = candidate.config if text_is_todays else {**_added(template, candidate.config), **candidate.config}
    try:
        invalid = template.why_unsupported(problem, spec) or Space(template, problem, spec).why_not(config)
        if invalid is not None:
            return Rechecked(line, "changed", f"it is not valid any more: {invalid}")
        source = render(template, problem, config, spec)
    except (TemplateError, ExpressionError) as error:
        return Rechecked(line, "changed", str(error))
    return _Underway(line, template, source, pool.submit(CubinRequest(source, spec.arch)))


def _added(template: Template, config: Config) -> dict[str, Value]:
    """Defaults of the parameters that a record's text did not have: they are to be what there was before."""
    return {name: value for name, value in template.defaults.items() if name not in config}


def _judged(one: _Underway) -> Rechecked:
    line, measurement, source = one.line, one.line.measurement, one.source
    try:
        code = machine_code(one.build.result().path, source.plan, one.template.reference)
    except CompileError as error:
        return Rechecked(line, "changed", f"it does not compile any more: {error}")
    before, now = Version(line.candidate.template_hash, line.source_hash), Version(one.template.hash, source.hash)
    if measurement.machine_code is None:
        if before != now:
            return Rechecked(line, "changed", f"its source is {now.source_hash}, {before.source_hash} was measured")
        return Rechecked(line, "adopted", now=replace(line, measurement=replace(measurement, machine_code=code)))
    if measurement.machine_code != code:
        return Rechecked(line, "changed", f"its machine code is {code}, {measurement.machine_code} was measured")
    if before == now:
        return Rechecked(line, "same")
    first = measurement.measured_as or before
    renewed = replace(
        line,
        candidate=source.candidate,  # with values for parameters that are newer than the record
        source_hash=now.source_hash,
        measurement=replace(measurement, measured_as=None if first == now else first),
    )
    return Rechecked(line, "renewed", f"its text was {before.template_hash}", renewed)
