"""What a compiler says of a source is a verdict; what becomes of the compiler is none, and is tried once more."""

import signal
import stat
from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.compilers.running import compile_source, refuses_source
from autotune.compilers.toolchain import find_gxx, find_nvcc
from autotune.core.child import Completed
from autotune.core.errors import BuildError, CompileError, CompileTimeout
from tests.sources import kernel_source

OF_THE_SOURCE = {
    "nvcc": 'kernel.cu(2): error: identifier "MISSING" is undefined\n1 error detected in the compilation.',
    "nvcc: header": "kernel.cu:1:10: fatal error: common/none.cuh: No such file or directory\ncompilation terminated.",
    "ptxas": "ptxas error   : Entry function 'k' uses too much shared data (0x13880 bytes, 0xc000 max)",
    "ptxas: line": "ptxas /tmp/k.ptx, line 33; error   : Feature 'cp.async' requires .target sm_80 or higher",
    "ptxas: extern": "ptxas fatal   : Unresolved extern function 'helper'",
    "ptxas: registers": "ptxas fatal   : (C7600) Register allocation failed with register count of '24'.",
    "cicc crashes": "Segmentation fault\nnvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)",
    "g++": "kernel.cpp:4:5: error: 'undefined_name' was not declared in this scope",
    "g++: itself": "kernel.cpp:9:1: internal compiler error: in gimplify_expr, at gimplify.cc:15960",
    "ld": "/usr/bin/ld: /tmp/k.o: in function `k': kernel.cpp:(.text+0x5): undefined reference to `helper'\n"
    "collect2: error: ld returned 1 exit status",
    "its own words": 'kernel.cu(7): error: static assertion failed with "a block is out of memory"',
}

OF_THE_MACHINE = {
    "ptxas killed, from a shell": "Killed",
    "ptxas killed, after an info": "ptxas info    : 0 bytes gmem\nsh: line 1: 4242 Killed",
    "nvcc's part killed": "nvcc error   : 'ptxas' died due to signal 9 (Kill signal)",
    "nvcc's part terminated": "nvcc error   : 'cicc' died due to signal 15 (Termination request)",
    "cc1plus killed": "g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.",
    "cc1plus terminated": "g++: fatal error: Terminated signal terminated program cc1plus\ncompilation terminated.",
    "ld killed": "collect2: fatal error: ld terminated with signal 9 [Killed]\ncompilation terminated.",
    "no memory, g++": "cc1plus: out of memory allocating 65536 bytes after a total of 1150976 bytes",
    "no memory, cicc": "kernel.cu(1): catastrophic error: out of memory",
    "no memory, ptxas": "ptxas fatal   : Memory allocation failure",
    "no memory, virtual": "virtual memory exhausted: Cannot allocate memory",
    "no memory, C++": "what():  std::bad_alloc\nnvcc error   : 'cicc' died due to signal 6",
    "no process, shell": "sh: 1: Cannot fork",
    "no process, g++": "g++: fatal error: cannot execute 'cc1plus': vfork: Resource temporarily unavailable",
    "no program, g++": "g++: fatal error: cannot execute 'cc1plus': execvp: No such file or directory",
    "no program, nvcc": "sh: 1: cicc: not found",
    "no program, ld": "collect2: fatal error: cannot find 'ld'",
    "no library": "cc1plus: error while loading shared libraries: libisl.so.23: cannot open shared object file",
    "no room": "/usr/bin/ld: final link failed: No space left on device\ncollect2: error: ld returned 1 exit status",
    "no room, as": "/tmp/k.s: Fatal error: can't write 12 bytes to section .text of k.o: 'No space left on device'",
    "no files": "kernel.cu:1: fatal error: opening dependency file k.d: Too many open files",
    "nvcc's own": "nvcc fatal   : Could not open output file '/tmp/k.module_id'",
    "nothing at all": "",
    "nothing of an error": "kernel.cu(2): warning #177-D: variable was declared but never referenced",
}


@pytest.mark.parametrize("output", OF_THE_SOURCE.values(), ids=OF_THE_SOURCE)
def test_what_is_said_of_the_source(output: str) -> None:
    assert refuses_source(Completed(1, output))
    # A compiler that did not come to its end has said nothing that counts.
    assert not refuses_source(Completed(-signal.SIGKILL, output))
    assert not refuses_source(Completed(127, output))


@pytest.mark.parametrize("output", OF_THE_MACHINE.values(), ids=OF_THE_MACHINE)
def test_what_is_no_verdict(output: str) -> None:
    assert not refuses_source(Completed(1, output))


@pytest.mark.parametrize("output", list(OF_THE_MACHINE.values())[:-2], ids=list(OF_THE_MACHINE)[:-2])
def test_nor_is_what_is_said_beside_it(output: str) -> None:
    assert not refuses_source(Completed(1, f"kernel.cu(2): error: expected a ';'\n{output}"))


def compiler(folder: Path, script: str) -> str:
    """A program that counts how often it ran, in `runs`, and then is what the script says."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\necho run >> {folder}/runs\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def compiled(folder: Path, script: str, limit_s: float = 60.0) -> str:
    return compile_source("cc 1.0", [compiler(folder, script)], folder, limit_s, lambda output: output[:100])


def test_what_it_prints_is_given(tmp_path: Path) -> None:
    assert compiled(tmp_path, "echo used 32 registers; echo $TMPDIR; pwd >&2") == f"used 32 registers\n.\n{tmp_path}\n"


def test_a_source_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"^cc 1\.0: k\.cu\(1\): error: no$"):
        compiled(tmp_path, "echo 'k.cu(1): error: no'; exit 2")
    assert runs(tmp_path) == 1


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("kill -9 $$", "it was killed by SIGKILL, from outside or for lack of memory"),
        ("echo Killed; exit 137", "exit status 137: Killed"),
        ("echo 'sh: 1: Cannot fork' >&2; exit 2", "exit status 2: sh: 1: Cannot fork"),
        ("echo 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1", "Killed signal"),
        ("echo 'cc1plus: out of memory allocating 8 bytes'; exit 1", "out of memory"),
        ("exit 1", "exit status 1"),
    ],
)
def test_the_machine_is_given_a_second_chance_and_then_named(tmp_path: Path, script: str, cause: str) -> None:
    with pytest.raises(BuildError, match=r"^cc 1\.0 failed, twice and for no fault of the source: ") as caught:
        compiled(tmp_path, script)
    assert cause in str(caught.value)
    assert runs(tmp_path) == 2


def test_a_second_chance_that_is_taken(tmp_path: Path) -> None:
    assert compiled(tmp_path, f"[ $(wc -l < {tmp_path}/runs) = 1 ] && kill -9 $$; echo done") == "done\n"
    assert runs(tmp_path) == 2


def test_a_compiler_that_vanishes(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="twice and for no fault of the source: exit status 127"):
        compile_source("cc 1.0", [str(tmp_path / "gone")], tmp_path, 60.0, str)
    with pytest.raises(BuildError, match=r"cannot start cc 1\.0: .*no folder"):
        compile_source("cc 1.0", ["/bin/true"], tmp_path / "no folder", 60.0, str)


def test_one_that_takes_too_long_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(CompileTimeout, match=r"^cc 1\.0 took longer than the limit of 0\.5 s$"):
        compiled(tmp_path, "sleep 600", limit_s=0.5)


def test_a_killed_assembler_poisons_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc's shell says "Killed" when ptxas is; the next build of the same source is as if nothing had been."""
    real, broken = find_nvcc().path, tmp_path / "broken"
    broken.touch()
    wrapper = compiler(tmp_path, f'[ -e {broken} ] && case "$*" in *-o*kernel.cubin*) echo Killed; exit 137;; esac\n'
                       f'exec {real} "$@"')  # fmt: skip
    monkeypatch.setenv("AUTOTUNE_NVCC", wrapper)
    source = kernel_source('extern "C" __global__ void k(int* x) { x[0] = 1; }\n')
    cache = BuildCache(tmp_path / "cache")
    for _ in range(2):
        with pytest.raises(BuildError, match=r"failed for sm_80, twice and for no fault of the source: .*Killed"):
            build_cubin(source, "sm_80", cache)
    broken.unlink()
    assert not build_cubin(source, "sm_80", cache).cached


@pytest.mark.parametrize("name", ["a $HOME", 'a "quoted" one', "it's", "semi;colon & more", "`id`", "back\\slash"])
def test_a_folder_of_any_name(name: str, tmp_path: Path) -> None:
    """Shells that compilers start see no path of ours."""
    source = kernel_source('extern "C" __global__ void k(int* x) { x[0] = 2; }\n')
    odd, plain = (build_cubin(source, "sm_80", BuildCache(tmp_path / folder)) for folder in (name, "plain"))
    assert odd.binary_hash == plain.binary_hash


def test_a_compiler_that_is_killed_when_asked_for_its_version_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "kill -9 $$"))
    with pytest.raises(BuildError, match=r"compiler was killed by SIGKILL, twice, from outside or for lack of memory"):
        find_gxx()
    assert runs(tmp_path) == 2
    compiler(tmp_path, "echo 12.3.0")
    assert find_gxx().version == "12.3.0"
