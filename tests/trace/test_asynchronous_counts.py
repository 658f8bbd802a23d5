"""What TMA and wgmma amount to, counted in the pipelined product."""

from tests.kernels.common import pipelined
from tests.trace.tracing import line_of, trace

ROWS, DEPTH = 128, 448
STEPS = DEPTH // 64


def test_copies_and_products_are_counted_where_they_are_called() -> None:
    given = pipelined.operands(ROWS, DEPTH)
    c = given.pop("c")
    kernel = trace(
        pipelined.CODE, "test", given, {"c": c}, block=(pipelined.THREADS, 1, 1), smem=pipelined.SMEM,
        maps=pipelined.maps(ROWS, DEPTH),
    ).kernels[0]  # fmt: skip
    counted = {(line.operation, line.place.line): line for line in kernel.lines}

    loads = counted["global load", line_of(pipelined.CODE, "load")]
    assert (loads.requests, loads.sectors) == (STEPS, STEPS * 128 * 128 // 32)
    copies = counted["async copy", line_of(pipelined.CODE, "load")]
    assert (copies.requests, copies.wavefronts) == (STEPS, STEPS * 128)

    products = counted["tensor", line_of(pipelined.CODE, "product")]
    groups = 2 * STEPS * 4
    assert products.nbytes * products.requests == groups * 64 * pipelined.COLUMNS * 16
    assert products.wavefronts == groups * (64 + pipelined.COLUMNS) * 32 // 128

    stores = counted["global store", line_of(pipelined.CODE, "store")]
    assert (stores.requests, stores.sectors) == (2 * 3, ROWS * pipelined.COLUMNS * 4 // 32)
    assert stores.conflicts == 0
