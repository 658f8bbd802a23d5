"""The compiler's report on winners: built from their records, and told apart by whether they spill."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.compilers.artifact import KernelReport
from autotune.core.candidate import make_candidate
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store.json_lines import Line
from autotune.store.shipped import shipped_winners
from benchmarks import spills
from benchmarks.spills import build_winners, table


def line() -> Line:
    """A shipped winner, in the place of whose configuration stands today's default of flash_simt."""
    template, problem = find_template("forward", "flash_simt"), get_op("forward").problem(HS=32, dtype="fp32")
    config = Space(template, problem, gpu("h200")).default()
    candidate = make_candidate(template.name, template.hash, config)
    return replace(shipped_winners()[0], problem=problem, candidate=candidate)


def test_winners_that_differ_in_shape_alone_are_one_binary() -> None:
    one = line()
    other = replace(one, problem=one.problem.replace(T=512, T_kv=512))
    [built] = build_winners([one, other], None, jobs=1)
    assert built.labels == (
        "forward fp32 HS=32 causal T=1024 B=4 NH=12",
        "forward fp32 HS=32 causal T=512 B=4 NH=12",
    )
    assert built.arch == "sm_90a"
    [report] = built.reports
    assert report.kernel == "attention_forward"
    assert 32 < report.registers <= 255
    assert built.clean
    assert f"| flash_simt | attention_forward | {report.registers} | 0 | 0 |" in table([built])


def test_stale_configurations_are_not_built() -> None:
    one = line()
    stale = replace(one, candidate=make_candidate("flash_simt", "0" * 16, {**one.candidate.config, "BLOCK_M": 7}))
    [built] = build_winners([stale], None, jobs=1)
    assert not built.clean
    assert built.labels == ("forward fp32 HS=32 causal T=1024 B=4 NH=12 (stale)",)
    assert "NOT BUILT: its configuration is no longer valid" in table([built])


@pytest.mark.parametrize(("spilled", "stack", "bad"), [(0, 0, 0), (8, 0, 1), (0, 16, 1)])
def test_spills_and_stacks_are_counted(
    spilled: int, stack: int, bad: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    report = KernelReport("k", 255, spilled, 1024, stack)
    built = spills.Built(("a row",), "flash_mma A=1", None, "sm_90a", (report,), ())  # type: ignore[arg-type]
    monkeypatch.setattr(spills, "build_winners", lambda lines, arch, jobs: [built])
    assert spills.main([]) == bad
    assert f"| a row | flash_mma | k | 255 | {spilled} | {stack} | 1024 |" in capsys.readouterr().out
