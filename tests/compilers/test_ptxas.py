from autotune.compilers.artifact import KernelReport
from autotune.compilers.ptxas import parse_ptxas

SM_75 = """\
ptxas info    : 12 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function 'tile' for 'sm_75'
ptxas info    : Function properties for tile
    944 bytes stack frame, 1620 bytes spill stores, 1836 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 944 bytes cumulative stack size, 256 bytes smem, 368 bytes cmem[0]
ptxas info    : Compile time = 70.058 ms
ptxas info    : Compiling entry function 'copy' for 'sm_75'
ptxas info    : Function properties for copy
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 372 bytes cmem[0]
"""

OLDER = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'rowsum' for 'sm_80'
ptxas info    : Function properties for rowsum
    0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, 1024+16 bytes smem, 376 bytes cmem[0], 8 bytes cmem[2]
"""

WITH_FUNCTION = """\
ptxas info    : Compiling entry function 'outer' for 'sm_90a'
ptxas info    : Function properties for outer
    160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 34 registers, used 0 barriers, 160 bytes cumulative stack size
ptxas info    : Compile time = 9.341 ms
ptxas info    : Function properties for _Z6helperPKfi
    8 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
"""


def test_each_kernel_gets_its_own_figures_in_the_order_listed() -> None:
    assert parse_ptxas(SM_75) == (
        KernelReport("tile", registers=64, spill_bytes=1620 + 1836, static_smem=256, stack_bytes=944),
        KernelReport("copy", registers=8, spill_bytes=0, static_smem=0, stack_bytes=0),
    )


def test_the_older_format_with_two_kinds_of_static_shared_memory() -> None:
    assert parse_ptxas(OLDER) == (KernelReport("rowsum", registers=40, spill_bytes=12, static_smem=1040),)


def test_a_function_that_is_no_kernel_is_not_listed_but_its_spills_count() -> None:
    assert parse_ptxas(WITH_FUNCTION) == (
        KernelReport("outer", registers=34, spill_bytes=32, static_smem=0, stack_bytes=160),
    )


def test_output_without_a_report() -> None:
    assert parse_ptxas("") == ()
    assert parse_ptxas("kernel.cu(3): warning #177-D: variable was declared but never referenced") == ()


LOSSES = """\
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma \
instructions defining accumulator registers of a wgmma between start and end of the pipeline stage in the function 'two'
ptxas info    : (C7519) warpgroup.arrive is injected in around line 296 by compiler to allow use of registers in GMMA \
in function 'one'
ptxas info    : Compiling entry function 'one' for 'sm_90a'
ptxas info    : Function properties for one
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
ptxas info    : Compiling entry function 'two' for 'sm_90a'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
"""


def test_what_ptxas_does_not_do_as_written() -> None:
    one, two = parse_ptxas(LOSSES)
    assert one.loss == "'setmaxnreg' ignored; unable to determine register count at entry (C7508)"
    assert two.loss.startswith("wgmma.mma_async instructions are serialized due to non wgmma instructions")
    assert two.loss.endswith("end of the pipeline stage (C7515)")
    assert all(report.loss == "" for report in parse_ptxas(SM_75))
