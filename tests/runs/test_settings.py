"""Declared settings: complete, checked, and followed by the Python interface and the command line."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from types import NoneType
from typing import Annotated, get_args

import pytest
import torch
import typer
from small_training import make_clients
from torch import nn

import fedtaco
from fedtaco import InvalidInput
from fedtaco.cli.main import app
from fedtaco.experiment import build_spec
from fedtaco.flower import FedStrategy
from fedtaco.flower.strategy import StrategySettings
from fedtaco.records import RunFolder
from fedtaco.runs.options import RunOptions
from fedtaco.settings.checks import check_settings
from fedtaco.settings.declarations import (
    SWEEP_VALIDATION,
    ExperimentConfig,
    RunSettings,
    SharedSettings,
    TrainSettings,
    declared,
    setting,
)

COMMANDS = ("run", "compare", "sweep")


class SmallSettings(TrainSettings, total=False):
    """Settings as a new feature would declare them."""

    tempo: Annotated[float, setting(0.5, "Beats per step.", low=0, high=2, open_high=True)]
    voices: Annotated[int | None, setting(None, "Number of voices.", low=1)]


# Declarations


@pytest.mark.parametrize("kind", [ExperimentConfig, StrategySettings, RunOptions])
def test_every_setting_has_a_sentence_as_help(kind):
    for name, (_, declaration) in declared(kind).items():
        assert len(declaration.domain.help) > 10, name
        assert declaration.domain.help.endswith("."), name


@pytest.mark.parametrize("kind", [ExperimentConfig, StrategySettings])
def test_every_default_is_valid(kind):
    for name, (hint, declaration) in declared(kind).items():
        if declaration.default is None:
            assert declaration.by_dataset or NoneType in get_args(hint), name
        else:
            assert check_settings(kind, {name: declaration.default})[name] == declaration.default
    defaults = {name: declaration.default for name, (_, declaration) in declared(kind).items()}
    assert check_settings(kind, {}) == defaults


def test_run_options_have_their_declared_defaults():
    defaults = {name: declaration.default for name, (_, declaration) in declared(RunOptions).items()}
    assert dataclasses.asdict(RunOptions()) == defaults


def test_defaults_by_dataset_are_filled_in():
    config = build_spec().config
    assert set(config) == set(declared(ExperimentConfig))
    by_dataset = [name for name, (_, declaration) in declared(ExperimentConfig).items() if declaration.by_dataset]
    assert by_dataset
    assert all(config[name] is not None for name in by_dataset)


# Validation


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tempoo": 1.0}, "There is no setting 'tempoo'; did you mean 'tempo'?"),
        ({"bach_size": 3}, "There is no setting 'bach_size'; did you mean 'batch_size'?"),
        ({"tempo": "fast"}, "tempo is 'fast'; it must be a number at least 0 and below 2."),
        ({"tempo": True}, "tempo is True; it must be a number at least 0 and below 2."),
        ({"tempo": 2}, "tempo is 2; it must be a number at least 0 and below 2."),
        ({"tempo": -0.1}, "tempo is -0.1; it must be a number at least 0 and below 2."),
        ({"tempo": float("nan")}, "tempo is nan; it must be a number at least 0 and below 2."),
        ({"voices": 2.0}, "voices is 2.0; it must be a whole number at least 1 and at most 1,000,000,000."),
        ({"voices": 0}, "voices is 0; it must be a whole number at least 1 and at most 1,000,000,000."),
        ({"weighting": "size"}, "weighting is 'size'; it must be one of uniform, samples."),
        ({"weighting": 1}, "weighting is 1; it must be one of uniform, samples."),
        ({"device": 0}, "device is 0; it must be text."),
        ({"nesterov": "yes"}, "nesterov is 'yes'; it must be true or false."),
        ({"nesterov": 1}, "nesterov is 1; it must be true or false."),
        ({"optimizer": "lion"}, "optimizer is 'lion'; it must be one of sgd, adam, adamw."),
        ({"momentum": 1}, "momentum is 1; it must be a number at least 0 and below 1."),
        ({"clip_norm": 0}, "clip_norm is 0; it must be a number above 0 and at most 1e+30."),
        ({"weight_decay": -0.1}, "weight_decay is -0.1; it must be a number at least 0"),
        ({"local_epochs": 0.5}, "local_epochs is 0.5; it must be a whole number at least 1"),
        ({"batch_size": 2**63 - 1}, "batch_size is 9223372036854775807; it must be a whole number at least 1 and"),
        ({"voices": 10**20}, "voices is 100000000000000000000; it must be a whole number at least 1 and at most 1,"),
        ({"seed": 2**63}, "seed is 9223372036854775808; it must be a whole number at least 0 and at most 9,223,"),
    ],
    ids=str,
)
def test_invalid_settings_are_explained(given, message):
    with pytest.raises(InvalidInput) as error:
        check_settings(SmallSettings, given)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"optimizer": "adam", "momentum": 0.9},
            "momentum is 0.9, but adam has its own; omit it, or use",
        ),
        ({"optimizer": "adamw", "weight_decay": 0.1, "momentum": 0.5}, "momentum is 0.5, but adamw has its own"),
        ({"nesterov": True}, "nesterov has no effect without momentum; set momentum, such as 0.9."),
        ({"optimizer": "adam", "nesterov": True}, "nesterov has no effect without momentum"),
        ({"optimizer": "adamw"}, "Without weight_decay, adamw is adam; set weight_decay, such as 0.01, or use adam."),
        ({"lr_schedule": "linear"}, "lr_schedule is 'linear'; it must be constant, cosine, step:10,0.5 (every 10"),
        ({"local_work": "half"}, "local_work is 'half'; it must be full, uniform:0.3,1.0"),
    ],
    ids=str,
)
def test_settings_without_effect_are_refused(given, message):
    for build in (build_spec, partial(FedStrategy, "fedavg", nn.Linear(2, 2), local_steps=1)):
        with pytest.raises(InvalidInput) as error:
            build(**given)
        assert str(error.value).startswith(message)


def test_a_flag_is_a_boolean():
    assert check_settings(RunSettings, {"nesterov": True, "momentum": 0.9})["nesterov"] is True
    assert check_settings(RunSettings, {"nesterov": False})["nesterov"] is False


def test_samples_of_a_client_in_a_round_are_limited():
    largest = {"local_steps": 50, "batch_size": 1_000_000}
    assert build_spec(**largest).settings["local_steps"] == 50
    with pytest.raises(InvalidInput, match="local_steps times batch_size is 51,000,000; a client may train on at most"):
        build_spec(**{**largest, "local_steps": 51})


def test_parameters_must_be_a_mapping():
    with pytest.raises(InvalidInput, match=r"parameters is \['taco.gamma'\]; it must be a mapping\."):
        check_settings(RunSettings, {"parameters": ["taco.gamma"]})


def test_valid_settings_are_returned_with_defaults_for_the_others():
    checked = check_settings(SmallSettings, {"tempo": 1, "voices": 3, "seed": None})
    assert set(checked) == set(declared(SmallSettings)) == {*declared(TrainSettings), "tempo", "voices"}
    assert (checked["tempo"], checked["voices"], checked["seed"], checked["batch_size"]) == (1.0, 3, 0, 64)
    assert isinstance(checked["tempo"], float)


# The Python interface


def defaults_of(kind):
    """Return the declared defaults that are not ``None``."""
    defaults = {name: declaration.default for name, (_, declaration) in declared(kind).items()}
    return {name: value for name, value in defaults.items() if value is not None}


def test_train_accepts_every_setting():
    model, clients = nn.Linear(5, 3), make_clients(2)
    plain = fedtaco.train(model, clients, rounds=1, local_steps=1)
    same = fedtaco.train(model, clients, rounds=1, local_steps=1, **defaults_of(TrainSettings))
    assert torch.equal(plain.model.weight, same.model.weight)
    with pytest.raises(InvalidInput, match="There is no setting 'bach_size'; did you mean 'batch_size'"):
        fedtaco.train(model, clients, rounds=1, local_steps=1, bach_size=3)


def test_run_accepts_every_setting_and_option():
    options = {option.name: getattr(RunOptions(), option.name) for option in dataclasses.fields(RunOptions)}
    assert set(options) <= set(inspect.signature(fedtaco.run).parameters)
    result = fedtaco.run("fedavg", rounds=1, local_steps=1, **options, **defaults_of(RunSettings))
    assert len(result.history) == 1
    with pytest.raises(InvalidInput, match="There is no setting 'partitions'; did you mean 'partition'"):
        fedtaco.run("fedavg", rounds=1, local_steps=1, partitions="iid")


def test_several_gradients_per_step_are_refused_with_adam():
    message = "optimizer is 'adam', which allows one gradient per step, but stem computes 2; use sgd"
    with pytest.raises(InvalidInput, match=message):
        fedtaco.train(nn.Linear(5, 3), make_clients(2), method="stem", rounds=1, local_steps=1, optimizer="adam")
    with pytest.raises(InvalidInput, match=message):
        build_spec(method="stem", optimizer="adam")
    with pytest.raises(InvalidInput, match=message):
        FedStrategy("stem", nn.Linear(2, 2), local_steps=1, optimizer="adam")


def test_strategy_accepts_every_setting():
    strategy = FedStrategy("fedavg", nn.Linear(2, 2), local_steps=1, **defaults_of(StrategySettings))
    defaults = check_settings(SharedSettings, {})
    assert {name: strategy.spec.settings[name] for name in defaults} == defaults
    with pytest.raises(InvalidInput, match="There is no setting 'min_train_node'; did you mean 'min_train_nodes'"):
        FedStrategy("fedavg", nn.Linear(2, 2), local_steps=1, min_train_node=3)


# The command line


@pytest.mark.parametrize("command", COMMANDS)
def test_command_line_has_every_setting_and_option(command):
    parameters = {parameter.name: parameter for parameter in typer.main.get_command(app).commands[command].params}
    for name, (hint, declaration) in {**declared(RunSettings), **declared(RunOptions)}.items():
        is_mapping = getattr(hint, "__origin__", None) is Mapping
        option = parameters[name]
        assert option.opts == (["--set"] if is_mapping else [f"--{name.replace('_', '-')}"])
        assert option.help.startswith(declaration.domain.help.removesuffix("."))
        by_dataset = declaration.by_dataset or is_mapping
        default = SWEEP_VALIDATION if (command, name) == ("sweep", "validation") else declaration.default
        assert option.default == (None if by_dataset else default), name


NEW_SETTING = """
from typing import Annotated
from fedtaco.settings import declarations as settings

for kind in (settings.RunSettings, settings.ExperimentConfig):
    kind.__annotations__["tempo"] = Annotated[float, settings.setting(0.5, "Beats per step.", low=0, high=1)]

from fedtaco.cli.main import main
main()
"""


def test_new_setting_needs_only_its_declaration(tmp_path):
    """It has an option, which is checked, and is recorded in the run folder."""

    def call(*options):
        quick = ["run", "--rounds", "1", "--local-steps", "1", "--out", "run", *options]
        command = [sys.executable, "-c", NEW_SETTING, *quick]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    refused = call("--tempo", "2")
    assert refused.returncode == 2
    assert refused.stderr == "Error: tempo is 2.0; it must be a number at least 0 and at most 1.\n"
    done = call("--tempo", "0.25")
    assert done.returncode == 0, done.stderr
    assert RunFolder(tmp_path / "run").config()["tempo"] == 0.25
