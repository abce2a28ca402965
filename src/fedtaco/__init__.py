"""Federated learning on non-IID data: TACO and the methods it is compared with."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtaco.data import split
    from fedtaco.errors import InvalidInput, RunStopped
    from fedtaco.experiment import ExperimentConfig, Result, load, load_model, run, save_model, train
    from fedtaco.methods import (
        METHODS,
        Cost,
        FedACG,
        FedAdam,
        FedAvg,
        FedDC,
        FedDyn,
        FedExP,
        FedMoS,
        FedNova,
        FedProx,
        FedYogi,
        FoolsGold,
        FoolsGoldOriginal,
        Method,
        Mime,
        MimeLite,
        Scaffold,
        ScaffoldM,
        Stem,
        StemOriginal,
        Taco,
    )
    from fedtaco.parameters import parameter
    from fedtaco.records import ClientRecord, History, RoundRecord

from fedtaco.version import __version__

__all__ = [
    "METHODS",
    "ClientRecord",
    "Cost",
    "ExperimentConfig",
    "FedACG",
    "FedAdam",
    "FedAvg",
    "FedDC",
    "FedDyn",
    "FedExP",
    "FedMoS",
    "FedNova",
    "FedProx",
    "FedYogi",
    "FoolsGold",
    "FoolsGoldOriginal",
    "History",
    "InvalidInput",
    "Method",
    "Mime",
    "MimeLite",
    "Result",
    "RoundRecord",
    "RunStopped",
    "Scaffold",
    "ScaffoldM",
    "Stem",
    "StemOriginal",
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
    """Import a name when it is first used, so that ``fedtaco --help`` need not wait for torch."""
    if name in __all__:
        for package in ("errors", "parameters", "records", "methods", "data", "experiment"):
            module = import_module(f"fedtaco.{package}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'fedtaco' has no attribute '{name}'")
