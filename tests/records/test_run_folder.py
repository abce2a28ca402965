"""Run folders: their contents, and folders that are occupied, damaged or left by a run that was killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from forging import forge
from run_helpers import Interrupted, assert_same_result, interrupt_after

import fedtaco
from fedtaco import InvalidInput
from fedtaco.errors import RunStopped
from fedtaco.records import QUANTITIES, ClientRecord, PartitionRecord, RoundDiagnostics, RoundRecord, RunFolder
from fedtaco.report.run_reader import find_runs

QUICK = {"dataset": "digits", "clients": 20, "rounds": 3, "local_steps": 2, "engine": "serial"}


def test_run_folder_contains_everything_about_the_run(tmp_path):
    out = tmp_path / "run"
    result = fedtaco.run("taco", out=out, **QUICK)
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert names == {
        "config.toml",
        "partition.npz",
        "rounds.jsonl",
        "clients.jsonl",
        "summary.json",
        "model.safetensors",
        "output.safetensors",
        "checkpoint/manifest.json",
        "checkpoint/shared-3.safetensors",
    }
    folder = RunFolder(out)
    assert folder.config()["method"] == "taco"
    assert folder.history() == result.history
    partition = folder.partition()
    assert sorted(np.concatenate(partition.indices)) == list(range(1437))
    assert sorted(set(partition.groups)) == ["A", "B", "C"]
    assert partition.label_counts.shape == (20, 10)
    assert partition.label_counts.sum(1).tolist() == [len(part) for part in partition.indices]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["final_accuracy"] == result.history.final_accuracy
    assert set(summary["alpha"]) == {"A", "B", "C"}
    rows = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert all(row["schema"] == 6 and 0 <= row["accuracy"] <= 1 for row in rows)
    clients = [json.loads(line) for line in (out / "clients.jsonl").read_text().splitlines()]
    expected = {"round", "client", "alpha", "cosine", "norm", "weight", "seconds", "strikes", "expelled"}
    assert len(clients) == 60
    assert expected <= set(clients[0])


# Folders that belong to something else


def test_folder_with_another_run_is_not_changed(tmp_path):
    out = tmp_path / "run"
    fedtaco.run("fedavg", out=out, **QUICK)
    before = (out / "rounds.jsonl").read_bytes()
    with pytest.raises(InvalidInput, match=r"holds a run already; continue it \(resume\)"):
        fedtaco.run("fedavg", out=out, **QUICK)
    with pytest.raises(InvalidInput, match="local_steps is 2 there and 4 here"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK | {"local_steps": 4})
    assert (out / "rounds.jsonl").read_bytes() == before
    fedtaco.run("taco", out=out, overwrite=True, **QUICK)
    assert RunFolder(out).config()["method"] == "taco"


@pytest.mark.parametrize(
    ("name", "content"), [("config.toml", "baseURL = 'https://example.org'"), ("thesis.tex", "years of work")]
)
def test_folder_with_other_files_is_never_used(name, content, tmp_path):
    (tmp_path / name).write_text(content)
    for overwrite in (False, True):
        with pytest.raises(InvalidInput, match="is not a run folder; choose another"):
            fedtaco.run("fedavg", out=tmp_path, overwrite=overwrite, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == content


def test_overwriting_keeps_files_that_the_run_did_not_write(tmp_path):
    fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)
    (tmp_path / "run" / "notes.txt").write_text("look at round 2")
    fedtaco.run("taco", out=tmp_path / "run", overwrite=True, **QUICK)
    assert (tmp_path / "run" / "notes.txt").exists()
    assert RunFolder(tmp_path / "run").config()["method"] == "taco"


def test_folder_of_another_version_is_refused(tmp_path):
    out = tmp_path / "run"
    fedtaco.run("fedavg", out=out, **QUICK)
    config = out / "config.toml"
    config.write_text(config.read_text().replace("schema = 6", "schema = 2"))
    with pytest.raises(InvalidInput, match=r"written by another version of fedtaco \(schema 2, not 6\)"):
        fedtaco.load(out)
    with pytest.raises(InvalidInput, match="written by another version"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)
    fedtaco.run("fedavg", out=out, overwrite=True, **QUICK)
    assert len(fedtaco.load(out).history) == QUICK["rounds"]


# Runs that failed or were killed while the folder was created


def test_folder_of_a_killed_start_is_used(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("lock", "partition.npz.part", "config.toml.part"):
        (folder / name).touch()
    fedtaco.run("taco", out=folder, resume=True, **QUICK)
    assert RunFolder(folder).summary()


def full(*_, **__):
    raise OSError(28, "No space left on device")


def test_folder_of_a_failed_start_can_be_used(tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr("numpy.savez_compressed", full)
        with pytest.raises(InvalidInput, match=r"No space left on device\. Free some space, or choose another folder"):
            fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)
    fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)


def test_run_is_kept_if_the_first_round_of_its_replacement_cannot_be_written(tmp_path, monkeypatch):
    """The disk is full when the first, second, ... file is written."""
    out = tmp_path / "run"
    before = fedtaco.run("fedavg", out=out, track=["tensorboard"], **QUICK)
    logs = list(out.glob("tensorboard/*"))
    writes, written = ["partition", "config", "clients", "rounds", "checkpoint", "manifest"], os.fsync
    for allowed in range(len(writes)):
        left = iter(range(allowed))
        with monkeypatch.context() as disk:
            disk.setattr("os.fsync", lambda file, left=left: full() if next(left, None) is None else written(file))
            with pytest.raises(
                InvalidInput, match=r"No space left on device.*the run that was in the folder before is"
            ):
                fedtaco.run("taco", out=out, overwrite=True, track=["tensorboard"], **QUICK)
        assert_same_result(before, fedtaco.load(out))
        assert list(out.glob("tensorboard/*")) == logs
        assert not list(out.rglob("*.part"))


def test_logs_of_a_tracker_are_replaced_with_the_run(tmp_path):
    logs = []
    for method in ("fedavg", "taco"):
        fedtaco.run(method, out=tmp_path / "run", overwrite=True, track=["tensorboard"], **QUICK)
        logs.append([path.name for path in (tmp_path / "run" / "tensorboard").iterdir()])
    assert len(logs[0]) == len(logs[1]) == 1
    assert logs[0] != logs[1]


def test_replacement_is_kept_if_a_later_round_cannot_be_written(tmp_path, monkeypatch):
    out = tmp_path / "run"
    fedtaco.run("fedavg", out=out, **QUICK)
    left = iter(range(6))
    with monkeypatch.context() as disk:
        disk.setattr("os.fsync", lambda _: full() if next(left, None) is None else None)
        with pytest.raises(InvalidInput, match=r"No space left on device.*Finished rounds are kept"):
            fedtaco.run("taco", out=out, overwrite=True, **QUICK)
    assert len(RunFolder(out).history()) == 1
    assert_same_result(fedtaco.run("taco", **QUICK), fedtaco.run("taco", out=out, resume=True, **QUICK))


def test_run_is_kept_if_its_replacement_is_interrupted_in_the_first_round(tmp_path):
    class Interrupts(fedtaco.Callback):
        def on_evaluation_begin(self, run, round_number):
            assert find_runs(tmp_path)[0].summary() is not None
            assert len(find_runs(tmp_path)) == 1
            raise Interrupted

    before = fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)
    with pytest.raises(Interrupted):
        fedtaco.run("taco", out=tmp_path / "run", overwrite=True, callbacks=[Interrupts()], **QUICK)
    assert_same_result(before, fedtaco.load(tmp_path / "run"))
    assert not list(tmp_path.rglob("*.part"))


def test_replacement_that_diverges_in_the_first_round_is_recorded(tmp_path):
    fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)
    with pytest.raises(RunStopped):
        fedtaco.run("fedavg", out=tmp_path / "run", overwrite=True, local_lr=1e30, **QUICK)
    assert "diverged" in RunFolder(tmp_path / "run").summary()["stopped"]
    assert not list(tmp_path.rglob("*.part"))


def test_killed_replacement_leaves_one_of_the_two_runs(tmp_path):
    """The process ends before each of the operations that change the folder, one after another."""
    finished, out = tmp_path / "finished", tmp_path / "run"
    tiny = {**QUICK, "clients": 3, "rounds": 1, "partition": "iid", "model": "mlp:2"}
    expected = {method: fedtaco.run(method, out=out, **tiny) for method, out in (("fedavg", finished), ("taco", None))}
    left = Counter()
    for allowed in range(100):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(finished, out)
        process = multiprocessing.get_context("fork").Process(target=replace_and_die, args=(allowed, out, tiny))
        process.start()
        process.join()
        try:
            found = fedtaco.load(out)
        except InvalidInput:
            found = fedtaco.run("taco", out=out, resume=True, **tiny)
        left[found.summary["method"]] += 1
        assert_same_result(expected[found.summary["method"]], found)
        if process.exitcode == 0:
            break
    assert process.exitcode == 0
    assert left["fedavg"] >= 10
    assert left["taco"] >= 10


def replace_and_die(allowed, out, settings):
    """Replace a run, but die after a number of operations on files."""
    operations = iter(range(allowed))

    def counted(function):
        def count(*arguments, **options):
            if next(operations, None) is None:
                os._exit(9)
            return function(*arguments, **options)

        return count

    for name in ("replace", "unlink", "mkdir", "rmdir", "write_bytes", "write_text"):
        setattr(Path, name, counted(getattr(Path, name)))
    shutil.rmtree = counted(shutil.rmtree)
    fedtaco.run("taco", out=out, overwrite=True, **settings)


# Damaged files


def test_damaged_files_are_named(tmp_path):
    out = tmp_path / "run"
    fedtaco.run("fedavg", out=out, **QUICK)
    (out / "summary.json").unlink()
    rounds = (out / "rounds.jsonl").read_text().splitlines(keepends=True)
    (out / "rounds.jsonl").write_text("".join(rounds[:1] + rounds[2:]))
    with pytest.raises(InvalidInput, match=r"rounds\.jsonl is damaged: .*; restore it from a copy, or start the run"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)
    (out / "checkpoint" / "manifest.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"checkpoint/manifest\.json is damaged"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)
    (out / "config.toml").write_text("schema = ")
    with pytest.raises(InvalidInput, match=r"config\.toml is damaged"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)


def test_model_is_verified_when_a_finished_run_is_read(tmp_path):
    out = tmp_path / "run"
    fedtaco.run("taco", out=out, **QUICK)
    for name in ("output", "model"):
        model = out / f"{name}.safetensors"
        content = bytearray(model.read_bytes())
        content[-1] ^= 1
        model.write_bytes(content)
        with pytest.raises(InvalidInput, match=rf"{name}\.safetensors is damaged: it has changed since the run wrote"):
            fedtaco.load(out)
        with pytest.raises(InvalidInput, match=rf"{name}\.safetensors is damaged"):
            fedtaco.run("taco", out=out, resume=True, **QUICK)


def test_partition_of_other_data_is_refused(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        fedtaco.run("fedavg", out=out, callbacks=[interrupt_after(2)], **QUICK)

    def swap_first_and_last_sample(arrays):
        arrays["indices"][[0, -1]] = arrays["indices"][[-1, 0]]

    forge(out, "partition.npz", swap_first_and_last_sample)
    with pytest.raises(InvalidInput, match="is not the one that its settings give now, so the data have changed"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)


def test_run_that_has_not_ended_is_not_loaded(tmp_path):
    with pytest.raises(Interrupted):
        fedtaco.run("fedavg", out=tmp_path / "run", callbacks=[interrupt_after(2)], **QUICK)
    with pytest.raises(InvalidInput, match=r"has no model: the run has not ended; continue it \(resume\)"):
        fedtaco.load(tmp_path / "run")


def test_refused_folder_is_left_as_it_is(tmp_path):
    out = tmp_path / "run"
    fedtaco.run("fedavg", out=out, **QUICK)
    (out / "clients.jsonl").write_text((out / "clients.jsonl").read_text().replace("0.0", "0.1"))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(InvalidInput, match=r"clients\.jsonl is damaged"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("file", ["rounds.jsonl", "clients.jsonl"])
@pytest.mark.parametrize("line", ["3\n", "{}\n", "\xff\n", '{"round": 1, "surprise": 2}\n', "[]\n"])
def test_damaged_lines_are_reported(file, line, tmp_path):
    folder = tmp_path / "run"
    fedtaco.run("fedavg", out=folder, **QUICK)
    with (folder / file).open("a", encoding="latin-1") as records:
        records.write(line)
    with pytest.raises(InvalidInput, match=rf"{file} is damaged"):
        fedtaco.run("fedavg", out=folder, resume=True, **QUICK)


def test_readings_of_a_run_that_goes_on_agree(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create({"clients": 1, "rounds": 2, "diagnose": True}, PartitionRecord.unknown(1))

    def finish_round(number):
        client = ClientRecord(number, 0, {quantity.name: None for quantity in QUANTITIES}, None)
        folder.append_round(RoundRecord(number, 0.5, 1.0, None, 1.0), [client], RoundDiagnostics(number, 1.0, 1.0, 0.5))
        folder.save_checkpoint(number, {"weights": np.zeros(1)}, {})

    finish_round(1)
    written = folder.written()
    finish_round(2)
    assert len(folder.rounds()) == len(folder.diagnostics()) == 2
    assert len(folder.rounds(written)) == len(folder.diagnostics(written)) == 1
    assert [row["round"] for row in folder.client_rows(written)] == [1]
    assert folder.history(written).clients[0].round == 1
