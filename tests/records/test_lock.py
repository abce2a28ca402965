"""Two processes never work in one run folder."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

import fedtaco
from fedtaco import InvalidInput
from fedtaco.experiment import Callback, RunOptions, resolve_config
from fedtaco.experiment.concurrent import run_all
from fedtaco.records.lock import _acquire, locked

ENDLESS = {"dataset": "digits", "clients": 6, "rounds": 100_000, "local_steps": 4, "batch_size": 16}
BUSY = "Another process is using"
POOL = ["--engine", "pool", "--workers", "2"]


def command(out, *more):
    settings = [part for name, value in ENDLESS.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return [sys.executable, "-m", "fedtaco.cli.main", "run", *settings, "--out", str(out), *more]


SIDE_BY_SIDE = f"""
import sys
from pathlib import Path
from fedtaco.experiment import Callback, RunOptions, resolve_config
from fedtaco.experiment.concurrent import run_all

runs = [(resolve_config(method="taco", seed=seed, **{ENDLESS}), Path(sys.argv[1]) / str(seed)) for seed in (0, 1)]
run_all(runs, RunOptions(), Callback())
"""


class Enough(Exception):
    pass


def stop(*_):
    raise Enough


class Stopping(Callback):
    on_round_end = stop


def rounds_in(folder):
    path = folder / "rounds.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


@pytest.fixture
def at_work():
    """Starts a process and waits until it has recorded rounds in each of some folders."""
    begun = []

    def start(arguments, *folders):
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun.append(process)
        while not all(rounds_in(folder) > 1 for folder in folders):
            assert process.poll() is None
            time.sleep(0.02)
        return process

    yield start
    for process in begun:
        process.kill()
        process.wait()


def test_a_second_process_is_told_and_the_first_is_not_disturbed(at_work, tmp_path):
    out = tmp_path / "run"
    first = at_work(command(out, *POOL), out)
    done = subprocess.run(command(out, *POOL, "--resume"), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.strip().startswith(f"Error: {BUSY} {out}; wait for it to end")
    assert "Traceback" not in done.stderr
    with pytest.raises(InvalidInput, match=BUSY):
        fedtaco.run("taco", out=out, overwrite=True, engine="pool", workers=2, on_round=stop, **ENDLESS)
    before = rounds_in(out)
    while rounds_in(out) < before + 2:
        assert first.poll() is None
        time.sleep(0.02)


def test_a_killed_process_leaves_nothing_that_keeps_others_out(at_work, tmp_path):
    """Its forked workers may live on for a moment."""
    out = tmp_path / "run"
    first = at_work(command(out, *POOL), out)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert (out / "lock").exists()
    with pytest.raises(Enough):
        fedtaco.run("taco", out=out, resume=True, engine="pool", workers=2, on_round=stop, **ENDLESS)
    assert not (out / "lock").exists()


def test_runs_side_by_side_keep_others_out_of_each_folder(at_work, tmp_path):
    at_work([sys.executable, "-c", SIDE_BY_SIDE, str(tmp_path)], tmp_path / "0", tmp_path / "1")
    runs = [(resolve_config(method="taco", seed=seed, **ENDLESS), tmp_path / str(seed)) for seed in (0, 1)]
    with pytest.raises(InvalidInput, match=BUSY):
        run_all(runs, RunOptions(resume=True), Stopping())
    with pytest.raises(InvalidInput, match=BUSY):
        run_all(runs[1:], RunOptions(resume=True), Stopping())


def test_a_start_that_failed_leaves_no_folder(tmp_path):
    with pytest.raises(InvalidInput, match="mnist"):
        fedtaco.run("taco", dataset="mnist", data_dir=tmp_path / "nothing", out=tmp_path / "runs" / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_was_killed_is_no_obstacle(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").touch()
    with pytest.raises(Enough):
        fedtaco.run("taco", out=tmp_path / "run", engine="serial", on_round=stop, **ENDLESS)


def test_a_lock_that_was_just_given_up_is_nobodys(tmp_path):
    with (tmp_path / "lock").open("w") as file:
        (tmp_path / "lock").unlink()
        assert not _acquire(file.fileno(), tmp_path / "lock")
        (tmp_path / "lock").touch()
        assert not _acquire(file.fileno(), tmp_path / "lock")


def test_a_disk_without_locks_is_used_without(tmp_path, monkeypatch):
    def unknown(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.lockf", unknown)
    with locked(tmp_path / "run"):
        (tmp_path / "run" / "work").touch()
