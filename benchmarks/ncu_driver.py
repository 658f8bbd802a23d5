"""Launch prepared plans once each, by the driver API alone: what Nsight Compute looks at. See ncu_compare.py."""

import ctypes
import pickle
import sys
from pathlib import Path
from typing import Any

from autotune.core.plan import Launch, LaunchPlan, Zero, pack_arguments
from autotune.devices.driver_maps import encode_tensor_map

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_BUFFER_POINTER, _BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_…


class Driver:
    """libcuda with its errors raised."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            RuntimeError: it failed.
        """
        status = getattr(self._library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} failed with error {status}")

    def upload(self, data: bytes) -> int:
        """New device memory with this content."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(len(data), 1)))
        self.call("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(len(data)))
        return address.value

    def module(self, cubin: bytes) -> ctypes.c_void_p:
        """A loaded cubin."""
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        return module

    def launch(self, module: ctypes.c_void_p, step: Launch, arguments: bytes) -> None:
        """One launch, waited for."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, step.kernel.encode())
        self.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, step.smem)
        packed = ctypes.create_string_buffer(arguments, max(len(arguments), 1))
        size = ctypes.c_size_t(len(arguments))
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(packed), _BUFFER_SIZE, ctypes.addressof(size), None
        )
        self.call("cuLaunchKernel", function, *step.grid, *step.block, step.smem, None, None, extra)
        self.call("cuCtxSynchronize")


def main() -> None:
    """`ncu_driver.py FOLDER …`: buffers from FOLDER/case.pickle, kernels from FOLDER/kernel.cubin."""
    driver = Driver()
    for folder in map(Path, sys.argv[1:]):
        plan, images = pickle.loads((folder / "case.pickle").read_bytes())
        _run(driver, plan, images, (folder / "kernel.cubin").read_bytes())


def _run(driver: Driver, plan: LaunchPlan, images: dict[str, bytes], cubin: bytes) -> None:
    module = driver.module(cubin)
    addresses = {b.name: driver.upload(images.get(b.name, b"\xff" * b.nbytes)) for b in plan.buffers}
    for step in plan.steps:
        if isinstance(step, Zero):
            nbytes = next(buffer.nbytes for buffer in plan.buffers if buffer.name == step.buffer)
            address = ctypes.c_uint64(addresses[step.buffer])
            driver.call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(nbytes))
        else:
            driver.launch(module, step, pack_arguments(step.args, addresses, encode_tensor_map))


if __name__ == "__main__":
    main()
