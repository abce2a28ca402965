"""The methods, and the contract they follow."""

from fedtaco.methods.base import (
    Broadcast,
    Cost,
    Departure,
    Local,
    Memory,
    Method,
    Server,
    Setting,
    Uploads,
    check_method_class,
)
from fedtaco.methods.fedacg import FedAcg
from fedtaco.methods.fedavg import FedAvg
from fedtaco.methods.fedprox import FedProx, FedProxTaco
from fedtaco.methods.foolsgold import FoolsGold
from fedtaco.methods.geometry import Geometry, geometry_of, weighted_sum
from fedtaco.methods.momentum import FedAvgM, FedCm
from fedtaco.methods.parameters import Domain, check_parameters, domains, parameter
from fedtaco.methods.scaffold import Scaffold, ScaffoldTaco
from fedtaco.methods.stem import Stem
from fedtaco.methods.taco import Taco, TacoAggregation, TacoCorrection, TacoUniform
from fedtaco.methods.tailored import Tailored

PAPER_METHODS: tuple[type[Method], ...] = (FedAvg, FedProx, FoolsGold, Scaffold, Stem, FedAcg, Taco)
"""The seven methods of the paper's tables, in its order."""

PARTS_AND_CONTROLS: tuple[type[Method], ...] = (
    TacoCorrection,
    TacoAggregation,
    TacoUniform,
    FedProxTaco,
    ScaffoldTaco,
    FedCm,
    FedAvgM,
)
"""TACO's parts, its coefficients inside other methods, and momentum without tailoring."""

METHODS: dict[str, type[Method]] = {method.name: method for method in (*PAPER_METHODS, *PARTS_AND_CONTROLS)}
"""Every registered method by name."""

__all__ = [
    "METHODS",
    "PAPER_METHODS",
    "PARTS_AND_CONTROLS",
    "Broadcast",
    "Cost",
    "Departure",
    "Domain",
    "FedAcg",
    "FedAvg",
    "FedAvgM",
    "FedCm",
    "FedProx",
    "FedProxTaco",
    "FoolsGold",
    "Geometry",
    "Local",
    "Memory",
    "Method",
    "Scaffold",
    "ScaffoldTaco",
    "Server",
    "Setting",
    "Stem",
    "Taco",
    "TacoAggregation",
    "TacoCorrection",
    "TacoUniform",
    "Tailored",
    "Uploads",
    "check_method_class",
    "check_parameters",
    "domains",
    "geometry_of",
    "parameter",
    "weighted_sum",
]
