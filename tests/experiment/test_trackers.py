"""Trackers: TensorBoard, MLflow with a local store, and Weights & Biases offline, each with the real package."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from run_helpers import Interrupted, interrupt_after
from small_training import train

from fedtaco import InvalidInput
from fedtaco.experiment import RunOptions, build_spec, run_experiment
from fedtaco.experiment.trackers import build_trackers
from fedtaco.records import RunFolder
from fedtaco.runs.callbacks import CallbackList
from fedtaco.settings.own_task import OwnTask

QUICK = {"dataset": "digits", "clients": 4, "rounds": 3, "local_steps": 2, "batch_size": 16}


def run_tracked(name, folder, metrics=None, **settings):
    spec = build_spec(OwnTask(metrics=metrics or {}), method="taco", **QUICK, **settings)
    return run_experiment(spec, RunFolder(folder), RunOptions(), CallbackList(build_trackers([name]))).history


def test_tensorboard_logs_every_round(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator as accumulator

    history = run_tracked("tensorboard", tmp_path / "run")
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    logged = [(event.step, event.value) for event in events.Scalars("accuracy")]
    assert [step for step, _ in logged] == [1, 2, 3]
    assert [value for _, value in logged] == pytest.approx(history.column("accuracy"))
    assert "method = taco" in events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()


def test_what_a_round_measures_is_logged_and_own_metrics_too(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator as accumulator

    metrics = {"f1": lambda predictions, targets: 0.25, "bad": lambda predictions, targets: float("nan")}
    with pytest.warns(RuntimeWarning, match="The metric 'bad' is not recorded"):
        history = run_tracked("tensorboard", tmp_path / "run", metrics, eval_every=2)
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("metrics/f1")] == [(2, 0.25), (3, 0.25)]
    assert [event.step for event in events.Scalars("accuracy")] == [2, 3]
    assert "metrics/bad" not in events.Tags()["scalars"]
    logged = [event.value for event in events.Scalars("training_loss")]
    assert logged == pytest.approx(history.column("training_loss"))


def test_own_training_is_tracked(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator as accumulator

    result = train(out=tmp_path / "run", track=["tensorboard"])
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.value for event in events.Scalars("accuracy")] == pytest.approx(result.history.column("accuracy"))
    with pytest.raises(InvalidInput, match="There is no tracker 'tensorbord'"):
        train(track=["tensorbord"])


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """Return a client of a local MLflow store."""
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/store")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/store")
    return mlflow.MlflowClient()


def mlflow_runs(client):
    return client.search_runs([client.get_experiment_by_name("fedtaco").experiment_id])


def test_mlflow_logs_settings_and_every_round(mlflow, tmp_path):
    history = run_tracked("mlflow", tmp_path / "run")
    (run,) = mlflow_runs(mlflow)
    assert run.info.status == "FINISHED"
    assert run.data.params["dataset"] == "digits"
    logged = mlflow.get_metric_history(run.info.run_id, "accuracy")
    assert [metric.step for metric in logged] == [1, 2, 3]
    assert [metric.value for metric in logged] == pytest.approx(history.column("accuracy"))


def test_resumed_run_continues_in_mlflow_and_an_overwritten_one_is_a_new_run(mlflow, tmp_path):
    config, folder = build_spec(method="taco", **QUICK), RunFolder(tmp_path / "run")

    def run_until(round_number, options):
        callback = CallbackList([*build_trackers(["mlflow"]), interrupt_after(round_number)])
        with pytest.raises(Interrupted):
            run_experiment(config, folder, options, callback)

    run_until(1, RunOptions())
    run_until(2, RunOptions(resume=True))
    assert len(mlflow_runs(mlflow)) == 1
    run_until(1, RunOptions(overwrite=True))
    assert len(mlflow_runs(mlflow)) == 2
    for _ in range(2):
        run_experiment(config, folder, RunOptions(resume=True), CallbackList(build_trackers(["mlflow"])))
    assert len(mlflow_runs(mlflow)) == 2


READ_OFFLINE_RUN = """
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
    """Return a function that starts a tracked run on the command line, as a user who never logged in would."""

    def start(**environment):
        settings = [part for name, value in QUICK.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        own = {"HOME": str(tmp_path / "home"), "WANDB_ERROR_REPORTING": "false", **environment}
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


def test_weights_and_biases_logs_every_round_offline(wandb_run, tmp_path):
    done = wandb_run(WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    assert {path.name for path in tmp_path.iterdir()} <= {"run", "home"}
    read = subprocess.run(
        [sys.executable, "-c", READ_OFFLINE_RUN, str(file)], capture_output=True, text=True, check=True
    )
    run, *rounds = [line.split("\t") for line in read.stdout.splitlines()]
    assert run == ["fedtaco", "taco digits seed 0"]
    history = RunFolder(tmp_path / "run").history()
    assert [(int(step), json.loads(accuracy)) for step, accuracy in rounds] == [
        (record.round, record.accuracy) for record in history
    ]


def test_missing_key_of_weights_and_biases_is_reported_before_the_run(wandb_run, tmp_path):
    done = wandb_run()
    assert done.returncode == 2
    assert "Error: wandb is not ready: No API key configured" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("hook", ["open", "log", "close"])
def test_run_continues_with_one_warning_if_a_tracker_fails(hook, tmp_path, monkeypatch):
    calls = []

    def fail(*_):
        calls.append(hook)
        raise ConnectionError("the server is gone")

    monkeypatch.setattr(f"fedtaco.experiment.trackers.TensorBoard.{hook}", fail)
    warning = r"tensorboard failed and is not used any more \(ConnectionError: the server is gone\); the run continues"
    with pytest.warns(RuntimeWarning, match=warning):
        history = run_tracked("tensorboard", tmp_path / "run")
    assert len(history) == 3
    assert calls == [hook]


def test_unknown_tracker_and_missing_package_are_reported(monkeypatch):
    with pytest.raises(InvalidInput, match="There is no tracker 'tensorbord'; did you mean 'tensorboard'"):
        build_trackers(["tensorbord"])
    monkeypatch.setattr("fedtaco.experiment.trackers.TensorBoard.package", "no_such_package")
    with pytest.raises(InvalidInput, match=r"pip install 'fedtaco\[tensorboard\]'"):
        build_trackers(["tensorboard"])
