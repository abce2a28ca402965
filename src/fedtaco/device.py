"""Devices. A model and its batches may be on an accelerator; the server, uploads and memories are on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedtaco.errors import InvalidInput, unknown

DEVICES = ("cpu", "cuda", "mps", "auto")
CPU = torch.device("cpu")


def choose_device(name: str) -> torch.device:
    """Return a device by name; ``auto`` is the machine's accelerator, or the CPU if it has none.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "cpu":
        return CPU
    found = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return CPU if found is None or found.type not in DEVICES else found
    if found is None or found.type != name:
        raise InvalidInput(f"device is '{name}', but torch finds no such device; set device to 'cpu' or 'auto'.")
    return found


def synchronize(device: torch.device) -> None:
    """Wait until an accelerator has finished its work, so that the measured time includes all of it."""
    if device.type in ("cuda", "mps"):
        torch.accelerator.synchronize(device)


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed torch's generators for the CPU and ``device``, which dropout and similar layers use."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


@contextmanager
def deterministic_torch() -> Iterator[None]:
    """Use one thread, so that sums do not depend on the machine; restore threads and CPU generator afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
