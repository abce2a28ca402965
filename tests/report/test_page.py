"""The report: what is gathered from run folders, and the page that is written."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser

import pytest
from folders import write_run

from fedtaco.cli.main import main
from fedtaco.errors import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.report.gather import POINTS, SIDE, gather
from fedtaco.report.heat import Columns, HeatMap, Rows
from fedtaco.report.page import render, write_report
from fedtaco.report.runs import find_runs, read_run

PLOTLY = "window.Plotly = {};"


def page_of(folders):
    return render(gather(folders), PLOTLY, "1.0")


def text_of(page):
    """The page as it is read: no scripts, no tags."""

    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.parts, self.skipping = [], False

        def handle_starttag(self, tag, attrs):
            self.skipping = tag in ("script", "style")

        def handle_endtag(self, tag):
            self.skipping = False

        def handle_data(self, data):
            if not self.skipping:
                self.parts.append(data)

    reader = Reader()
    reader.feed(page)
    return " ".join(" ".join(reader.parts).split())


# Gathering


def test_a_curve_is_the_mean_over_seeds_with_the_lowest_and_highest(tmp_path):
    folders = [
        write_run(tmp_path / "a", seed=0, accuracies=(0.2, 0.4, 0.6)),
        write_run(tmp_path / "b", seed=1, accuracies=(0.4, 0.6, 0.8)),
    ]
    data = gather(folders)
    assert [method["name"] for method in data["methods"]] == ["taco"]
    curve = data["methods"][0]["curves"]["accuracy"]
    assert curve["rounds"] == [1, 2, 3]
    assert curve["mean"] == pytest.approx([0.3, 0.5, 0.7])
    assert (curve["low"], curve["high"]) == ([0.2, 0.4, 0.6], [0.4, 0.6, 0.8])
    assert curve["seconds"] == [2.0, 4.0, 6.0]
    assert curve["seeds"] == [2, 2, 2]
    assert "validation_accuracy" not in data["methods"][0]["curves"]
    assert data["results"][0]["accuracy"] == pytest.approx(0.7)
    assert data["results"][0]["accuracy_deviation"] == pytest.approx(0.2 / 2**0.5)


def test_a_seed_that_got_less_far_counts_only_as_far_as_it_got(tmp_path):
    write_run(tmp_path / "a", seed=0, accuracies=(0.2, 0.4, 0.6))
    write_run(tmp_path / "b", seed=1, accuracies=(0.4,), finished=False)
    data = gather(find_runs(tmp_path))
    curve = data["methods"][0]["curves"]["accuracy"]
    assert curve["mean"] == pytest.approx([0.3, 0.4, 0.6])
    assert curve["seeds"] == [2, 1, 1]
    assert curve["seconds"] == [2.0, 4.0, 6.0]
    (row,) = data["results"]
    assert (row["accuracy"], row["status"]) == (pytest.approx(0.6), "1 of 2 seeds unfinished")


def test_seconds_and_held_out_accuracy_are_shown_where_they_were_measured(tmp_path):
    folder = write_run(tmp_path / "a", timed=False, validation=True)
    data = gather([folder])
    assert not data["timed"]
    curves = data["methods"][0]["curves"]
    assert curves["accuracy"]["seconds"] is None
    assert curves["validation_accuracy"]["mean"] == pytest.approx([0.25, 0.35, 0.45])
    assert "did not measure seconds" in text_of(page_of([folder]))
    assert "client seconds" not in re.search("<table>.*?</table>", page_of([folder]), re.S)[0]


def test_an_unfinished_run_is_shown_with_the_rounds_it_has(tmp_path):
    folder = write_run(tmp_path / "a", accuracies=(0.5, 0.7), finished=False)
    with (tmp_path / "a" / "clients.jsonl").open("a") as file:
        file.write('{"round": 3, "client": 0, "alpha": 9, "cosine": 9, "norm": 9, "weight": 9, "expelled": true}\n{"')
    data = gather([folder])
    (row,) = data["results"]
    assert row["status"] == "unfinished, 2 of 3 rounds"
    assert row["accuracy"] == 0.7
    assert row["rounds_to_target"] == "–"
    assert row["alpha"] == pytest.approx({"A": 0.165, "B": 0.015})
    assert data["runs"][0]["columns"] == ["1", "2"]
    assert "taco (unfinished, 2 of 3 rounds)" in text_of(page_of([folder]))


def test_a_run_that_has_only_begun_is_no_obstacle(tmp_path):
    write_run(tmp_path / "a", "fedavg")
    folder = write_run(tmp_path / "b", "taco", accuracies=(), finished=False)
    data = gather(find_runs(tmp_path))
    assert data["methods"][1] == {"name": "taco", "curves": {}}
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


def test_methods_are_told_apart_by_the_settings_in_which_they_differ(tmp_path):
    for gamma in (0.01, 0.02):
        for seed in (0, 1):
            write_run(tmp_path / f"taco_{gamma}" / f"seed{seed}", seed=seed, parameters={"taco.gamma": gamma})
    write_run(tmp_path / "fedavg" / "seed0", "fedavg")
    data = gather(find_runs(tmp_path))
    assert [method["name"] for method in data["methods"]] == ["fedavg", "taco (gamma=0.01)", "taco (gamma=0.02)"]
    assert [row["seeds"] for row in data["results"]] == [1, 2, 2]
    assert "taco.gamma" not in data["settings"]
    assert data["settings"]["rounds"] == "3"
    assert data["own_settings"][1]["settings"] == "taco.gamma=0.01"
    assert data["own_settings"][1]["engine"] == "serial: the work is small"


def test_a_users_own_method_has_its_name_also_while_a_seed_is_unfinished(tmp_path):
    write_run(tmp_path / "a", "mine:Clipped", seed=0, finished=False)
    write_run(tmp_path / "b", "mine:Clipped", seed=1)
    assert [method["name"] for method in gather(find_runs(tmp_path))["methods"]] == ["Clipped"]


def test_a_run_named_twice_counts_once(tmp_path):
    write_run(tmp_path / "a")
    assert len(gather([*find_runs(tmp_path), *find_runs(tmp_path / "a")])["runs"]) == 1


def test_runs_are_found_below_a_folder_in_the_order_of_numbers(tmp_path):
    for seed in (10, 2):
        write_run(tmp_path / "deep" / "taco" / f"seed{seed}", seed=seed)
    assert [folder.path.name for folder in find_runs(tmp_path)] == ["seed2", "seed10"]


# Aggregation


def test_clients_are_drawn_by_group_and_labels_with_them(tmp_path):
    data = gather([write_run(tmp_path / "a")])
    (partition,), (run,) = data["partitions"], data["runs"]
    assert partition["rows"] == ["A 1", "A 2", "B 0"]
    assert partition["groups"] == [("A", 2, 2), ("B", 1, 1)]
    assert partition["counts"][2] == list(range(1, 11))
    assert run["grids"]["alpha"] == [[0.11, 0.12, 0.13], [0.21, 0.22, 0.23], [0.01, 0.02, 0.03]]
    assert run["grids"]["norm"][0] == [1.0, 2.0, 3.0]


def test_methods_on_the_same_data_share_its_picture(tmp_path):
    for method in ("fedavg", "taco"):
        write_run(tmp_path / method, method)
    data = gather(find_runs(tmp_path))
    assert len(data["partitions"]) == 1
    assert [run["partition"] for run in data["runs"]] == [0, 0]


@pytest.mark.parametrize("clients", [1, 119, 120, 121, 1000, 9999])
@pytest.mark.parametrize("kinds", [0, 1, 3, 50, 100])
def test_there_are_never_more_rows_than_allowed(clients, kinds):
    groups = [str(client % kinds) for client in range(clients)] if kinds else None
    rows = Rows.of(groups, clients, SIDE)
    assert len(rows) <= SIDE
    assert set(rows.of_client.tolist()) == set(range(len(rows)))
    assert len(rows) == clients or clients > SIDE
    if rows.groups:
        assert sum(count for _, count, _ in rows.groups) == len(rows)
        assert sum(members for _, _, members in rows.groups) == clients
        for client, group in enumerate(groups):
            assert rows.names[rows.of_client[client]].startswith(f"{group} ")


def test_a_large_run_is_averaged_line_by_line_into_a_small_picture():
    """Twice 200,000 lines, of which no more than a block is held."""
    clients, rounds = 1000, 400
    held = {"now": 0, "most": 0}

    class Line(dict):
        def __init__(self, **values):
            super().__init__(values)
            held["now"] += 1
            held["most"] = max(held["most"], held["now"])

        def __del__(self):
            held["now"] -= 1

    lines = (
        Line(round=r, client=c, alpha=float(c), cosine=None, norm=float(r), weight=1.0, expelled=c == 7 and r == 9)
        for r in range(1, rounds + 1)
        for c in range(clients)
    )
    heat = HeatMap(Rows.of(None, clients, SIDE), Columns(rounds, SIDE))
    told = []
    heat.fill(lines, told.append)
    grids = heat.grids()
    assert (len(grids["alpha"]), len(grids["alpha"][0])) == (112, 100)
    assert grids["alpha"][0] == [4.0] * 100
    assert [row[1] for row in grids["norm"]] == [6.5] * 112
    assert grids["cosine"][0][0] is None
    assert list(heat.expelled) == [7]
    assert heat.mean_alpha(None) == {"all": pytest.approx(499.5)}
    assert told[-1] == rounds
    assert held["most"] < 50_000


def test_many_rounds_and_many_runs_stay_small(tmp_path):
    long = gather([write_run(tmp_path / "long", accuracies=(0.5,) * 1200, rounds=1200)])
    curve = long["methods"][0]["curves"]["accuracy"]
    assert len(curve["rounds"]) == POINTS
    assert (curve["rounds"][0], curve["rounds"][-1]) == (1, 1200)
    assert len(long["runs"][0]["columns"]) == SIDE


# What happened


def test_detections_and_left_out_uploads_are_listed_with_reasons(tmp_path):
    folder = write_run(
        tmp_path / "a",
        expelled={1: 2},
        dropped={1: {0: "the upload is not finite"}, 3: {0: "the upload is not finite"}},
        detector="paper",
        parameters={"taco.kappa": 0.1},
        freeloaders=[1, 2],
    )
    data = gather([folder])
    (detection,), (dropped,) = data["detections"], data["dropped"]
    assert (detection["client"], detection["round"], detection["freeloader"]) == (1, 2, True)
    assert dropped["rounds"] == [1, 3]
    assert (data["runs"][0]["expelled"], data["runs"][0]["freeloaders"]) == ([0], [0, 1])
    assert data["runs"][0]["grids"]["alpha"][0] == [0.11, 0.12, None]
    text = text_of(page_of([folder]))
    assert "taco, seed 0: 1 client expelled Client 1, after round 2: 2 strikes (α at or above 0.1), α 0.12" in text
    assert "in its last round. A freeloader." in text
    assert "Client 0, rounds 1, 3: the upload is not finite." in text
    quiet = text_of(page_of([write_run(tmp_path / "b")]))
    assert "No client was expelled." in quiet
    assert "No upload was left out." in quiet


def test_long_lists_are_cut(tmp_path):
    clients = 300
    folder = write_run(tmp_path / "a", groups=("A",) * clients, expelled=dict.fromkeys(range(clients), 1))
    assert len(gather([folder])["detections"]) == clients
    assert "And 100 more." in text_of(page_of([folder]))


def test_a_method_that_stopped_early_says_why(tmp_path):
    write_run(tmp_path / "a", "fedprox", stopped="Round 4 of fedprox: the run has diverged.")
    write_run(tmp_path / "b", "taco")
    text = text_of(page_of(find_runs(tmp_path)))
    assert "fedprox (stopped early) – – ×" in text
    assert "seed 0: Round 4 of fedprox: the run has diverged." in text
    assert "taco ends highest, at 90.0 %" in text


# The page


def test_names_from_a_run_cannot_break_out_of_the_page(tmp_path):
    evil = '</script><script>alert("&1")</script><!--data-->'
    folder = write_run(
        tmp_path / "a",
        evil,
        groups=(evil, "A", "A"),
        dropped={1: {0: evil}},
        stopped=evil,
        dataset=evil,
        partition=evil,
        parameters={evil: evil},
        ran_by={"engine": evil, "reason": evil},
    )
    page = page_of([folder])
    assert "<script>alert" not in page
    assert page.count("</script>") == 3
    island = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1]
    assert not set("<>&") & set(island)
    assert json.loads(island)["methods"][0]["name"] == evil
    assert evil in text_of(page)


def test_the_page_holds_all_it_needs(tmp_path):
    out = tmp_path / "report.html"
    write_report([write_run(tmp_path / "a")], out)
    page = out.read_text(encoding="utf-8")
    assert page.count("<!--") == page.count("<!--", page.index("<script>"))
    assert not re.search(r'(?:src|href)="(?!#|data:)', page[: page.index("<script>")])
    assert "default-src 'none'" in page
    assert len(page) < 8_000_000


def test_reading_for_a_report_needs_no_torch(tmp_path):
    import subprocess

    write_run(tmp_path / "a")
    probe = (
        "import sys; from pathlib import Path; from fedtaco.report.page import write_report;"
        "from fedtaco.report.runs import find_runs;"
        f"write_report(find_runs(Path({str(tmp_path)!r})), Path({str(tmp_path / 'r.html')!r}));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


# The command


@pytest.fixture
def fedtaco(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedtaco", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return int(end.value.code or 0), shown.out + shown.err.replace("\n", " ")

    return call


def test_the_command_writes_the_page_into_the_first_folder(fedtaco, tmp_path):
    write_run(tmp_path / "runs" / "taco-seed0")
    assert fedtaco("report", "runs") == (0, "Written to runs/report.html\n")
    assert "Accuracy over rounds" in (tmp_path / "runs" / "report.html").read_text(encoding="utf-8")
    assert fedtaco("report", "runs/taco-seed0", "--out", "other.html")[0] == 0
    assert (tmp_path / "other.html").exists()


def test_a_report_shows_its_progress_when_reading_takes_long(fedtaco, tmp_path, monkeypatch):
    write_run(tmp_path / "runs" / "taco-seed0")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "Reading rounds" not in fedtaco("report", "runs")[1]
    monkeypatch.setattr("fedtaco.cli.report.PATIENCE", -1.0)
    assert "Reading rounds" in fedtaco("report", "runs")[1]


def test_bad_requests_are_a_sentence(fedtaco, tmp_path, monkeypatch):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "mixed" / "a")
    write_run(tmp_path / "mixed" / "b", dataset="fmnist")
    (tmp_path / "empty").mkdir()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    for arguments, words in (
        (["nowhere"], "There is no folder nowhere."),
        (["empty"], "There is no run in empty"),
        (["runs", "--out", "no/report.html"], "there is no folder no."),
        (["runs", "--out", "empty"], "which is a folder"),
        (["runs"], "Reports need plotly: pip install 'fedtaco[report]'."),
        ([], "Missing argument"),
    ):
        code, text = fedtaco("report", *arguments)
        assert (code, words in text, "Traceback" in text) == (2, True, False), text
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    code, text = fedtaco("report", "mixed")
    assert code == 2
    assert "The runs are of the datasets digits, fmnist; a report shows one" in text


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.toml", "method = ", "config.toml is damaged"),
        ("config.toml", 'method = "taco"\n', "config.toml is damaged: it lacks clients"),
        ("rounds.jsonl", "{\n", "rounds.jsonl is damaged"),
        ("rounds.jsonl", '{"round": 1}\n', "rounds.jsonl is damaged: it lacks dropped"),
        ("rounds.jsonl", '{"round": 1, "dropped": 3}\n', "rounds.jsonl is damaged"),
        ("clients.jsonl", "[]\n", "clients.jsonl is damaged"),
        ("clients.jsonl", '{"round": 1, "client": 99, "alpha": 1}\n', "clients.jsonl is damaged"),
        ("partition.npz", "nothing", "partition.npz is damaged"),
        ("summary.json", "{", "summary.json is damaged"),
        ("summary.json", '{"method": "taco"}', "summary.json is damaged: it lacks"),
    ],
)
def test_a_damaged_file_is_named(fedtaco, tmp_path, file, content, words):
    write_run(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "a" / file).write_text(content)
    code, text = fedtaco("report", "runs")
    assert (code, "Traceback" in text) == (2, False), text
    assert words in text
    assert not (tmp_path / "runs" / "report.html").exists()


def test_a_missing_partition_is_told(tmp_path):
    write_run(tmp_path / "a")
    (tmp_path / "a" / "partition.npz").unlink()
    with pytest.raises(InvalidInput, match=r"partition\.npz"):
        gather([RunFolder(tmp_path / "a")])
