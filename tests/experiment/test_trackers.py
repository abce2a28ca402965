"""Trackers, against the real TensorBoard, a local MLflow store and the real Weights & Biases, offline."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fedtaco import InvalidInput
from fedtaco.experiment import Callback, RunOptions, resolve_config, run_experiment
from fedtaco.experiment.trackers import build_trackers
from fedtaco.records import RunFolder
from fedtaco.runs.callbacks import CallbackList

QUICK = {"dataset": "digits", "clients": 4, "rounds": 3, "local_steps": 2, "batch_size": 16}


def tracked(name, folder):
    experiment = resolve_config(method="taco", **QUICK)
    result = run_experiment(experiment, RunFolder(folder), RunOptions(), CallbackList(build_trackers([name])))
    return result.history


def test_tensorboard_shows_every_round(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator as accumulator

    history = tracked("tensorboard", tmp_path / "run")
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    shown = [(event.step, event.value) for event in events.Scalars("accuracy")]
    assert [step for step, _ in shown] == [1, 2, 3]
    assert [value for _, value in shown] == pytest.approx(history.column("accuracy"))
    assert "method = taco" in events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/store")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/store")
    return mlflow.MlflowClient()


def runs_of(client):
    return client.search_runs([client.get_experiment_by_name("fedtaco").experiment_id])


def test_mlflow_holds_settings_and_every_round(mlflow, tmp_path):
    history = tracked("mlflow", tmp_path / "run")
    (run,) = runs_of(mlflow)
    assert run.info.status == "FINISHED"
    assert run.data.params["dataset"] == "digits"
    logged = mlflow.get_metric_history(run.info.run_id, "accuracy")
    assert [metric.step for metric in logged] == [1, 2, 3]
    assert [metric.value for metric in logged] == pytest.approx(history.column("accuracy"))


class Stopped(Exception):
    pass


class StopsAt(Callback):
    def __init__(self, number):
        self.number = number

    def on_round_end(self, experiment, record):
        if record.round == self.number:
            raise Stopped


def test_a_resumed_run_goes_on_in_mlflow_and_a_replaced_one_is_another(mlflow, tmp_path):
    experiment, folder = resolve_config(method="taco", **QUICK), RunFolder(tmp_path / "run")

    def begin(options, number):
        callback = CallbackList([*build_trackers(["mlflow"]), StopsAt(number)])
        with pytest.raises(Stopped):
            run_experiment(experiment, folder, options, callback)

    begin(RunOptions(), 1)
    begin(RunOptions(resume=True), 2)
    assert len(runs_of(mlflow)) == 1
    begin(RunOptions(overwrite=True), 1)
    assert len(runs_of(mlflow)) == 2
    for _ in range(2):
        run_experiment(experiment, folder, RunOptions(resume=True), CallbackList(build_trackers(["mlflow"])))
    assert len(runs_of(mlflow)) == 2


OFFLINE = """
import sys
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

store = DataStore()
store.open_for_scan(sys.argv[1])
while (data := store.scan_data()) is not None:
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    if record.WhichOneof("record_type") == "run":
        print(record.run.project, record.run.display_name, sep="\\t")
    if record.WhichOneof("record_type") == "history":
        row = {"".join(item.nested_key): item.value_json for item in record.history.item}
        print(row["_step"], row["accuracy"], sep="\\t")
"""


@pytest.fixture
def wandb_run(tmp_path):
    """A tracked run from the command line, as by someone who never logged in."""

    def start(**environment):
        settings = [part for name, value in QUICK.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        own = {"CPU": str(tmp_path / "home"), "WANDB_ERROR_REPORTING": "false", **environment}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "XDG_", "NETRC"))}
        return subprocess.run(
            [sys.executable, "-m", "fedtaco.cli.main", "run", *settings, "--out", "run", "--track", "wandb"],
            env={**kept, **own},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return start


def test_weights_and_biases_keeps_every_round_offline(wandb_run, tmp_path):
    done = wandb_run(WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    assert {path.name for path in tmp_path.iterdir()} <= {"run", "home"}
    read = subprocess.run([sys.executable, "-c", OFFLINE, str(file)], capture_output=True, text=True, check=True)
    about, *rounds = [line.split("\t") for line in read.stdout.splitlines()]
    assert about == ["fedtaco", "taco digits seed 0"]
    history = RunFolder(tmp_path / "run").history()
    assert [(int(step), json.loads(accuracy)) for step, accuracy in rounds] == [
        (record.round, record.accuracy) for record in history
    ]


def test_weights_and_biases_without_a_key_is_told_before_the_run(wandb_run, tmp_path):
    done = wandb_run()
    assert done.returncode == 2
    assert "Error: wandb is not ready: No API key configured" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("hook", ["open", "log", "close"])
def test_a_tracker_that_fails_is_told_once_and_the_run_goes_on(hook, tmp_path, monkeypatch):
    calls = []

    def fail(*_):
        calls.append(hook)
        raise ConnectionError("the server is gone")

    monkeypatch.setattr(f"fedtaco.experiment.trackers.TensorBoard.{hook}", fail)
    words = (
        r"tensorboard failed and is not used any more \(ConnectionError: the server is gone\); the run continues"
    )
    with pytest.warns(RuntimeWarning, match=words):
        history = tracked("tensorboard", tmp_path / "run")
    assert len(history) == 3
    assert calls == [hook]


def test_an_unknown_tracker_and_a_missing_package_are_told(monkeypatch):
    with pytest.raises(InvalidInput, match="There is no tracker 'tensorbord'; did you mean 'tensorboard'"):
        build_trackers(["tensorbord"])
    monkeypatch.setattr("fedtaco.experiment.trackers.TensorBoard.package", "no_such_package")
    with pytest.raises(InvalidInput, match=r"pip install 'fedtaco\[tensorboard\]'"):
        build_trackers(["tensorboard"])
