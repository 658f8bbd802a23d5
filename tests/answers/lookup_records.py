"""Candidates and winners for tests of look-ups."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement
from autotune.core.problem import Problem
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store.json_lines import Line
from tests.store.store_records import SOURCE

FORWARD = get_op("forward").problem()
A100 = DeviceIdentity("cuda", gpu("a100"))


def made(family: Template, BLOCK_M: int = 32, template_hash: str | None = None, **config: Any) -> Candidate:
    values = {**family.defaults, "BLOCK_M": BLOCK_M, **config}
    candidate = Space(family, FORWARD, gpu("h200")).candidate(values)
    return candidate if template_hash is None else replace(candidate, template_hash=template_hash)


def line(identity: DeviceIdentity, problem: Problem, candidate: Candidate, measurement: Measurement) -> Line:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return Line(
        record="winner", identity=identity, problem=problem, candidate=candidate, source_hash=SOURCE, stage="final",
        package_version="0.1.0", created_at=moment, measurement=measurement,
    )  # fmt: skip
