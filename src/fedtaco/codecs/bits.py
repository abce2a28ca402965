"""Masks with one bit per coordinate."""

import numpy as np
import torch
from torch import Tensor


def pack_bits(mask: Tensor) -> Tensor:
    """Return a boolean mask as bytes, eight coordinates each.

    >>> pack_bits(torch.tensor([True, False, False, False, False, False, False, True, True]))
    tensor([129, 128], dtype=torch.uint8)
    """
    return torch.from_numpy(np.packbits(mask.numpy()))


def unpack_bits(packed: Tensor, length: int) -> Tensor:
    """Return the boolean mask of packed bits; raise ValueError if bits after the last coordinate are set."""
    bits = torch.from_numpy(np.unpackbits(packed.numpy())).bool()
    if bits[length:].any():
        raise ValueError("the unused bits are not empty")
    return bits[:length]
