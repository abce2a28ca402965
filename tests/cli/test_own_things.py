"""Data, model and partition of a user's own on the command line, and settings from a config.toml."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import fedtaco
from fedtaco.records import RunFolder

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_things.py"
QUICK = ["--rounds", "3", "--local-steps", "2"]
OWN = ["--dataset", "mine:load", "--model", "mine:Net", "--partition", "mine:split", "--clients", "5"]


@pytest.fixture
def own(cli, tmp_path, monkeypatch):
    """Return the command line in a folder with the example, which is forgotten after the test."""
    shutil.copy(EXAMPLE, tmp_path / "mine.py")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # that of another test
    yield cli
    sys.modules.pop("mine", None)


def rows(folder):
    timed = {"seconds"}
    return [{k: v for k, v in row.items() if k not in timed} for row in RunFolder(folder).history().client_table()]


def test_run_is_recorded_continued_and_reported(own, tmp_path):
    done = own("run", "--method", "scaffold", *OWN, *QUICK, "--out", "run")
    assert done.returncode == 0, done.stderr
    config = RunFolder("run").config()
    names = ("dataset", "model", "partition", "clients")
    assert [config[name] for name in names] == ["mine:load", "mine:Net", "mine:split", 5]
    assert "Recorded in run" in own("run", "--method", "scaffold", *OWN, *QUICK, "--out", "run", "--resume").stdout
    assert own("report", "run").returncode == 0
    assert "mine:load" in (tmp_path / "run" / "report.html").read_text()
    in_python = fedtaco.run(
        "scaffold",
        dataset="mine:load",
        model="mine:Net",
        partition="mine:split",
        clients=5,
        rounds=3,
        local_steps=2,
        out="python",
    )
    assert len(in_python.history) == 3
    assert rows("python") == rows("run")


def test_other_data_are_refused(own, tmp_path):
    own("run", *OWN, *QUICK, "--out", "run")
    (tmp_path / "yours.py").write_text((tmp_path / "mine.py").read_text().replace("manual_seed(0)", "manual_seed(1)"))
    other = [part.replace("mine:load", "yours:load") for part in OWN]
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    done = own("run", *other, *QUICK, "--out", "run", "--resume")
    assert done.returncode == 2
    assert "the samples of its clients or of its test set are not those given here" in done.stderr


def test_own_things_are_compared_and_tuned(own):
    done = own("compare", "--methods", "fedavg,taco", "--seeds", "2", *OWN, *QUICK, "--format", "json")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [(run["method"], run["seed"]) for run in runs] == [(m, s) for s in (0, 1) for m in ("fedavg", "taco")]
    again = own(
        "compare", "--methods", "fedavg,taco", "--seeds", "2", *OWN, *QUICK, "--out", "serial", "--workers", "1"
    )
    assert again.returncode == 0, again.stderr
    for run in runs:
        assert rows(run["folder"]) == rows(f"serial/{run['method']}-seed{run['seed']}")
    done = own("sweep", "--grid", "local_lr=0.01,0.1", *OWN, *QUICK)
    assert done.returncode == 0, done.stderr
    assert "best" in done.stdout


def test_default_folders_do_not_collide(own, tmp_path):
    changes = [
        [],
        ["--partition", "dirichlet:0.5"],
        ["--partition", "iid"],
        ["--model", "mlp"],
        ["--model", "mlp:4"],
        ["--dataset", "digits", "--model", "mlp", "--partition", "mine:split"],
    ]
    for options in changes:
        done = own("run", *OWN, *QUICK, *options)
        assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "runs").iterdir())) == len(changes)
    assert "holds a run already" in own("run", *OWN, *QUICK).stderr


def test_labels_of_own_data_are_shown(own):
    done = own(
        "data", "show", "--dataset", "mine:load", "--partition", "mine:split", "--clients", "3", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert sum(map(sum, shown["counts"])) == 1200
    assert len(shown["counts"]) == 3


def test_config_of_a_run_is_run_again_with_changes(own, tmp_path):
    own("run", "--method", "taco", "--set", "taco.gamma=0.2", *QUICK, "--dataset", "digits", "--out", "first")
    done = own("run", "first/config.toml", "--seed", "1", "--out", "second")
    assert done.returncode == 0, done.stderr
    first, second = (RunFolder(name).config() for name in ("first", "second"))
    assert {name for name in first if first[name] != second[name]} == {"seed"}
    assert own("run", "first/config.toml", "--out", "same").returncode == 0
    assert rows("same") == rows("first")
    own("run", "first/config.toml", "--method", "fedavg", "--out", "other")
    assert RunFolder("other").config()["parameters"] == {}
    own("run", "first/config.toml", "--set", "taco.delta_scale=literal", "--out", "scaled")
    assert RunFolder("scaled").config()["parameters"] == {"taco.gamma": 0.2, "taco.delta_scale": "literal"}


def test_config_that_names_code_needs_the_same_options(own, tmp_path):
    own("run", *OWN, *QUICK, "--out", "run")
    sys.modules.pop("mine")
    (tmp_path / "mine.py").write_text(f"open('imported', 'w').close()\n{EXAMPLE.read_text()}")
    done = own("run", "run/config.toml", "--out", "again")
    assert done.returncode == 2
    flags = "--model mine:Net --dataset mine:load --partition mine:split"
    assert f"is only imported if you name it too: add {flags}" in done.stderr
    assert not (tmp_path / "imported").exists()
    done = own("run", "run/config.toml", *flags.split(), "--out", "again")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "imported").exists()
    assert rows("again") == rows("run")


MISTAKES = """
import numpy as np, torch
data = torch.zeros(20, 4), torch.arange(20) % 2

def load(): return data, None
def nothing(): return None
def one(): return data
def empty(): return [data, (torch.zeros(0, 4), torch.zeros(0))], None
def fails(): raise KeyError("label")
def targets(): return (torch.zeros(20, 4), torch.rand(20)), None
def clients(): return [data, data], None

def too_few(labels, clients, rng): return [np.arange(20)]
def twice(labels, clients, rng): return [np.arange(20)] * clients
def outside(labels, clients, rng): return [np.arange(5) + 7 * client for client in range(clients)]
def fractions(labels, clients, rng): return [np.full(1, 0.5)] * clients
def numbers(labels, clients, rng): return 3
def no_samples(labels, clients, rng): return [np.arange(20), *[np.empty(0, int)] * (clients - 1)]

def number(): return 3
def needs(size): return torch.nn.Linear(size, 2)
def Linear(): return torch.nn.Linear(4, 2)
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "wrong:nothing"], "wrong:nothing returned a NoneType; it must return a pair (train, test)"),
        (["--dataset", "wrong:one", "--model", "wrong:Linear"], "Cannot read samples from Tensor"),
        (["--dataset", "wrong:empty"], "Client 1 has no samples"),
        (["--dataset", "wrong:fails"], "wrong:fails failed with KeyError: 'label' (wrong.py, line 9)."),
        (["--dataset", "wrong:missing"], "The module 'wrong' has no function 'missing'."),
        (["--dataset", "nowhere:load"], "Cannot import 'nowhere' for the dataset 'nowhere:load'"),
        (["--dataset", "digit:7"], "There is no dataset 'digit:7'; did you mean 'digits'"),
        (["--dataset", "wrong:targets", "--partition", "shards:2"], "The partition shards:2 needs class labels"),
        (["--dataset", "wrong:targets"], "The model mlp needs targets that are class labels"),
        (["--dataset", "wrong:clients", "--clients", "3"], "clients is 3, but there are data for 2 clients; omit it."),
        (["--dataset", "wrong:clients", "--partition", "iid"], "but the data are given for each client; omit it."),
        (
            ["--partition", "wrong:too_few"],
            "wrong:too_few returned 1 parts for 4 clients; it must return one array each.",
        ),
        (["--partition", "wrong:twice"], "wrong:twice gives a sample to two clients"),
        (["--partition", "wrong:outside"], "wrong:outside must return indices of samples, whole numbers from 0 to 19."),
        (["--partition", "wrong:fractions"], "wrong:fractions must return indices of samples"),
        (["--partition", "wrong:numbers"], "wrong:numbers must return one array of indices per client"),
        (["--partition", "wrong:no_samples"], "wrong:no_samples leaves client 1 of 4 without samples"),
        (["--partition", "wrong:missing"], "The module 'wrong' has no function 'missing'."),
        (["--partition", "dirichlt:0.5"], "There is no partition 'dirichlt:0.5'; did you mean 'dirichlet:0.5'"),
        (["--model", "wrong:number"], "The model is a int; give a torch.nn.Module"),
        (["--model", "wrong:needs"], "or a callable without required arguments that returns one."),
        (["--model", "wrong:missing"], "The module 'wrong' has no class 'missing'."),
        (["--model", "mpl:64-32"], "There is no model 'mpl'; did you mean 'mlp'"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes_are_explained(options, message, own, tmp_path):
    (tmp_path / "wrong.py").write_text(MISTAKES)
    sys.modules.pop("wrong", None)
    given = ["--dataset", "wrong:load", "--clients", "4"]
    given = given[2:] if "--dataset" in options else given
    given = [] if "wrong:clients" in options else given
    done = own("run", *given, *options, "--rounds", "1", "--local-steps", "1")
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
    sys.modules.pop("wrong", None)
