"""The methods and their base class."""

from fedtaco.methods.base import (
    Broadcast,
    Cost,
    Expulsion,
    LocalContext,
    Method,
    NamedTensors,
    ServerState,
    Uploads,
    check_optimizer,
)
from fedtaco.methods.constants import Constants
from fedtaco.methods.fedacg import FedACG
from fedtaco.methods.fedavg import FedAvg
from fedtaco.methods.fedprox import FedProx, FedProxTaco
from fedtaco.methods.foolsgold import FoolsGold
from fedtaco.methods.geometry import Geometry, geometry_of, weighted_sum
from fedtaco.methods.momentum import FedAvgM, FedCM
from fedtaco.methods.scaffold import Scaffold, ScaffoldTaco
from fedtaco.methods.stem import Stem
from fedtaco.methods.taco import Taco, TacoAggregation, TacoCorrection, TacoUniform
from fedtaco.methods.tailored import Tailored
from fedtaco.registry import Registry

PAPER_METHODS: tuple[type[Method], ...] = (FedAvg, FedProx, FoolsGold, Scaffold, Stem, FedACG, Taco)
"""The seven methods of the paper's tables, in its order."""

PARTS_AND_CONTROLS: tuple[type[Method], ...] = (
    TacoCorrection,
    TacoAggregation,
    TacoUniform,
    FedProxTaco,
    ScaffoldTaco,
    FedCM,
    FedAvgM,
)
"""TACO's parts, other methods with TACO's coefficients, and momentum methods without tailoring."""

METHODS: Registry[Method] = Registry(Method, [*PAPER_METHODS, *PARTS_AND_CONTROLS])
"""Every registered method by name."""

__all__ = [
    "METHODS",
    "PAPER_METHODS",
    "PARTS_AND_CONTROLS",
    "Broadcast",
    "Constants",
    "Cost",
    "Expulsion",
    "FedACG",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedProx",
    "FedProxTaco",
    "FoolsGold",
    "Geometry",
    "LocalContext",
    "Method",
    "NamedTensors",
    "Scaffold",
    "ScaffoldTaco",
    "ServerState",
    "Stem",
    "Taco",
    "TacoAggregation",
    "TacoCorrection",
    "TacoUniform",
    "Tailored",
    "Uploads",
    "check_optimizer",
    "geometry_of",
    "weighted_sum",
]
