"""Callbacks: their events, the run that they see, and how they end it."""

from __future__ import annotations

import inspect

import pytest
import torch
from run_helpers import assert_same_model, assert_same_result

import fedtaco
from fedtaco import Callback, InvalidInput, RunStopped, StopTraining
from fedtaco.records import RunFolder
from fedtaco.report import write_report
from fedtaco.runs.callbacks import CallbackList, following

QUICK = {"dataset": "digits", "clients": 4, "rounds": 5, "local_steps": 2, "batch_size": 16}
EVENTS = {name: hook for name, hook in inspect.getmembers(Callback, inspect.isfunction) if name.startswith("on_")}


class Recording(Callback):
    """Records the events it receives."""

    def __init__(self):
        self.received = []

    def __getattribute__(self, name):
        if name in EVENTS:
            return lambda *details: self.received.append((name, details))
        return super().__getattribute__(name)


class StopAfter(Callback):
    """Ends a run after a round."""

    def __init__(self, round_number, error=None):
        self.round_number, self.error = round_number, error or StopTraining("that is enough")

    def on_round_end(self, run, record):
        if record.round == self.round_number:
            raise self.error


def test_callback_list_passes_every_event_to_every_callback():
    callbacks = [Recording(), Recording()]
    for number, (name, hook) in enumerate(EVENTS.items()):
        details = tuple(f"{parameter} {number}" for parameter in list(inspect.signature(hook).parameters)[1:])
        getattr(CallbackList(callbacks), name)(*details)
        for callback in callbacks:
            assert callback.received[number:] == [(name, details)]
    assert len(EVENTS) >= 7


def test_default_callback_ignores_every_event():
    for name, hook in EVENTS.items():
        details = list(inspect.signature(hook).parameters)[1:]
        assert getattr(Callback(), name)(*details) is None


def test_events_of_a_run_are_in_order_and_have_the_same_run(tmp_path):
    seen = Recording()
    result = fedtaco.run("taco", out=tmp_path / "run", callbacks=[seen], **QUICK)
    names = [name for name, _ in seen.received]
    each_round = ["on_evaluation_begin", "on_round_end"]
    assert names == ["on_begin", "on_run_begin", *each_round * 5, "on_run_end", "on_end"]
    ((configs,), (run,), *rounds, (same_run, summary), _) = [
        details for name, details in seen.received if name != "on_evaluation_begin"
    ]
    assert [config["rounds"] for config in configs] == [5]
    assert {id(one) for one, _ in rounds} == {id(run)} == {id(same_run)}
    assert [record for _, record in rounds] == list(run.history) == result.history.rounds
    assert (run.folder, run.config["method"], str(run)) == (tmp_path / "run", "taco", "taco seed 0")
    assert run.engine == RunFolder(tmp_path / "run").summary()["engine"] == summary["engine"]


def test_finished_run_is_skipped_and_can_still_be_looked_at(tmp_path):
    result = fedtaco.run("taco", out=tmp_path / "run", **QUICK)
    seen = Recording()
    fedtaco.run("taco", out=tmp_path / "run", resume=True, callbacks=[seen], **QUICK)
    assert [name for name, _ in seen.received] == ["on_begin", "on_run_skipped", "on_end"]
    (run,) = seen.received[1][1]
    assert run.history == result.history.rounds
    assert_same_model(result.model, run.model())


@pytest.mark.parametrize("engine", ["serial", "pool", "batched"])
def test_model_is_that_of_the_round_and_looking_at_it_changes_nothing(engine):
    class Watch(Callback):
        def __init__(self):
            self.models = []

        def on_run_begin(self, run):
            self.models.append(run.model())

        def on_round_end(self, run, record):
            self.models.append(run.model())

    watch, workers = Watch(), {} if engine == "serial" else {"workers": 2}
    watched = fedtaco.run("scaffold", engine=engine, callbacks=[watch], **workers, **QUICK)
    assert_same_result(fedtaco.run("scaffold", engine=engine, **workers, **QUICK), watched)
    assert_same_model(watched.model, watch.models[-1])
    assert len(watch.models) == 6
    shorter = {**QUICK, "rounds": 2}
    assert_same_model(fedtaco.run("scaffold", engine=engine, **workers, **shorter).model, watch.models[2])
    assert not torch.equal(watch.models[0][1].weight, watch.models[1][1].weight)


def test_stopped_run_is_recorded_and_continues_as_if_it_had_not_been(tmp_path):
    seen = Recording()
    ended = fedtaco.run("scaffold", out=tmp_path / "run", callbacks=[StopAfter(3), seen], **QUICK)
    assert len(ended.history) == 3
    assert [name for name, _ in seen.received][-3:] == ["on_round_end", "on_run_end", "on_end"]
    summary = RunFolder(tmp_path / "run").summary()
    assert (summary["ended_early"], summary["stopped"], summary["rounds"]) == ("that is enough", None, 3)
    assert ended.summary["ended_early"] == "that is enough"
    assert_same_result(ended, fedtaco.load(tmp_path / "run"))
    again = fedtaco.run("scaffold", out=tmp_path / "run", resume=True, callbacks=[StopAfter(4)], **QUICK)
    assert len(again.history) == 4
    resumed = fedtaco.run("scaffold", out=tmp_path / "run", resume=True, **QUICK)
    assert_same_result(fedtaco.run("scaffold", **QUICK), resumed)
    assert RunFolder(tmp_path / "run").summary()["ended_early"] is None


def test_report_says_that_a_callback_ended_a_run(tmp_path):
    fedtaco.run("fedavg", out=tmp_path / "run", callbacks=[StopAfter(2)], **QUICK)
    write_report([RunFolder(tmp_path / "run")], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "ended by a callback" in page
    assert "that is enough" in page


def test_run_without_a_folder_can_be_ended_too():
    ended = fedtaco.run("fedavg", callbacks=[StopAfter(2)], **QUICK)
    shorter = fedtaco.run("fedavg", **{**QUICK, "rounds": 2})
    assert_same_model(shorter.model, ended.model)


def test_run_that_is_ended_after_its_last_round_has_finished(tmp_path):
    ended = fedtaco.run("fedavg", out=tmp_path / "run", callbacks=[StopAfter(5)], **QUICK)
    assert ended.summary["ended_early"] is None


def test_run_that_is_ended_before_its_first_round_can_be_continued(tmp_path):
    class Never(Callback):
        def on_run_begin(self, run):
            raise StopTraining("not today")

    ended = fedtaco.run("fedavg", out=tmp_path / "run", callbacks=[Never()], **QUICK)
    assert (len(ended.history), ended.summary["ended_early"]) == (0, "not today")
    resumed = fedtaco.run("fedavg", out=tmp_path / "run", resume=True, **QUICK)
    assert_same_result(fedtaco.run("fedavg", **QUICK), resumed)


def test_error_of_a_callback_keeps_its_traceback_and_the_folder(tmp_path):
    seen = Recording()
    with pytest.raises(ZeroDivisionError) as error:
        fedtaco.run("taco", out=tmp_path / "run", callbacks=[StopAfter(2, ZeroDivisionError("mine")), seen], **QUICK)
    assert error.traceback[-1].path.name == "test_callbacks.py"
    assert seen.received[-1][0] == "on_end"
    resumed = fedtaco.run("taco", out=tmp_path / "run", resume=True, **QUICK)
    assert_same_result(fedtaco.run("taco", **QUICK), resumed)


def test_diverged_run_is_told_apart_from_an_ended_one(tmp_path):
    seen = Recording()
    with pytest.raises(RunStopped):
        fedtaco.run("fedavg", out=tmp_path / "run", callbacks=[seen], **{**QUICK, "local_lr": 1e30})
    summary = RunFolder(tmp_path / "run").summary()
    assert summary["ended_early"] is None
    assert "diverged" in summary["stopped"]
    assert [name for name, _ in seen.received][-2:] == ["on_run_end", "on_end"]


def test_end_is_announced_even_if_the_beginning_fails():
    class Failing(Recording):
        def __getattribute__(self, name):
            if name == "on_begin":
                raise InvalidInput("no")
            return super().__getattribute__(name)

    callback = Failing()
    with pytest.raises(InvalidInput), following(callback, []):
        pass
    assert callback.received == [("on_end", ())]
