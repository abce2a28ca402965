"""Presets of the paper's tables and figures, and what comes out of them."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import pytest

from fedtaco import InvalidInput
from fedtaco.data import DATASETS
from fedtaco.experiment import Manner, Watcher
from fedtaco.experiment.presets import VIEWS, load_preset, paper_numbers, preset_names, read_preset
from fedtaco.experiment.reproduce import Scale, plan_reproduction, reproduce
from fedtaco.report import Cell, Rates, Reproduction, compare_runs, export, grid_of
from fedtaco.report.detection import KAPPAS, LIMITS
from fedtaco.report.export import COLOURS, draw

DIGITS = """
title = "Digits"
shows = "{view}"
methods = ["fedavg", "stem"]

[[panels]]
name = "adult"
dataset = "digits"
clients = 6
target = 0.1

[[panels]]
name = "even"
dataset = "digits"
clients = 6
partition = "iid"
target = 0.99
"""


def test_there_is_a_preset_for_every_table_and_figure():
    assert preset_names() == [
        "figure-gain",
        "figure-gamma",
        "figure-reevaluation",
        "figure-round-time",
        "figure-time-to-accuracy",
        "table-ablation",
        "table-alpha",
        "table-round-time",
        "table-rounds",
        "table-scalability",
        "table-thresholds",
        "table-update-time",
    ]


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_whole_and_at_the_papers_settings(name):
    preset = load_preset(name)
    jobs, cuts = plan_reproduction(preset, Scale())
    assert cuts == []
    numbers = paper_numbers()["settings"]
    for job in jobs:
        for experiment in job.experiments:
            dataset = experiment.dataset.partition(":")[0]
            assert dataset in DATASETS
            assert (experiment.batch_size, experiment.weighting) == (64, "uniform")
            assert experiment.rounds == numbers["rounds"][dataset]
            assert experiment.local_steps == numbers["local_steps"][dataset]
            assert experiment.clients == (100 if name == "table-scalability" else 20)
            if preset.paper and (job.variant.name, name) != ("taco", "table-update-time"):
                assert preset.paper_value(job.variant.name, job.panel.name) is not None
    assert [job.experiments[0].seed for job in jobs] == [0] * len(jobs)
    assert {len(job.experiments) for job in jobs} == {3}


def test_the_papers_numbers_are_found():
    assert load_preset("table-rounds").paper_value("scaffold", "svhn") == [19.58, 0.0, "x"]
    assert load_preset("table-ablation").paper_value("taco-correction", "adult dir0.1") == 83.52
    assert load_preset("table-update-time").paper_value("stem", "fmnist") == 0.455
    assert load_preset("table-round-time").paper_value("taco", "cifar100") == 4.81
    assert load_preset("figure-gamma").paper_value("γ = 0", "fmnist") is None


def test_what_is_cut_is_said():
    preset = load_preset("table-rounds").restricted(["fmnist"], ["fedavg", "taco"])
    jobs, cuts = plan_reproduction(preset, Scale("small"))
    assert cuts == ["fmnist: 20 instead of 100 rounds, 20 instead of 100 local steps"]
    assert [job.variant.name for job in jobs] == ["fedavg", "taco"]
    assert plan_reproduction(preset, Scale("full", rounds=30))[1] == ["fmnist: 30 instead of 100 rounds"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: load_preset("table-round"), "There is no table or figure 'table-round'; did you mean"),
        (lambda: load_preset("table-rounds").restricted(["fmnst"], []), "did you mean 'fmnist'"),
        (lambda: load_preset("table-rounds").restricted([], ["krum"]), "There is no method in table-rounds 'krum'"),
        (
            lambda: load_preset("figure-gain").restricted(["svhn"], ["scaffold"]),
            "figure-gain has none of these methods",
        ),
        (lambda: Scale("tiny"), "There is no scale 'tiny'"),
        (lambda: Scale(seeds=0).seed_count, "seeds is 0"),
        (lambda: read_preset("own", 'title = "x"\nshows = "pie"\npanels = []'), "shows 'pie'"),
    ],
)
def test_what_does_not_exist_is_told(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


ABOUT_FREELOADERS = ("alpha", "thresholds")


@pytest.mark.parametrize("view", ABOUT_FREELOADERS)
def test_tables_about_freeloaders_are_run_and_written(view, tmp_path):
    text = DIGITS.format(view=view).replace("clients = 6", "clients = 6\nfreeloaders = 2")
    preset = read_preset("digits", text)
    jobs, cuts = plan_reproduction(preset, Scale("smoke", seeds=2))
    result = reproduce(preset, jobs, cuts, tmp_path, Manner(), Watcher())
    paths = export(result, tmp_path)
    assert all(path.stat().st_size > 100 for path in paths)
    with paths[0].open(newline="") as file:
        header, *rows = csv.reader(file)
    if view == "alpha":
        assert header[1:] == ["adult, fedavg", "adult, stem", "even, fedavg", "even, stem"]
        assert [row[0] for row in rows] == ["A", "B", "C", "all", "freeloaders"]
        assert rows[-1][1].startswith("0.")
        assert rows[-2][1] == "–"
    else:
        assert header[1] == "adult, fedavg, λ = T/10"
        assert [row[0] for row in rows] == [f"κ = 0.{tenth}" for tenth in range(4, 10)] + ["κ = 1.0"]
        assert rows[-1][1].startswith("0 / 0")


def test_the_papers_numbers_about_freeloaders_stand_in_their_places():
    summaries = [{"alpha": {"A": 0.2, "freeloaders": 0.8}}, {"alpha": {"A": 0.3, "freeloaders": 0.9}}]
    rates = [{(kappa, limit): Rates(1.0, 0.25) for kappa in KAPPAS for limit in LIMITS}]
    for name in ("table-alpha", "table-thresholds"):
        preset = load_preset(name)
        paper = preset.paper_value("taco", "fmnist")
        cell = Cell("fmnist", "taco", 100, summaries, [], [], paper, rates)
        grid = grid_of(Reproduction(name, preset.title, preset.shows, [cell], [], 2))
        if name == "table-alpha":
            assert grid.rows == [
                ["A", "0.25 ± 0.07 (0.18 ± 0.09)"],
                ["freeloaders", "0.85 ± 0.07 (0.75 ± 0.01)"],
            ]
        else:
            assert grid.rows[0] == ["κ = 0.4", "100 / 25 (100 / 25)", "100 / 25 (100 / 12.5)", "100 / 25 (100 / 0)"]
            assert grid.rows[3][1] == "100 / 25 (100 / 0)"


@pytest.mark.parametrize("view", [view for view in VIEWS if view not in ABOUT_FREELOADERS])
def test_every_view_is_run_and_written(view, tmp_path):
    preset = read_preset("digits", DIGITS.format(view=view))
    jobs, cuts = plan_reproduction(preset, Scale("smoke", seeds=2))
    result = reproduce(preset, jobs, cuts, tmp_path, Manner(), Watcher())
    grid = grid_of(result)
    assert [row[0] for row in grid.rows] == ["fedavg", "stem"]
    assert grid.headers == ["method", "adult", "even"]
    timed = view in ("curves", "time-to-accuracy", "update-time", "round-time")
    assert all(bool(cell.round_seconds) == timed for cell in result.cells)
    paths = export(result, tmp_path)
    assert [path.suffix for path in paths] == [".csv", ".tex", ".svg", ".png"]
    assert all(path.stat().st_size > 100 for path in paths)
    with paths[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["panel"], row["variant"]) for row in rows] == [
        ("adult", "fedavg"),
        ("adult", "stem"),
        ("even", "fedavg"),
        ("even", "stem"),
    ]
    text = paths[1].read_text()
    assert r"\toprule" in text
    assert "2 instead of 20 rounds" in text


@pytest.mark.parametrize("view", ["time-to-accuracy", "round-time"])
def test_seconds_of_whole_runs_can_be_measured(view, tmp_path):
    preset = read_preset("digits", DIGITS.format(view=view))
    jobs, cuts = plan_reproduction(preset, Scale("smoke"), engine="serial")
    result = reproduce(preset, jobs, cuts, tmp_path, Manner(), Watcher(), measured=True)
    for cell in result.cells:
        (run,) = cell.summaries
        assert cell.seconds == pytest.approx(run["client_seconds"] / 2)


def test_turns_are_told_while_methods_are_timed(tmp_path):
    class Turns(Watcher):
        def __init__(self):
            self.told = []

        def turn_timed(self, done, turns):
            self.told.append((done, turns))

    preset = read_preset("digits", DIGITS.format(view="round-time"))
    jobs, cuts = plan_reproduction(preset, Scale("smoke"))
    watcher = Turns()
    reproduce(preset, jobs, cuts, tmp_path, Manner(), watcher)
    assert watcher.told == [(done, 24) for done in range(1, 25)]


def test_a_curve_without_seconds_is_not_drawn_over_seconds(tmp_path):
    timed = Cell("p", "fedavg", 100, [summary()], [[0.1, 0.7]], [2.0], None)
    cells = [timed, replace(timed, variant="untimed", round_seconds=[])]
    paths = draw(Reproduction("n", "t", "curves", cells, [], 1), tmp_path / "figure")
    shown = paths[0].read_text()
    lines = {
        name: len(re.findall(f"stroke: {colour.lower()}", shown)) for name, colour in zip("fu", COLOURS, strict=False)
    }
    assert lines["f"] == lines["u"] + 1


def test_seconds_are_of_the_seeds_that_finished():
    seeds = [summary(client_seconds=100.0), summary(client_seconds=6.0, stopped="It diverged.")]
    (row,) = compare_runs(seeds)
    assert (row.client_seconds, row.stopped, row.seeds) == (100.0, 1, 2)


def summary(**figures):
    blank = {
        "method": "m",
        "stopped": None,
        "final_accuracy": 0.8,
        "output_accuracy": None,
        "worst_tenth_accuracy": None,
        "alpha": {},
        "target": 0.7,
        "rounds_to_target": 10,
        "rounds": 50,
        "client_seconds": None,
        "dropped_uploads": 0,
        "expelled": [],
    }
    return {**blank, **figures}


def test_marks_are_the_papers():
    """× for a failure, N+ for a target not reached, ○ for more than 1.8 times FedAvg's seconds to it."""
    base = Cell("p", "fedavg", 100, [summary()], [], [2.0], None)
    cells = [
        base,
        replace(base, variant="slow", round_seconds=[4.0]),
        replace(base, variant="near", summaries=[summary(rounds_to_target=None, final_accuracy=0.68)]),
        replace(base, variant="far", summaries=[summary(rounds_to_target=None, final_accuracy=0.5)]),
        replace(base, variant="lost", summaries=[summary(rounds_to_target=10, final_accuracy=0.2)]),
        replace(base, variant="blown up", summaries=[summary(), summary(stopped="It diverged.")]),
        replace(base, variant="untimed", round_seconds=[]),
        replace(base, variant="long", summaries=[summary(rounds_to_target=6200)]),
    ]
    shown = {row[0]: row[1] for row in grid_of(Reproduction("n", "t", "time-to-accuracy", cells, [], 1)).rows}
    failed, others = {"lost": "×", "blown up": "×"}, {"untimed": "–", "long": "12400 s, 620.00× ○"}
    assert shown == {"fedavg": "20 s, 1.00×", "slow": "40 s, 2.00× ○", "near": "50+", "far": "×", **failed, **others}
    paper = replace(base, paper=[19.58, 0.0, "x"])
    assert grid_of(Reproduction("n", "t", "rounds", [paper], [], 1)).rows == [["fedavg", "80.00, 10 (19.58 ± 0.00, ×)"]]


@pytest.mark.parametrize(("view", "out"), [("rounds", "run"), ("update-time", "run"), ("update-time", "file")])
def test_a_place_that_is_taken_is_refused_before_anything_is_run(view, out, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("schema = 1\n")
    (tmp_path / "file").touch()
    preset = read_preset("digits", DIGITS.format(view=view))
    jobs, cuts = plan_reproduction(preset, Scale("smoke"))
    with pytest.raises(InvalidInput, match=r"holds a single run|is a file; name a folder"):
        reproduce(preset, jobs, cuts, tmp_path / out, Manner(), Watcher())
