"""Where the figures of known GPUs are published, which number is whose, and what of it could be compared.

The documents are not kept here. A figure counts as compared where a public quotation names the document (and table or
page) and gives the figure, or where a driver's report of it is public; `uncompared` names the others. All rows have to
satisfy the identities that follow from what `Published` holds besides (`tests/gpus/test_gpu_figures.py`).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """Of one model: its sources, and figures from which those of its `DeviceSpec` follow.

    fp32 rate = 2 · `fp32_cores` · clock; tensor rate = SMs · `tensor_flops` · `tensor_mhz`; bandwidth = `bus_bits` / 8
    · `pin_gbits`.
    """

    source: str
    fp32_cores: int
    tensor_flops: int  # of one SM and clock: dense fp16 products, fp32 sums, two operations a multiply-add
    tensor_mhz: int  # at which the tensor rate is published
    bus_bits: int
    pin_gbits: float  # Gbit/s of one data pin
    note: str = ""  # figures that sources give differently: which one is taken
    uncompared: str = ""  # figures that no quotation was found of


PUBLISHED = {
    "t4": Published(
        "Turing GPU Architecture whitepaper (WP-09183-001), appendix on Tesla T4", 2560, 1024, 1590, 256, 10.0,
        note="320 GB/s is 256 bits at 10 Gbit/s; one edition of the T4 datasheet prints 300 GB/s",
        uncompared="SMs, clock and L2 agree with collections of specifications, which do not name the whitepaper",
    ),
    "a100-40gb": Published(
        "A100 Tensor Core GPU Architecture whitepaper, tables 4 and 5", 6912, 2048, 1410, 5120, 2.43,
    ),
    "a100": Published(
        "A100 Tensor Core GPU Architecture whitepaper, tables 4 and 5; A100 80GB datasheet for the memory", 6912, 2048,
        1410, 5120, 3.186,
    ),
    "a10": Published(
        "NVIDIA A10 datasheet; GA102 GPU Architecture whitepaper for the cache", 9216, 1024, 1695, 384, 12.5,
        uncompared="SMs and clock: the datasheet has neither; both of its rates follow from them; L2: that of a GA102 "
        "with all 12 memory controllers",
    ),
    "l4": Published(
        "NVIDIA L4 datasheet, rates with sparsity halved; Ada GPU Architecture whitepaper for the cache", 7424, 1024,
        2040, 192, 12.5,
        uncompared="SMs, clock and L2: the datasheet has none of them; both of its rates follow from SMs and clock",
    ),
    "rtx3090": Published(
        "GA102 GPU Architecture whitepaper, appendix, GeForce RTX 3090", 10496, 512, 1695, 384, 19.5,
        note="71 tensor TFLOP/s as printed there; the RTX Blackwell whitepaper prints 71.2",
    ),
    "rtx4090": Published(
        "Ada GPU Architecture whitepaper, appendix A, table 2, GeForce RTX 4090", 16384, 512, 2520, 384, 21.0,
    ),
    "h100": Published(
        "H100 Tensor Core GPU Architecture whitepaper, tables 3 and 4, SXM5; H100 datasheet for the bandwidth", 16896,
        4096, 1830, 5120, 5.238,
        note="the whitepaper has two boost clocks: 1980 MHz for fp32 (66.9), 1830 MHz for tensor cores (989.4); MHz "
        "here is the former, which the driver reports; 3350 GB/s is rounded",
    ),
    "h200": Published(
        "NVIDIA H200 datasheet, SXM, for the memory; H100 whitepaper, the same SMs, for the rates, which the datasheet "
        "rounds (67, and 1979 with sparsity); clock, SMs and cache as its driver reports them", 16896, 4096, 1830, 6144,
        6.25,
        note="rates at two clocks as of H100; the driver's memory clock, 3201 MHz, would give 4917 GB/s, the datasheet "
        "says 4.8 TB/s",
    ),
    "b200": Published(
        "Blackwell Architecture Technical Brief v2.1, table 3, HGX B200, half of 4.5 PFLOP/s with sparsity; SMs, "
        "memory and cache as its driver reports them", 18944, 8192, 1856, 7680, 7.992,
        note="earlier editions: 80 fp32 TFLOP/s, 192 GB, 8 TB/s; the brief prints up to 192 GB and 7.7 TB/s (the "
        "driver: 7680 bits at 3996 MHz, 7672 GB/s); 1856 MHz is computed from the tensor rate, not published",
        uncompared="clock: that of a public database, with which 75 TFLOP/s agree within 1 %",
    ),
    "rtx5090": Published(
        "RTX Blackwell GPU Architecture whitepaper, table 3, GeForce RTX 5090", 21760, 512, 2407, 512, 28.0,
        uncompared="L2: that of reviews, 96 MB",
    ),
}  # fmt: skip
"""By the model's name."""
