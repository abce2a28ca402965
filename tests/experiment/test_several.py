"""fedtaco.compare, fedtaco.sweep and fedtaco.load_runs: for named datasets and for a user's own data and model."""

from __future__ import annotations

import csv
import io
import sys

import pytest
from own_task import QUICK, Net
from run_helpers import Interrupted, assert_same_model, interrupt_after, without_times
from small_training import make_clients
from torch import nn
from torch.nn.functional import mse_loss

import fedtaco
from fedtaco import FedProx, Guard, InvalidInput, StopTraining, Taco
from fedtaco.experiment.results import Comparison
from fedtaco.records import RunFolder
from fedtaco.report import write_report

METHODS = ["fedavg", Taco(gamma=0.1)]
OWN = {"model": Net, "clients": make_clients(), "test": make_clients(1)[0], **QUICK}
NAMED = {"dataset": "digits", "clients": 4, "rounds": 2, "local_steps": 2}


def histories(folder):
    """Return the records of all runs in a folder, without times."""
    return {
        path.name: without_times(RunFolder(path).history().client_table()) for path in sorted(folder.glob("*-seed*"))
    }


def test_own_runs_are_the_same_concurrently_and_one_after_another(tmp_path):
    together = fedtaco.compare(METHODS, seeds=2, out=tmp_path / "together", detector=Guard(copy=1e-3), **OWN)
    in_turn = fedtaco.compare(METHODS, seeds=2, out=tmp_path / "in turn", workers=1, detector=Guard(copy=1e-3), **OWN)
    assert [(run["method"], run["seed"]) for run in together.runs] == [
        ("fedavg", 0),
        ("taco", 0),
        ("fedavg", 1),
        ("taco", 1),
    ]
    assert len(histories(tmp_path / "together")) == 4
    assert histories(tmp_path / "together") == histories(tmp_path / "in turn")
    single = fedtaco.train(
        Net, make_clients(), make_clients(1)[0], method=METHODS[1], detector=Guard(copy=1e-3), seed=1, **QUICK
    )
    assert_same_model(single.model, fedtaco.load(tmp_path / "together" / "taco-seed1", model=Net).model)
    config = RunFolder(tmp_path / "in turn" / "taco-seed1").config()
    assert (config["parameters"]["taco.gamma"], config["parameters"]["guard.copy"]) == (0.1, 1e-3)
    assert [one.accuracy for one in together.methods] == [one.accuracy for one in in_turn.methods]


def test_comparison_is_shown_in_every_form(tmp_path):
    comparison = fedtaco.compare(METHODS, seeds=2, out=tmp_path / "runs", name="hospitals", **OWN)
    assert list(csv.DictReader(io.StringIO(comparison.to_csv())))[1]["method"] == "taco"
    assert comparison.to_markdown().startswith("| method |")
    assert r"\toprule" in comparison.to_latex()
    assert repr(comparison).startswith(f"4 runs in {tmp_path / 'runs'}\n\n| method |")
    assert comparison._repr_html_().count("<tr>") == 3
    frame = comparison.to_frame()
    assert frame["seed"].tolist() == [0, 0, 1, 1]
    assert set(frame["dataset"]) == {"hospitals"}
    figure = comparison.plot(tmp_path / "accuracy.png")
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["fedavg", "taco"]
    write_report([RunFolder(run["folder"]) for run in comparison.runs], tmp_path / "report.html")
    assert "hospitals" in (tmp_path / "report.html").read_text()


def test_named_dataset_is_compared_in_the_folder_of_the_command_line(cli, tmp_path):
    comparison = fedtaco.compare(["fedavg", "taco"], **NAMED)
    settings = [part for name, value in NAMED.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    done = cli("compare", "--methods", "fedavg,taco", *settings, "--resume")
    assert done.returncode == 0, done.stderr
    assert f"Recorded in {comparison.folder}\n" in done.stdout
    assert len(list((tmp_path / "runs").iterdir())) == 1
    with pytest.raises(InvalidInput, match="holds a run already; continue it"):
        fedtaco.compare(["fedavg", "taco"], **NAMED)


def test_default_folders_of_different_things_do_not_collide(cli):
    changes = [
        {},
        {"model": "mlp:4"},
        {"clients": make_clients(3)},
        {"name": "hospitals / clinics"},
        {"name": "hospitals & clinics"},
        {"local_steps": [1, 2, 3, 3]},
        {"validation": 0.2},
    ]
    folders = {fedtaco.compare([FedProx], **{**OWN, "rounds": 1, **change}).folder for change in changes}
    folders.add(fedtaco.compare([FedProx(zeta=0.5)], **{**OWN, "rounds": 1}).folder)
    assert len(folders) == 8
    assert all(folder.parts[0] == "runs" and len(folder.parts) == 2 for folder in folders)
    assert any(folder.name.startswith("hospitals-clinics-") for folder in folders)


def test_interrupted_comparison_continues(tmp_path):
    expected = fedtaco.compare(METHODS, out=tmp_path / "whole", **OWN)
    with pytest.raises(Interrupted):
        fedtaco.compare(METHODS, out=tmp_path / "runs", callbacks=[interrupt_after(3)], **OWN)
    resumed = fedtaco.compare(METHODS, out=tmp_path / "runs", resume=True, **OWN)
    assert histories(tmp_path / "runs") == histories(tmp_path / "whole")
    assert [run["final_accuracy"] for run in resumed.runs] == [run["final_accuracy"] for run in expected.runs]
    other = {**OWN, "clients": make_clients(5)}
    with pytest.raises(InvalidInput, match="clients is 4 there and 5 here"):
        fedtaco.compare(METHODS, out=tmp_path / "runs", resume=True, **other)


class StopAfter(fedtaco.Callback):
    """Ends the runs of one seed after two rounds."""

    def on_round_end(self, run, record):
        if run.config["seed"] == 1 and record.round == 2:
            raise StopTraining("that is enough")


@pytest.mark.parametrize("workers", [None, 1])
def test_callback_ends_single_runs_of_a_comparison(workers, tmp_path):
    out = tmp_path / "runs"
    comparison = fedtaco.compare(METHODS, seeds=2, out=out, workers=workers, callbacks=[StopAfter()], **OWN)
    assert [run["rounds"] for run in comparison.runs] == [6, 6, 2, 2]
    assert [run["ended_early"] for run in comparison.runs] == [None, None, "that is enough", "that is enough"]
    assert [run["stopped"] for run in comparison.runs] == [None] * 4
    whole = fedtaco.compare(METHODS, seeds=2, out=out, workers=workers, resume=True, **OWN)
    assert [run["rounds"] for run in whole.runs] == [6, 6, 6, 6]
    fedtaco.compare(METHODS, seeds=2, out=tmp_path / "whole", **OWN)
    assert histories(out) == histories(tmp_path / "whole")


class AskForModel(fedtaco.Callback):
    def on_round_end(self, run, record):
        run.model()


def test_model_of_a_run_in_another_process_is_refused_with_advice(tmp_path):
    with pytest.raises(InvalidInput, match=r"several runs are done at the same time.*set workers=1"):
        fedtaco.compare(METHODS, out=tmp_path / "runs", callbacks=[AskForModel()], **OWN)
    fedtaco.compare(METHODS, out=tmp_path / "in turn", callbacks=[AskForModel()], workers=1, **OWN)


def test_own_methods_are_tuned(tmp_path):
    grid = {"local_lr": [0.001, 0.3], "fedprox.zeta": [0.1]}
    sweep = fedtaco.sweep(["fedavg", FedProx()], grid, seeds=2, out=tmp_path / "sweep", **OWN | {"test": None})
    fedavg, fedprox = sweep.methods
    assert [trial.point for trial in fedavg.trials] == [{"local_lr": 0.001}, {"local_lr": 0.3}]
    assert fedavg.best == [max(fedavg.trials, key=lambda trial: trial.validation_accuracy)]
    assert fedprox.trials[0].point == {"fedprox.zeta": 0.1, "local_lr": 0.001}
    assert len(sweep.runs) == 8
    assert RunFolder(tmp_path / "sweep" / "fedavg_local_lr=0.3" / "seed1").config()["validation"] == 0.1
    rows = list(csv.DictReader(io.StringIO(sweep.to_csv())))
    assert [row["local_lr"] for row in rows] == ["0.001", "0.3", "0.001", "0.3"]
    assert "| fedavg (local\\_lr=0.3) |" in sweep.to_markdown()
    assert "fedavg (local_lr=0.3)" in sweep._repr_html_()
    assert repr(sweep).startswith("8 runs in")
    assert len(sweep.to_frame()) == 8
    with pytest.raises(InvalidInput, match="There is no test accuracy to draw; run with a test set"):
        sweep.plot(tmp_path / "best.svg")


def test_plot_of_a_sweep_shows_the_best_settings(tmp_path):
    sweep = fedtaco.sweep(["fedavg"], {"local_lr": [0.001, 0.3]}, out=tmp_path / "sweep", **OWN)
    figure = sweep.plot(tmp_path / "best.svg")
    assert (tmp_path / "best.svg").exists()
    assert figure.axes[0].get_legend_handles_labels()[1] == ["fedavg (local_lr=0.3)"]


def test_named_dataset_is_tuned_in_the_folder_of_the_command_line(cli):
    sweep = fedtaco.sweep(["fedavg"], {"local_lr": [0.01]}, **NAMED)
    settings = [part for name, value in NAMED.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    done = cli("sweep", "--methods", "fedavg", "--grid", "local_lr=0.01", *settings, "--resume")
    assert f"Recorded in {sweep.folder}\n" in done.stdout


def test_seeds_are_a_number_or_a_list(tmp_path):
    counted = fedtaco.compare(["fedavg"], out=tmp_path / "counted", seeds=2, seed=3, **OWN)
    listed = fedtaco.compare(["fedavg"], out=tmp_path / "listed", seeds=[4, 0], **OWN)
    assert [[run["seed"] for run in one.runs] for one in (counted, listed)] == [[3, 4], [4, 0]]


def test_methods_are_a_list(tmp_path):
    for call in (fedtaco.compare, lambda methods, **given: fedtaco.sweep(methods, {"local_lr": [0.1]}, **given)):
        with pytest.raises(InvalidInput, match="methods is 'taco'; give a list, such as"):
            call("taco", out=tmp_path / "runs", **OWN)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "digits"}, "dataset is 'digits', but clients of your own are given too; omit one of them"),
        ({"clients": None}, "test has no effect without clients of your own"),
        ({"clients": 3, "test": None, "name": "x"}, "name has no effect without clients of your own"),
        ({"seeds": 0}, "seeds is 0; it must be a whole number at least 1"),
        ({"seeds": 1.5}, "seeds is 1.5; it must be a whole number"),
        ({"seeds": None}, "seeds is None; it must be a whole number"),
        ({"seeds": []}, "seeds is an empty list"),
        ({"seeds": [1, 2], "seed": 1}, "Give either seed or a list of seeds, not both"),
        ({"seeds": [0, 0]}, "seeds contains 0 more than once"),
        ({"partition": "iid"}, "partition is 'iid', but the data are given for each client; omit it"),
        ({"method": "taco"}, "There is no setting 'method'"),
        ({"local_steps": [1, 2]}, "local_steps lists 2 numbers for 4 clients"),
        ({"callbacks": [StopAfter]}, "callbacks contains StopAfter; each must be an instance of a fedtaco.Callback"),
        ({"callbacks": [print]}, "callbacks contains print; each must be an instance"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_invalid_arguments_are_explained(changes, message, tmp_path):
    with pytest.raises(InvalidInput, match=message):
        fedtaco.compare(METHODS, out=tmp_path / "runs", **{**OWN, **changes})


def test_invalid_sweeps_are_explained(tmp_path):
    for values in (0.1, "0.1"):
        with pytest.raises(InvalidInput, match="for local_lr; give a list of the values to try"):
            fedtaco.sweep(["fedavg"], {"local_lr": values}, out=tmp_path / "sweep", **OWN)
    with pytest.raises(InvalidInput, match="The grid has no values for local_lr"):
        fedtaco.sweep(["fedavg"], {"local_lr": []}, out=tmp_path / "sweep", **OWN)
    with pytest.raises(InvalidInput, match="There is no setting to tune 'model'"):
        fedtaco.sweep(["fedavg"], {"model": ["mlp:2", "mlp:3"]}, out=tmp_path / "sweep", **OWN)
    clients = [(x, x.sum(1, keepdim=True)) for x, _ in make_clients()]
    regression = {**OWN, "clients": clients, "test": None, "model": lambda: nn.Linear(clients[0][0].shape[1], 1)}
    with pytest.raises(InvalidInput, match="A sweep compares accuracies, but the targets of these data are not class"):
        fedtaco.sweep(["fedavg"], {"local_lr": [0.1]}, out=tmp_path / "sweep", loss=mse_loss, **regression)
    assert not (tmp_path / "sweep").exists()


def test_runs_in_a_folder_are_loaded_by_method_and_setting(tmp_path):
    fedtaco.compare(["fedavg"], seeds=2, out=tmp_path / "runs" / "a", **OWN)
    fedtaco.sweep(["taco"], {"taco.gamma": [0.2, 0.1]}, out=tmp_path / "runs" / "b", **OWN)
    loaded = fedtaco.load_runs(tmp_path / "runs")
    assert isinstance(loaded, Comparison)
    assert [run["method"] for run in loaded.runs] == ["fedavg", "fedavg", "taco (gamma=0.1)", "taco (gamma=0.2)"]
    assert [one.seeds for one in loaded.methods] == [2, 1, 1]
    assert list(loaded.plot().axes[0].get_legend_handles_labels()[1]) == [one.method for one in loaded.methods]


def test_unfinished_runs_are_left_out_with_a_warning(tmp_path):
    with pytest.raises(Interrupted):
        fedtaco.run("fedavg", out=tmp_path / "runs" / "b", callbacks=[interrupt_after(1)], **NAMED)
    with pytest.raises(InvalidInput, match=r"No run in .* has ended"):
        fedtaco.load_runs(tmp_path / "runs")
    fedtaco.run("fedavg", out=tmp_path / "runs" / "a", **NAMED)
    with pytest.warns(UserWarning, match="1 of 2 runs in .* have not ended"):
        assert len(fedtaco.load_runs(tmp_path / "runs").runs) == 1
    with pytest.raises(InvalidInput, match="There is no folder"):
        fedtaco.load_runs(tmp_path / "nothing")


def test_missing_pandas_is_explained(monkeypatch):
    result = fedtaco.run("fedavg", **NAMED)
    assert result.to_frame()["round"].tolist() == [1, 2]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInput, match=r"A data frame needs pandas: pip install 'fedtaco\[pandas\]'"):
        result.to_frame()
