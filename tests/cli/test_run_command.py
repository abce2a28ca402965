"""``fedtaco run``: folder, table, exit codes, and users' own methods."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from fedtaco.errors import InvalidInput

QUICK = ["--rounds", "2", "--local-steps", "2"]


def test_run_writes_a_folder_and_a_table(cli, tmp_path):
    done = cli("run", "--method", "taco", *QUICK)
    assert done.returncode == 0, done.stderr
    assert re.search(r"final +worst +rounds +α\n *method +accuracy +tenth +to 90% +A +B +C", done.stdout)
    (summary,) = (tmp_path / "runs").glob("digits-taco-seed0-*/summary.json")
    assert summary.is_file()


@pytest.mark.parametrize(("method", "is_advised"), [("taco", True), ("foolsgold", True), ("fedacg", False)])
def test_a_run_ends_with_the_better_method_if_there_is_one(cli, tmp_path, method, is_advised):
    done = cli("run", "--method", method, *QUICK, "--format", "json", "--out", str(tmp_path / "run"))
    assert (f"fedacg and taco-steady are more accurate than {method}" in done.stderr) == is_advised
    assert json.loads(done.stdout)["runs"][0]["method"] == method


def test_default_folders_of_different_settings_do_not_collide(cli, tmp_path):
    for options in ([], ["--set", "taco.gamma=0.02"], ["--freeloaders", "8"], ["--local-lr", "0.1"]):
        done = cli("run", *QUICK, *options)
        assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 4
    assert "holds a run already" in cli("run", *QUICK).stderr


def test_group_headings_are_aligned_with_their_values(cli):
    done = cli("run", "--freeloaders", "4", *QUICK)
    heading = next(line for line in done.stdout.splitlines() if line.strip().startswith("method"))
    values = next(line for line in done.stdout.splitlines() if line.strip().startswith("taco"))
    ends = [heading.index(group) + len(group) for group in (" A", " B", " C", "freeloaders")]
    assert all(re.search(r"\.\d\d$", values[:end]) for end in ends)


def test_path_is_printed_verbatim(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder = f"runs/exp[v2]/{'long' * 20}"
    assert f"Recorded in {folder}\n" in cli("run", *QUICK, "--out", folder).stdout


def test_diverging_run_exits_with_3_and_keeps_its_records(cli, tmp_path):
    done = cli("run", "--method", "fedprox", "--set", "fedprox.zeta=1e30", *QUICK, "--out", "x")
    assert done.returncode == 3
    assert "Round 1 of fedprox" in done.stderr
    assert "Traceback" not in done.stderr
    assert "are in x." in done.stderr
    assert json.loads((tmp_path / "x" / "summary.json").read_text())["stopped"]


def test_interrupt_explains_how_to_continue(cli, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedtaco.experiment.training.run_experiment", interrupt)
    monkeypatch.setattr("fedtaco.data.load_dataset", interrupt)
    done = cli("run", *QUICK)
    assert done.returncode == 130
    assert "--resume (and without --overwrite) continues" in done.stderr
    assert cli("data", "show").stderr == "Stopped.\n"


@pytest.mark.filterwarnings("default")
def test_warning_is_printed_without_its_source_location(cli, monkeypatch):
    def warn(*_, **__):
        warnings.warn("Worker [7] died.", RuntimeWarning, stacklevel=1)
        raise InvalidInput("That was all.")

    monkeypatch.setattr("fedtaco.experiment.training.run_experiment", warn)
    done = cli("run")
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.strip()] == ["Worker [7] died.", "Error: That was all."]


def test_installed_command_returns_the_exit_code(tmp_path):
    command = [Path(sys.executable).with_name("fedtaco"), "run", "--local-steps", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "Error: local_steps is 0; it must be a whole number at least 1 and at most 1,000,000.\n"


def test_own_method_runs_by_its_import_path(cli, own_method):
    done = cli("run", "--method", own_method, "--set", "clipped.limit=0.5", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "clipped" in done.stdout


def test_own_method_is_compared_with_its_own_parameters(cli, own_method):
    methods = ["--methods", f"fedavg,{own_method}", "--set", "clipped.limit=0.5"]
    done = cli("compare", *methods, *QUICK, "--format", "json")
    assert done.returncode == 0, done.stderr
    plain, own = json.loads(done.stdout)["runs"]
    assert (plain["parameters"], own["parameters"]) == ({}, {"clipped.limit": 0.5})
