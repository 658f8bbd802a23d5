"""Building for the emulator in the build pool."""

from dataclasses import dataclass

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.families.source import KernelSource


@dataclass(frozen=True)
class EmulatorRequest:
    """An emulated binary to build, for a `BuildPool`."""

    source: KernelSource

    def build(self, cache: BuildCache) -> Artifact:
        """`build_emulator` of the source."""
        from autotune.emulator.building import build_emulator

        return build_emulator(self.source, cache)
