"""What a climb builds ahead is found by its searches."""

import time
from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.families.render import render
from autotune.gpus.known import gpu
from autotune.ladder.warm import first_candidates, warm
from autotune.ops.registry import get_op
from autotune.tuning.choose import choose_subject
from autotune.tuning.search_options import Options

H200, OPTIONS = gpu("h200"), Options(trials=1, jobs=1)


def test_the_first_candidates_are_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path))
    subject, problem = choose_subject("permute"), get_op("permute").problem(T=64)
    impossible = choose_subject("forward", ("flash_mma",)), get_op("forward").problem(dtype="fp32")
    (candidate,) = first_candidates(subject, problem, H200, OPTIONS)
    source = render(subject.templates[0], problem, candidate.config, H200)
    with warm([impossible, (subject, problem)], H200, OPTIONS):
        while not list(tmp_path.glob("cubin/*/*/*.cubin")):  # not those that are being made
            time.sleep(0.05)
        artifact = CubinRequest(source, H200.arch).build(BuildCache())
    assert artifact.kind == "cubin"
    assert artifact.cached
