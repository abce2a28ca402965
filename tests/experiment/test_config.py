"""Configurations: defaults by dataset, and settings that contradict each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedtaco
from fedtaco import InvalidInput
from fedtaco.experiment import build_spec
from fedtaco.experiment.defaults import DEFAULTS, ExperimentDefaults


def test_defaults_depend_on_the_dataset():
    config = build_spec(method="fedavg", dataset="digits", local_lr=0.2).settings
    names = ("rounds", "local_steps", "local_lr", "partition")
    assert [config[name] for name in names] == [20, 50, 0.2, "groups"]


def test_epochs_replace_the_default_number_of_steps():
    config = build_spec(method="fedavg", dataset="digits", local_epochs=2).settings
    assert (config["local_steps"], config["local_epochs"]) == (None, 2)
    with pytest.raises(InvalidInput, match="Both local_steps and local_epochs are given"):
        build_spec(method="fedavg", dataset="digits", local_epochs=2, local_steps=50)


def test_dataset_without_an_entry_has_generic_defaults(monkeypatch):
    monkeypatch.delitem(DEFAULTS, "digits")
    config = build_spec(method="fedavg", dataset="digits").settings
    assert (config["rounds"], config["local_steps"], config["local_lr"], config["target"]) == (50, 100, 0.01, 0.7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"freeloaders": 9}, "only 8 clients"),
        ({"freeloaders": -1}, "freeloaders is -1"),
        ({"freeloaders": 0, "behaviour": "replay"}, "has no effect without freeloaders"),
        ({"freeloaders": 8}, "no client would train"),
        ({"freeloaders": 2, "behaviour": "sleep"}, "There is no behaviour 'sleep'"),
    ],
)
def test_impossible_freeloaders_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        fedtaco.run("fedavg", dataset="digits", clients=8, rounds=6, local_steps=4, **settings)


def test_the_documented_defaults_of_datasets_are_those_in_use():
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
    documented = {}
    for names, *cells in re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| ([\d.]+) \| (\d+) % \|$", page, re.MULTILINE):
        rounds, steps, rate, target = map(float, cells)
        for name in re.findall(r"`(.+?)`", names) or [names]:
            documented[name] = ExperimentDefaults(int(rounds), int(steps), rate, target / 100)
    assert documented.pop("data of your own") == ExperimentDefaults()
    assert documented == {name: own for name, own in DEFAULTS.items() if not name.endswith(":unit")}
