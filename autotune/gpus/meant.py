"""Which GPU a request is about: the one it names, else the one that is here, else the target of estimates."""

from autotune.core import settings
from autotune.core.errors import DeviceMissing
from autotune.gpus import present as here
from autotune.gpus.identity import parse_device, require_name
from autotune.gpus.spec import DeviceSpec


def meant_gpu(device: str | None) -> tuple[str, DeviceSpec | None]:
    """Its name, and its figures as the driver has them if it is present.

    Raises:
        DeviceMissing: `cuda` is asked for where there is no GPU.
        UsageError: it is no text.
    """
    if device is not None:
        require_name(device)
    asked = device or settings.device()
    meant = parse_device(asked or "cuda")
    present = here.present_gpu(meant.index)
    if meant.kind == "cuda" and meant.gpu is None:
        if present is not None:
            return present.name, present
        if asked is not None:
            which = f" {meant.index}" if meant.index else ""
            raise DeviceMissing(f"there is no GPU{which} here; name one with --device, such as --device h200")
    name = meant.gpu or settings.target()
    return name, present if present is not None and present.name == name.lower() else None


def usual_gpu() -> str | None:
    """The name of the GPU that look-ups are about where none is named; None where that is `cuda` and there is none."""
    try:
        name, present = meant_gpu(None)
    except DeviceMissing:
        return None
    return name.lower() if present is None else present.name
