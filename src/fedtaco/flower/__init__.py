"""Flower: the same methods across real machines. ``FedStrategy`` is the server's half, ``train`` the client's."""

try:
    import flwr.app  # noqa: F401 - only to say what to install
except ImportError as error:
    raise ImportError("Running on Flower needs flwr: pip install 'fedtaco[flower]'.") from error

from fedtaco.flower.client import train
from fedtaco.flower.strategy import FedStrategy

__all__ = ["FedStrategy", "train"]
