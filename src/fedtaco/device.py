"""Where models compute. Servers, uploads and memories are at home on the CPU; only a model and its batches travel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedtaco.errors import InvalidInput, unknown

DEVICES = ("cpu", "cuda", "mps", "auto")
HOME = torch.device("cpu")


def choose_device(name: str) -> torch.device:
    """The named device; ``auto`` is the machine's accelerator if it has one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "cpu":
        return HOME
    found = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return HOME if found is None or found.type not in DEVICES else found
    if found is None or found.type != name:
        raise InvalidInput(f"device is '{name}', but torch finds none here; use --device cpu, or auto.")
    return found


def wait_for(device: torch.device) -> None:
    """Until all that was asked of an accelerator is done, so that a clock tells the truth."""
    if device.type in ("cuda", "mps"):
        torch.accelerator.synchronize(device)


def draw_from(seed: int, device: torch.device) -> None:
    """Let what a model draws next, as dropout does, follow from ``seed``."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


@contextmanager
def quiet_torch() -> Iterator[None]:
    """One thread, so that sums do not depend on the machine, and the caller's generator left alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
