"""Simulations for the benchmarks, built from a model and samples without an experiment around them."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from fedtaco.data import Samples
from fedtaco.experiment.prepared_run import Simulation
from fedtaco.federation import Federation
from fedtaco.methods import Method
from fedtaco.settings.run_spec import RunSpec
from fedtaco.simulated_clients import SimulationData


def build_federation(
    method: Method, model: nn.Module, clients: Sequence[Samples], test: Samples | None = None, **settings: Any
) -> Federation:
    """Return a federation without a detector; settings that are not given have their defaults."""
    data = SimulationData(test=test)
    return Simulation.build(RunSpec.with_defaults(method, settings), model, clients, data).federation
