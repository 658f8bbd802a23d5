"""Machine code as nvdisasm 13 reads it, decoded by `autotune.estimate.sass`."""

import struct
from pathlib import Path

import pytest

from autotune.core.errors import BuildError
from autotune.estimate.sass import Instruction, decode, read_code


def one(high: int, low: int, capability: int = 90) -> Instruction:
    (found,) = decode(struct.pack("<QQ", low, high), capability)
    return found


def test_a_matrix_product_waits_for_its_operands() -> None:
    found = one(0x082FE600000018FF, 0x00000018CC8C723C)  # HMMA.16816.F32 R140, R204, R24.reuse, RZ
    assert (found.pipe, found.kind, found.amount) == ("tensor", "tensor", 1.0)
    assert (found.stall, found.sets, found.frees, found.waits) == (3, None, None, (1,))


@pytest.mark.parametrize(
    ("high", "low", "amount"),
    [
        (0x000FF6000004180C, 0x00000008040C723C, 1.0),  # HMMA.16816.F32.BF16
        (0x0C4FF600000810FF, 0x00000008040C723C, 1.0),  # HMMA.1688.F32.TF32
        (0x000FE2000000100C, 0x00000006040C723C, 0.5),  # HMMA.1688.F32
    ],
)
def test_products_by_depth(high: int, low: int, amount: float) -> None:
    assert one(high, low).amount == amount


def test_loads_and_stores() -> None:
    quad = one(0x0002A40000000C00, 0x000000000C247984)  # LDS.128 R36, [R12]
    assert (quad.pipe, quad.kind, quad.words, quad.sets, quad.frees) == ("exchange", "shared load", 4, 2, 1)
    matrices = one(0x000E620000000200, 0x00000000D0CC783B)  # LDSM.16.M88.4 R204, [R208]
    assert (matrices.kind, matrices.words) == ("shared load", 4)
    laid_out = one(0x010FE80000000200, 0x0000000800007844)  # STSM.16.M88.4 [R0], R8
    assert (laid_out.kind, laid_out.words) == ("shared store", 4)
    atomic = one(0x0001E8000C10F388, 0x00000009040079A6)  # REDG.E.ADD.F32
    assert (atomic.pipe, atomic.kind) == ("store", "global store")
    short = one(0x000EA2000C1E1500, 0x000000080C0A8981)  # @!P0 LDG.E.U16
    assert (short.pipe, short.kind, short.words, short.sets, short.conditional) == ("load", "global load", 1, 2, True)
    copy = one(0x0003E20008101C48, 0x000000000A157FAE)  # LDGSTS.E.BYPASS.128
    assert (copy.pipe, copy.kind, copy.words) == ("copy", "async copy", 4)
    stored = one(0x0003E4000C101908, 0x0000000304007986)  # STG.E
    assert (stored.kind, stored.words) == ("global store", 1)


def test_what_nobody_executes_counts_for_nothing() -> None:
    found = one(0x000FE20000000800, 0x00000000FFFFF984)  # @!PT LDS RZ, [RZ]
    assert (found.pipe, found.kind) == ("", "")


def test_exponentials_and_reciprocals() -> None:
    assert one(0x000E620000000800, 0x0000008600C57308).kind == "exponential"  # MUFU.EX2
    reciprocal = one(0x010F2E0000001000, 0x0000000000007308)  # MUFU.RCP: part of a division
    assert (reciprocal.pipe, reciprocal.kind) == ("special", "")


def test_branches() -> None:
    back = one(0x000FEA000383FFFF, 0xFFFFFFFC00588947)  # @!P0 BRA, 0x2a0 bytes back from behind it
    assert (back.kind, back.conditional, back.target) == ("branch", True, 1 - 0x2A0 // 16)
    always = one(0x000FEA0003800000, 0x0000000000AC7947)
    assert (always.conditional, always.target) == (False, 1 + 0x2B0 // 16)
    by_operand = one(0x000FEA0000800000, 0x0000001800A40947)  # @P0 BRA P1
    assert by_operand.conditional
    diverged = one(0x000FD8000B800000, 0x0000002A04F87947)  # BRA.DIV: for warps that are not together
    assert (diverged.conditional, diverged.target) == (True, None)
    called = one(0x000FE20003C00000, 0x0000001000000944, capability=80)  # @P0 CALL.REL.NOINC
    assert (called.kind, called.conditional, called.target) == ("call", True, 1 + 0x10 // 16)
    turing = one(0x000FEA0003800000, 0x000000C00000A947, capability=75)
    assert turing.target == 1 + 0xC0 // 16


def test_waiting_for_copies_says_how_many_may_be_under_way() -> None:
    found = one(0x000FC80000000000, 0x000080800000791A)  # DEPBAR.LE SB0, 0x2
    assert (found.kind, found.groups) == ("wait for copies", 2)


def test_what_is_no_cubin_is_said(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cubin"
    path.write_bytes(b"something else")
    with pytest.raises(BuildError, match=r"cannot read the code of .*kernel\.cubin: not a 64-bit ELF file"):
        read_code(path, 90)
    with pytest.raises(BuildError, match="compute capability 61"):
        read_code(path, 61)
