"""What a search on the emulator gives up before it is run, and what it never does."""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.core.blas import ONE_THREAD, one_blas_thread
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.devices.client import WorkerClient
from autotune.devices.factory import CpuOpener
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.tuning.choose import choose_subject
from autotune.tuning.evaluation import Job, Task
from autotune.tuning.pipeline import Pipeline
from autotune.tuning.pruning import least_ms

SPEC = gpu("h200")
PROBLEM = get_op("forward").problem(B=1, NH=1, T=16, HS=32, dtype="fp32")
SUBJECT = choose_subject("forward", ["flash_simt"])
CANDIDATE = Space(SUBJECT.templates[0], PROBLEM, SPEC).starts()[0]


PROBLEM_FLOPS = 4.0 * 16 * 16 / 2 * 32


def source(template: Template, problem: Problem) -> KernelSource:
    return render(template, problem, Space(template, problem, SPEC).default(), SPEC)


def built(template: Template, problem: Problem) -> Path:
    return CubinRequest(source(template, problem), SPEC.arch).build(BuildCache()).path


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    with closing(WorkerClient(CpuOpener(SPEC))) as client:
        opened = client.start()
        task = Task(
            SUBJECT.op, SUBJECT.source, PROBLEM, {template.name: template for template in SUBJECT.templates},
            opened.identity, opened.environment, 0, 20.0,
        )  # fmt: skip
        with closing(Pipeline(task, client, BuildCache(), 1)) as made:
            yield made


def evaluated(pipeline: Pipeline) -> Measurement:
    pipeline._submitted.clear()  # as in another search: the second try of one is never given up
    pipeline.submit(Space(SUBJECT.templates[0], PROBLEM, SPEC).candidate(CANDIDATE))
    while True:
        for finished in pipeline.poll(1.0):
            return finished.measurement


def test_nothing_is_given_up_before_something_is_right(pipeline: Pipeline) -> None:
    first = evaluated(pipeline)
    assert first.outcome is Outcome.OK
    assert first.verification is not None
    assert first.verification.passed
    assert first.ms is not None
    for best, outcome in ((first.ms, Outcome.OK), (first.ms / 1.4, Outcome.OK), (first.ms / 1.6, Outcome.PRUNED)):
        pipeline.note_best(best)
        again = evaluated(pipeline)
        assert (again.outcome, again.timing) == (outcome, first.timing)
        assert (again.verification is None) == (outcome is Outcome.PRUNED)
    assert again.message == (f"given up, unverified: estimated at {first.ms:.4g} ms, slower than {1.5 * best:.4g} ms")


def test_what_its_operations_alone_rule_out_is_not_even_counted(pipeline: Pipeline) -> None:
    pipeline.note_best(1e-12)
    given_up = evaluated(pipeline)
    assert given_up.outcome is Outcome.PRUNED
    assert given_up.message.startswith("given up, unverified: its operations alone take ")
    assert given_up.timing is not None
    assert "roofline" in given_up.timing.method


def test_what_a_convention_counts_is_a_least_only_where_no_query_is_without_keys() -> None:
    cubin = built(SUBJECT.templates[0], PROBLEM)
    times = []
    for T in (16, 17):
        problem = PROBLEM.replace(T=T)
        task = Task(SUBJECT.op, SUBJECT.source, problem, {}, DeviceIdentity("cpu", SPEC), {}, 0, 20.0)
        times.append(task.least_ms(Job(source(SUBJECT.templates[0], problem), cubin=cubin)))
    assert times == [pytest.approx(PROBLEM_FLOPS / (SPEC.fp32_tflops * 1e9)), 0.0]


@pytest.mark.parametrize(("family", "bound"), [("flash_simt", True), ("flash_mma", False)])
def test_only_code_without_tensor_cores_has_a_least_time(family: str, bound: bool) -> None:
    problem = get_op("forward").problem(B=1, NH=1, T=64, HS=32)
    template = choose_subject("forward", [family]).templates[0]
    rendered, cubin = source(template, problem), built(template, problem)
    assert least_ms(66.9e9, rendered, cubin, SPEC) == (pytest.approx(66.9 / SPEC.fp32_tflops) if bound else 0.0)
    # An instruction that the decoder does not know is seen in the source.
    asked = replace(rendered, body=rendered.body + '// asm("wgmma.mma_async.sync.aligned")\n')
    assert least_ms(66.9e9, asked, cubin, SPEC) == 0.0


def test_blas_is_told_to_use_one_thread_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with one_blas_thread():
        assert [os.environ[name] for name in ONE_THREAD] == ["7", "1"]
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
