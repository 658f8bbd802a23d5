"""What one SM does in a clock, and how long single instructions take: the figures behind `autotune.estimate.model`.

Sources, by column:

- *special* (exponentials and the like), *shuffles* and *fp16* (additions and multiply-adds of halves in pairs): CUDA
  C++ Best Practices Guide 13.0, section 12.1.1, table 5 "Throughput of native arithmetic instructions" (up to 12.x in
  the Programming Guide, section 8.4.1). It agrees with the whitepapers' "peak FP16 TFLOPS (non-tensor)": A100 78 and
  H100 133.8, four and two times fp32; GA102, AD102 and GB202 as fp32; V100 and T4 twice fp32. sm_100: 64 pairs a
  clock.
- *shared*: 32 banks of 4 bytes (CUDA Programming Guide, "Shared memory access patterns"); of Turing, whose 16
  load/store units halve it: Jia et al., "Dissecting the NVidia Turing T4 GPU via Microbenchmarking", arXiv:1903.07486
  (2019).
- *port* (between an SM and L2): Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking",
  arXiv:1804.06826 (2018), chapter 3.
- *l2*: V100 2048 and A100 5120 bytes a clock: NVIDIA A100 Tensor Core GPU Architecture whitepaper, p. 35. T4: taken to
  be 32 bytes a clock for each SM, half of a port. NVIDIA does not publish it for H100 and H200; they are taken to be no
  narrower than A100 (Luo et al. 2024, table V, measured 4472 bytes a clock on an H800 PCIe, which has 114 SMs). Where
  no figure is published L2 is taken to keep all ports busy.
- *latencies*: Volta and Turing: Jia et al., chapter 3; device memory: taken. Since Ampere: Luo et al., "Benchmarking
  and Dissecting the Nvidia Hopper GPU Architecture", arXiv:2402.13499 (2024), table IV: shared memory 29.0 (A100,
  H800), L2 261.5 (A100) and 263.0 (H800), device memory 466.3 (A100) and 478.8 (H800), rounded. Blackwell is taken to
  be like Hopper and Ada. Only results that are waited for by scoreboard need one: the compiler knows the others.
- *tensor*: fp16 multiply-adds with fp32 accumulation; NVIDIA H100 Tensor Core GPU Architecture whitepaper: four
  tensor cores an SM, 512 a clock each. The peak that is published for H100 and H200 is at 1830 MHz, a lower clock
  than they run at. 0: what `DeviceSpec` says of the model.
- *mma_share*, of the tensor rate, that `mma.sync` reaches: 62.9 % on average on Hopper, whose full rate needs
  `wgmma`: Luo et al., "Dissecting the NVIDIA Hopper Architecture through Microbenchmarking and Multiple Level
  Analysis", arXiv:2501.12084 (2025), section 6.2. For sm_100, whose full rate needs `tcgen05`, none is published:
  taken to be as many products a clock as on sm_80.

fp32 and tensor rates, clocks and memory bandwidth are in `DeviceSpec`, read off the device where there is one.
`UNCOMPARED` lists what no quotation of a source could be found of.
"""

from dataclasses import dataclass, replace

from autotune.gpus.spec import DeviceSpec

UNCOMPARED = (
    "bytes a clock of shared memory and of L2, and latency of L2, on Turing",
    "latency of device memory on Volta and Turing",
    "bytes a clock between an SM and L2",
    "latency of special functions",
    "whatever is said to be taken rather than published, of Blackwell most of all",
)
"""Figures here that were not compared with what is quoted of their sources; estimates of those GPUs rest on them."""


@dataclass(frozen=True)
class Rates:
    """Of one SM and clock unless it says otherwise. Latencies in clocks."""

    l2_bytes: float  # of the whole GPU
    schedulers: int = 4  # each issues one instruction of a warp
    special: int = 16  # lanes
    shuffles: int = 32  # lanes
    fp16: int = 128  # lanes
    shared_bytes: int = 128
    port_bytes: int = 64
    tensor: int = 0
    mma_share: float = 1.0
    special_latency: float = 18.0
    shared_latency: float = 29.0
    l2_latency: float = 265.0
    dram_latency: float = 480.0


_VOLTA = Rates(2048, shared_latency=19, l2_latency=193, dram_latency=400)
_TURING = replace(_VOLTA, l2_bytes=1280, shared_bytes=64, l2_latency=188)
_AMPERE = Rates(5120, fp16=256)
_HOPPER = replace(_AMPERE, tensor=2048, mma_share=0.62)

_PORT = 0.0  # stands for: all ports of the GPU
_BY_CAPABILITY = {
    70: _VOLTA,
    75: _TURING,
    80: _AMPERE,
    86: Rates(_PORT),
    87: Rates(_PORT),
    89: Rates(_PORT),
    90: _HOPPER,
    100: replace(_HOPPER, fp16=128, tensor=0, mma_share=0.25),
    103: replace(_HOPPER, fp16=128, tensor=0, mma_share=0.25),
    120: Rates(_PORT),
    121: Rates(_PORT),
}


def rates_of(spec: DeviceSpec) -> Rates:
    """The rates of a GPU; one of an unknown generation is taken to be like Ada."""
    rates = _BY_CAPABILITY.get(spec.compute_capability, Rates(_PORT))
    if rates.l2_bytes == _PORT:
        return replace(rates, l2_bytes=rates.port_bytes * spec.sm_count)
    return rates
