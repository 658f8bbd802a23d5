"""Databases for pages: one that a search on the emulator has made, and one whose names and messages are hostile."""

from pathlib import Path
from typing import Any

import autotune
from autotune.core.candidate import Candidate, make_candidate
from autotune.core.measurement import KernelResources, Measurement, OutputCheck, Timing, Verification
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store import open_store

SMALL: dict[str, Any] = {"B": 1, "NH": 1, "T": 64, "dtype": "fp32"}
TRIALS = 6

HACK = "window.hacked=1"
NAMES = {
    "family": f"<img src=x onerror={HACK}>",
    "parameter": "<b>P</b>",
    "value": f"\"><svg onload='{HACK}'>",
    "message": f"</script><script>{HACK}</script> \x1b[31mred %{{x}}",
    "op": f"</title><script>{HACK}</script>",
    "title": f"<h1 onclick={HACK}>GPU</h1>",
    "sampler": "<a href='javascript:window.hacked=1'>tpe</a>",
}
"""Each text would be noticed as a tag if it were not escaped."""


def search_on_emulator(path: Path) -> Path:
    """A search of a few candidates of one family, for an H200; none is so much slower that it is given up."""
    autotune.search(
        "softmax", device="cpu", target="h200", db=path, template="thread_per_row", sampler="random", trials=TRIALS,
        params={"STAGED": "no", "LOADS": "cached", "THREADS": 128, "UNROLL": [2, 4]}, **SMALL,
    )  # fmt: skip
    return path


def _took(ms: float, device: DeviceIdentity) -> Measurement:
    kind: Any = "estimated" if device.estimates else "measured"
    verified = Verification(NAMES["message"], (OutputCheck(NAMES["family"], 1e-4, 1e-3, 0, (0,)),), 1, 1)
    kernel = KernelResources(NAMES["family"], 168, 24, 1024, 65536, 256, 0.375)
    timing = Timing(kind, ms, 0.9 * ms, 1.1 * ms, 0.9 * ms, 30, NAMES["message"])
    return Measurement(Outcome.OK, "", timing, verified, (kernel,), environment={"driver": NAMES["value"]})


def hostile_candidate(number: int, family: str = NAMES["family"]) -> Candidate:
    config = {NAMES["parameter"]: NAMES["value"] if number % 2 else "plain", "N": 2 ** (number % 4)}
    return make_candidate(family, NAMES["value"], config)


def hostile(path: Path, *, measured: bool = True) -> Path:
    """Two searches on one problem, a problem of an op that nobody knows, and every outcome."""
    spec = gpu("h200")
    identity = DeviceIdentity("cuda" if measured else "cpu", spec)
    problem = get_op("forward").problem(T=256)
    with open_store(path) as store:
        for seed in (0, 1):
            settings = {"templates": {NAMES["family"]: "x"}, "sampler": NAMES["sampler"], "seed": seed}
            search = store.start_search(identity, problem, settings, {})
            for number in range(8):
                candidate = hostile_candidate(number, NAMES["family"] if number < 6 else f"other{seed}")
                measurement = _took(1.0 + (7 * number + 3 * seed) % 11, identity)
                store.record(identity, problem, candidate, f"{seed}{number}<i>", measurement, search.id)
            failures = [kind for kind in Outcome if kind not in {Outcome.OK, Outcome.PRUNED}]
            for number, kind in enumerate(failures):
                candidate = make_candidate(NAMES["family"], NAMES["value"], {"N": 100 + 10 * seed + number})
                store.record(identity, problem, candidate, "", Measurement(kind, NAMES["message"]), search.id)
            store.end_search(search.id, "finished")
        unknown = Problem(NAMES["op"], (("T", 5), ("dtype", NAMES["value"])))
        store.record(identity, unknown, hostile_candidate(0), "s", _took(2.0, identity))
    return path
