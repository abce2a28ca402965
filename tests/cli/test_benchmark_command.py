"""The command ``fedtaco benchmark``."""

from __future__ import annotations

from pathlib import Path

import pytest

PRESET = """
title = "Tiny"
reference = "fedavg"
budget = 1
rates = [1]
tuning_seeds = [10]
seeds = [0]

[methods.fedavg]

[methods.taco]

[[tasks]]
name = "digits"
primary = true
dataset = "digits"
partition = "iid"
clients = 3
rounds = 2
local_steps = 2
"""


def test_presets_are_listed(cli):
    done = cli("benchmark")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("benchmark-smoke", "benchmark-mlp", "benchmark-cnn"))


def test_a_dry_run_states_the_work_and_runs_nothing(cli):
    done = cli("benchmark", "benchmark-smoke", "--dry-run")
    assert done.returncode == 0
    # 12 tuning runs, and three methods and two controls with two seeds; 12 rounds of 5 steps of 6 clients
    assert f"22 runs, {22 * 12 * 5 * 6:,} client steps in all." in done.stdout
    assert not Path("runs").exists()


def test_a_benchmark_is_run_resumed_and_redrawn(cli):
    Path("tiny.toml").write_text(PRESET)
    done = cli("benchmark", "tiny.toml", "--workers", "1", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "Tuning on digits: 2 runs." in done.stderr
    assert "Written to out: benchmark.html, benchmark.json" in done.stdout
    page = Path("out/benchmark.html").read_bytes()
    assert cli("benchmark", "tiny.toml", "--workers", "1", "--out", "out").returncode == 2
    assert cli("benchmark", "tiny.toml", "--workers", "1", "--out", "out", "--resume").returncode == 0
    again = cli("benchmark", "--from", "out/benchmark.json", "--out", "again.html")
    assert (again.returncode, Path("again.html").read_bytes()) == (0, page)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["benchmark-smok"], "did you mean 'benchmark-smoke'"),
        (["benchmark-smoke", "--methods", "fedavg,krum"], "There is no method in benchmark-smoke 'krum'"),
        (["benchmark-smoke", "--tasks", "adult"], "There is no task in benchmark-smoke 'adult'"),
        (["benchmark-smoke", "--from", "benchmark.json"], "no other option than --out applies"),
        (["--from", "benchmark.json", "--methods", "taco"], "no other option than --out applies"),
        (["--from", "benchmark.json", "--workers", "2"], "no other option than --out applies"),
        (
            ["--from", "benchmark.json", "--out", "page.html"],
            "There is no file benchmark.json; name the",
        ),
        (["--from", "mine.toml", "--out", "page.pdf"], "must end in .html or .md"),
        (["mine.toml"], "names code, mine:Clipped"),
    ],
)
def test_invalid_options_are_refused(cli, arguments, words):
    Path("mine.toml").write_text(PRESET.replace("[methods.taco]", '[methods."mine:Clipped"]'))
    done = cli("benchmark", *arguments)
    assert done.returncode == 2
    assert words in done.stderr.replace("\n", " ")


def test_an_own_method_may_be_compared(cli, own_method):
    Path("mine.toml").write_text(PRESET.replace("[methods.taco]", f'[methods."{own_method}"]'))
    path = Path("mine.toml")
    done = cli("benchmark", str(path), "--methods", f"fedavg,{own_method}", "--workers", "1", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert own_method in done.stdout
