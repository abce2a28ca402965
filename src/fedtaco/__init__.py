"""Federated learning on non-IID data: TACO and the methods it is compared with."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtaco.data import split
    from fedtaco.errors import InvalidInput, RunStopped
    from fedtaco.experiment import Experiment, Result, load, load_model, run, save_model, train
    from fedtaco.methods import (
        METHODS,
        Cost,
        FedAcg,
        FedAvg,
        FedProx,
        FoolsGold,
        Method,
        Scaffold,
        Stem,
        Taco,
        parameter,
    )
    from fedtaco.records import ClientRecord, History, RoundRecord

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "ClientRecord",
    "Cost",
    "Experiment",
    "FedAcg",
    "FedAvg",
    "FedProx",
    "FoolsGold",
    "History",
    "InvalidInput",
    "Method",
    "Result",
    "RoundRecord",
    "RunStopped",
    "Scaffold",
    "Stem",
    "Taco",
    "__version__",
    "load",
    "load_model",
    "parameter",
    "run",
    "save_model",
    "split",
    "train",
]


def __getattr__(name: str) -> Any:
    """Names are imported when first used, so that ``fedtaco --help`` need not wait for torch."""
    if name in __all__:
        for room in ("errors", "records", "methods", "data", "experiment"):
            module = import_module(f"fedtaco.{room}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'fedtaco' has no attribute '{name}'")
