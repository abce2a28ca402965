"""Federated learning on non-IID data: TACO and the methods it is compared with.

All public names are here; ``docs/python.md`` describes them. Flower's strategy is in :mod:`fedtaco.flower`, and checks
of methods, detectors and codecs of your own are in :mod:`fedtaco.testing`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtaco.codecs import CODECS, Q4, Q8, Codec, NoCodec, RandK, Sign, TopK
    from fedtaco.data import split
    from fedtaco.errors import InvalidInput, RunStopped, StopTraining
    from fedtaco.experiment.config_file import read_config
    from fedtaco.experiment.results import Comparison, Sweep, load_runs
    from fedtaco.experiment.runner import load
    from fedtaco.experiment.several import compare, sweep
    from fedtaco.experiment.training import run, train
    from fedtaco.methods import (
        METHODS,
        Broadcast,
        Constants,
        Cost,
        Expulsion,
        FedACG,
        FedAdam,
        FedAvg,
        FedAvgM,
        FedCM,
        FedComGate,
        FedDC,
        FedDyn,
        FedExP,
        FedMoS,
        FedNova,
        FedProx,
        FedProxTaco,
        FedYogi,
        FoolsGold,
        FoolsGoldOriginal,
        LocalContext,
        Method,
        Mime,
        MimeLite,
        NamedTensors,
        Ruan,
        Scaffold,
        ScaffoldM,
        ScaffoldTaco,
        ServerState,
        Stem,
        StemOriginal,
        Taco,
        TacoAggregation,
        TacoCorrection,
        TacoSteady,
        TacoSteadyUniform,
        TacoUniform,
        Uploads,
    )
    from fedtaco.parameters import parameter
    from fedtaco.records import ClientRecord, Decision, History, RoundRecord
    from fedtaco.runs.callbacks import Callback, Run
    from fedtaco.runs.monitors import BestModel, EarlyStopping
    from fedtaco.runs.progress import ProgressBar
    from fedtaco.runs.result import Result, load_model, save_model
    from fedtaco.runs.settings import ExperimentConfig
    from fedtaco.trust import (
        DETECTORS,
        Behaviour,
        ClientView,
        Detector,
        DetectorInput,
        Freeloader,
        Guard,
        NormDetector,
        Off,
        PaperDetector,
        Verdict,
    )

from fedtaco.version import __version__

__all__ = [
    "CODECS",
    "DETECTORS",
    "METHODS",
    "Q4",
    "Q8",
    "Behaviour",
    "BestModel",
    "Broadcast",
    "Callback",
    "ClientRecord",
    "ClientView",
    "Codec",
    "Comparison",
    "Constants",
    "Cost",
    "Decision",
    "Detector",
    "DetectorInput",
    "EarlyStopping",
    "ExperimentConfig",
    "Expulsion",
    "FedACG",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedComGate",
    "FedDC",
    "FedDyn",
    "FedExP",
    "FedMoS",
    "FedNova",
    "FedProx",
    "FedProxTaco",
    "FedYogi",
    "FoolsGold",
    "FoolsGoldOriginal",
    "Freeloader",
    "Guard",
    "History",
    "InvalidInput",
    "LocalContext",
    "Method",
    "Mime",
    "MimeLite",
    "NamedTensors",
    "NoCodec",
    "NormDetector",
    "Off",
    "PaperDetector",
    "ProgressBar",
    "RandK",
    "Result",
    "RoundRecord",
    "Ruan",
    "Run",
    "RunStopped",
    "Scaffold",
    "ScaffoldM",
    "ScaffoldTaco",
    "ServerState",
    "Sign",
    "Stem",
    "StemOriginal",
    "StopTraining",
    "Sweep",
    "Taco",
    "TacoAggregation",
    "TacoCorrection",
    "TacoSteady",
    "TacoSteadyUniform",
    "TacoUniform",
    "TopK",
    "Uploads",
    "Verdict",
    "__version__",
    "compare",
    "load",
    "load_model",
    "load_runs",
    "parameter",
    "read_config",
    "run",
    "save_model",
    "split",
    "sweep",
    "train",
]
MODULES = (
    *("errors", "parameters", "records", "methods", "codecs", "trust", "data"),
    *("runs.settings", "runs.callbacks", "runs.monitors", "runs.progress", "runs.result"),
    *("experiment.training", "experiment.several", "experiment.results", "experiment.runner", "experiment.config_file"),
)
"""Where the names are defined."""


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that ``fedtaco --help`` need not wait for torch."""
    if name in __all__:
        for module in (import_module(f"fedtaco.{module}") for module in MODULES):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'fedtaco' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
