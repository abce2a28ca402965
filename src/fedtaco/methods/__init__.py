"""The methods and their base class."""

from fedtaco.methods.adaptive_server import FedAdam as FedAdam
from fedtaco.methods.adaptive_server import FedYogi as FedYogi
from fedtaco.methods.averaged_memory import AveragedMemory as AveragedMemory
from fedtaco.methods.base import Broadcast as Broadcast
from fedtaco.methods.base import Expulsion as Expulsion
from fedtaco.methods.base import LocalContext as LocalContext
from fedtaco.methods.base import Method as Method
from fedtaco.methods.base import NamedTensors as NamedTensors
from fedtaco.methods.base import ServerState as ServerState
from fedtaco.methods.base import Uploads as Uploads
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
from fedtaco.methods.fedprox import FedProx as FedProx
from fedtaco.methods.fedprox import FedProxTaco as FedProxTaco
from fedtaco.methods.foolsgold import FoolsGold as FoolsGold
from fedtaco.methods.foolsgold import FoolsGoldOriginal as FoolsGoldOriginal
from fedtaco.methods.mime import Mime as Mime
from fedtaco.methods.mime import MimeLite as MimeLite
from fedtaco.methods.momentum import FedAvgM as FedAvgM
from fedtaco.methods.momentum import FedCM as FedCM
from fedtaco.methods.ruan import Ruan as Ruan
from fedtaco.methods.scaffold import Scaffold as Scaffold
from fedtaco.methods.scaffold import ScaffoldTaco as ScaffoldTaco
from fedtaco.methods.scaffold_m import ScaffoldM as ScaffoldM
from fedtaco.methods.stem import Stem as Stem
from fedtaco.methods.stem import StemOriginal as StemOriginal
from fedtaco.methods.taco import Taco as Taco
from fedtaco.methods.taco import TacoAggregation as TacoAggregation
from fedtaco.methods.taco import TacoCorrection as TacoCorrection
from fedtaco.methods.taco import TacoUniform as TacoUniform
from fedtaco.methods.taco_steady import TacoSteady as TacoSteady
from fedtaco.methods.taco_steady import TacoSteadyUniform as TacoSteadyUniform
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
