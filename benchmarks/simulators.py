"""Simulators for the benchmarks, built from a model and samples without an experiment around them."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from fedtaco.data import Samples
from fedtaco.experiment.prepared_run import prepare_simulator
from fedtaco.methods import Method
from fedtaco.runs.setting_checks import check_settings
from fedtaco.runs.settings import RunSettings
from fedtaco.simulator import Simulator
from fedtaco.trust import Off


def build_simulator(
    method: Method, model: nn.Module, clients: Sequence[Samples], test: Samples | None = None, **settings: Any
) -> Simulator:
    """Return a simulator without a detector; settings that are not given have their defaults."""
    config = check_settings(RunSettings, settings)
    simulator, _ = prepare_simulator(config, method, Off(), model, clients, test)
    return simulator
