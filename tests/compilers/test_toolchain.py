import stat
import tempfile
from pathlib import Path

import pytest

from autotune.compilers import toolchain
from autotune.compilers.nvcc import first_errors
from autotune.compilers.toolchain import cuda_include_dirs, find_gxx, find_nvcc
from autotune.core.errors import BuildError

VARIABLES = ("AUTOTUNE_NVCC", "CUDA_HOME", "CUDA_PATH", "CXX")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def fake_nvcc(root: Path, version: str, archs: str = "sm_75 sm_90") -> Path:
    include = root / "include"
    include.mkdir(parents=True)
    (include / "cuda_fp16.h").write_text("")
    return script(
        root / "bin" / "nvcc",
        f"""case "$1" in
        --version) echo "Cuda compilation tools, release 1.2, V{version}" ;;
        --list-gpu-code) printf '%s\\n' {archs} ;;
        --dryrun) echo '#$ INCLUDES="-I{include}"' >&2 ;;
        esac""",
    )


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(toolchain, "_wheel_roots", lambda: [tmp_path / "wheel"])
    monkeypatch.setattr(toolchain, "_DEFAULT_TOOLKIT", tmp_path / "usr-local-cuda")


def test_places_in_their_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"^no CUDA compiler found: pip install nvidia-cuda-nvcc"):
        find_nvcc()
    fake_nvcc(tmp_path / "wheel", "1.0.6")
    assert str(find_nvcc()) == "nvcc 1.0.6"
    fake_nvcc(tmp_path / "usr-local-cuda", "1.0.5")
    assert str(find_nvcc()) == "nvcc 1.0.5"
    script(tmp_path / "path" / "nvcc", f'PATH=/usr/bin:/bin exec {fake_nvcc(tmp_path / "behind", "1.0.4")} "$@"')
    assert str(find_nvcc()) == "nvcc 1.0.4"
    for number, variable in ((3, "CUDA_PATH"), (2, "CUDA_HOME")):
        fake_nvcc(tmp_path / variable, f"1.0.{number}")
        monkeypatch.setenv(variable, str(tmp_path / variable))
        assert str(find_nvcc()) == f"nvcc 1.0.{number}"
    monkeypatch.setenv("AUTOTUNE_NVCC", str(fake_nvcc(tmp_path / "mine", "1.0.1")))
    assert str(find_nvcc()) == "nvcc 1.0.1"


def test_headers_of_an_nvcc_behind_a_wrapper_script(tmp_path: Path) -> None:
    behind = fake_nvcc(tmp_path / "behind", "1.0.4")
    script(tmp_path / "path" / "nvcc", f'PATH=/usr/bin:/bin exec {behind} "$@"')
    assert cuda_include_dirs() == (tmp_path / "behind" / "include",)


def test_an_nvcc_that_does_not_know_the_architecture_is_passed_over(tmp_path: Path) -> None:
    fake_nvcc(tmp_path / "usr-local-cuda", "1.0.5", archs="sm_70 sm_75")
    fake_nvcc(tmp_path / "wheel", "1.0.6", archs="sm_75 sm_90 sm_100")
    assert find_nvcc("sm_75").version == "1.0.5"
    assert find_nvcc("sm_90a").version == "1.0.6"
    with pytest.raises(BuildError, match=r"^nvcc 1\.0\.5 does not compile for sm_120; it knows sm_70, sm_75$"):
        find_nvcc("sm_120")


def test_a_named_nvcc_that_does_not_work_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_nvcc(tmp_path / "wheel", "1.0.6")
    monkeypatch.setenv("AUTOTUNE_NVCC", str(tmp_path / "nothing"))
    with pytest.raises(BuildError, match=r"AUTOTUNE_NVCC=.*nothing is no working nvcc; correct it or unset it"):
        find_nvcc()


def test_a_broken_nvcc_that_is_only_found_is_passed_over(tmp_path: Path) -> None:
    script(tmp_path / "usr-local-cuda" / "bin" / "nvcc", "exit 1")
    fake_nvcc(tmp_path / "wheel", "1.0.6")
    assert find_nvcc().version == "1.0.6"


def test_headers_of_the_wheel_serve_where_the_toolkit_has_none(tmp_path: Path) -> None:
    fake_nvcc(tmp_path / "wheel", "1.0.6")
    (tmp_path / "wheel" / "include" / "cccl").mkdir()
    assert cuda_include_dirs() == (tmp_path / "wheel" / "include", tmp_path / "wheel" / "include" / "cccl")
    (tmp_path / "wheel" / "include" / "cuda_fp16.h").unlink()
    with pytest.raises(BuildError, match=r"^the CUDA headers are missing: pip install"):
        cuda_include_dirs()


def test_gxx_and_cxx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"^no C\+\+ compiler found: install g\+\+"):
        find_gxx()
    script(tmp_path / "path" / "g++", "echo 12.2.0")
    assert (str(find_gxx()), find_gxx().path) == ("g++ 12.2.0", tmp_path / "path" / "g++")
    monkeypatch.setenv("CXX", str(script(tmp_path / "mine", "echo 15.1.0")))
    assert str(find_gxx()) == "g++ 15.1.0"
    monkeypatch.setenv("CXX", "nothing")
    with pytest.raises(BuildError, match=r"^CXX=nothing is no working"):
        find_gxx()


def test_the_first_useful_lines_of_a_compilers_output() -> None:
    output = """\
kernel.cu(3): warning #177-D: variable "x" was declared but never referenced

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

kernel.cu(9): error: identifier "y" is undefined
      y = 3;
      ^

1 error detected in the compilation of "kernel.cu".
"""
    assert first_errors(output).splitlines() == [
        'kernel.cu(9): error: identifier "y" is undefined',
        "      y = 3;",
        "      ^",
        '1 error detected in the compilation of "kernel.cu".',
    ]
    assert first_errors("\n".join(f"a.cu({i}): error: x" for i in range(20))).count("\n") == 5
    assert first_errors("") == ""


def test_a_folder_for_temporary_files_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """nvcc says nothing then; it is given one that is there."""
    nvcc = fake_nvcc(tmp_path / "wheel", "1.0.7", archs="sm_80")
    text = nvcc.read_text()
    nvcc.write_text(text.replace("case", '[ -d "$TMPDIR" ] || exit 1\n        case', 1))
    assert "TMPDIR" in nvcc.read_text()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert find_nvcc("sm_80").archs == ("sm_80",)
