"""The command line, as a user meets it: output, folders and an exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedtaco.cli.main import main
from fedtaco.errors import InvalidInput

QUICK = ["--rounds", "2", "--local-steps", "2"]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def fedtaco(tmp_path, monkeypatch, capsys):
    """Call the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedtaco", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *capsys.readouterr())

    return call


def test_run_writes_a_folder_and_a_table(fedtaco, tmp_path):
    done = fedtaco("run", "--method", "taco", *QUICK)
    assert done.returncode == 0, done.stderr
    assert re.search(r"final +worst +rounds +α\n *method +accuracy +tenth +to 90% +A +B +C", done.stdout)
    assert (tmp_path / "runs" / "digits-taco-seed0" / "summary.json").exists()


def test_the_widest_table_fits_eighty_columns(fedtaco, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = fedtaco("compare", "--methods", "fedavg,foolsgold", "--seeds", "2", "--engine", "serial", *QUICK)
    assert done.returncode == 0, done.stderr
    assert re.search(r"foolsgold +\S+ ± \S+ +\S+ \[\S+ \S+\] +\S+ +\S+ +\d\.\d\d +\.\d\d \.\d\d \.\d\d\n", done.stdout)


def test_compare_prints_json_alone_on_standard_output(fedtaco, tmp_path):
    done = fedtaco("compare", "--methods", "fedavg,taco", "--seeds", "2", *QUICK, "--format", "json")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["method"] for run in runs] == ["fedavg", "taco", "fedavg", "taco"]
    assert sorted(path.name for path in (tmp_path / "runs" / "digits").iterdir()) == [
        "fedavg-seed0",
        "fedavg-seed1",
        "taco-seed0",
        "taco-seed1",
    ]
    again = fedtaco("compare", "--methods", "fedavg,taco", "--seeds", "2", *QUICK, "--resume")
    assert again.returncode == 0, again.stderr
    assert "±" in again.stdout


def test_compare_goes_on_when_one_method_diverges(fedtaco, tmp_path):
    done = fedtaco("compare", "--methods", "fedprox,fedavg", "--set", "fedprox.zeta=1e30", *QUICK, "--format", "json")
    assert done.returncode == 0, done.stderr
    diverged, fine = json.loads(done.stdout)["runs"]
    assert "diverged" in diverged["stopped"]
    assert fine["stopped"] is None
    assert "fedprox" in done.stderr


def test_a_diverging_run_exits_with_3_and_keeps_its_records(fedtaco, tmp_path):
    done = fedtaco("run", "--method", "fedprox", "--set", "fedprox.zeta=1e30", *QUICK, "--out", "x")
    assert done.returncode == 3
    assert "Round 1 of fedprox" in done.stderr
    assert "Traceback" not in done.stderr
    assert "are in x." in done.stderr
    assert json.loads((tmp_path / "x" / "summary.json").read_text())["stopped"]


def test_compare_refuses_what_it_cannot_do(fedtaco, tmp_path):
    assert "methods is empty" in fedtaco("compare", "--methods", ",").stderr
    assert "more than once" in fedtaco("compare", "--methods", "taco,taco").stderr
    assert "seeds is 0" in fedtaco("compare", "--seeds", "0").stderr
    fedtaco("run", "--method", "fedavg", *QUICK, "--out", "one")
    assert "holds a single run" in fedtaco("compare", *QUICK, "--out", "one", "--resume").stderr


def test_the_table_says_what_happened(fedtaco):
    strict = ["--detector", "paper", "--set", "paper.kappa=0.5", "--set", "paper.max_strikes=2"]
    settings = ["--methods", "taco", "--rounds", "3", "--local-steps", "2", "--seeds", "2", *strict]
    shown = " ".join(fedtaco("compare", *settings).stdout.split())
    assert "clients were expelled" in shown
    runs = json.loads(fedtaco("compare", *settings, "--resume", "--format", "json").stdout)["runs"]
    assert [run["seed"] for run in runs] == [0, 1]
    z = sum(run["output_accuracy"] for run in runs) / 2
    assert f"own output z has an accuracy of {100 * z:.1f} %" in shown


def test_an_interrupt_says_how_to_go_on(fedtaco, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedtaco.cli.actions.run_experiment", interrupt)
    monkeypatch.setattr("fedtaco.data.load_dataset", interrupt)
    done = fedtaco("run", *QUICK)
    assert done.returncode == 130
    assert "--resume (and without --overwrite) continues" in done.stderr
    assert fedtaco("data", "show").stderr == "Stopped.\n"


@pytest.mark.filterwarnings("default")
def test_a_warning_is_a_sentence_without_its_place_in_the_code(fedtaco, monkeypatch):
    def warn(*_, **__):
        warnings.warn("Worker [7] died.", RuntimeWarning, stacklevel=1)
        raise InvalidInput("That was all.")

    monkeypatch.setattr("fedtaco.cli.actions.run_experiment", warn)
    done = fedtaco("run")
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.strip()] == ["Worker [7] died.", "Error: That was all."]


def test_methods_are_listed_with_their_cost(fedtaco):
    table = fedtaco("methods").stdout
    rows = json.loads(fedtaco("methods", "--format", "json").stdout)
    assert len(rows) == 14
    for row in rows:
        assert row["method"] in table
    stem = next(row for row in rows if row["method"] == "stem")
    assert (stem["cost"]["gradients"], stem["cost"]["up"]) == (2, 2)
    assert stem["parameters"]["stem.alpha"]["default"] == 0.2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "fedprx"], "did you mean 'fedprox'"),
        (["--dataset", "digit"], "did you mean 'digits'"),
        (["--model", "mpl"], "did you mean 'mlp'"),
        (["--model", "lstm"], "sequences of letters"),
        (["--model", "mlp:a"], "write hidden layers as mlp:64-32"),
        (["--partition", "groupes"], "did you mean 'groups'"),
        (["--detector", "papr"], "did you mean 'paper'"),
        (["--clients", "5000"], "more than the 1437 training samples"),
        (["--clients", "0"], "clients is 0"),
        (["--local-steps", "0"], "local_steps is 0"),
        (["--batch-size", "0"], "batch_size is 0"),
        (["--local-lr", "-1"], "local_lr is -1.0"),
        (["--participation", "0"], "participation is 0.0"),
        (["--weighting", "size"], "weighting is 'size'; it must be one of uniform, samples"),
        (["--engine", "seriel"], "engine is 'seriel'"),
        (["--set", "taco.gama=0.1"], "did you mean 'taco.gamma'"),
        (["--set", "taco.gamma=1.5"], "taco.gamma is 1.5; it must be a number at least 0 and at most 1"),
        (["--set", "taco.gamma=high"], "taco.gamma is 'high'"),
        (["--set", "paper.kappa=0", "--detector", "paper"], "paper.kappa is 0; it must be a number above 0"),
        (["--set", "paper.kappa=0.5"], "belongs to --detector paper, which is not used"),
        (["--set", "fedprox.zeta=0.5"], "belongs to the method fedprox, which is not used"),
        (["--set", "gamma"], "write it as taco.gamma=0.02"),
        (["--format", "xml"], "it must be table or json"),
        (["--method", "no.such:Thing"], "Cannot import 'no.such'"),
        (["--method", "json:dumps"], "is not a method"),
        (["--method", "json:Nothing"], "has no class 'Nothing'"),
        (["--metod", "taco"], "No such option"),
        (["--method", "TACO"], "did you mean 'taco'"),
        (["--method", "./own.py:Thing"], "Write it as package.module:Class"),
        (["--out", "/proc/nowhere/run"], "Cannot write to /proc/nowhere/run"),
        (["--resume", "--overwrite"], "not both"),
        (["--engine", "serial", "--workers", "2"], "workers are for the engines pool and batched"),
        (["--engine", "pool", "--workers", "0"], "workers is 0"),
        (["--target", "90"], "target is 90.0"),
        (["--seed", "99999999999999999999"], "seed is"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_a_sentence_and_exit_code_2(fedtaco, tmp_path, arguments, words):
    done = fedtaco("run", *QUICK, *arguments)
    assert done.returncode == 2
    assert words in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_users_own_method_runs_by_its_path(fedtaco, tmp_path):
    example = Path(__file__).parents[2] / "examples" / "own_method.py"
    (tmp_path / "mine.py").write_text(example.read_text())
    done = fedtaco("run", "--method", "mine:Clipped", "--set", "clipped.limit=0.5", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "clipped" in done.stdout


def test_a_users_own_method_is_compared_with_its_own_parameters(fedtaco, tmp_path):
    example = Path(__file__).parents[2] / "examples" / "own_method.py"
    (tmp_path / "mine.py").write_text(example.read_text())
    methods = ["--methods", "fedavg,mine:Clipped", "--set", "clipped.limit=0.5"]
    done = fedtaco("compare", *methods, *QUICK, "--format", "json")
    assert done.returncode == 0, done.stderr
    plain, own = json.loads(done.stdout)["runs"]
    assert (plain["parameters"], own["parameters"]) == ({}, {"clipped.limit": 0.5})


def test_groups_stand_above_their_values(fedtaco):
    done = fedtaco("run", "--freeloaders", "4", *QUICK)
    heading = next(line for line in done.stdout.splitlines() if line.strip().startswith("method"))
    values = next(line for line in done.stdout.splitlines() if line.strip().startswith("taco"))
    ends = [heading.index(group) + len(group) for group in (" A", " B", " C", "freeloaders")]
    assert all(re.search(r"\.\d\d$", values[:end]) for end in ends)


def test_a_path_is_printed_as_it_is(fedtaco, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder = f"runs/exp[v2]/{'long' * 20}"
    assert f"Recorded in {folder}\n" in fedtaco("run", *QUICK, "--out", folder).stdout


def test_help_alone_is_no_error(fedtaco):
    for command in ([], ["data"], ["flower"]):
        done = fedtaco(*command)
        assert "Usage:" in done.stdout + done.stderr
        assert "Error" not in done.stderr


def test_figures_are_missed_before_anything_is_run(fedtaco, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = fedtaco("reproduce", "table-rounds", "--datasets", "adult", "--scale", "smoke")
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "pip install 'fedtaco[plot]'" in done.stderr


def test_help_does_not_wait_for_torch():
    probe = "import sys; import fedtaco.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_the_installed_command_exits_with_the_code(tmp_path):
    command = [Path(sys.executable).with_name("fedtaco"), "run", "--local-steps", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "Error: local_steps is 0; it must be a whole number at least 1.\n"


def test_data_is_listed_shown_and_drawn(fedtaco, tmp_path):
    rows = json.loads(fedtaco("data", "list", "--data-dir", ".", "--format", "json").stdout)
    assert {row["name"]: row["at_hand"] for row in rows}["digits"] == "embedded"
    assert len(rows) == 11
    table = fedtaco("data", "list", "--data-dir", ".").stdout
    assert "shakespeare" in table
    shown = fedtaco("data", "show", "--partition", "dirichlet:0.1", "--clients", "5", "--out", "labels.png")
    assert shown.returncode == 0, shown.stderr
    assert "from the overall one" in shown.stdout
    assert (tmp_path / "labels.png").read_bytes().startswith(b"\x89PNG")
    counts = json.loads(fedtaco("data", "show", "--clients", "5", "--format", "json").stdout)["counts"]
    assert sum(map(sum, counts)) == 1437


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "--dataset", "mnst"], "did you mean 'mnist'"),
        (["show", "--dataset", "mnist", "--data-dir", "here"], "fedtaco data fetch mnist"),
        (["show", "--partition", "dirichlet"], "takes a number above 0"),
        (["show", "--out", "labels.txt"], "must end in .png, .svg or .pdf"),
        (["show", "--out", "nowhere/labels.png"], "there is no folder nowhere"),
        (["show", "--out", "/proc/labels.png"], "Cannot write to /proc/labels.png"),
        (["show", "--clients", "0"], "clients is 0"),
        (["show", "--seed", "-1"], "seed is -1"),
        (["fetch", "mnst"], "did you mean 'mnist'"),
        (["fetch", "digits"], "nothing to fetch"),
        (["fetch", "adult", "--from", "file:///nowhere.zip", "--data-dir", "here"], "Adult could not be fetched"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_data_requests_are_a_sentence(fedtaco, tmp_path, arguments, words):
    done = fedtaco("data", *arguments)
    assert done.returncode == 2
    assert words in done.stderr.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []
