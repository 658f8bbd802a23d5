"""A family dropped into `templates/` is found and judged by the tests: a right one passes, a wrong one does not.

In a copy of the checkout lie a small family, and the same with mistakes under other names. The whole suite is collected
there, and of it the tests that have one of these names in theirs are run.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from autotune.compilers.nvcc import ARCHITECTURES

ROOT = Path(__file__).parents[1]
ORIGINAL = Path(__file__).with_name("newcomer.cu.j2")

_ON_SOME = """    const int query = place % T;
{% if device.compute_capability == 75 %}
    asm("nonsense;");
{% elif device.compute_capability == 120 %}
    if (threadIdx.x < 0u) return;
{% endif %}
"""
NEWCOMERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "newcomer": (),
    # A mask aligned top-left; rows of a packed Q taken for those of a Q that lies alone; bf16 results 3 % too large.
    "mistaken": (
        ("query + T_kv - T + 1", "query + 1"),
        ("query * q.stride[2]", "query * (q.stride[1] == HS ? 1LL * NH * HS : q.stride[2])"),
        ("total / sum", "total / sum{{ ' * 1.03f' if dtype == 'bf16' }}"),
    ),
    # One value of one parameter forgets the last key.
    "misconfigured": (("key < seen; ++key) total +=", "key < seen - (UNROLL == 8); ++key) total +="),),
    # Rows of an output that has gaps are written as if it had none.
    "misplaced": (("query * out.stride[2]", "query * (out.stride[2] == HS + 1 ? HS : out.stride[2])"),),
    # A constant where there was an argument; no code for sm_75; a warning on sm_120.
    "rigid": (
        ("head / (NH / NH_kv)", "head / {{ NH // NH_kv }}"),
        ("    const int query = place % T;\n", _ON_SOME),
    ),
}
SELECTED = (
    "newcomer",
    "mistaken and every_case",
    "misconfigured and (every_parameter or (every_case and packed))",
    "misplaced and odd_strides",
    "rigid and (without_warnings or many_shapes)",
)

Results = Mapping[str, bool]
"""Whether it passed, by a test's name without its folder."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Of the selected tests, in one run."""
    copy = tmp_path_factory.mktemp("checkout") / "autotune"
    hidden = shutil.ignore_patterns(".*", "dist", "build", "venv")
    shutil.copytree(ROOT, copy, ignore=hidden)
    text = ORIGINAL.read_text()
    for name, mistakes in NEWCOMERS.items():
        changed = text
        for right, wrong in mistakes:
            assert right in changed, (name, right)
            changed = changed.replace(right, wrong)
        (copy / "templates" / "forward" / f"{name}.cu.j2").write_text(changed)
    selected = " or ".join(f"({part})" for part in SELECTED)
    options = ["-q", "-rA", "--tb=no", "-n", "0", "-p", "no:cacheprovider", "-k", selected]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout[-4000:] + done.stderr  # some failed
    lines = re.findall(r"^(PASSED|FAILED|ERROR) \S*?([^/\s]+\.py::\w+\[.*?\])", done.stdout, re.MULTILINE)
    return {name: said == "PASSED" for said, name in lines}


def of(results: Results, test: str, family: str) -> dict[str, bool]:
    """Results of one test function for one family, by the rest of the test's parameters."""
    found = {}
    for name, passed in results.items():
        function, _, parameters = name.partition("::")[2].partition("[")
        if function == test and f"forward-{family}" in parameters:
            found[parameters.removesuffix("]").replace(f"forward-{family}", "").strip("-")] = passed
    assert found, (test, family)
    return found


@pytest.mark.timeout(1500)
def test_a_right_one_passes_all_that_is_asked_of_it(results: Results) -> None:
    """But for its rendered source, which nobody has reviewed."""
    own = {name: passed for name, passed in results.items() if "forward-newcomer" in name}
    assert [name for name, passed in own.items() if not passed] == [
        "test_golden.py::test_the_default_of_every_family[forward-newcomer]"
    ]
    assert list(of(results, "test_compiles_without_warnings", "newcomer"))[: len(ARCHITECTURES)] == [*ARCHITECTURES]
    assert len(of(results, "test_every_case_is_right", "newcomer")) >= 16
    assert {"fp16", "bf16", "fp32"} == set(of(results, "test_what_is_tried_first_does_not_spill", "newcomer"))
    for test in PROMISED:
        assert all(of(results, test, "newcomer").values())


PROMISED = (
    "test_every_parameter_value_is_right",
    "test_the_cases_have_every_dtype_mask_and_layout_that_the_family_supports",
    "test_the_cases_have_every_awkward_shape",
    "test_odd_strides",
    "test_zero_strides",
    "test_nan_beyond_the_valid_rows_does_not_leak",
    "test_nan_and_infinity_in_valid_inputs_come_out",
    "test_large_scores_are_stable",
    "test_offsets_past_two_to_the_32",
    "test_repeated_runs_agree_to_the_bit",
    "test_nothing_is_found",
    "test_one_file_for_many_shapes",
    "test_an_export_passes_its_own_check",
)


@pytest.mark.timeout(1500)
def test_wrong_cases_are_rejected_and_no_others(results: Results) -> None:
    """Each of the three mistakes is alone in some case."""
    reasons = []
    for case, passed in of(results, "test_every_case_is_right", "mistaken").items():
        fields = dict(re.findall(r"(\w+)=(\w+)", case))
        wrong = (
            fields["T"] != fields["T_kv"] and "causal" not in fields,
            fields.get("layout") == "packed",
            fields.get("dtype") == "bf16",
        )
        assert passed is not any(wrong), case
        reasons.append(wrong)
    assert {(True, False, False), (False, True, False), (False, False, False)} <= set(reasons)
    assert any(wrong[2] for wrong in reasons)


@pytest.mark.timeout(1500)
def test_a_wrong_value_of_a_parameter_is_rejected(results: Results) -> None:
    assert not any(of(results, "test_every_parameter_value_is_right", "misconfigured").values())
    assert all(of(results, "test_every_case_is_right", "misconfigured").values())


@pytest.mark.timeout(1500)
def test_wrong_strides_are_rejected(results: Results) -> None:
    assert not any(of(results, "test_odd_strides", "misplaced").values())


@pytest.mark.timeout(1500)
def test_what_does_not_compile_or_warns_somewhere_is_rejected(results: Results) -> None:
    compiled = of(results, "test_compiles_without_warnings", "rigid")
    assert [arch for arch in ARCHITECTURES if not compiled[arch]] == ["sm_75", "sm_120"]


@pytest.mark.timeout(1500)
def test_a_shape_in_the_source_is_rejected(results: Results) -> None:
    assert not any(of(results, "test_one_file_for_many_shapes", "rigid").values())
