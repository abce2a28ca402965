"""Experiments: training, runs, comparisons and sweeps."""

from fedtaco.experiment.runner import load, run_experiment
from fedtaco.experiment.specs import build_spec
from fedtaco.experiment.training import run, train
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.options import RunOptions
from fedtaco.runs.result import Result, load_model, save_model
from fedtaco.settings.declarations import ExperimentConfig

__all__ = [
    "Callback",
    "ExperimentConfig",
    "Result",
    "RunOptions",
    "build_spec",
    "load",
    "load_model",
    "run",
    "run_experiment",
    "save_model",
    "train",
]
