"""Trackers, against the real TensorBoard and a local MLflow store."""

from __future__ import annotations

import pytest

from fedtaco import InvalidInput
from fedtaco.experiment import Experiment, Manner, run_experiment
from fedtaco.experiment.trackers import build_trackers
from fedtaco.experiment.watching import Everyone
from fedtaco.records import RunFolder

QUICK = {"dataset": "digits", "clients": 4, "rounds": 3, "local_steps": 2, "batch_size": 16}


def tracked(name, folder):
    experiment = Experiment.of(method="taco", **QUICK)
    result = run_experiment(experiment, RunFolder(folder), Manner(), Everyone(build_trackers([name])))
    return result.history


def test_tensorboard_shows_every_round(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator as accumulator

    history = tracked("tensorboard", tmp_path / "run")
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    shown = [(event.step, event.value) for event in events.Scalars("accuracy")]
    assert [step for step, _ in shown] == [1, 2, 3]
    assert [value for _, value in shown] == pytest.approx(history.column("accuracy"))
    assert "method = taco" in events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()


def test_mlflow_holds_settings_and_every_round(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/store")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/store")
    history = tracked("mlflow", tmp_path / "run")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("fedtaco").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["dataset"] == "digits"
    logged = client.get_metric_history(run.info.run_id, "accuracy")
    assert [metric.step for metric in logged] == [1, 2, 3]
    assert [metric.value for metric in logged] == pytest.approx(history.column("accuracy"))


def test_an_unknown_tracker_and_a_missing_package_are_told(monkeypatch):
    with pytest.raises(InvalidInput, match="There is no tracker 'tensorbord'; did you mean 'tensorboard'"):
        build_trackers(["tensorbord"])
    monkeypatch.setattr("fedtaco.experiment.trackers.TensorBoard.package", "no_such_package")
    with pytest.raises(InvalidInput, match=r"pip install 'fedtaco\[tensorboard\]'"):
        build_trackers(["tensorboard"])
