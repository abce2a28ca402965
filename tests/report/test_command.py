"""The command ``fedtaco report``."""

from __future__ import annotations

import sys

import pytest
from folders import write_run

from fedtaco.cli.main import main
from fedtaco.errors import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.report.page_data import build_page_data

WHOLE = """
schema = 2
method = "taco"
dataset = "digits"
partition = "groups"
clients = 3
rounds = 3
seed = 0
target = 0.9
parameters = {}
"""


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


def test_bad_requests_give_a_one_line_error(fedtaco, tmp_path, monkeypatch):
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
        ("config.toml", 'schema = 2\nmethod = "taco"\n', "config.toml is damaged: it lacks clients"),
        ("config.toml", WHOLE + "[ran_by]\nversions = [3]", "config.toml is damaged"),
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


def test_a_missing_partition_is_reported(tmp_path):
    write_run(tmp_path / "a")
    (tmp_path / "a" / "partition.npz").unlink()
    with pytest.raises(InvalidInput, match=r"partition\.npz"):
        build_page_data([RunFolder(tmp_path / "a")])
