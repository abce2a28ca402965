"""fedtaco.read_config: the settings of a run from its config.toml, and code that only the file names."""

from __future__ import annotations

import sys

import pytest
from own_task import Net
from run_helpers import assert_same_result
from small_training import make_clients

import fedtaco
from fedtaco import Guard, InvalidInput, Taco, read_config
from fedtaco.experiment import build_spec
from fedtaco.experiment.config_file import NAMES_CODE
from fedtaco.records import RunFolder
from fedtaco.settings.declarations import ExperimentConfig, declared

QUICK = {"dataset": "digits", "clients": 4, "rounds": 2, "local_steps": 2, "partition": "dirichlet:0.5"}
TRAP = """
from pathlib import Path
Path("imported").touch()
from own_task import Net, load, load_by_client, split
"""


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module in the current folder that writes a file when it is imported."""
    (tmp_path / "trap.py").write_text(TRAP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "imported"
    sys.modules.pop("trap", None)


def forget(trap):
    """Make Python import the module again."""
    sys.modules.pop("trap", None)
    trap.unlink(missing_ok=True)


def test_settings_of_a_run_give_the_same_run(tmp_path):
    given = {"detector": Guard(copy=1e-3), "participation": 0.5, "seed": 3, "validation": 0.1, "freeloaders": 1}
    first = fedtaco.run(Taco(gamma=0.1), out=tmp_path / "run", **given, **QUICK)
    settings = read_config(tmp_path / "run" / "config.toml")
    again = fedtaco.run(**settings, out=tmp_path / "again")
    assert_same_result(first, again)
    configs = [RunFolder(tmp_path / name).config() for name in ("run", "again")]
    assert configs[0] == configs[1]


def test_changes_override_the_file(tmp_path):
    fedtaco.run(Taco(gamma=0.1), out=tmp_path / "run", detector=Guard(copy=1e-3), **QUICK)
    path = tmp_path / "run" / "config.toml"
    assert read_config(path, rounds=7, seed=None)["rounds"] == 7
    parameters = read_config(path, parameters={"taco.gamma": 0.3})["parameters"]
    assert (parameters["taco.gamma"], parameters["guard.copy"]) == (0.3, 1e-3)
    other = read_config(path, method="fedprox", parameters={"fedprox.zeta": 0.5})["parameters"]
    assert {name.partition(".")[0] for name in other} == {"fedprox", "guard"}
    assert build_spec(**read_config(path, method=Taco(gamma=0.4))).method.gamma == 0.4
    assert "guard.copy" not in read_config(path, detector="off")["parameters"]


def test_file_of_your_own_is_enough(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('method = "fedprox"\nrounds = 1\nlocal_steps = 1\n[parameters]\n"fedprox.zeta" = 0.2\n')
    result = fedtaco.run(**read_config(path))
    assert result.summary["parameters"] == {"fedprox.zeta": 0.2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"rounds = ", "mine.toml is not valid: "),
        (b"\xff", "mine.toml is not valid: "),
        (b"round = 3\n", "There is no setting 'round'; did you mean 'rounds'"),
        (b'rounds = "many"\n', "rounds is 'many'; it must be a whole number"),
        (b"parameters = 3\n", "parameters is 3; it must be a mapping"),
        (b"model = 3\n", "model is 3; it must be text"),
        (b"dataset = 2026-01-01\n", "dataset is "),
        (b'own = 3\nrounds = "x"', "rounds is 'x'"),
    ],
    ids=str,
)
def test_other_files_are_refused(content, message, tmp_path):
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        fedtaco.run(**read_config(tmp_path / "mine.toml"))


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(InvalidInput, match=r"There is no file .*nothing; name the config\.toml of a run"):
        read_config(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="There is no file"):
        read_config(tmp_path)


CODE = {
    "method": "trap:Own",
    "detector": "trap:Own",
    "behaviour": "trap:Own:late",
    "compress": "trap:Own:0.1",
    "dataset": "trap:load",
    "model": "trap:Net",
    "partition": "trap:split",
}


def test_every_setting_that_may_name_code_is_known():
    settings = declared(ExperimentConfig).items()
    assert {name for name, (_, setting) in settings if "package.module:" in setting.domain.help} == set(CODE)
    assert set(NAMES_CODE) == set(CODE)


@pytest.mark.parametrize("name", CODE)
def test_code_is_not_imported_if_only_the_file_names_it(name, trap):
    path = trap.parent / "mine.toml"
    path.write_text(f'{name} = "{CODE[name]}"\n')
    with pytest.raises(InvalidInput) as error:
        read_config(path)
    assert f"add --{name} {CODE[name]} (in Python, {name}='{CODE[name]}')" in str(error.value)
    assert not trap.exists()
    assert "trap" not in sys.modules


def test_code_is_imported_if_it_is_named_twice(trap):
    settings = {"dataset": "trap:load", "model": "trap:Net", "partition": "trap:split"}
    first = fedtaco.run("fedavg", out="run", clients=4, rounds=2, local_steps=2, **settings)
    assert trap.exists()
    forget(trap)
    with pytest.raises(InvalidInput, match="add --model trap:Net --dataset trap:load --partition trap:split"):
        read_config("run/config.toml")
    assert not trap.exists()
    assert_same_result(first, fedtaco.run(**read_config("run/config.toml", **settings)))
    assert trap.exists()


def test_code_is_not_imported_by_reading_a_folder(trap):
    fedtaco.run("fedavg", out="run", dataset="trap:load_by_client", model="trap:Net", rounds=2, local_steps=2)
    forget(trap)
    fedtaco.load_runs(".").to_markdown()
    with pytest.raises(InvalidInput, match="contains a model of your own, trap:Net"):
        fedtaco.load("run")
    assert len(fedtaco.load("run", model=Net).history) == 2
    assert not trap.exists()


def test_data_given_for_each_client_are_found_again(trap):
    settings = {"dataset": "trap:load_by_client", "model": "trap:Net"}
    first = fedtaco.run("fedavg", out="run", rounds=2, local_steps=2, **settings)
    assert RunFolder("run").config()["partition"] == "by client"
    assert_same_result(first, fedtaco.run(**read_config("run/config.toml", **settings)))
    split = fedtaco.run(**read_config("run/config.toml", **{**settings, "dataset": "trap:load"}), clients=3)
    assert {record.client for record in split.history.clients} == {0, 1, 2}


@pytest.mark.parametrize(("changes", "missing"), [({}, "dataset"), ({"dataset": "digits"}, "model")])
def test_run_of_things_given_in_python_needs_others(changes, missing, tmp_path):
    fedtaco.train(Net, make_clients(), out=tmp_path / "run", rounds=1, local_steps=1)
    with pytest.raises(
        InvalidInput, match=f"whose {missing}, '.*', was given in Python; name one instead: add --{missing}"
    ):
        read_config(tmp_path / "run" / "config.toml", **changes)
    named = read_config(tmp_path / "run" / "config.toml", dataset="digits", model="mlp")
    assert len(fedtaco.run(**named).history) == 1
