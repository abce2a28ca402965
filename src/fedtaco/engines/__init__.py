"""Engines: how the clients of a round are run on one machine. Results never depend on the engine."""

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
