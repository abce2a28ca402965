"""EarlyStopping and BestModel."""

from __future__ import annotations

import pytest
import torch
from run_helpers import Interrupted, assert_same_model, interrupt_after
from safetensors.torch import load_file
from torch import nn

import fedtaco
from fedtaco import BestModel, Callback, EarlyStopping, InvalidInput, StopTraining
from fedtaco.records import RoundRecord, RunFolder
from fedtaco.runs.callbacks import Run
from fedtaco.runs.monitors import Monitor

QUICK = {"dataset": "digits", "clients": 4, "rounds": 6, "local_steps": 3, "local_lr": 0.5, "engine": "serial"}


def records(values, quantity="accuracy"):
    empty = {"accuracy": None, "loss": None, "slowest_client_seconds": None, "wall_seconds": 1.0}
    return [RoundRecord(**{**empty, "round": number, quantity: one}) for number, one in enumerate(values, 1)]


def last_round(stopping, values, quantity="accuracy"):
    """Return the round after which a callback ends a run with these values; ``None`` if it does not."""
    history = []
    run = Run({}, None, "", history, nn.Identity)
    stopping.on_run_begin(run)
    for record in records(values, quantity):
        history.append(record)
        try:
            stopping.on_round_end(run, record)
        except StopTraining:
            return record.round
    return None


@pytest.mark.parametrize(
    ("options", "values", "last"),
    [
        ({"patience": 2}, [0.1, 0.3, 0.2, 0.3, 0.9], 4),
        ({"patience": 2}, [0.1, 0.2, 0.3, 0.4, 0.5], None),
        ({"patience": 1}, [0.5, 0.5], 2),
        ({"patience": 2, "min_delta": 0.1}, [0.1, 0.15, 0.2, 0.5], 3),
        ({"patience": 2, "min_delta": 0.1}, [0.1, 0.15, 0.25, 0.3, 0.34], 5),
        ({"patience": 3}, [0.5, None, None, 0.6, None, None], None),
        ({"patience": 2}, [0.5, None, 0.4], 3),
        ({"patience": 2, "monitor": "loss"}, [3.0, 2.0, 2.5, 2.1], 4),
        ({"patience": 2, "monitor": "validation_loss"}, [3.0, 2.0, 1.5, 1.0], None),
        ({"patience": 1, "monitor": "validation_accuracy"}, [0.2, 0.1], 2),
    ],
    ids=str,
)
def test_run_ends_when_nothing_has_improved_for_some_rounds(options, values, last):
    stopping = EarlyStopping(**options)
    quantity = options.get("monitor", "accuracy")
    assert last_round(stopping, values, quantity) == last
    assert last_round(stopping, values, quantity) == last, "each run is judged by its own rounds"


def test_ended_run_is_not_continued_by_the_same_criterion(tmp_path):
    def run(**options):
        return fedtaco.run("fedavg", out=tmp_path / "run", **options, **QUICK)

    ended = run(callbacks=[EarlyStopping(patience=2, min_delta=0.9)])
    assert len(ended.history) == 3
    assert ended.summary["ended_early"] == "accuracy has not improved since round 1"
    assert len(run(resume=True, callbacks=[EarlyStopping(patience=2, min_delta=0.9)]).history) == 3
    assert len(run(resume=True, callbacks=[EarlyStopping(patience=3, min_delta=0.9)]).history) == 4
    assert len(run(resume=True).history) == 6


def test_quantity_that_is_not_measured_is_reported():
    with pytest.raises(InvalidInput, match="EarlyStopping follows validation_loss, which this run does not measure"):
        fedtaco.run("fedavg", callbacks=[EarlyStopping(patience=2, monitor="validation_loss")], **QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience is 0; it must be at least 1"),
        ({"patience": 1, "min_delta": -1}, "min_delta is -1; it must be at least 0"),
        ({"patience": 1, "monitor": "acuracy"}, "no quantity to monitor 'acuracy'; did you mean 'accuracy'"),
    ],
    ids=str,
)
def test_invalid_criteria_are_explained(options, message):
    with pytest.raises(InvalidInput, match=message):
        EarlyStopping(**options)


def test_monitor_takes_the_first_of_equal_values():
    monitor = Monitor("accuracy")
    assert [monitor.improves(record) for record in records([0.5, 0.5, 0.6])] == [True, False, True]
    assert monitor.best_round == 3


class Models(Callback):
    def __init__(self):
        self.models = []

    def on_round_end(self, run, record):
        self.models.append(run.model())


def test_model_of_the_best_round_is_saved(tmp_path):
    models = Models()
    result = fedtaco.run("fedavg", out=tmp_path / "run", callbacks=[models, BestModel(monitor="loss")], **QUICK)
    losses = result.history.column("loss")
    saved = load_file(tmp_path / "run" / "best.safetensors")
    best = models.models[losses.index(min(losses))]
    assert all(torch.equal(saved[name], tensor) for name, tensor in best.state_dict().items())
    loaded = fedtaco.load_model(fedtaco.load(tmp_path / "run").model, tmp_path / "run" / "best.safetensors")
    assert_same_model(best, loaded)
    fedtaco.run("fedavg", out=tmp_path / "run", overwrite=True, **QUICK)
    assert not (tmp_path / "run" / "best.safetensors").exists()


@pytest.mark.parametrize("interrupted", [1, 3, 5])
def test_best_model_of_a_resumed_run_is_that_of_an_uninterrupted_one(interrupted, tmp_path):
    settings = {**QUICK, "local_lr": 3.0}
    fedtaco.run("fedavg", out=tmp_path / "whole", callbacks=[BestModel()], **settings)
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        fedtaco.run("fedavg", out=out, callbacks=[BestModel(), interrupt_after(interrupted)], **settings)
    fedtaco.run("fedavg", out=out, resume=True, callbacks=[BestModel()], **settings)
    whole, resumed = (load_file(folder / "best.safetensors") for folder in (tmp_path / "whole", out))
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())


def test_best_model_is_saved_at_a_path_of_your_own(tmp_path):
    best = BestModel(tmp_path / "best.safetensors")
    for seed in (0, 1):
        fedtaco.run("fedavg", callbacks=[best], seed=seed, **QUICK)
    accuracies = [fedtaco.run("fedavg", seed=seed, **QUICK).summary["best_accuracy"] for seed in (0, 1)]
    assert best.monitors[tmp_path / "best.safetensors"].best == max(accuracies)


def test_best_model_without_a_place_is_refused():
    with pytest.raises(InvalidInput, match=r"BestModel needs a path, because the run has no folder \(out\)"):
        fedtaco.run("fedavg", callbacks=[BestModel()], **QUICK)
    with pytest.raises(InvalidInput, match="Cannot write to /nowhere"):
        fedtaco.run("fedavg", callbacks=[BestModel("/nowhere/best.safetensors")], **QUICK)


def test_best_models_of_a_comparison_are_saved_in_each_folder(tmp_path):
    options = {"out": tmp_path / "runs", "callbacks": [BestModel()], "workers": 1}
    settings = {name: value for name, value in QUICK.items() if name != "engine"}
    comparison = fedtaco.compare(["fedavg", "taco"], **options, **settings)
    assert all((RunFolder(run["folder"]).path / "best.safetensors").exists() for run in comparison.runs)
