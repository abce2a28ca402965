"""A run that is killed at any moment continues and ends as an uninterrupted one, to the last bit."""

from __future__ import annotations

import json
import multiprocessing
import random
import resource
import time

import pytest
from run_helpers import Interrupted, assert_same_result, interrupt_after, without_times

import fedtaco
from fedtaco import InvalidInput
from fedtaco.files import SCHEMA
from fedtaco.methods import METHODS
from fedtaco.records import RunFolder

SETTINGS = {"dataset": "digits", "clients": 6, "rounds": 8, "local_steps": 4, "batch_size": 16}


def start_process(method, engine, out, file_size_limit=None, **settings):
    """Start or continue a run in a process of its own; an InvalidInput is written to ``error.txt``."""

    def run():
        if file_size_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size_limit, file_size_limit))
        workers = None if engine == "serial" else 2
        try:
            fedtaco.run(method, out=out, engine=engine, workers=workers, resume=True, **{**SETTINGS, **settings})
        except InvalidInput as error:
            (out / "error.txt").write_text(str(error))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    return process


def recorded_bytes(out):
    path = out / "rounds.jsonl"
    return path.stat().st_size if path.exists() else 0


@pytest.mark.parametrize("engine", ["serial", "pool", "batched"])
def test_run_killed_at_random_moments(engine, tmp_path):
    rng, out = random.Random(engine), tmp_path / "run"
    settings = {"rounds": 40, "local_steps": 10, "participation": 0.5}
    workers = None if engine == "serial" else 2
    expected = fedtaco.run("scaffold-taco", engine=engine, workers=workers, **{**SETTINGS, **settings})
    kills = 0
    for _ in range(8):
        before = recorded_bytes(out)
        process = start_process("scaffold-taco", engine, out, **settings)
        deadline = time.monotonic() + 30
        while recorded_bytes(out) == before and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))
        kills += process.is_alive()
        process.kill()
        process.join()
    assert kills >= 3
    start_process("scaffold-taco", engine, out, **settings).join()
    assert_same_result(expected, fedtaco.load(out))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_continues_from_any_checkpoint(method, tmp_path):
    settings = {**SETTINGS, "engine": "serial"}
    expected = fedtaco.run(method, **settings)
    for number in (3, 5):
        with pytest.raises(Interrupted):
            fedtaco.run(method, out=tmp_path / "run", resume=True, callbacks=[interrupt_after(number)], **settings)
    fedtaco.run(method, out=tmp_path / "run", resume=True, **settings)
    assert_same_result(expected, fedtaco.load(tmp_path / "run"))


@pytest.mark.parametrize("engine", ["serial", "batched"])
@pytest.mark.parametrize(
    "local",
    [
        {"momentum": 0.9, "nesterov": True, "lr_schedule": "cosine", "local_steps": 4},
        {"optimizer": "adamw", "weight_decay": 0.1, "lr_schedule": "step:3,0.5", "local_epochs": 1, "local_lr": 0.01},
    ],
    ids=["nesterov", "adamw"],
)
def test_run_continues_within_a_schedule(local, engine, tmp_path):
    settings = {"dataset": "digits", "clients": 6, "rounds": 8, "batch_size": 16, "engine": engine, **local}
    expected = fedtaco.run("scaffold-taco", **settings)
    with pytest.raises(Interrupted):
        fedtaco.run("scaffold-taco", out=tmp_path / "run", callbacks=[interrupt_after(4)], **settings)
    fedtaco.run("scaffold-taco", out=tmp_path / "run", resume=True, **settings)
    assert_same_result(expected, fedtaco.load(tmp_path / "run"))
    config = RunFolder(tmp_path / "run").config()
    assert all(config[name] == value for name, value in local.items())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_continues_after_an_incomplete_line(method, tmp_path):
    """With partial participation, a detector, and a line that a crash cut off."""
    some = {"participation": 0.5, "detector": "paper"}
    settings = {"dataset": "digits", "rounds": 3, "local_steps": 2}
    settings |= {"detector": "guard"} if METHODS[method].needs_all_clients else some
    expected = fedtaco.run(method, out=tmp_path / "whole", **settings)
    with pytest.raises(Interrupted):
        fedtaco.run(method, out=tmp_path / "run", callbacks=[interrupt_after(2)], **settings)
    with (tmp_path / "run" / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "accur')
    resumed = fedtaco.run(method, out=tmp_path / "run", resume=True, **settings)
    assert_same_result(expected, resumed)
    assert resumed.history == RunFolder(tmp_path / "run").history()
    lines = (tmp_path / "run" / "clients.jsonl").read_text().splitlines()
    assert all(json.loads(line)["schema"] == SCHEMA for line in lines)


@pytest.mark.parametrize("compress", ["q8", "topk:0.05"])
@pytest.mark.parametrize("method", ["scaffold", "taco"])
def test_residuals_and_streams_continue(method, compress, tmp_path):
    settings = {**SETTINGS, "engine": "serial", "compress": compress}
    expected = fedtaco.run(method, **settings)
    with pytest.raises(Interrupted):
        fedtaco.run(method, out=tmp_path / "run", callbacks=[interrupt_after(4)], **settings)
    fedtaco.run(method, out=tmp_path / "run", resume=True, **settings)
    assert_same_result(expected, fedtaco.load(tmp_path / "run"))
    summary = fedtaco.load(tmp_path / "run").summary
    assert summary["compress"] == compress
    assert summary["bytes_up"] == sum(expected.history.column("bytes_up")) > 0
    with pytest.raises(InvalidInput, match=r"compress is .* there and .*none.* here"):
        fedtaco.run(method, out=tmp_path / "run", resume=True, **{**settings, "compress": "none"})


def test_evaluations_every_few_rounds_continue_as_planned(tmp_path):
    settings = {**SETTINGS, "engine": "serial", "eval_every": 3, "validation": 0.2, "fine_tune_steps": 2}
    expected = fedtaco.run("taco", **settings)
    assert [record.round for record in expected.history if record.is_evaluated] == [3, 6, 8]
    for number in (1, 4, 6):
        with pytest.raises(Interrupted):
            fedtaco.run("taco", out=tmp_path / "run", resume=True, callbacks=[interrupt_after(number)], **settings)
    fedtaco.run("taco", out=tmp_path / "run", resume=True, **settings)
    assert_same_result(expected, fedtaco.load(tmp_path / "run"))
    with pytest.raises(InvalidInput, match="eval_every is 3 there and 2 here"):
        fedtaco.run("taco", out=tmp_path / "run", resume=True, **{**settings, "eval_every": 2})


def test_run_of_another_version_is_refused_with_the_difference(tmp_path, monkeypatch):
    fedtaco.run("fedavg", out=tmp_path / "run", engine="serial", **SETTINGS)
    monkeypatch.setattr("fedtaco.settings.run_spec.__version__", "9.0")
    with pytest.raises(InvalidInput, match=r"fedtaco is '0\.1\.0' there and '9\.0' here"):
        fedtaco.run("fedavg", out=tmp_path / "run", engine="serial", resume=True, **SETTINGS)


def test_disk_too_full_for_a_checkpoint_is_reported(tmp_path):
    out = tmp_path / "run"
    start_process("scaffold", "serial", out, file_size_limit=20_000).join()
    assert (out / "error.txt").read_text().startswith(f"Cannot write to {out}: ")
    start_process("scaffold", "serial", out).join()
    assert_same_result(fedtaco.run("scaffold", engine="serial", **SETTINGS), fedtaco.load(out))


def test_disk_too_full_for_records_is_reported_and_finished_rounds_are_kept(tmp_path):
    """No file may grow beyond 6000 bytes, which the records do after a few rounds."""
    out = tmp_path / "run"
    settings = {"model": "mlp:2", "clients": 3, "partition": "iid", "rounds": 40}
    start_process("fedavg", "serial", out, file_size_limit=6000, **settings).join()
    error = (out / "error.txt").read_text()
    assert error.startswith(f"Cannot write to {out}: File too large. Finished rounds are kept: free some space")
    kept = RunFolder(out).history()
    assert 2 < len(kept) < 40
    expected = fedtaco.run("fedavg", engine="serial", **{**SETTINGS, **settings})
    assert without_times(kept.table()) == without_times(expected.history.table())[: len(kept)]
    start_process("fedavg", "serial", out, **settings).join()
    assert_same_result(expected, fedtaco.load(out))
