"""A run folder is used by one process at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from run_helpers import CallAfterRounds, Interrupted

import fedtaco
from fedtaco import InvalidInput
from fedtaco.experiment import Callback, RunOptions, build_spec
from fedtaco.experiment.concurrent import run_all
from fedtaco.records.lock import FolderLock, _acquire, locked

ENDLESS = {"dataset": "digits", "clients": 6, "rounds": 100_000, "local_steps": 4, "batch_size": 16}
BUSY = "Another process is using"
POOL = ["--engine", "pool", "--workers", "2"]


def run_command(out, *options):
    settings = [part for name, value in ENDLESS.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return [sys.executable, "-m", "fedtaco.cli.main", "run", *settings, "--out", str(out), *options]


CONCURRENT_RUNS = f"""
import sys
from pathlib import Path
from fedtaco.experiment import Callback, RunOptions, concurrent, build_spec

concurrent.cores = lambda: 2  # also on a machine with one
runs = [(build_spec(method="taco", seed=seed, **{ENDLESS}), Path(sys.argv[1]) / str(seed)) for seed in (0, 1)]
concurrent.run_all(runs, RunOptions(), Callback())
"""


def interrupt(*_):
    raise Interrupted


class InterruptingCallback(Callback):
    on_round_end = interrupt


INTERRUPT = [InterruptingCallback()]


def recorded_rounds(folder):
    path = folder / "rounds.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


@pytest.fixture
def start_process():
    """Return a function that starts a process and waits until it has recorded rounds in the given folders."""
    processes = []

    def start(arguments, *folders):
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        processes.append(process)
        while not all(recorded_rounds(folder) > 1 for folder in folders):
            assert process.poll() is None
            time.sleep(0.02)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_second_process_is_refused_and_the_first_continues(start_process, tmp_path):
    out = tmp_path / "run"
    first = start_process(run_command(out, *POOL), out)
    done = subprocess.run(run_command(out, *POOL, "--resume"), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.strip().startswith(f"Error: {BUSY} {out}; wait for it to end")
    assert "Traceback" not in done.stderr
    with pytest.raises(InvalidInput, match=BUSY):
        fedtaco.run("taco", out=out, overwrite=True, engine="pool", workers=2, callbacks=INTERRUPT, **ENDLESS)
    before = recorded_rounds(out)
    while recorded_rounds(out) < before + 2:
        assert first.poll() is None
        time.sleep(0.02)


def test_lock_of_a_killed_process_is_released(start_process, tmp_path):
    """Even if its forked workers outlive it by a moment."""
    out = tmp_path / "run"
    first = start_process(run_command(out, *POOL), out)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert (out / "lock").exists()
    with pytest.raises(Interrupted):
        fedtaco.run("taco", out=out, resume=True, engine="pool", workers=2, callbacks=INTERRUPT, **ENDLESS)
    assert not (out / "lock").exists()


def test_each_of_several_concurrent_runs_locks_its_folder(start_process, tmp_path):
    start_process([sys.executable, "-c", CONCURRENT_RUNS, str(tmp_path)], tmp_path / "0", tmp_path / "1")
    runs = [(build_spec(method="taco", seed=seed, **ENDLESS), tmp_path / str(seed)) for seed in (0, 1)]
    with pytest.raises(InvalidInput, match=BUSY):
        run_all(runs, RunOptions(resume=True), InterruptingCallback())
    with pytest.raises(InvalidInput, match=BUSY):
        run_all(runs[1:], RunOptions(resume=True), InterruptingCallback())


def test_failed_start_leaves_no_folder(tmp_path):
    with pytest.raises(InvalidInput, match="mnist"):
        fedtaco.run("taco", dataset="mnist", data_dir=tmp_path / "nothing", out=tmp_path / "runs" / "run")
    assert list(tmp_path.iterdir()) == []


def test_folder_of_a_killed_start_can_be_used(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").touch()
    with pytest.raises(Interrupted):
        fedtaco.run("taco", out=tmp_path / "run", engine="serial", callbacks=INTERRUPT, **ENDLESS)


def test_lock_on_a_removed_or_replaced_file_is_not_acquired(tmp_path):
    with (tmp_path / "lock").open("w") as file:
        lock = FolderLock(file.fileno(), tmp_path / "lock")
        assert _acquire(lock)
        (tmp_path / "lock").unlink()
        assert not _acquire(lock)
        (tmp_path / "lock").touch()
        assert not _acquire(lock)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_run_without_its_lock_writes_nothing_more(is_replaced, tmp_path):
    out, recorded = tmp_path / "run", {}

    def remove_lock(record):
        (out / "lock").unlink()
        if is_replaced:
            (out / "lock").touch()
        recorded.update({path: path.read_bytes() for path in out.rglob("*") if path.is_file()})

    with pytest.raises(InvalidInput, match="lock was removed or replaced while this run was using the folder"):
        fedtaco.run("taco", out=out, engine="serial", callbacks=[CallAfterRounds(remove_lock)], **ENDLESS)
    assert recorded == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_disk_without_locks_is_used_without_them(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.lockf", unsupported)
    with locked(tmp_path / "run"):
        (tmp_path / "run" / "work").touch()
