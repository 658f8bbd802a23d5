"""The comparison with Kernel Tuner, as far as it needs no GPU: what it is given, what is read back, what is printed."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.expected import expect
from autotune.tuning.choose import choose_subject
from benchmarks import beside_kernel_tuner
from benchmarks.beside import kernels, ours, theirs
from benchmarks.beside.report import Beside, Fate, Rate

H200 = gpu("h200")
SUBJECT = choose_subject("forward", [kernels.FAMILY])
PROBLEM = SUBJECT.problem({"B": 1, "NH": 2, "T": 64})
TEMPLATE = find_template("forward", kernels.FAMILY)


@pytest.fixture(scope="module")
def source() -> KernelSource:
    candidate = kernels.candidates(SUBJECT, PROBLEM, H200, 1, 0)[0]
    return render(TEMPLATE, PROBLEM, candidate.config, H200)


def test_candidates_are_those_that_kernel_tuner_can_launch() -> None:
    found = kernels.candidates(SUBJECT, PROBLEM, H200, 6, 0)
    assert len(set(found)) == 6
    assert found == kernels.candidates(SUBJECT, PROBLEM, H200, 6, 0)
    for candidate in found:
        [launch] = render(TEMPLATE, PROBLEM, candidate.config, H200).plan.launches
        assert launch.smem <= 48 << 10


def test_views_are_taken_apart_and_put_together_in_the_first_lines(source: KernelSource, tmp_path: Path) -> None:
    kernel = kernels.taken_apart(source, tmp_path, "one")
    [launch] = source.plan.launches
    assert (kernel.grid, kernel.threads, kernel.smem) == (launch.grid, launch.threads, launch.smem)
    assert "View<element, 4> out = {out_data, {out_0, out_1, out_2, out_3}};\n    extern __shared__" in kernel.code
    signature = re.search(r"attention_forward\(([^)]*)\)", kernel.code)
    assert signature is not None
    arguments = kernels.host_arguments(launch, expect(SUBJECT.op, PROBLEM, 0))
    assert len(signature[1].split(",")) == len(arguments)
    kinds = [type(argument).__name__ for argument in arguments]
    assert kinds[:6] == ["ndarray", "int64", "int64", "int64", "int64", "ndarray"]
    assert kinds[-7:] == ["int32", "int32", "int32", "int64", "int32", "int32", "float32"]


def test_answers_stand_where_the_outputs_are(source: KernelSource) -> None:
    [launch] = source.plan.launches
    expected = expect(SUBJECT.op, PROBLEM, 0)
    arguments, answers = kernels.host_arguments(launch, expected), kernels.answers(SUBJECT.op, launch, expected)
    given = [(place, answer) for place, answer in enumerate(answers) if answer is not None]
    assert len(answers) == len(arguments)
    assert [place for place, _ in given] == [15, 20]  # out, behind three views, and lse, behind four
    out, lse = (answer for _, answer in given)
    assert np.array_equal(out.reshape(1, 64, 2, 64)[0, :, 1], expected.units[1].reference["out"][0, 0])
    assert np.array_equal(lse.reshape(2, 64)[0], expected.units[0].reference["lse"][0, 0])


@pytest.mark.parametrize("mistake", [*kernels.MISTAKES, *kernels.CRASHES], ids=lambda mistake: mistake.name)
def test_each_mistake_finds_its_place(mistake: kernels.Mistake, tmp_path: Path, source: KernelSource) -> None:
    planted = render(kernels.plant(TEMPLATE, mistake, tmp_path), PROBLEM, source.candidate.config, H200)
    assert planted.body != source.body
    assert planted.plan == source.plan


def test_a_place_that_is_gone_is_said() -> None:
    with pytest.raises(ValueError, match="is there 0 times"):
        kernels.MISTAKES[0].planted("nothing")


def test_what_kernel_tuner_is_called_with(source: KernelSource, tmp_path: Path) -> None:
    one = kernels.taken_apart(source, tmp_path, "one")
    two = kernels.Kernel("two", "code", one.kernel, one.include, (5, 2, 1), 96, 1024)
    given = theirs.options(theirs.Job((one, two), (), (), 1e-3, ("-O3",)))
    params = {theirs.NUMBER: 1, theirs.THREADS: 96}
    assert (given["kernel_source"](params), given["problem_size"](params)) == ("code", (5, 2, 1))
    assert given["smem_args"]["size"](params) == 1024
    [agree] = given["restrictions"]
    assert agree.__name__ != "<lambda>"  # whose source Kernel Tuner would parse
    assert agree({theirs.NUMBER: 0, theirs.THREADS: one.threads})
    assert not agree({theirs.NUMBER: 0, theirs.THREADS: 96})
    assert agree({theirs.NUMBER: 1, theirs.THREADS: 96})
    assert given["compiler_options"] == ["-O3", "-I", str(tmp_path)]


def test_a_cache_that_was_left_open_is_read(source: KernelSource, tmp_path: Path) -> None:
    kernel = kernels.taken_apart(source, tmp_path, "one")
    job = theirs.Job((kernel, kernels.Kernel("two", "", "", "", (1, 1, 1), 64, 0)), (), (), 1e-3, ())
    cache = tmp_path / "cache.json"
    assert theirs.kept(cache, job) == ({}, 0)
    head = {
        "device_name": "A GPU", "kernel_name": "attention_forward", "problem_size": "", "objective": "time",
        "tune_params_keys": [theirs.NUMBER, theirs.THREADS],
        "tune_params": {theirs.NUMBER: [0, 1], theirs.THREADS: [64]},
    }  # fmt: skip
    entries = [
        {theirs.NUMBER: 0, theirs.THREADS: 64, "time": 2.5},
        {theirs.NUMBER: 1, theirs.THREADS: 64, "__error__": "RuntimeFailedConfig"},
    ]
    text = json.dumps(head)[:-1] + ', "cache": {'
    text += "\n" + ",\n".join(f'"{place},64": {json.dumps(entry)}' for place, entry in enumerate(entries)) + ","
    cache.write_text(text, encoding="utf-8")
    assert theirs.kept(cache, job) == ({"one": 2.5}, 2)


def test_how_a_process_ended() -> None:
    assert theirs.ended("all is well\n", 0, None) == ""
    assert theirs.ended("", -9, 40.0) == "still at it after 40 s, then killed"
    assert theirs.ended("trace\nLogicError: illegal address\n", 1, None) == (
        "ended with status 1: LogicError: illegal address"
    )


def test_a_wrong_kernel_is_let_through_where_it_gets_a_time() -> None:
    assert not ours.let_through(Measurement(Outcome.WRONG_RESULT, "dq: error"))
    assert not ours.let_through(Measurement(Outcome.TIMEOUT))


def test_the_table() -> None:
    fates = (
        Fate("strides", "computed", False, True, False, "run again: out: error", ""),
        Fate("mask", "one more", False, True, True, "out: error", "ended with status 1: verification failed"),
        Fate("loop", "endless", True, True, False, "no result within 6 s", "still at it after 40 s, then killed"),
    )
    found = Beside("forward T=1024", "NVIDIA H200", "1.5.0", "PYCUDA", Rate(100, 20.0), Rate(30, 100.0), 1e-3, fates)
    assert found.factor == pytest.approx(300 / 18)
    text = "\n".join(found.lines())
    assert "| candidates a minute | 300 (100 in 20.0 s) | 18 (30 in 100.0 s) |" in text
    assert "| wrong kernels let through | 0 of 2 | 1 of 2 |" in text
    assert "| crashes survived | 1 of 1 | 0 of 1 |" in text
    assert "| strides | computed | noticed: run again: out: error | let through |" in text
    assert max(map(len, found.lines()[:2])) <= 140
    assert found.to_json()["theirs"] == {"candidates": 30, "seconds": 100.0, "a_minute": 18.0}


def test_without_kernel_tuner_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(beside_kernel_tuner, "find_spec", lambda name: None)
    assert beside_kernel_tuner.main(["--out", str(tmp_path / "out")]) == 4
    assert "pip install kernel_tuner" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
