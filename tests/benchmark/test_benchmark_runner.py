"""A small benchmark from beginning to end: tuning, evaluation, record, and resuming."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import fmean

import pytest
from run_helpers import Interrupted
from small_benchmarks import FEDAVG, IN_THIS_PROCESS, RESUME, CountRuns

from fedtaco import InvalidInput
from fedtaco.benchmark.page import write_page
from fedtaco.benchmark.plan import CONTROL_FOLDERS
from fedtaco.benchmark.presets import load_preset, read_preset
from fedtaco.benchmark.record import read_record
from fedtaco.benchmark.runner import _tuning_records, run_benchmark
from fedtaco.experiment import Callback
from fedtaco.experiment.sweep import TrialResult, TunedMethod
from fedtaco.records import RunFolder


class InterruptAfterRuns(Callback):
    """Interrupts a benchmark in the first round after a number of runs."""

    def __init__(self, runs):
        self.left = runs

    def on_run_end(self, run, summary):
        self.left -= 1

    def on_round_end(self, run, record):
        if self.left == 0:
            raise Interrupted


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder and the record of a benchmark, and the stages that it announced."""
    out, stages = tmp_path_factory.mktemp("benchmark") / "smoke", []
    preset = load_preset("benchmark-smoke")
    record = run_benchmark(preset, out, IN_THIS_PROCESS, Callback(), lambda *stage: stages.append(stage))
    return out, record, stages


def test_all_methods_and_controls_are_evaluated(finished):
    out, record, stages = finished
    assert stages == [("Tuning on digits groups", 12), ("Evaluating on digits groups", 10)]
    (task,) = record.tasks
    assert [(entry.name, len(entry.tuning), len(entry.evaluation)) for entry in task.entries] == [
        ("fedavg", 4, 2),
        ("fedacg", 4, 2),
        ("taco", 4, 2),
        ("fedavg (local rate × 1/(1−β))", 0, 2),
        ("fedavg (server rate × 1/(1−β))", 0, 2),
    ]
    assert read_record(out / "benchmark.json") == record
    assert set(record.costs) == {"fedavg", "fedacg", "taco"}


def test_settings_are_chosen_by_held_out_accuracy_of_the_last_ten_rounds(finished):
    out, record, _ = finished
    fedavg = record.tasks[0].entries[0]
    scores = {}
    for rate in (0.025, 0.05, 0.1, 0.2):
        rounds = RunFolder(out / "digits-groups" / "tuning" / f"fedavg_local_lr={rate}" / "seed100").rounds()
        scores[rate] = fmean(one.validation_accuracy for one in rounds[2:])
    assert [run.validation_score for run in fedavg.tuning] == [round(score, 6) for score in scores.values()]
    assert fedavg.settings == {"local_lr": max(scores, key=scores.get)}
    assert fedavg.notes == ["local_lr = 0.2 is the largest value tried for fedavg; try larger ones."]


def test_the_evaluation_uses_the_chosen_settings_fresh_seeds_and_all_samples(finished):
    out, record, _ = finished
    for entry in record.tasks[0].entries:
        values = [f"{name}={value}" for name, value in entry.settings.items()]
        folder = "_".join([CONTROL_FOLDERS.get(entry.name, entry.name), *values])
        for run in entry.evaluation:
            recorded = RunFolder(out / "digits-groups" / "evaluation" / folder / f"seed{run.seed}")
            config = recorded.config()
            values = {**config, **config["parameters"]}
            assert {name: values[name] for name in entry.settings} == entry.settings
            assert config.get("validation", 0) == 0
            assert run.accuracy == [round(one.accuracy, 6) for one in recorded.rounds()]


def test_the_best_settings_of_the_first_seed_are_tried_with_the_others_too(tmp_path, monkeypatch):
    scores = {(0.05, 10): 0.9, (0.1, 10): 0.7, (0.2, 10): 0.8, (0.05, 11): 0.1, (0.2, 11): 0.4}
    text = FEDAVG.replace("budget = 2", "budget = 3\nfinalists = 2").replace("rates = [1, 4]", "rates = [1, 2, 4]")
    preset, stages = read_preset("own", text.replace("[10]", "[10, 11]") + "target = 0.13\n"), []

    def score(summary):
        return scores[RunFolder(summary["folder"]).config()["local_lr"], summary["seed"]]

    monkeypatch.setattr("fedtaco.benchmark.runner.late_validation_accuracy", score)
    record = run_benchmark(preset, tmp_path / "out", IN_THIS_PROCESS, Callback(), lambda *stage: stages.append(stage))
    (fedavg,) = record.tasks[0].entries
    tried = {(run.settings["local_lr"], run.seed): run.validation_score for run in fedavg.tuning}
    assert tried == scores
    for run in fedavg.tuning:
        folder = tmp_path / "out" / "digits-even" / "tuning" / f"fedavg_local_lr={run.settings['local_lr']}"
        rounds = RunFolder(folder / f"seed{run.seed}").rounds()
        reached = [one.round for one in rounds if one.validation_accuracy >= 0.13]
        assert run.rounds_to_target == min(reached, default=None)
    assert {run.rounds_to_target for run in fedavg.tuning} == {1, 2, None}
    assert fedavg.settings == {"local_lr": 0.2}  # 0.6 on average, against 0.5; 0.1 was left out
    assert stages[:2] == [("Tuning on digits even", 3), ("Tuning further on digits even", 2)]
    assert fedavg.notes == ["local_lr = 0.2 is the largest value tried for fedavg; try larger ones."]


def test_finished_runs_are_not_repeated(finished):
    out, record, _ = finished
    counts = CountRuns()
    assert run_benchmark(load_preset("benchmark-smoke"), out, RESUME, counts) == record
    assert (counts.begun, counts.skipped) == (0, 12 + 6)  # the controls are in the record


def test_an_interrupted_benchmark_continues_with_the_same_result(finished, tmp_path):
    _, record, _ = finished
    preset = load_preset("benchmark-smoke")
    with pytest.raises(Interrupted):
        run_benchmark(preset, tmp_path / "out", IN_THIS_PROCESS, InterruptAfterRuns(14))
    counts = CountRuns()
    assert run_benchmark(preset, tmp_path / "out", RESUME, counts) == record
    assert (counts.begun, counts.skipped) == (8, 14)


def test_a_dataset_that_is_missing_is_noticed_before_anything_is_run(tmp_path):
    preset = load_preset("benchmark-smoke")
    (task,) = preset.tasks
    missing = replace(task, name="later", settings={**task.settings, "dataset": "svhn", "model": "mlp"})
    with pytest.raises(InvalidInput, match="was not found in the data folder"):
        options = replace(IN_THIS_PROCESS, data_dir=tmp_path / "data")
        run_benchmark(replace(preset, tasks=[task, missing]), tmp_path / "runs", options, Callback(), lambda *_: None)
    assert not (tmp_path / "runs").exists()


def test_the_page_needs_the_record_only(finished, tmp_path):
    out, record, _ = finished
    content = (out / "benchmark.json").read_text()
    (tmp_path / "elsewhere.json").write_text(content)
    for suffix in ("html", "md"):
        write_page(record, tmp_path / f"first.{suffix}")
        write_page(read_record(tmp_path / "elsewhere.json"), tmp_path / f"again.{suffix}")
        assert (tmp_path / f"first.{suffix}").read_bytes() == (tmp_path / f"again.{suffix}").read_bytes()
    assert str(out) not in content
    accuracies = json.loads(content)["tasks"][0]["entries"][0]["evaluation"][0]["accuracy"]
    assert max(len(str(accuracy)) for accuracy in accuracies) <= len("0.123456")


def test_a_setting_that_diverges_is_not_chosen(tmp_path):
    preset = read_preset("own", FEDAVG.replace("rates = [1, 4]", "rates = [1, 1e30]"))
    record = run_benchmark(preset, tmp_path / "out", IN_THIS_PROCESS, Callback())
    (fedavg,) = record.tasks[0].entries
    assert fedavg.settings == {"local_lr": 0.05}
    assert [run.stopped is None for run in fedavg.tuning] == [True, False]
    assert [run.validation_score is None for run in fedavg.tuning] == [False, True]


def test_a_tuning_run_that_diverged_does_not_reach_the_target_though_an_early_round_did(finished):
    out, _, _ = finished
    folder = out / "digits-groups" / "tuning" / "fedavg_local_lr=0.2" / "seed100"
    for stopped, rounds in ((None, 1), ("It diverged.", None)):
        summary = {"seed": 100, "folder": folder, "stopped": stopped}
        tuned = TunedMethod("fedavg", [TrialResult({"local_lr": 0.2}, 0.0, None, [summary])])
        (run,) = _tuning_records(tuned, target=0.01)
        assert (run.rounds_to_target, run.validation_score is None) == (rounds, stopped is not None)


def test_the_score_decides_which_setting_is_chosen(tmp_path, monkeypatch):
    def prefer_small_rates(summary):
        return 1 - RunFolder(summary["folder"]).config()["local_lr"]

    monkeypatch.setattr("fedtaco.benchmark.runner.late_validation_accuracy", prefer_small_rates)
    record = run_benchmark(read_preset("own", FEDAVG), tmp_path / "out", IN_THIS_PROCESS, Callback())
    assert record.tasks[0].entries[0].settings == {"local_lr": 0.05}
