"""Experiments: training, runs, comparisons and sweeps."""

from fedtaco.experiment.config import resolve_config
from fedtaco.experiment.runner import load, run_experiment
from fedtaco.experiment.training import run, train
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.options import RunOptions
from fedtaco.runs.result import Result, load_model, save_model
from fedtaco.runs.settings import ExperimentConfig

__all__ = [
    "Callback",
    "ExperimentConfig",
    "Result",
    "RunOptions",
    "load",
    "load_model",
    "resolve_config",
    "run",
    "run_experiment",
    "save_model",
    "train",
]
