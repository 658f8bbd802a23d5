"""Loading a cubin through PyCUDA, and saying clearly why the device refuses one."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from autotune.compilers.artifact import Artifact
from autotune.compilers.parameters import parameter_places
from autotune.core.errors import LaunchError
from autotune.core.plan import Launch, LaunchPlan, TensorMapArg
from autotune.devices.driver_launches import AttributeKernels
from autotune.gpus.spec import DeviceSpec

UNASKED_SMEM = 48 * 1024
"""Bytes of shared memory that a block may have; more must be asked for, kernel by kernel."""


@dataclass
class CudaProgram:
    """A loaded cubin, its kernels by name, and where the parameters of those lie that take tensor maps.

    `with_attributes` has those once more that are launched in clusters, or overlap the one before.
    """

    module: Any
    with_attributes: AttributeKernels
    kernels: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def close(self) -> None:
        """Unload: PyCUDA does when the last reference goes."""
        self.kernels.clear()
        self.with_attributes.close()
        self.module = None


def load_program(driver: ModuleType, artifact: Artifact, plan: LaunchPlan, spec: DeviceSpec) -> CudaProgram:
    """Load a cubin into the current context and raise its kernels' shared-memory limits to what the plan asks for.

    Raises:
        LaunchError: the device refuses it; for shared memory the message says asked and available.
    """
    with translated(driver, f"cannot load {artifact.path.name}"):
        program = CudaProgram(driver.module_from_buffer(artifact.path.read_bytes()), AttributeKernels(artifact.path))
    for name in plan.kernels:
        with translated(driver, f"kernel {name} is not in {artifact.path.name}"):
            program.kernels[name] = program.module.get_function(name)
    for launch in plan.launches:
        kernel = program.kernels[launch.kernel]
        check_launch(launch, spec, kernel.max_threads_per_block, kernel.num_regs, kernel.shared_size_bytes)
        if any(isinstance(arg, TensorMapArg) for arg in launch.args):
            program.places[launch.kernel] = parameter_places(artifact.path, launch.kernel)
        if launch.has_attributes:
            program.with_attributes.prepare(launch)
    for name, kernel in program.kernels.items():
        dynamic = max(launch.smem for launch in plan.launches if launch.kernel == name)
        if dynamic + kernel.shared_size_bytes > UNASKED_SMEM:
            with translated(driver, f"kernel {name} cannot have {dynamic} bytes of dynamic shared memory"):
                kernel.set_attribute(driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic)
    return program


@contextlib.contextmanager
def translated(driver: ModuleType, what: str) -> Iterator[None]:
    """Turn PyCUDA's errors into a LaunchError that begins with `what`."""
    try:
        yield
    except driver.Error as error:
        raise LaunchError(f"{what}: {error}") from error


def check_launch(launch: Launch, spec: DeviceSpec, max_threads: int, registers: int, static_smem: int) -> None:
    """Raise LaunchError where a loaded kernel cannot be launched so; the message says asked and available."""
    if launch.threads > max_threads:
        raise LaunchError(
            f"kernel {launch.kernel} asks for {launch.threads} threads a block; "
            f"{spec.title} allows {max_threads} with its {registers} registers"
        )
    asked = static_smem + launch.smem
    if asked > spec.max_shared_memory:
        raise LaunchError(
            f"kernel {launch.kernel} asks for {asked} bytes of shared memory; "
            f"{spec.title} allows {spec.max_shared_memory}"
        )
