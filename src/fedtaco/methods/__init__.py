"""The methods and their base class."""

from fedtaco.methods.adaptive_server import FedAdam as FedAdam, FedYogi as FedYogi
from fedtaco.methods.averaged_memory import AveragedMemory as AveragedMemory
from fedtaco.methods.base import (
    Broadcast as Broadcast,
    Expulsion as Expulsion,
    LocalContext as LocalContext,
    Method as Method,
    NamedTensors as NamedTensors,
    ServerState as ServerState,
    Uploads as Uploads,
)
from fedtaco.methods.constants import Constants as Constants
from fedtaco.methods.cost import Cost as Cost
from fedtaco.methods.fedacg import FedACG as FedACG
from fedtaco.methods.fedavg import FedAvg as FedAvg
from fedtaco.methods.fedcomgate import FedComGate as FedComGate
from fedtaco.methods.feddc import FedDC as FedDC
from fedtaco.methods.feddyn import FedDyn as FedDyn
from fedtaco.methods.fedexp import FedExP as FedExP
from fedtaco.methods.fedmos import FedMoS as FedMoS
from fedtaco.methods.fednova import FedNova as FedNova
from fedtaco.methods.fedprox import FedProx as FedProx, FedProxTaco as FedProxTaco
from fedtaco.methods.foolsgold import FoolsGold as FoolsGold, FoolsGoldOriginal as FoolsGoldOriginal
from fedtaco.methods.mime import Mime as Mime, MimeLite as MimeLite
from fedtaco.methods.momentum import FedAvgM as FedAvgM, FedCM as FedCM
from fedtaco.methods.ruan import Ruan as Ruan
from fedtaco.methods.scaffold import Scaffold as Scaffold, ScaffoldTaco as ScaffoldTaco
from fedtaco.methods.scaffold_m import ScaffoldM as ScaffoldM
from fedtaco.methods.stem import Stem as Stem, StemOriginal as StemOriginal
from fedtaco.methods.taco import (
    Taco as Taco,
    TacoAggregation as TacoAggregation,
    TacoCorrection as TacoCorrection,
    TacoUniform as TacoUniform,
)
from fedtaco.methods.taco_steady import TacoSteady as TacoSteady, TacoSteadyUniform as TacoSteadyUniform
from fedtaco.methods.tailored import Tailored as Tailored
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
