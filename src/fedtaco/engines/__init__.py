"""Engines run the clients of a round on one machine: one after another, in worker processes, or stacked.

``pool`` gives exactly the results of ``serial``; ``batched`` agrees with them up to rounding errors.
"""

from fedtaco.engines.adversarial import AdversarialEngine
from fedtaco.engines.base import Engine
from fedtaco.engines.batched import BatchedEngine
from fedtaco.engines.pool import PoolEngine
from fedtaco.engines.selection import EngineChoice, Workload, select_engine
from fedtaco.engines.serial import SerialEngine

__all__ = [
    "AdversarialEngine",
    "BatchedEngine",
    "Engine",
    "EngineChoice",
    "PoolEngine",
    "SerialEngine",
    "Workload",
    "select_engine",
]
