"""Heat maps of clients over rounds, averaged into a bounded number of cells."""

from __future__ import annotations

import pytest
from folders import diagnosed, write_run

from fedtaco.records import Diagnostics
from fedtaco.report.charts import POINTS
from fedtaco.report.heatmap import ColumnBins, HeatMap, RowBins
from fedtaco.report.page_data import build_page_data
from fedtaco.report.run_reader import SIDE, find_runs


def test_clients_are_drawn_by_group_and_labels_with_them(tmp_path):
    data = build_page_data([write_run(tmp_path / "a")])
    (partition,), (run,) = data.script["partitions"], data.script["runs"]
    assert partition["rows"] == ["A 1", "A 2", "B 0"]
    assert partition["groups"] == [("A", 2, 2), ("B", 1, 1)]
    assert partition["counts"][2] == list(range(1, 11))
    assert run["values"]["alpha"] == [[0.11, 0.12, 0.13], [0.21, 0.22, 0.23], [0.01, 0.02, 0.03]]
    assert run["values"]["norm"][0] == [1.0, 2.0, 3.0]


def test_diagnosed_quantities_are_drawn_if_a_run_has_them(tmp_path):
    indices = {1: [None, None, None], 2: [0.5, -0.2, 7.0], 3: [0.25, 1.5, None]}
    data = build_page_data([write_run(tmp_path / "a", over_correction=indices), write_run(tmp_path / "b", "fedavg")])
    run, plain = data.script["runs"]
    names = [quantity["name"] for quantity in data.script["quantities"]]
    assert names[-3:] == ["over_correction", "gradient_cosine", "drift"]
    assert "over_correction" not in plain["values"]
    assert run["values"]["over_correction"] == [[None, 2.0, 1.5], [None, 2.0, None], [None, 0.5, 0.25]]
    assert run["values"]["drift"] == [[1.0, 2.0, 3.0]] * 3


def test_runs_that_are_not_diagnosed_offer_no_diagnosed_quantity(tmp_path):
    data = build_page_data([write_run(tmp_path / "a")])
    assert "over_correction" not in {quantity["name"] for quantity in data.script["quantities"]}


def test_diagnosed_quantities_are_averaged_into_cells():
    heat = HeatMap(RowBins.of(None, 4, limit=2), ColumnBins(4, limit=2))
    heat.add_diagnostics(Diagnostics([diagnosed(number, [0.1, 0.5, None, number / 2]) for number in (1, 2, 3, 4)]))
    assert heat.values()["over_correction"] == [[0.3, 0.3], [0.75, 1.75]]


def test_methods_on_the_same_data_share_a_label_map(tmp_path):
    for method in ("fedavg", "taco"):
        write_run(tmp_path / method, method)
    data = build_page_data(find_runs(tmp_path))
    assert len(data.script["partitions"]) == 1
    assert [run["partition"] for run in data.script["runs"]] == [0, 0]


@pytest.mark.parametrize("clients", [1, 119, 120, 121, 1000, 9999])
@pytest.mark.parametrize("kinds", [0, 1, 3, 50, 100])
def test_there_are_never_more_rows_than_allowed(clients, kinds):
    groups = [str(client % kinds) for client in range(clients)] if kinds else None
    rows = RowBins.of(groups, clients, SIDE)
    assert len(rows) <= SIDE
    assert set(rows.of_client.tolist()) == set(range(len(rows)))
    assert len(rows) == clients or clients > SIDE
    if rows.groups:
        assert sum(count for _, count, _ in rows.groups) == len(rows)
        assert sum(members for _, _, members in rows.groups) == clients
        for client, group in enumerate(groups):
            assert rows.names[rows.of_client[client]].startswith(f"{group} ")


def test_a_large_run_is_averaged_line_by_line_into_a_small_heat_map():
    """Of 400,000 lines no more than two blocks are in memory at a time."""
    clients, rounds = 1000, 400
    held = {"now": 0, "most": 0}

    class Line(dict):
        def __init__(self, **values):
            super().__init__(values)
            held["now"] += 1
            held["most"] = max(held["most"], held["now"])

        def __del__(self):
            held["now"] -= 1

    others = {"cosine": None, "weight": 1.0, "training_loss": 0.5, "side": None}
    lines = (
        Line(round=r, client=c, alpha=float(c), norm=float(r), expelled=c == 7 and r == 9, **others)
        for r in range(1, rounds + 1)
        for c in range(clients)
    )
    heat = HeatMap(RowBins.of(None, clients, SIDE), ColumnBins(rounds, SIDE))
    latest_rounds = []
    heat.fill(lines, latest_rounds.append)
    values = heat.values()
    assert (len(values["alpha"]), len(values["alpha"][0])) == (112, 100)
    assert values["alpha"][0] == [4.0] * 100
    assert [row[1] for row in values["norm"]] == [6.5] * 112
    assert values["cosine"][0][0] is None
    assert list(heat.expelled) == [7]
    assert heat.mean_alpha(["all"] * clients) == {"all": pytest.approx(499.5)}
    assert latest_rounds[-1] == rounds
    assert held["most"] < 50_000


def test_many_rounds_and_many_runs_stay_small(tmp_path):
    long = build_page_data([write_run(tmp_path / "long", accuracies=(0.5,) * 1200, rounds=1200)])
    curve = long.script["methods"][0]["curves"]["accuracy"]
    assert len(curve["rounds"]) == POINTS
    assert (curve["rounds"][0], curve["rounds"][-1]) == (1, 1200)
    assert len(long.script["runs"][0]["columns"]) == SIDE
