"""What a report reads from run folders."""

from __future__ import annotations

import re
from itertools import accumulate

import pytest
from folders import write_run
from reading import page_of, text_of

import fedtaco
from fedtaco.records import ClientEvaluation
from fedtaco.records.record_file import RecordFile
from fedtaco.report.page_data import build_page_data
from fedtaco.report.run_reader import SIDE, find_runs, read_run


def test_a_curve_is_the_mean_over_seeds_with_the_lowest_and_highest(tmp_path):
    folders = [
        write_run(tmp_path / "a", seed=0, accuracies=(0.2, 0.4, 0.6)),
        write_run(tmp_path / "b", seed=1, accuracies=(0.4, 0.6, 0.8)),
    ]
    data = build_page_data(folders)
    assert [method["name"] for method in data.script["methods"]] == ["taco"]
    curve = data.script["methods"][0]["curves"]["accuracy"]
    assert curve["rounds"] == [1, 2, 3]
    assert curve["mean"] == pytest.approx([0.3, 0.5, 0.7])
    assert (curve["low"], curve["high"]) == ([0.2, 0.4, 0.6], [0.4, 0.6, 0.8])
    assert curve["seconds"] == [2.0, 4.0, 6.0]
    assert curve["seeds"] == [2, 2, 2]
    assert "validation_accuracy" not in data.script["methods"][0]["curves"]
    summary = data.results.rows[0].summary
    assert summary.accuracy == pytest.approx(0.7)
    assert summary.accuracy_deviation == pytest.approx(0.2 / 2**0.5)


def test_curves_connect_evaluated_rounds(tmp_path):
    write_run(tmp_path / "a", accuracies=(None, 0.4, None, 0.8), rounds=4, target=0.7, metrics={"accuracy": 0.25})
    data = build_page_data(find_runs(tmp_path))
    curves = data.script["methods"][0]["curves"]
    assert (curves["accuracy"]["rounds"], curves["accuracy"]["mean"]) == ([2, 4], [0.4, 0.8])
    assert curves["accuracy"]["seconds"] == [4.0, 8.0]
    assert curves["balanced_accuracy"]["rounds"] == [2, 4]
    assert curves["training_loss"]["rounds"] == [1, 2, 3, 4]
    assert curves["metrics/accuracy"]["mean"] == [0.25] * 4
    assert data.script["measures"][-1]["title"] == "accuracy"
    (row,) = data.results.rows
    assert (row.summary.rounds_mark, row.summary.rounds_to_target) == ("≤ 4", 4)
    assert "≤ N: not every round was evaluated, so that the target may have been reached before." in data.legend


def test_an_own_metric_of_some_runs_is_drawn_for_these(tmp_path):
    write_run(tmp_path / "a", "fedavg")
    write_run(tmp_path / "b", "taco", seed=0, accuracies=(0.5, 0.6), metrics={"f1": 0.5})
    write_run(tmp_path / "c", "taco", seed=1, accuracies=(0.5, 0.6, 0.7))
    write_run(tmp_path / "d", "taco", seed=2, metrics={"f1": None})
    data = build_page_data(find_runs(tmp_path))
    fedavg, taco = (method["curves"] for method in data.script["methods"])
    assert "metrics/f1" not in fedavg
    assert (taco["metrics/f1"]["rounds"], taco["metrics/f1"]["mean"]) == ([1, 2], [0.5, 0.5])


def test_an_unfinished_seed_counts_in_the_rounds_that_it_finished(tmp_path):
    write_run(tmp_path / "a", seed=0, accuracies=(0.2, 0.4, 0.6))
    write_run(tmp_path / "b", seed=1, accuracies=(0.4,), finished=False)
    data = build_page_data(find_runs(tmp_path))
    curve = data.script["methods"][0]["curves"]["accuracy"]
    assert curve["mean"] == pytest.approx([0.3, 0.4, 0.6])
    assert curve["seeds"] == [2, 1, 1]
    assert curve["seconds"] == [2.0, 4.0, 6.0]
    (row,) = data.results.rows
    assert (row.summary.accuracy, row.status) == (pytest.approx(0.6), "1 of 2 seeds unfinished")


def test_megabytes_are_those_that_clients_have_sent_until_then(tmp_path):
    sizes = {"fedavg": 1_500_000, "taco": 500_000}
    folders = [write_run(tmp_path / method, method, bytes_up=size) for method, size in sizes.items()]
    data = build_page_data(folders)
    assert [one["curves"]["accuracy"]["megabytes"] for one in data.script["methods"]] == [
        [1.5, 3.0, 4.5],
        [0.5, 1.0, 1.5],
    ]
    table = re.search("<table>.*?</table>", page_of(folders), re.S)[0]
    assert "MB up" in table and "<td>1.5</td><td>3</td>" in table
    assert "bytes_up,bytes_down" in data.script["tables"]["csv"] and "MB up & MB down" in data.script["tables"]["tex"]
    unknown = build_page_data([write_run(tmp_path / "unknown")])
    assert unknown.script["methods"][0]["curves"]["accuracy"]["megabytes"] is None
    assert "MB up" not in unknown.script["tables"]["tex"]


def test_seconds_and_held_out_accuracy_are_shown_where_they_were_measured(tmp_path):
    folder = write_run(tmp_path / "a", timed=False, validation=True)
    data = build_page_data([folder])
    assert not data.is_timed
    curves = data.script["methods"][0]["curves"]
    assert curves["accuracy"]["seconds"] is None
    assert curves["validation_accuracy"]["mean"] == pytest.approx([0.25, 0.35, 0.45])
    assert curves["loss"]["mean"] == pytest.approx([0.5, 0.3, 0.1])
    assert "validation_loss" not in curves
    note = '<p class="note" hidden>Client seconds were not measured'
    assert note not in page_of([folder])
    assert note in page_of([write_run(tmp_path / "timed")])
    assert "client seconds" not in re.search("<table>.*?</table>", page_of([folder]), re.S)[0]


def test_curves_over_simulated_time_are_shown_if_any_run_has_unequal_work(tmp_path):
    settings = {"clients": 4, "rounds": 3, "local_steps": 2}
    patient = fedtaco.run("fedavg", out=tmp_path / "patient", **settings)
    hasty = fedtaco.run("taco", out=tmp_path / "hasty", deadline=1.0, **settings)
    (curves,) = (method["curves"] for method in build_page_data(find_runs(tmp_path / "patient")).script["methods"])
    assert curves["accuracy"]["simulated"] is None
    both = {method["name"]: method["curves"] for method in build_page_data(find_runs(tmp_path)).script["methods"]}
    for result, curve in zip((patient, hasty), (both["fedavg"], both["taco"]), strict=True):
        times = list(accumulate(result.history.column("simulated_duration")))
        assert curve["accuracy"]["simulated"] == curve["loss"]["simulated"] == pytest.approx(times, rel=1e-3)
    assert both["taco"]["accuracy"]["simulated"] == [1.0, 2.0, 3.0]


def test_an_unfinished_run_is_shown_with_the_rounds_it_has(tmp_path):
    folder = write_run(tmp_path / "a", accuracies=(0.5, 0.7), finished=False)
    with (tmp_path / "a" / "clients.jsonl").open("a") as file:
        file.write('{"round": 3, "client": 0, "alpha": 9, "cosine": 9, "norm": 9, "weight": 9, "expelled": true}\n{"')
    data = build_page_data([folder])
    (row,) = data.results.rows
    assert row.status == "unfinished, 2 of 3 rounds"
    assert row.summary.accuracy == 0.7
    assert row.summary.rounds_mark == "–"
    assert row.summary.alpha == pytest.approx({"A": 0.165, "B": 0.015})
    assert data.script["runs"][0]["columns"] == ["1", "2"]
    assert "taco (unfinished, 2 of 3 rounds)" in text_of(page_of([folder]))


def test_a_run_without_a_finished_round_is_listed(tmp_path):
    write_run(tmp_path / "a", "fedavg")
    folder = write_run(tmp_path / "b", "taco", accuracies=(), finished=False)
    data = build_page_data(find_runs(tmp_path))
    assert data.script["methods"][1] == {"name": "taco", "curves": {}}
    assert "taco (unfinished, 0 of 3 rounds)" in text_of(page_of(find_runs(tmp_path)))
    assert "0 rounds" in text_of(page_of([folder]))


def test_the_figures_of_an_unfinished_run_are_those_it_would_have_in_its_summary(tmp_path):
    ended = read_run(write_run(tmp_path / "a", expelled={1: 2}), SIDE, lambda done: None)
    going = read_run(write_run(tmp_path / "b", expelled={1: 2}, finished=False), SIDE, lambda done: None)
    for name, value in going.summary.items():
        if name == "alpha":
            assert value == pytest.approx(ended.summary[name])
        else:
            assert value == ended.summary[name], name


def test_methods_are_distinguished_by_the_settings_in_which_they_differ(tmp_path):
    for gamma in (0.01, 0.02):
        for seed in (0, 1):
            write_run(tmp_path / f"taco_{gamma}" / f"seed{seed}", seed=seed, parameters={"taco.gamma": gamma})
    write_run(tmp_path / "fedavg" / "seed0", "fedavg")
    data = build_page_data(find_runs(tmp_path))
    assert [method["name"] for method in data.script["methods"]] == ["fedavg", "taco (gamma=0.01)", "taco (gamma=0.02)"]
    assert [row.summary.seeds for row in data.results.rows] == [1, 2, 2]
    assert "taco.gamma" not in data.settings
    assert data.settings["rounds"] == "3"
    assert data.own_settings[1]["other settings"] == "taco.gamma=0.01"
    assert data.own_settings[1]["engine"] == "serial: the work is small"


def test_a_custom_method_keeps_its_name_while_a_seed_is_unfinished(tmp_path):
    write_run(tmp_path / "a", "mine:Clipped", seed=0, finished=False)
    write_run(tmp_path / "b", "mine:Clipped", seed=1)
    assert [method["name"] for method in build_page_data(find_runs(tmp_path)).script["methods"]] == ["Clipped"]


def test_a_run_named_twice_counts_once(tmp_path):
    write_run(tmp_path / "a")
    assert len(build_page_data([*find_runs(tmp_path), *find_runs(tmp_path / "a")]).script["runs"]) == 1


def test_runs_are_found_below_a_folder_in_the_order_of_numbers(tmp_path):
    for seed in (10, 2):
        write_run(tmp_path / "deep" / "taco" / f"seed{seed}", seed=seed)
    assert [folder.path.name for folder in find_runs(tmp_path)] == ["seed2", "seed10"]


def test_differences_are_to_fedavg_over_the_finished_seeds_that_both_have(tmp_path):
    for seed in range(4):
        write_run(tmp_path / f"fedacg{seed}", "fedacg", seed=seed, accuracies=(0.1, 0.2, 0.5))
        write_run(tmp_path / f"fedavg{seed}", "fedavg", seed=seed, accuracies=(0.1, 0.2, 0.6), finished=seed < 3)
    for seed in (1, 2, 9):
        write_run(tmp_path / f"taco{seed}", "taco", seed=seed, accuracies=(0.1, 0.2, 0.6 + seed / 10))
    write_run(tmp_path / "stem", "stem", seed=0)
    data = build_page_data(find_runs(tmp_path))
    assert data.results.reference == "fedavg"
    differences = {row.summary.method: row.difference for row in data.results.rows}
    assert differences["fedavg"] is differences["stem"] is None
    assert differences["fedacg"].mean == pytest.approx(-0.1)
    assert differences["taco"].mean == pytest.approx(0.15)
    text = text_of(page_of(find_runs(tmp_path)))
    assert "method final accuracy difference to fedavg worst tenth" in text
    assert "fedacg 50.0 ± 0.0 % −10.0 [−10.0, −10.0] 50.0 %" in text
    assert "stem 90.0 % – 90.0 %" in text


def test_without_fedavg_differences_are_to_the_first_and_without_shared_seeds_there_are_none(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"prox{seed}", "fedprox", seed=seed)
        write_run(tmp_path / f"taco{seed}", "taco", seed=seed)
    assert build_page_data(find_runs(tmp_path)).results.reference == "fedprox"
    single = find_runs(tmp_path / "prox0") + find_runs(tmp_path / "taco0")
    assert build_page_data(single).results.reference is None
    assert "ifference" not in text_of(page_of(single))


def test_versions_of_all_runs_are_listed(tmp_path):
    then, now = {"from_round": 1, "torch": "2.4.0"}, {"from_round": 2, "torch": "2.13.0", "python": "3.11.7"}
    write_run(tmp_path / "a", seed=0, ran_by={"engine": "serial", "reason": "chosen by name", "versions": [then, now]})
    write_run(tmp_path / "b", seed=1)
    assert build_page_data(find_runs(tmp_path)).versions == {
        "fedtaco": "0.1.0",
        "schema": "6",
        "python": "3.11.7, not recorded",
        "torch": "2.13.0, 2.4.0, not recorded",
        "numpy": "not recorded",
    }


def test_each_file_of_records_is_parsed_once(tmp_path, monkeypatch):
    parsed, read = [], RecordFile.read

    def counting(file, *arguments, **options):
        parsed.append(file.path.name)
        return read(file, *arguments, **options)

    monkeypatch.setattr(RecordFile, "read", counting)
    evaluations = [ClientEvaluation(0, 4, 0.5, 1.0)]
    write_run(tmp_path / "a", over_correction={number: [0.5] * 3 for number in (1, 2, 3)}, evaluations=evaluations)
    build_page_data(find_runs(tmp_path))
    assert sorted(parsed) == ["client_evaluations.jsonl", "clients.jsonl", "diagnostics.jsonl", "rounds.jsonl"]
