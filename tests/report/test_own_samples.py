"""Accuracies on clients' own samples in the report: histograms, a table, and columns of the results."""

from __future__ import annotations

from folders import write_run
from reading import page_of, text_of

from fedtaco.records import ClientEvaluation
from fedtaco.report.own_samples import BINS
from fedtaco.report.page_data import build_page_data
from fedtaco.report.run_reader import find_runs

FIRST = (
    ClientEvaluation(0, 10, 0.5, 1.0, 0.75, 0.5),
    ClientEvaluation(1, 10, 1.0, 0.2, 1.0, 0.1),
    ClientEvaluation(2, 10, 0.0, 3.0, None, None),
)
SECOND = (ClientEvaluation(0, 10, 0.52, 1.0, 0.9, 0.3), ClientEvaluation(1, 10, 0.54, 1.4, 0.9, 0.3))


def read(folder):
    return build_page_data(find_runs(folder))


def test_histograms_count_the_clients_of_all_seeds(tmp_path):
    write_run(tmp_path / "fedavg", "fedavg")
    write_run(tmp_path / "taco-0", "taco", evaluations=FIRST)
    write_run(tmp_path / "taco-1", "taco", seed=1, evaluations=SECOND)
    (histogram,) = read(tmp_path).script["histograms"]
    before, after = histogram["models"]
    assert (histogram["method"], before["name"], after["name"]) == (1, "global model", "fine-tuned")
    assert len(before["counts"]) == len(after["counts"]) == BINS == 20
    assert {place: count for place, count in enumerate(before["counts"]) if count} == {0: 1, 10: 3, 19: 1}
    assert {place: count for place, count in enumerate(after["counts"]) if count} == {15: 1, 18: 2, 19: 1}


def test_table_has_a_row_before_and_after_fine_tuning(tmp_path):
    write_run(tmp_path / "fedavg", "fedavg")
    write_run(tmp_path / "taco-0", "taco", evaluations=FIRST)
    write_run(tmp_path / "taco-1", "taco", seed=1, evaluations=SECOND)
    best = "100.0 % (client 1, seed 0)"
    assert read(tmp_path).own_rows == [
        (1, ["taco", "51.5 %", "26.0 %", "0.0 % (client 2, seed 0)", best, "1.300"]),
        (1, ["taco, fine-tuned", "88.8 %", "82.5 %", "75.0 % (client 0, seed 0)", best, "0.300"]),
    ]


def test_losses_are_shown_where_there_are_no_classes(tmp_path):
    write_run(tmp_path / "run", evaluations=(ClientEvaluation(0, 4, None, 0.5), ClientEvaluation(1, 4, None, 1.0)))
    data = read(tmp_path)
    assert data.script["histograms"] == []
    assert data.own_rows == [(0, ["taco", "–", "–", "–", "–", "0.750"])]


def test_results_and_page_contain_the_figures(tmp_path):
    write_run(tmp_path / "run", evaluations=FIRST, fine_tune_steps=7)
    data = read(tmp_path)
    columns = {column.title: column for column in data.results.columns}
    assert columns["own samples"].cells == ["50.0"]
    assert columns["fine-tuned"].values == {"tuned_accuracy": [0.875]}
    text = text_of(page_of(find_runs(tmp_path)))
    assert "taco: on the clients' own held-out samples, the mean accuracy is 50.0 % (worst tenth 0.0 %)" in text
    assert "after fine-tuning 87.5 % (worst tenth 75.0 %)" in text
    assert "Fine-tuned: a copy trained for 7 steps of SGD on the client's training samples." in text


def test_section_is_hidden_without_evaluations(tmp_path):
    write_run(tmp_path / "run")
    data = read(tmp_path)
    assert (data.script["histograms"], data.own_rows) == ([], [])
    assert '<section aria-labelledby="own-title" hidden>' in page_of(find_runs(tmp_path))
    assert {"own samples", "fine-tuned"}.isdisjoint(column.title for column in data.results.columns)
