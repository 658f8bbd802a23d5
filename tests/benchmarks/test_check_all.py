"""`python -m benchmarks.check_all`: which families it takes and how it counts, with traces made up."""

from collections.abc import Sequence

import pytest

from autotune.checker.awkward_tasks import awkward_tasks
from autotune.core.errors import LaunchError
from autotune.families.render import render
from autotune.families.template import builtin_templates, find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import BUILTIN
from autotune.trace import remote_main as worker
from autotune.trace.observed import Finding, Place, Trace
from autotune.trace.task import Traced, TraceTask
from benchmarks.check_all import Row, check, chosen_families, total

FAMILY = find_template("softmax", "warp_per_row")


def _tasks(count: int) -> list[TraceTask]:
    return list(awkward_tasks(FAMILY, gpu("h200"), count, seed=0))


def _traced(task: TraceTask, findings: Sequence[Finding], *, complete: bool = True) -> Traced:
    source = render(FAMILY, task.problem, dict(task.config), task.spec)
    return Traced(source, Trace((), tuple(findings), complete, "" if complete else "it stopped"))


def _finding() -> Finding:
    return Finding("misaligned", "softmax", Place(7), (0, 0, 0), (1, 0, 0), "read", 4, "x", 2, "read of x", None, 1)


def test_clean_runs_are_counted_with_their_problems() -> None:
    tasks = _tasks(20)
    row = check("softmax/warp_per_row", tasks, lambda task: _traced(task, ()))
    different = (len({task.config for task in tasks}), len({task.problem for task in tasks}))
    assert (row.runs, row.configurations, row.problems, row.bad) == (20, *different, 0)
    assert row.problems == 16
    assert str(row) == f"| softmax/warp_per_row | 20 | {different[0]} | 16 | 0 | 0 |"


def test_findings_failures_and_ends_before_time_are_all_bad(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = _tasks(4)

    def trace(task: TraceTask) -> Traced:
        place = tasks.index(task)
        if place == 1:
            raise LaunchError("it took too long")
        return _traced(task, [_finding()] * (place == 0), complete=place != 2)

    assert check("family", tasks, trace).bad == 3
    said = capsys.readouterr().out
    assert "misaligned: read of x; kernel softmax, line 7" in said
    assert "    it took too long\n" in said
    assert "    it stopped\n" in said
    assert str(tasks[3].problem) not in said.splitlines()


def test_rows_are_added_up() -> None:
    rows = [Row("a", 20, 20, 16, 0, 1.4), Row("b", 20, 8, 4, 2, 2.4)]
    assert str(total(rows)) == "| in all | 40 | 28 | 20 | 2 | 4 |"


def test_all_families_unless_some_are_named() -> None:
    assert len(chosen_families([])) == sum(len(builtin_templates(op)) for op in BUILTIN)
    assert list(chosen_families(["softmax/warp_per_row", "forward/naive"])) == ["softmax/warp_per_row", "forward/naive"]
    with pytest.raises(ValueError, match=r"no family forward/nothing; shipped: forward/"):
        chosen_families(["forward/nothing"])


def test_a_problem_that_does_not_fit_into_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = _tasks(1)

    def run_task(asked: TraceTask) -> Traced:
        raise MemoryError(f"4 TB for {asked.problem.op}")

    monkeypatch.setattr(worker, "run_task", run_task)
    answer = worker.answer_to(task)
    assert isinstance(answer, LaunchError)
    assert str(answer) == f"not enough memory to trace {task.problem}: 4 TB for softmax; take a smaller problem"
