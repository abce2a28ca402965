"""``fedtaco sweep``: every setting with its held-out accuracy, the best ones, and what to try next."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from run_summaries import run_summary

from fedtaco.cli.sweep_table import print_trials
from fedtaco.experiment.results import Sweep
from fedtaco.experiment.sweep import TrialResult, TunedMethod

QUICK = ["--rounds", "2", "--local-steps", "2"]


def trial(gamma, accuracy, **run):
    summary = run_summary("taco", accuracy=0.5, rounds=2, target=0.9, **run)
    return TrialResult({"taco.gamma": gamma}, accuracy, None, [summary])


def test_all_settings_are_shown_in_the_order_of_numbers_with_their_held_out_accuracy(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    grid = ["--grid", "local_lr=0.1,0.001,1e-05", "--grid", "taco.gamma=0.2"]
    done = cli("sweep", "--methods", "fedavg,taco", *grid, "--seeds", "2", *QUICK)
    assert done.returncode == 0, done.stderr
    names = re.findall(r"^(\S+ \(.*?\)) +\d+\.\d ± \d+\.\d", done.stdout, re.MULTILINE)
    assert names == [
        *(f"fedavg (local_lr={rate})" for rate in ("1e-05", "0.001", "0.1")),
        *(f"taco (local_lr={rate}, gamma=0.2)" for rate in ("1e-05", "0.001", "0.1")),
    ]
    assert max(map(len, done.stdout.splitlines()[:8])) <= 80
    assert "best\n" in done.stdout
    assert "Recorded in runs/digits-sweep" in done.stdout


def test_json_and_csv_contain_all_trials(cli, tmp_path):
    options = ["--grid", "taco.gamma=0.1,0.2", *QUICK, "--resume", "--plot", "out.png"]
    done = cli("sweep", *options, "--format", "json")
    assert done.returncode == 0, done.stderr
    (tuned,) = json.loads(done.stdout)["methods"]
    assert [one["point"] for one in tuned["trials"]] == [{"taco.gamma": 0.1}, {"taco.gamma": 0.2}]
    highest = max(one["validation_accuracy"] for one in tuned["trials"])
    best = [one["point"] for one in tuned["trials"] if one["validation_accuracy"] == highest]
    assert tuned["best"] == best
    rows = list(csv.DictReader(io.StringIO(cli("sweep", *options, "--format", "csv").stdout)))
    assert [(row["taco.gamma"], float(row["held_out_accuracy"])) for row in rows] == [
        (str(one["point"]["taco.gamma"]), one["validation_accuracy"]) for one in tuned["trials"]
    ]
    assert (tmp_path / "out.png").is_file()


def test_tied_settings_are_all_best_and_notes_are_printed(capsys):
    trials = [trial(0.1, 0.8), trial(0.2, 0.8), trial(0.3, 0.0, stopped="It diverged."), trial(0.4, 0.7)]
    tuned = TunedMethod("taco", trials, ["taco.gamma = 0.1 is the smallest value tried; try smaller ones."])
    sweep = Sweep(Path("sweep"), [], [tuned])
    assert [row[-1] for row in sweep.table().rows] == ["best", "best", "", ""]
    print_trials(sweep)
    text = " ".join(capsys.readouterr().out.split())
    assert "taco (gamma=0.3) 0.0 ×" in text
    assert "try smaller ones." in text
    assert "×: a run diverged; it counts as 0." in text


def test_help_shows_the_fraction_that_a_sweep_holds_out(cli):
    for command, default in (("sweep", "0.1"), ("compare", "0.0")):
        help_text = re.sub(r"[│\s]+", " ", cli(command, "--help").stdout)
        assert f"Fraction of each client's samples to hold out. [default: {default}]" in help_text


@pytest.mark.parametrize("validation", ["0", "0.0"])
def test_a_sweep_must_hold_out_samples(cli, validation):
    done = cli("sweep", "--grid", "taco.gamma=0.1", "--validation", validation)
    assert (done.returncode, "set validation, such as 0.1" in done.stderr) == (2, True)
