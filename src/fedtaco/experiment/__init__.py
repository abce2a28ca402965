"""Experiments: configuration, runs and comparisons."""

from fedtaco.experiment.config import Experiment
from fedtaco.experiment.result import Result, load_model, save_model
from fedtaco.experiment.runs import Manner, load, run, run_experiment
from fedtaco.experiment.training import train
from fedtaco.experiment.watching import Watcher

__all__ = [
    "Experiment",
    "Manner",
    "Result",
    "Watcher",
    "load",
    "load_model",
    "run",
    "run_experiment",
    "save_model",
    "train",
]
