"""What compute-sanitizer is given, executed here without it: the changed exports still pass, at sizes that matter."""

import os
import re
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.candidate import make_candidate
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store.json_lines import Line
from autotune.store.shipped import shipped_winners
from benchmarks.sanitize_winners import (
    CHECK,
    UNINITIALISED,
    Subject,
    program_text,
    run,
    small_problem,
    subjects,
    verdict,
)
from tests.answers.exported_program import build_exported


def winner(op: str, T: int = 1024) -> Line:
    """A winner with small tiles."""
    template, problem = find_template(op, "flash_simt"), get_op(op).problem(HS=32, dtype="fp32", T=T)
    space = Space(template, problem, gpu("h200"))
    config = next(c for c in space.configs() if c["BLOCK_M"] == 32 and c["BLOCK_N"] == 32)
    return replace(
        shipped_winners()[0], problem=problem, candidate=make_candidate(template.name, template.hash, config)
    )


def test_small_problems_have_whole_and_partial_tiles_and_grouped_heads() -> None:
    problem = small_problem(winner("forward"))
    assert problem.key == "forward B=2 NH=2 NH_kv=1 T=81 T_kv=81 HS=32 dtype=fp32 causal=1 layout=bthd"


def test_candidates_of_several_winners_are_examined_once() -> None:
    stale = replace(winner("forward"), candidate=make_candidate("flash_simt", "0" * 16, {"BLOCK_M": 7}))
    found = subjects([winner("forward"), winner("forward", T=4096), winner("backward"), stale])
    assert [subject.labels for subject in found] == [
        ["forward fp32 HS=32 causal T=1024 B=4 NH=12", "forward fp32 HS=32 causal T=4096 B=4 NH=12"],
        ["backward fp32 HS=32 causal T=1024 B=4 NH=12"],
    ]


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_programs_pass_also_without_filled_memory(op: str, tmp_path: Path) -> None:
    line = winner(op)
    program = build_exported(program_text(Subject(line, [], small_problem(line))), tmp_path)
    for more in ({}, {UNINITIALISED: "1"}):
        done = subprocess.run([program], capture_output=True, text=True, check=False, env={**os.environ, **more})
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "PASS"
        assert "median of 2," in done.stdout


# --- what the tools say

CLEAN = "PASS\n========= ERROR SUMMARY: 0 errors\n"


@pytest.mark.parametrize(
    ("tool", "status", "output", "expected"),
    [
        (CHECK, 0, "PASS\n", "ok"),
        (CHECK, 1, "check out WRONG\nFAIL\n", "status 1: check out WRONG / FAIL"),
        ("memcheck", 0, CLEAN, "ok"),
        ("memcheck", 0, "PASS\n", "status 0: "),  # the tool did not come to its summary
        ("memcheck", 0, "========= ERROR SUMMARY: 0 errors\n", "status 0: ERROR SUMMARY: 0 errors"),  # no PASS
        ("memcheck", 42, "PASS\n========= Invalid __global__ read\n========= ERROR SUMMARY: 3 errors\n",
         "status 42: ERROR SUMMARY: 3 errors"),
        ("racecheck", 0, "PASS\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", "ok"),
        ("racecheck", 0, "PASS\n========= RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)\n",
         "status 0: RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)"),
        ("memcheck", 255, "========= Error: Device not supported\n", "status 255: Error: Device not supported"),
    ],
)  # fmt: skip
def test_verdicts(tool: str, status: int, output: str, expected: str) -> None:
    assert verdict(tool, status, output) == expected


def test_a_tool_that_is_not_there_or_does_not_end(tmp_path: Path) -> None:
    tool = tmp_path / "sanitizer"
    tool.write_text("#!/bin/sh\nsleep 5\n")
    tool.chmod(stat.S_IRWXU)
    assert run(tmp_path / "program", "memcheck", str(tool), limit_s=0.2) == "no end after 0 s"
    tool.write_text('#!/bin/sh\n[ "$2" = initcheck ] && [ -n "$AUTOTUNE_UNINITIALISED" ] && printf "' + CLEAN + '"\n')
    assert run(tmp_path / "program", "initcheck", str(tool)) == "ok"
    assert run(tmp_path / "program", "memcheck", str(tool)).startswith("status 1")
    missing = str(tmp_path / "none")
    assert run(tmp_path / "program", "memcheck", missing) == f"cannot run {missing}: No such file or directory"


def test_steps_of_decoding_have_a_small_problem() -> None:
    """Splits that want many keys, packed heads, blocks that follow one another by whole groups of heads."""
    found = subjects(line for line in shipped_winners() if line.problem["T"] == 1)
    assert len(found) > 5
    for subject in found:
        template = find_template(subject.problem.op, subject.line.candidate.template)
        assert Space(template, subject.problem, gpu("h200")).why_not(subject.line.candidate.config) is None


@pytest.mark.parametrize(
    "name", ["SPLIT=keys", "SPLIT=gradients", "DQ_ACCUMULATE=turns"], ids=["rings", "exchange", "turns"]
)
def test_every_lane_arrives_where_one_does_for_its_warp(name: str) -> None:
    """And as many arrivals are waited for; those of the threads that load are single ones."""
    of_family = (line for line in shipped_winners() if line.candidate.template == "flash_wgmma")
    line = next(line for line in of_family if name in line.candidate.key)
    text = program_text(Subject(line, [], small_problem(line)))
    assert "% 32 == 0) mbarrier_arrive(" not in text
    counts = set(re.findall(r"    mbarrier_init\(.*, (1|\w+|32 \* \w+)\);", text))
    exchanged, turns = "ExchangeBarriers" in text, "SumTurns" in text
    assert counts == {"1", "32 * readers", *["32 * writers"] * exchanged, *["32 * SHARERS"] * turns}
