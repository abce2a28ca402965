"""``fedtaco compare``: tables, JSON output, and runs that diverge."""

from __future__ import annotations

import json
import re

from run_summaries import run_summary

from fedtaco.cli import main
from fedtaco.cli.tables import print_comparison
from fedtaco.methods import METHODS, PAPER_METHODS

QUICK = ["--rounds", "2", "--local-steps", "2"]


def test_the_methods_of_the_paper_are_compared_by_default():
    assert main.PAPER_METHODS.split(",") == [method.name for method in PAPER_METHODS]


def test_widest_table_fits_eighty_columns(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = cli("compare", "--methods", "fedavg,foolsgold", "--seeds", "2", "--engine", "serial", *QUICK)
    assert done.returncode == 0, done.stderr
    assert re.search(r"foolsgold +\S+ ± \S+ +\S+ \[\S+ \S+\] +\S+ +\S+ +\d\.\d\d +\.\d\d \.\d\d \.\d\d\n", done.stdout)


def test_wider_tables_are_printed_closer_together(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    figures = {"target": 0.785, "worst_tenth_accuracy": 0.123, "client_seconds": 1234.5, "rounds": 100}
    alpha = {"A": 0.1, "B": 0.2, "C": 0.3}
    accuracies = {"fedavg": (0.5, 0.7), "foolsgold": (0.1, 0.9)}
    runs = [
        run_summary(method, seed, accuracy, alpha=alpha, **figures)
        for method, own in accuracies.items()
        for seed, accuracy in enumerate(own)
    ]
    print_comparison(runs)
    table = capsys.readouterr().out.splitlines()[:5]
    assert max(map(len, table)) <= 80
    expected = [
        "foolsgold",
        "50.0",
        "±",
        "56.6",
        "−10.0",
        "[−391.2,",
        "+371.2]",
        "12.3",
        "100+↓",
        "1234.50",
        ".10",
        ".20",
        ".30",
    ]
    assert table[-1].split() == expected


def compared(capsys, monkeypatch, spread=0.1, **figures):
    """Return what is printed, with 80 columns, for two methods of which one receives twice as much."""
    monkeypatch.setenv("COLUMNS", "80")
    alpha = {"A": 0.1, "B": 0.2, "C": 0.3}
    sizes = {"fedavg": 2_628_000, "taco": 5_256_000}
    runs = [
        run_summary(
            method,
            seed,
            0.5 + seed * (spread if method == "taco" else -spread),
            alpha=alpha,
            bytes_up=662_500,
            bytes_down=down,
            **figures,
        )
        for method, down in sizes.items()
        for seed in range(2)
    ]
    print_comparison(runs)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    return printed


def test_megabytes_are_shown_where_methods_differ(capsys, monkeypatch):
    printed = compared(capsys, monkeypatch)
    assert re.search(r"\ntaco .* 0\.662 +5\.26 +\.10 \.20 \.30\n", printed)
    assert "MB up, MB down: megabytes that all clients together send and receive in a run." in " ".join(printed.split())


def test_megabytes_are_below_a_table_without_room_for_them(capsys, monkeypatch):
    printed = " ".join(compared(capsys, monkeypatch, spread=0.4, client_seconds=1234.5).split())
    assert "MB up: fedavg 0.662, taco 0.662. MB down: fedavg 2.63, taco 5.26." in printed


def test_megabytes_are_shown_where_uploads_are_compressed(cli):
    command = ["compare", "--methods", "fedavg,fedprox", *QUICK]
    plain, compressed = cli(*command), cli(*command, "--compress", "q8")
    assert "MB up" not in " ".join(plain.stdout.split())
    assert re.search(r"fedprox .* 0\.265 +1\.05 ", compressed.stdout)


def test_json_is_the_only_output_on_stdout(cli, tmp_path):
    done = cli("compare", "--methods", "fedavg,taco", "--seeds", "2", *QUICK, "--format", "json")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["method"] for run in runs] == ["fedavg", "taco", "fedavg", "taco"]
    assert sorted(path.name for path in next((tmp_path / "runs").glob("digits-*")).iterdir()) == [
        "fedavg-seed0",
        "fedavg-seed1",
        "taco-seed0",
        "taco-seed1",
    ]
    again = cli("compare", "--methods", "fedavg,taco", "--seeds", "2", *QUICK, "--resume")
    assert again.returncode == 0, again.stderr
    assert "±" in again.stdout


def test_results_are_printed_in_every_format_and_drawn(cli, tmp_path):
    options = ["--methods", "fedavg,taco", "--seeds", "2", *QUICK, "--resume"]
    starts = {
        "csv": "method,seeds,",
        "markdown": "| method |",
        "latex": "% This table",
        "json": '{\n  "folder": "runs/',
    }
    for name, start in starts.items():
        done = cli("compare", *options, "--format", name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(start)
        assert "Recorded in runs/digits" in done.stderr
    result = json.loads(done.stdout)
    assert [row["method"] for row in result["methods"]] == ["fedavg", "taco"]
    assert result["headline"][0] in " ".join(cli("compare", *options).stdout.split())
    done = cli("compare", *options, "--plot", "out.svg")
    assert "Drawn in out.svg" in done.stdout
    assert (tmp_path / "out.svg").read_bytes().startswith(b"<?xml")
    again = (tmp_path / "out.svg").read_bytes()
    runs = str(next((tmp_path / "runs").iterdir()))
    assert cli("report", runs, "--out", "again.svg").returncode == 0
    assert (tmp_path / "again.svg").read_bytes() == again


def test_comparison_continues_when_one_method_diverges(cli):
    done = cli("compare", "--methods", "fedprox,fedavg", "--set", "fedprox.zeta=1e30", *QUICK, "--format", "json")
    assert done.returncode == 0, done.stderr
    diverged, fine = json.loads(done.stdout)["runs"]
    assert "diverged" in diverged["stopped"]
    assert fine["stopped"] is None
    assert "fedprox" in done.stderr


def test_all_stands_for_every_method(cli):
    done = cli("compare", "--methods", "all", "--clients", "5", *QUICK, "--format", "json")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["method"] for run in runs] == list(METHODS)
    assert not any(run["stopped"] for run in runs)


def test_invalid_comparisons_are_refused(cli):
    refused = cli("compare", "--methods", "all,taco")
    assert refused.returncode == 2
    assert "methods names all together with others; use it alone, or list names." in refused.stderr
    assert "methods is empty" in cli("compare", "--methods", ",").stderr
    assert "more than once" in cli("compare", "--methods", "taco,taco").stderr
    assert "seeds is 0" in cli("compare", "--seeds", "0").stderr
    assert "at most 1,000." in cli("compare", "--seeds", "9223372036854775807").stderr
    cli("run", "--method", "fedavg", *QUICK, "--out", "one")
    assert "holds a single run" in cli("compare", *QUICK, "--out", "one", "--resume").stderr


def test_table_reports_expulsions_and_the_methods_own_output(cli):
    strict = ["--detector", "paper", "--set", "paper.kappa=0.5", "--set", "paper.max_strikes=2"]
    settings = ["--methods", "taco", "--rounds", "3", "--local-steps", "2", "--seeds", "2", *strict]
    table = " ".join(cli("compare", *settings).stdout.split())
    assert "clients were expelled" in table
    runs = json.loads(cli("compare", *settings, "--resume", "--format", "json").stdout)["runs"]
    assert [run["seed"] for run in runs] == [0, 1]
    z = sum(run["output_accuracy"] for run in runs) / 2
    assert f"taco: the model that it returns has an accuracy of {100 * z:.1f} %" in table
