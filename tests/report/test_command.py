"""The command ``fedtaco report``."""

from __future__ import annotations

import os
import sys

import pytest
from folders import write_run

from fedtaco.cli.main import main
from fedtaco.errors import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.report.page_data import build_page_data


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
    assert "Test accuracy over rounds" in (tmp_path / "runs" / "report.html").read_text(encoding="utf-8")
    assert fedtaco("report", "runs/taco-seed0", "--out", "other.html")[0] == 0
    assert (tmp_path / "other.html").exists()


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("table.csv", b"method,status,seeds,final_accuracy"),
        ("table.json", b'[\n  {\n    "method": "fedavg",\n    "status": "unfinished, 2 of 3 rounds"'),
        ("table.md", b"| method | final accuracy, %"),
        ("table.tex", b"% This table needs the package booktabs.\n\\begin{tabular}"),
        ("figure.pdf", b"%PDF"),
        ("figure.png", b"\x89PNG"),
        ("figure.svg", b"<?xml"),
        ("page.html", b"<!doctype html>"),
    ],
)
def test_the_suffix_decides_what_is_written(fedtaco, tmp_path, name, start):
    write_run(tmp_path / "runs" / "taco")
    write_run(tmp_path / "runs" / "fedavg", "fedavg", accuracies=(0.5, 0.7), finished=False)
    code, text = fedtaco("report", "runs", "--out", name)
    assert (code, text.startswith(f"Written to {name}\n")) == (0, True), text
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_table_has_the_rows_of_the_page(fedtaco, tmp_path):
    for gamma in (0.1, 0.02, 1e-05):
        write_run(tmp_path / "runs" / f"taco_gamma={gamma}", parameters={"taco.gamma": gamma})
    write_run(tmp_path / "runs" / "fedavg", "fedavg", accuracies=(0.5, 0.7), finished=False)
    fedtaco("report", "runs", "--out", "table.md")
    names = [line.split(" | ")[0] for line in (tmp_path / "table.md").read_text().splitlines()[2:]]
    assert names == [
        "| fedavg (unfinished, 2 of 3 rounds)",
        *(f"| taco (gamma={gamma})" for gamma in ("1e-05", "0.02", "0.1")),
    ]


def test_names_of_files_and_datasets_are_printed_without_controls_and_markup(fedtaco, tmp_path):
    evil = "\x1b]0;evil\x07\x1b[2J\r\u202e[red]x[/red]"
    runs = f"runs{evil}"
    write_run(tmp_path / runs / "a")
    assert fedtaco("report", runs) == (0, "Written to runs ]0;evil [2J [red]x[/red]/report.html\n")
    hostile = {"groups": (evil, "A", "A"), "dropped": {1: {0: evil}}, "stopped": evil}
    write_run(tmp_path / runs / "b", evil, dataset=evil, **hostile)
    code, text = fedtaco("report", runs)
    assert (code, text.isprintable(), "the datasets ]0;evil [2J [red]x[/red], digits" in text) == (2, True, True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("link.html", "which is a symbolic link; name the file that it refers to"),
        ("dangling.html", "which is a symbolic link"),
        ("fifo.html", "which is a device or another special file"),
        ("/dev/null", "which is a device or another special file"),
        ("/dev/stdout", "which is a symbolic link"),
        ("empty", "which is a folder"),
        ("x" * 300, "Cannot write to xxx"),
        ("nowhere/page.html", "there is no folder nowhere"),
        ("page.htm", "'page.htm'; its name must end in .html, .csv, .json, .md, .tex, .pdf, .png or .svg"),
        ("page", "its name must end in .html"),
    ],
)
def test_only_files_are_written_and_replaced(fedtaco, tmp_path, name, words):
    write_run(tmp_path / "runs" / "a")
    (tmp_path / "own.html").write_text("mine")
    (tmp_path / "link.html").symlink_to("own.html")
    (tmp_path / "dangling.html").symlink_to("nothing.html")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "fifo.html")
    code, text = fedtaco("report", "runs", "--out", name)
    assert (code, words in text) == (2, True), text
    assert (tmp_path / "own.html").read_text() == "mine"
    assert (tmp_path / "link.html").is_symlink()
    assert not (tmp_path / "nothing.html").exists()


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(fedtaco, tmp_path):
    write_run(tmp_path / "runs" / "a")
    (tmp_path / "own.txt").write_text("mine")
    (tmp_path / "runs" / "report.html.part").symlink_to(tmp_path / "own.txt")
    assert fedtaco("report", "runs")[0] == 0
    assert (tmp_path / "own.txt").read_text() == "mine"
    assert not (tmp_path / "runs" / "report.html").is_symlink()


def test_a_report_shows_its_progress_when_reading_takes_long(fedtaco, tmp_path, monkeypatch):
    write_run(tmp_path / "runs" / "taco-seed0")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "Reading rounds" not in fedtaco("report", "runs")[1]
    monkeypatch.setattr("fedtaco.cli.report.PATIENCE", -1.0)
    assert "Reading rounds" in fedtaco("report", "runs")[1]


def test_bad_requests_give_a_one_line_error(fedtaco, tmp_path, monkeypatch):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "mixed" / "a")
    write_run(tmp_path / "mixed" / "b", dataset="fmnist")
    (tmp_path / "empty").mkdir()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for arguments, words in (
        (["nowhere"], "There is no folder nowhere."),
        (["empty"], "There is no run in empty"),
        (["runs", "--out", "no/report.html"], "there is no folder no."),
        (["runs", "--out", "empty"], "which is a folder"),
        (["runs"], "Reports need plotly: pip install 'fedtaco[report]'."),
        (["runs", "--out", "a.pdf"], "Figures need matplotlib: pip install 'fedtaco[plot]'."),
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
        ("config.toml", 'schema = 2\nmethod = "taco"\n', "config.toml was written by another version"),
        ("config.toml", 'schema = 6\nmethod = "taco"\n', "config.toml is damaged: it has changed"),
        ("rounds.jsonl", "{\n", "rounds.jsonl is damaged"),
        ("rounds.jsonl", '{"round": 1}\n', "rounds.jsonl is damaged"),
        ("rounds.jsonl", '{"round": 1, "dropped": 3}\n', "rounds.jsonl is damaged"),
        ("clients.jsonl", "[]\n", "clients.jsonl is damaged"),
        ("clients.jsonl", '{"round": 1, "client": 99, "alpha": 1}\n', "clients.jsonl is damaged"),
        ("partition.npz", "nothing", "partition.npz is damaged"),
        ("summary.json", "{", "summary.json is damaged"),
        ("summary.json", '{"method": "taco"}', "summary.json was written by another version"),
    ],
)
def test_a_damaged_file_is_named(fedtaco, tmp_path, file, content, words):
    write_run(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "a" / file).write_text(content)
    code, text = fedtaco("report", "runs")
    assert (code, "Traceback" in text) == (2, False), text
    assert words in text
    assert not (tmp_path / "runs" / "report.html").exists()


def test_a_missing_partition_is_reported(tmp_path):
    write_run(tmp_path / "a")
    (tmp_path / "a" / "partition.npz").unlink()
    with pytest.raises(InvalidInput, match=r"partition\.npz"):
        build_page_data([RunFolder(tmp_path / "a")])
