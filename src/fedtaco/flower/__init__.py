"""Flower: the same methods across real machines.

``FedStrategy`` is for server apps; ``train`` and ``receive_model`` are for client apps.
"""

from importlib.util import find_spec

if find_spec("flwr") is None:
    raise ImportError("Running on Flower needs flwr: pip install 'fedtaco[flower]'.")

from fedtaco.flower.client import train
from fedtaco.flower.node_model import receive_model
from fedtaco.flower.strategy import FedStrategy

__all__ = ["FedStrategy", "receive_model", "train"]
