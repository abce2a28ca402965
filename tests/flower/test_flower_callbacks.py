"""Callbacks on Flower: the events of the server, runs that they end, and models that they save."""

from __future__ import annotations

import pytest
import torch
from flwr.app import MetricRecord
from nodes import history_of, run, small_nodes, small_strategy
from safetensors.torch import load_file

import fedtaco
from fedtaco import BestModel, Callback, EarlyStopping, Guard, InvalidInput, StopTraining
from fedtaco.records import RunFolder


class Recording(Callback):
    """Records the names of events, and the models that it sees."""

    def __init__(self, last=None):
        self.events, self.models, self.last = [], [], last

    def on_begin(self, configs):
        self.events.append(("begin", [config["rounds"] for config in configs]))

    def on_run_begin(self, run):
        self.events.append(("run begin", run.engine, len(run.history)))

    def on_evaluation_begin(self, run, round_number):
        assert len(run.history) == round_number - 1
        self.events.append(("evaluation", round_number))

    def on_round_end(self, run, record):
        assert run.history[-1] == record
        self.events.append(("round", record.round))
        self.models.append(run.model())
        if record.round == self.last:
            raise StopTraining("that is enough")

    def on_run_end(self, run, summary):
        self.events.append(("run end", summary["ended_early"]))

    def on_end(self):
        self.events.append(("end",))


def same_weights(expected, actual):
    return all(torch.equal(tensor, actual[name]) for name, tensor in expected.items())


def test_callbacks_follow_the_run_on_the_server(tmp_path):
    seen = Recording()
    strategy = small_strategy("taco", callbacks=[seen], checkpoint=tmp_path / "run")
    result = run(strategy, small_nodes(), 3)
    rounds = [(event, number) for number in (1, 2, 3) for event in ("evaluation", "round")]
    engine = "flower, on 5 nodes"
    assert seen.events == [("begin", [3]), ("run begin", engine, 0), *rounds, ("run end", None), ("end",)]
    assert same_weights(result.arrays.to_torch_state_dict(), seen.models[-1].state_dict())


def test_ended_run_continues_as_if_it_had_not_been(tmp_path, lines):
    run(small_strategy("scaffold", checkpoint=tmp_path / "whole"), small_nodes(), 5)
    nodes = small_nodes()
    ended = small_strategy("scaffold", checkpoint=tmp_path / "run", callbacks=[Recording(last=2)])
    result = run(ended, nodes, 5)
    assert len(history_of(ended)) == 2
    assert same_weights(load_file(tmp_path / "run" / "model.safetensors"), result.arrays.to_torch_state_dict())
    summary = RunFolder(tmp_path / "run").summary()
    assert (summary["ended_early"], summary["stopped"], summary["rounds"]) == ("that is enough", None, 2)
    assert "The run was ended after round 2: that is enough." in lines
    run(small_strategy("scaffold", checkpoint=tmp_path / "run"), nodes, 5)
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert same_weights(whole, resumed)
    assert RunFolder(tmp_path / "run").summary()["ended_early"] is None


def test_shipped_callbacks_work_on_flower(tmp_path):
    accuracies = iter([0.1, 0.5, 0.4, 0.3, 0.2])
    models = Recording()
    callbacks = [models, BestModel(), EarlyStopping(patience=2)]
    strategy = small_strategy("fedavg", checkpoint=tmp_path / "run", callbacks=callbacks)
    run(
        strategy,
        small_nodes(),
        9,
        evaluate_fn=lambda number, _: number and MetricRecord({"accuracy": next(accuracies)}),
    )
    assert RunFolder(tmp_path / "run").summary()["ended_early"] == "accuracy has not improved since round 2"
    assert same_weights(load_file(tmp_path / "run" / "best.safetensors"), models.models[1].state_dict())
    loaded = fedtaco.load(tmp_path / "run", model=strategy.model)
    assert len(loaded.history) == 4


def test_error_of_a_callback_ends_the_run_and_keeps_its_rounds(tmp_path):
    class Failing(Callback):
        def on_round_end(self, run, record):
            if record.round == 2:
                raise ZeroDivisionError

    nodes, seen = small_nodes(), Recording()
    with pytest.raises(ZeroDivisionError):
        run(small_strategy("taco", checkpoint=tmp_path / "run", callbacks=[seen, Failing()]), nodes, 4)
    assert seen.events[-1] == ("end",)
    resumed = Recording()
    run(small_strategy("taco", checkpoint=tmp_path / "run", callbacks=[resumed]), nodes, 4)
    assert resumed.events[1] == ("run begin", "flower, on 5 nodes", 2)
    assert [event for event in resumed.events if event[0] == "round"] == [("round", 3), ("round", 4)]


def test_callbacks_and_detectors_are_checked():
    with pytest.raises(InvalidInput, match="callbacks contains Recording; each must be an instance"):
        small_strategy("taco", callbacks=[Recording])
    with pytest.raises(InvalidInput, match="detector is 3; it must be a Detector or a name"):
        small_strategy("taco", detector=3)
    assert (
        small_strategy("taco", detector=Guard(copy=1e-9)).spec.detector
        == small_strategy("taco", detector=Guard(copy=1e-9)).spec.detector
    )


def test_model_is_needed_to_load_a_run(tmp_path):
    run(small_strategy("taco", checkpoint=tmp_path / "run"), small_nodes(), 1)
    with pytest.raises(InvalidInput, match="contains a model of your own, Linear; pass one of its kind"):
        fedtaco.load(tmp_path / "run")
