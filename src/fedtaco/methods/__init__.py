"""The methods and their base class."""

from fedtaco.methods.adaptive_server import FedAdam, FedYogi
from fedtaco.methods.averaged_memory import AveragedMemory
from fedtaco.methods.base import (
    Broadcast,
    Expulsion,
    LocalContext,
    Method,
    NamedTensors,
    ServerState,
    Uploads,
)
from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.methods.fedacg import FedACG
from fedtaco.methods.fedavg import FedAvg
from fedtaco.methods.fedcomgate import FedComGate
from fedtaco.methods.feddc import FedDC
from fedtaco.methods.feddyn import FedDyn
from fedtaco.methods.fedexp import FedExP
from fedtaco.methods.fedmos import FedMoS
from fedtaco.methods.fednova import FedNova
from fedtaco.methods.fedprox import FedProx, FedProxTaco
from fedtaco.methods.foolsgold import FoolsGold, FoolsGoldOriginal
from fedtaco.methods.geometry import Geometry, geometry_of, gram_matrix, weighted_sum
from fedtaco.methods.mime import Mime, MimeLite
from fedtaco.methods.momentum import FedAvgM, FedCM
from fedtaco.methods.ruan import Ruan
from fedtaco.methods.scaffold import Scaffold, ScaffoldTaco
from fedtaco.methods.scaffold_m import ScaffoldM
from fedtaco.methods.stem import Stem, StemOriginal
from fedtaco.methods.taco import Taco, TacoAggregation, TacoCorrection, TacoUniform
from fedtaco.methods.taco_steady import TacoSteady, TacoSteadyUniform
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

FURTHER_METHODS: tuple[type[Method], ...] = (
    TacoSteady,
    TacoSteadyUniform,
    FedDyn,
    FedDC,
    FedNova,
    FedMoS,
    Mime,
    MimeLite,
    FoolsGoldOriginal,
    StemOriginal,
    ScaffoldM,
    FedExP,
    FedAdam,
    FedYogi,
    FedComGate,
    Ruan,
)
"""fedtaco's own methods and those of other papers, also the originals of those that the paper describes differently."""

METHODS: Registry[Method] = Registry(Method, [*PAPER_METHODS, *PARTS_AND_CONTROLS, *FURTHER_METHODS])
"""Every registered method by name."""

__all__ = [
    "FURTHER_METHODS",
    "METHODS",
    "PAPER_METHODS",
    "PARTS_AND_CONTROLS",
    "AveragedMemory",
    "Broadcast",
    "Constants",
    "Cost",
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
    "Geometry",
    "LocalContext",
    "Method",
    "Mime",
    "MimeLite",
    "NamedTensors",
    "Ruan",
    "Scaffold",
    "ScaffoldM",
    "ScaffoldTaco",
    "ServerState",
    "Stem",
    "StemOriginal",
    "Taco",
    "TacoAggregation",
    "TacoCorrection",
    "TacoSteady",
    "TacoSteadyUniform",
    "TacoUniform",
    "Tailored",
    "Uploads",
    "geometry_of",
    "gram_matrix",
    "weighted_sum",
]
