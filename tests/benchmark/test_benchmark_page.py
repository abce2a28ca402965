"""The page of a benchmark."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from made_benchmarks import make_benchmark, make_entry, make_run, make_task, make_tuning_run

from fedtaco import InvalidInput
from fedtaco.benchmark.page import findings, write_page
from fedtaco.benchmark.plan import LOCAL_CONTROL
from fedtaco.benchmark.record import read_record, write_record


@pytest.fixture
def record():
    low, high = [[0.6, 0.70], [0.6, 0.72], [0.6, 0.71]], [[0.7, 0.80], [0.7, 0.81], [0.7, 0.83]]
    wild = [[0.7, 0.79], [0.7, 0.8], [0.1]]
    tailored = make_entry("taco-correction", high, notes=["local_lr = 0.1 is the largest value tried."])
    entries = [make_entry("fedavg", low), tailored, make_entry("taco-uniform", high), make_entry("taco", wild, [2])]
    diverged = make_entry("stem", [], settings={}, tuning=[make_tuning_run(None, stopped="It diverged.")])
    secondary = make_task([make_entry("fedavg", low), diverged], "mnist", primary=False)
    return make_benchmark(secondary, make_task(entries), twins=[("taco-correction", "taco-uniform")])


@pytest.mark.parametrize(
    ("seeds", "finalists", "sentence"),
    [
        ([100], 12, "Settings were tried with the seed 100."),
        ([100, 101], 12, "Settings were tried with the seeds 100, 101; their mean decided."),
        (
            [100, 101],
            2,
            "Settings were tried with the seed 100, and the best 2 of each method with the seed 101 too; among these, "
            "the mean over all seeds decided.",
        ),
        (
            [100, 101, 102],
            3,
            "Settings were tried with the seed 100, and the best 3 of each method with the seeds 101, 102 too; among "
            "these, the mean over all seeds decided.",
        ),
    ],
)
def test_the_page_says_with_which_seeds_settings_were_tried(tmp_path, seeds, finalists, sentence):
    task = replace(make_task([make_entry("fedavg", [[0.5]])]), finalists=finalists)
    assert f"- {sentence}" in lines_of(replace(make_benchmark(task), tuning_seeds=seeds), tmp_path)


def test_without_the_reference_nothing_is_compared_with_it(tmp_path):
    task = make_task([make_entry("fedavg", [], settings={}), make_entry("taco", [[0.5], [0.6]])])
    lines = lines_of(make_benchmark(task), tmp_path)
    assert cells(lines, "Overview", "taco")[-1] == "–"
    assert cells(lines, "adult", "taco", table=1)[3] == "–"


def test_a_page_is_written_if_all_runs_diverge_in_the_first_round(tmp_path):
    record = make_benchmark(make_task([make_entry("fedavg", [[], []], stopped=[0, 1])]))
    write_page(record, tmp_path / "page.html")
    assert "<img" not in (tmp_path / "page.html").read_text()
    assert cells(lines_of(record, tmp_path), "adult", "fedavg", table=1)[1:3] == ["3+", "0 of 2"]


def test_controls_are_explained_if_there_are_any(tmp_path):
    fedavg, control = make_entry("fedavg", [[0.5]]), make_entry(LOCAL_CONTROL, [[0.5]], method="fedavg")
    assert "controls" not in " ".join(lines_of(make_benchmark(make_task([fedavg])), tmp_path))
    assert "The two controls are FedAvg" in " ".join(lines_of(make_benchmark(make_task([fedavg, control])), tmp_path))


def lines_of(record, tmp_path):
    write_page(record, tmp_path / "page.md")
    return (tmp_path / "page.md").read_text().splitlines()


def cells(lines, heading, name, table=0):
    """Return the row of a method in one of the tables below a heading."""
    start = lines.index(f"## {heading}")
    rows = [line for line in lines[start:] if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in rows[table].strip("|").split(" | ")]


def test_tables_of_a_task(record, tmp_path):
    lines = lines_of(record, tmp_path)
    accuracy = cells(lines, "adult", "taco-uniform")
    assert accuracy[1] == "75.7 ± 0.8"
    assert accuracy[2].startswith("+10.2 ")
    assert accuracy[4] == r"+0.0 \[+0.0, +0.0\] (taco-correction)"
    assert cells(lines, "adult", "fedavg")[2:4] == ["–", "–"]
    course = cells(lines, "adult", "taco", table=1)
    assert course[1:4] == ["2", "2 of 3", "2 / 0 / 1"]
    assert course[-1] == "1 of 3"
    assert cells(lines, "adult", "fedavg", table=1)[1:3] == ["3+", "0 of 3"]
    assert cells(lines, "adult", "taco-correction", table=2)[1:] == ["taco-uniform", r"+0.0 \[+0.0, +0.0\]"]
    tuning = cells(lines, "adult: tuning", "taco-uniform")
    assert tuning[1:] == [r"local\_lr=0.1", "50.0", "3+", r"3+ (local\_lr=0.1)", "1", "0"]
    assert r"- local\_lr = 0.1 is the largest value tried." in lines
    assert cells(lines, "mnist: tuning", "stem")[1:] == ["–", "–", "–", "–", "1", "1"]
    assert cells(lines, "Cost for a client", "taco")[1:] == ["1", "0", "1", "0", "2", "1"]


def test_range_swings_and_accuracies_at_the_end_leave_out_runs_that_diverged(tmp_path):
    calm, wide = [0.80, 0.81] * 5, [0.8, 0.86] * 5
    taco = make_entry("taco", [wide, calm, [*wide, 0.2]], stopped=[2])
    taco.evaluation[0] = replace(taco.evaluation[0], worst_tenth_accuracy=0.4)
    taco.evaluation[2] = replace(taco.evaluation[2], worst_tenth_accuracy=0.1)
    lines = lines_of(make_benchmark(make_task([make_entry("fedavg", [calm, calm, calm]), taco])), tmp_path)
    assert cells(lines, "adult", "taco")[5:] == ["45.0 ± 7.1", "83.5 ± 3.5", "83.5 ± 3.5"]
    assert cells(lines, "adult", "taco", table=1)[4:] == ["3.5", "1 of 3", "1 of 3"]
    assert cells(lines, "adult", "fedavg", table=1)[4:] == ["1.0", "0 of 3", "0 of 3"]


def test_held_out_accuracy_at_each_rate(tmp_path):
    def tried(rate, score, seed=100, **parameters):
        run = make_tuning_run(score, rate, seed=seed, stopped=None if score else "It diverged.")
        return replace(run, settings={**run.settings, **parameters})

    momentum = [tried(0.1, score, **{"fedacg.momentum": beta}) for beta, score in ((0.5, 0.7), (0.7, 0.8), (0.9, 0.6))]
    fedacg = make_entry("fedacg", [[0.5]], tuning=[*momentum, tried(0.3, None), tried(0.3, 0.9, seed=101)])
    fedavg = make_entry("fedavg", [[0.5]], tuning=[tried(0.02, 0.6), tried(0.1, 0.65)])
    record = make_benchmark(make_task([fedavg, fedacg, make_entry(LOCAL_CONTROL, [[0.5]], tuning=[])]))
    lines = lines_of(replace(record, tuning_seeds=[100, 101]), tmp_path)
    assert "| method | rate 0.02, % | rate 0.1, % | rate 0.3, % |" in lines
    assert cells(lines, "adult: tuning", "fedavg", table=1)[1:] == ["60.0", "65.0", "–"]
    assert cells(lines, "adult: tuning", "fedacg", table=1)[1:] == ["–", "80.0", "0.0"]


def test_primary_tasks_come_first_and_are_summarised(record, tmp_path):
    lines = lines_of(record, tmp_path)
    assert lines.index("## adult") < lines.index("## mnist")
    table, sentences = findings(record)
    assert table.header == ["method", "adult, %", "tasks significantly above / below fedavg"]
    assert [row[-1] for row in table.rows] == ["–", "1 / 0", "1 / 0", "0 / 0"]
    assert sentences == [
        "adult: taco-correction is highest, with 75.7 ± 0.8 % (3 seeds); difference to the next, taco-uniform: +0.0 "
        "[+0.0, +0.0]. Significantly different from fedavg, above: taco-correction, taco-uniform; below: none."
    ]


def test_own_output_is_shown_beside_w_for_all_methods(tmp_path):
    taco = make_entry("taco", [], evaluation=[make_run([0.8], seed, output=0.85) for seed in range(2)])
    record = make_benchmark(make_task([make_entry("fedavg", [[0.7], [0.7]]), taco]))
    lines = lines_of(record, tmp_path)
    assert cells(lines, "adult", "taco")[-2:] == ["80.0 ± 0.0", "85.0 ± 0.0"]
    assert cells(lines, "adult", "fedavg")[-2:] == ["70.0 ± 0.0", "70.0 ± 0.0"]


def test_the_html_page_is_self_contained_and_escapes_names(record, tmp_path):
    hostile = replace(record.tasks[1], name="<script>alert(1)</script>")
    write_page(replace(record, tasks=[hostile], title="<b>&"), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "<h1>&lt;b&gt;&amp;</h1>" in text
    assert "https://" not in text
    assert text.count('src="data:image/svg+xml;base64,') == 2  # the overview, and the curves of the task


def test_a_page_without_any_result(tmp_path):
    empty = make_benchmark(make_task([make_entry("fedavg", [], settings={}, notes=["All runs of fedavg diverged."])]))
    for name in ("page.html", "page.md"):
        write_page(empty, tmp_path / name)
        assert "All runs of fedavg diverged." in (tmp_path / name).read_text()


def test_other_suffixes_are_refused(record, tmp_path):
    with pytest.raises(InvalidInput, match=r"its name must end in .html or .md"):
        write_page(record, tmp_path / "page.pdf")


def test_drawing_imports_no_code_that_a_record_names(tmp_path, monkeypatch):
    (tmp_path / "hostile.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    own = make_benchmark(make_task([make_entry("fedavg", [[0.7]]), make_entry("hostile:Own", [[0.8]])]))
    write_record(own, tmp_path / "benchmark.json")
    write_page(read_record(tmp_path / "benchmark.json"), tmp_path / "page.html")
    assert "hostile" not in sys.modules
    assert "hostile:Own" in (tmp_path / "page.html").read_text()
