"""What is passed to the driver's own launch lies as its header says."""

import ctypes
import subprocess
from pathlib import Path

from autotune.compilers.toolchain import find_nvcc
from autotune.devices.driver_launches import LaunchAttribute, LaunchConfig

IN_THE_HEADER = ("gridDimX", "blockDimX", "sharedMemBytes", "hStream", "attrs", "numAttrs")


def test_structures_lie_as_in_the_header(tmp_path: Path) -> None:
    """By static assertions, which the compiler of CUDA's own headers checks."""
    fields = [name for name, _ in LaunchConfig._fields_]
    claims = [
        *(
            f"offsetof(CUlaunchConfig, {theirs}) == {getattr(LaunchConfig, ours).offset}"
            for theirs, ours in zip(IN_THE_HEADER, fields, strict=True)
        ),
        f"sizeof(CUlaunchConfig) == {ctypes.sizeof(LaunchConfig)}",
        f"offsetof(CUlaunchAttribute, id) == {LaunchAttribute.id.offset}",
        f"offsetof(CUlaunchAttribute, value) == {LaunchAttribute.value.offset}",
        f"sizeof(CUlaunchAttribute) == {ctypes.sizeof(LaunchAttribute)}",
        "offsetof(CUlaunchAttributeValue, clusterDim.z) == 8",
        "offsetof(CUlaunchAttributeValue, programmaticStreamSerializationAllowed) == 0",
        "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION == 4",
        "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION == 6",
        "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8",
    ]
    source = tmp_path / "layout.cu"
    lines = ["#include <cstddef>", "#include <cuda.h>", *(f'static_assert({claim}, "{claim}");' for claim in claims)]
    source.write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [str(find_nvcc().path), "-std=c++17", "-c", str(source), "-o", str(tmp_path / "layout.o")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
