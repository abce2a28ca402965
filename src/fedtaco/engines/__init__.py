"""Engines: how the clients of a round are run on one machine. Results never depend on the engine."""

from fedtaco.engines.base import Engine, Results
from fedtaco.engines.batched import BatchedEngine
from fedtaco.engines.choice import Choice, EngineName, Work, choose_engine, cores
from fedtaco.engines.misbehaving import MisbehavingEngine
from fedtaco.engines.pool import PoolEngine
from fedtaco.engines.serial import SerialEngine

__all__ = [
    "BatchedEngine",
    "Choice",
    "Engine",
    "EngineName",
    "MisbehavingEngine",
    "PoolEngine",
    "Results",
    "SerialEngine",
    "Work",
    "choose_engine",
    "cores",
]
