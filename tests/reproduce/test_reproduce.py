"""Presets of the paper's tables and figures, and their results."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import pytest
from run_summaries import run_summary

from fedtaco import InvalidInput
from fedtaco.data.sources import SOURCES
from fedtaco.experiment import Callback, RunOptions
from fedtaco.records.detection_rates import KAPPAS, LIMITS, Rates
from fedtaco.records.method_summary import summarize_methods
from fedtaco.reproduce.export import export
from fedtaco.reproduce.figures import COLOURS, draw_figure
from fedtaco.reproduce.plan import Scale, plan_reproduction
from fedtaco.reproduce.presets import VIEWS, load_preset, paper_numbers, preset_names, read_preset
from fedtaco.reproduce.results import CellResult, Reproduction
from fedtaco.reproduce.runner import run_plan
from fedtaco.reproduce.tables import build_table

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
def test_presets_are_complete_and_use_the_papers_settings(name):
    preset = load_preset(name)
    plan = plan_reproduction(preset, Scale())
    assert plan.reductions == []
    numbers = paper_numbers()["settings"]
    for cell in plan.cells:
        for config in (spec.settings for spec in cell.specs):
            dataset = config["dataset"].partition(":")[0]
            assert dataset in SOURCES
            assert (config["batch_size"], config["weighting"]) == (64, "uniform")
            assert config["rounds"] == numbers["rounds"][dataset]
            assert config["local_steps"] == numbers["local_steps"][dataset]
            assert config["clients"] == (100 if name == "table-scalability" else 20)
            if preset.paper and (cell.variant.name, name) != ("taco", "table-update-time"):
                assert preset.paper_value(cell.variant.name, cell.panel.name) is not None
        assert [spec.settings["seed"] for spec in cell.specs] == [0, 1, 2]


def test_the_papers_numbers_are_found():
    assert load_preset("table-rounds").paper_value("scaffold", "svhn") == [19.58, 0.0, "x"]
    assert load_preset("table-ablation").paper_value("taco-correction", "adult dir0.1") == 83.52
    assert load_preset("table-update-time").paper_value("stem", "fmnist") == 0.455
    assert load_preset("table-round-time").paper_value("taco", "cifar100") == 4.81
    assert load_preset("figure-gamma").paper_value("γ = 0", "fmnist") is None


def test_reductions_are_reported():
    preset = load_preset("table-rounds").select(["fmnist"], ["fedavg", "taco"])
    plan = plan_reproduction(preset, Scale("small"))
    assert plan.reductions == ["fmnist: 20 instead of 100 rounds, 20 instead of 100 local steps"]
    assert [cell.variant.name for cell in plan.cells] == ["fedavg", "taco"]
    assert plan_reproduction(preset, Scale("full", rounds=30)).reductions == ["fmnist: 30 instead of 100 rounds"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: load_preset("table-round"), "There is no table or figure 'table-round'; did you mean"),
        (lambda: load_preset("table-rounds").select(["fmnst"], []), "did you mean 'fmnist'"),
        (lambda: load_preset("table-rounds").select([], ["krum"]), "There is no method in table-rounds 'krum'"),
        (
            lambda: load_preset("figure-gain").select(["svhn"], ["scaffold"]),
            "figure-gain has none of these methods",
        ),
        (lambda: Scale("tiny"), "There is no scale 'tiny'"),
        (lambda: Scale(seeds=0), "seeds is 0"),
        (lambda: read_preset("own", 'title = "x"\nshows = "pie"\npanels = []'), "shows 'pie'"),
    ],
)
def test_unknown_names_are_rejected(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


ABOUT_FREELOADERS = ("alpha", "thresholds")


@pytest.mark.parametrize("view", ABOUT_FREELOADERS)
def test_tables_about_freeloaders_are_run_and_written(view, tmp_path):
    text = DIGITS.format(view=view).replace("clients = 6", "clients = 6\nfreeloaders = 2")
    preset = read_preset("digits", text)
    result = run_plan(plan_reproduction(preset, Scale("smoke", seeds=2)), tmp_path, RunOptions(), Callback())
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


def test_the_papers_numbers_about_freeloaders_are_in_the_right_cells():
    summaries = [{"alpha": {"A": 0.2, "freeloaders": 0.8}}, {"alpha": {"A": 0.3, "freeloaders": 0.9}}]
    rates = [{(kappa, limit): Rates(1.0, 0.25) for kappa in KAPPAS for limit in LIMITS}]
    for name in ("table-alpha", "table-thresholds"):
        preset = load_preset(name)
        paper = preset.paper_value("taco", "fmnist")
        cell = CellResult("fmnist", "taco", 100, summaries, [], [], paper, rates)
        table = build_table(Reproduction(name, preset.title, preset.shows, [cell], [], 2))
        if name == "table-alpha":
            assert table.rows == [
                ["A", "0.25 ± 0.07 (0.18 ± 0.09)"],
                ["freeloaders", "0.85 ± 0.07 (0.75 ± 0.01)"],
            ]
        else:
            assert table.rows[0] == ["κ = 0.4", "100 / 25 (100 / 25)", "100 / 25 (100 / 12.5)", "100 / 25 (100 / 0)"]
            assert table.rows[3][1] == "100 / 25 (100 / 0)"


@pytest.mark.parametrize("view", [view for view in VIEWS if view not in ABOUT_FREELOADERS])
def test_every_view_is_run_and_written(view, tmp_path):
    preset = read_preset("digits", DIGITS.format(view=view))
    result = run_plan(plan_reproduction(preset, Scale("smoke", seeds=2)), tmp_path, RunOptions(), Callback())
    table = build_table(result)
    assert [row[0] for row in table.rows] == ["fedavg", "stem"]
    assert table.header == ["method", "adult", "even"]
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
    plan = plan_reproduction(preset, Scale("smoke"), measured=True)
    assert {spec.settings["engine"] for spec, _ in plan.runs} == {"serial"}
    result = run_plan(plan, tmp_path, RunOptions(), Callback())
    for cell in result.cells:
        (run,) = cell.summaries
        assert cell.seconds == pytest.approx(run["client_seconds"] / 2)


def test_every_timing_turn_is_reported(tmp_path):
    class Turns(Callback):
        def __init__(self):
            self.turns = []

        def on_timing_turn(self, done, turns):
            self.turns.append((done, turns))

    preset = read_preset("digits", DIGITS.format(view="round-time"))
    callback = Turns()
    run_plan(plan_reproduction(preset, Scale("smoke")), tmp_path, RunOptions(), callback)
    assert callback.turns == [(done, 24) for done in range(1, 25)]


def test_a_curve_without_seconds_is_not_drawn_over_seconds(tmp_path):
    timed = CellResult("p", "fedavg", 100, [summary()], [[0.1, 0.7]], [2.0], None)
    cells = [timed, replace(timed, variant="untimed", round_seconds=[])]
    paths = draw_figure(Reproduction("n", "t", "curves", cells, [], 1), tmp_path / "figure")
    shown = paths[0].read_text()
    lines = {
        name: len(re.findall(f"stroke: {colour.lower()}", shown)) for name, colour in zip("fu", COLOURS, strict=False)
    }
    assert lines["f"] == lines["u"] + 1


def test_seconds_are_of_the_seeds_that_finished():
    seeds = [summary(client_seconds=100.0), summary(client_seconds=6.0, stopped="It diverged.")]
    (row,) = summarize_methods(seeds)
    assert (row.client_seconds, row.stopped, row.seeds) == (100.0, 1, 2)


def summary(**figures):
    return run_summary("m", **{"rounds": 50, "target": 0.7, "rounds_to_target": 10, **figures})


def test_marks_are_the_papers():
    """× for a failure, N+ for a target not reached, ○ for more than 1.8 times FedAvg's seconds to it."""
    base = CellResult("p", "fedavg", 100, [summary()], [], [2.0], None)
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
    shown = {row[0]: row[1] for row in build_table(Reproduction("n", "t", "time-to-accuracy", cells, [], 1)).rows}
    failed, others = {"lost": "×", "blown up": "×"}, {"untimed": "–", "long": "12400 s, 620.00× ○"}
    assert shown == {"fedavg": "20 s, 1.00×", "slow": "40 s, 2.00× ○", "near": "50+", "far": "×", **failed, **others}
    paper = replace(base, paper=[19.58, 0.0, "x"])
    assert build_table(Reproduction("n", "t", "rounds", [paper], [], 1)).rows == [
        ["fedavg", "80.00, 10 (19.58 ± 0.00, ×)"]
    ]


@pytest.mark.parametrize(("view", "out"), [("rounds", "run"), ("update-time", "run"), ("update-time", "file")])
def test_a_folder_that_cannot_be_used_is_rejected_before_anything_is_run(view, out, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("schema = 2\n")
    (tmp_path / "file").touch()
    preset = read_preset("digits", DIGITS.format(view=view))
    plan = plan_reproduction(preset, Scale("smoke"))
    with pytest.raises(InvalidInput, match=r"holds a single run|is a file; name a folder"):
        run_plan(plan, tmp_path / out, RunOptions(), Callback())
