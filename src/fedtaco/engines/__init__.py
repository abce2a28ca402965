"""Engines: how the clients of a round are run on one machine. Results never depend on the engine."""

from fedtaco.engines.base import Engine, Results
from fedtaco.engines.pool import PoolEngine
from fedtaco.engines.serial import SerialEngine

__all__ = ["Engine", "PoolEngine", "Results", "SerialEngine"]
