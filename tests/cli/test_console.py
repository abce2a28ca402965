"""Text from files and messages reaches the terminal without escapes, line breaks, bidirectional controls or markup."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text
from run_summaries import run_summary

import fedtaco.cli
from fedtaco.cli.console import PlainConsole, print_line
from fedtaco.cli.tables import print_comparison
from fedtaco.errors import InvalidInput
from fedtaco.records import Decision, RoundRecord
from fedtaco.runs.callbacks import Run, following
from fedtaco.runs.progress import ProgressBar

EVIL = "\x1b]0;evil\x07\x1b[2J\r\u202e\u2066[red]x[/red]\nRecorded in /evil"


def assert_without_controls(output):
    assert [letter for letter in output if not letter.isprintable() and letter != "\n"] == []
    assert "[red]x[/red]" in output


def assert_harmless(output):
    assert_without_controls(output)
    assert "[red]x[/red] Recorded in /evil" in output


@pytest.mark.parametrize("name", ["method", "group", "note"])
def test_results_of_a_strangers_run_are_printed_without_controls(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    changes = {"group": {"alpha": {"A": 0.1, EVIL: 0.2}}, "note": {"partition_notes": [EVIL]}}.get(name, {})
    runs = [run_summary("taco", alpha={"A": 0.5}), run_summary(EVIL if name == "method" else "fedavg", **changes)]
    print_comparison(runs)
    assert_harmless(capsys.readouterr().out)


def test_progress_of_a_run_is_printed_without_controls(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    run = Run({"rounds": 1, "method": EVIL, "seed": 0}, None, f"serial: {EVIL}", [], list)
    decision = Decision(2, "expelled", "copy", 0.0, 1.0, EVIL)
    bar = ProgressBar()
    with following(bar, [run.config]):
        bar.on_run_begin(run)
        bar.on_round_end(run, RoundRecord(1, 0.5, 1.0, None, 1.0, dropped={1: EVIL}, decisions=[decision]))
    assert_harmless(capsys.readouterr().err)


def test_progress_names_evaluations_and_keeps_the_latest_accuracy():
    run, bar = Run({"rounds": 3, "method": "taco", "seed": 0}, None, "serial: one client", [], list), ProgressBar()

    def shown():
        return bar.bar.tasks[bar.task].description

    with following(bar, [run.config]):
        bar.on_run_begin(run)
        bar.on_evaluation_begin(run, 1)
        assert shown() == "taco seed 0 evaluating"
        bar.on_round_end(run, RoundRecord(1, 0.5, 1.0, None, 1.0))
        assert shown() == "taco seed 0  50.0%"
        bar.on_round_end(run, RoundRecord(2, None, None, None, 1.0))
        assert shown() == "taco seed 0  50.0%"


@pytest.mark.filterwarnings("default")
def test_errors_and_warnings_are_printed_without_controls(cli, monkeypatch):
    def fail(*_, **__):
        warnings.warn(f"A run that began with torch {EVIL}", RuntimeWarning, stacklevel=1)
        raise InvalidInput(f"The dataset is {EVIL}.")

    monkeypatch.setattr("fedtaco.experiment.training.run_experiment", fail)
    lines = [line for line in cli("run").stderr.splitlines() if line]
    assert len(lines) == 2
    for line in lines:
        assert_harmless(line)


def test_arguments_are_printed_without_controls(cli):
    assert_without_controls(cli("report", "nowhere\x1b[2J[red]x[/red]").stderr)
    assert_without_controls(cli("run\x1b[2J[red]x[/red]").stderr)


def test_console_prints_no_controls_in_whatever_form_it_gets_them(capsys):
    table = Table(EVIL, title=EVIL, caption=EVIL)
    table.add_row(Text(EVIL))
    PlainConsole().print(table, EVIL, Text(EVIL, "red"))
    assert_without_controls(capsys.readouterr().out)


def test_errors_of_the_system_are_printed_as_sentences(cli):
    done = cli("report", "x" * 300)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert "File name too long" in done.stderr


def test_own_text_keeps_its_spaces_and_styles(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_line("runs/a  b [v2]", PlainConsole(), style="yellow")
    assert capsys.readouterr().out == "\x1b[33mruns/a  b [v2]\x1b[0m\n"


def test_all_commands_print_through_one_console():
    modules = [path for path in Path(fedtaco.cli.__file__).parent.glob("*.py") if path.name != "console.py"]
    assert len(modules) > 8
    assert [path.name for path in modules if re.search(r"\bConsole\b", path.read_text(encoding="utf-8"))] == []
