"""The device that the engine computes on, and what it is called in statements and keys."""

from __future__ import annotations

import os

from pytest_redline.errors import OutcomesError


def device_used(asked: str) -> str:
    """Name of the device that is really used, for ``auto`` or a name that PyTorch knows.

    Raises
    ------
    OutcomesError
        PyTorch is not installed, or there is no such device here.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads slow everything on a machine with other work
    try:
        import torch
    except ModuleNotFoundError:
        raise OutcomesError(
            "source engine: torch is not installed; install it with pip install 'pytest-redline[engine]'"
        ) from None
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    unknown = OutcomesError(f"device {asked!r}: not known; use cpu, cuda, cuda:N, mps or auto")
    try:
        device = torch.device(asked)
    except RuntimeError:
        raise unknown from None
    if device.type not in ("cpu", "cuda", "mps") or (device.type == "cpu" and device.index):
        raise unknown
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        found = f"this machine has {count or 'no'} CUDA device{'' if count == 1 else 's'}"
        raise OutcomesError(f"device {asked!r}: {found}; use cpu or auto")
    return "cpu" if device.type == "cpu" else str(device)


def processor_of(device: str) -> str:
    """Kind of the processor: another one may round otherwise."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else torch.backends.cpu.get_cpu_capability()
