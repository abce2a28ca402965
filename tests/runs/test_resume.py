"""A run that is killed at any moment continues to the bit-identical end."""

from __future__ import annotations

import multiprocessing
import platform
import random
import re
import resource
import shutil
import time

import numpy as np
import pytest
import torch

import fedtaco
from fedtaco import InvalidInput
from fedtaco.methods import METHODS
from fedtaco.records import RunFolder

SETTINGS = {"dataset": "digits", "clients": 6, "rounds": 8, "local_steps": 4, "batch_size": 16}


def in_a_process(method, engine, out, limit=None, **settings):
    """Start or continue a run in a process of its own."""

    def work():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        workers = None if engine == "serial" else 2
        try:
            fedtaco.run(method, out=out, engine=engine, workers=workers, resume=True, **{**SETTINGS, **settings})
        except InvalidInput as error:
            (out / "sentence.txt").write_text(str(error))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def untimed(rows):
    times = {"wall_seconds", "slowest_client_seconds", "seconds"}
    return [{name: value for name, value in row.items() if name not in times} for row in rows]


def assert_same_end(out, whole):
    ended = fedtaco.load(out)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(ended.model.state_dict()[name], tensor), name
    for name, tensor in whole.output_model.state_dict().items():
        assert torch.equal(ended.output_model.state_dict()[name], tensor), name
    assert untimed(ended.history.table()) == untimed(whole.history.table())
    assert untimed(ended.history.client_table()) == untimed(whole.history.client_table())


@pytest.mark.parametrize("engine", ["serial", "pool", "batched"])
def test_killed_again_and_again_at_random_instants(engine, tmp_path):
    dice, out = random.Random(engine), tmp_path / "run"
    settings = {"rounds": 40, "local_steps": 10, "participation": 0.5}
    workers = None if engine == "serial" else 2
    whole = fedtaco.run("scaffold-taco", engine=engine, workers=workers, **{**SETTINGS, **settings})
    kills = 0
    for _ in range(8):
        before = progress(out)
        process = in_a_process("scaffold-taco", engine, out, **settings)
        deadline = time.monotonic() + 30
        while progress(out) == before and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(dice.uniform(0, 0.1))
        kills += process.is_alive()
        process.kill()
        process.join()
    assert kills >= 3
    in_a_process("scaffold-taco", engine, out, **settings).join()
    assert_same_end(out, whole)


def progress(out):
    path = out / "rounds.jsonl"
    return path.stat().st_size if path.exists() else 0


class Stopped(Exception):
    pass


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_on_from_any_checkpoint(method, tmp_path):
    whole = fedtaco.run(method, engine="serial", **SETTINGS)

    def stop_at(number):
        def on_round(record):
            if record.round == number:
                raise Stopped

        return on_round

    for number in (3, 5):
        with pytest.raises(Stopped):
            fedtaco.run(
                method, out=tmp_path / "run", engine="serial", resume=True, on_round=stop_at(number), **SETTINGS
            )
    fedtaco.run(method, out=tmp_path / "run", engine="serial", resume=True, **SETTINGS)
    assert_same_end(tmp_path / "run", whole)


def test_only_memories_that_changed_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtaco.runs.recorder.CHECKPOINT_SHARE", 1.0)
    seen = []
    settings = {**SETTINGS, "participation": 0.34, "engine": "serial"}

    def on_round(record):
        seen.append({path.name: path.stat().st_size for path in (tmp_path / "run" / "checkpoint").iterdir()})

    result = fedtaco.run("scaffold", out=tmp_path / "run", on_round=on_round, **settings)
    cohorts = [{one.client for one in result.history.clients if one.round == number} for number in range(1, 9)]
    checkpoint = RunFolder(tmp_path / "run").checkpoint
    for number, files in enumerate(seen, start=1):
        last = {
            client: max(n for n in range(1, number + 1) if client in cohorts[n - 1])
            for client in set().union(*cohorts[:number])
        }
        names = {f"clients-{n}.safetensors" for n in last.values()}
        assert set(files) == {"manifest.json", f"shared-{number}.safetensors", *names}
    assert set(checkpoint.load()[2]) == set().union(*cohorts)
    two = seen[0]["clients-1.safetensors"]
    assert all(size <= two for files in seen for name, size in files.items() if name.startswith("clients"))


def test_checkpoints_are_rare_when_they_are_dear(tmp_path, monkeypatch):
    """A checkpoint that takes as long as ten rounds is not written every round."""
    saved = []
    save = RunFolder.save_checkpoint

    def slow(self, round_number, shared, changed):
        saved.append(round_number)
        time.sleep(0.2)
        save(self, round_number, shared, changed)

    monkeypatch.setattr(RunFolder, "save_checkpoint", slow)
    fedtaco.run("fedavg", out=tmp_path / "run", engine="serial", **SETTINGS)
    assert saved == [1, 8]


def test_a_checkpoint_of_another_version_is_refused_with_the_difference(tmp_path, monkeypatch):
    fedtaco.run("fedavg", out=tmp_path / "run", engine="serial", **SETTINGS)
    monkeypatch.setattr("fedtaco.experiment.config.__version__", "9.0")
    with pytest.raises(InvalidInput, match=r"fedtaco is '0\.1\.0' there and '9\.0' here"):
        fedtaco.run("fedavg", out=tmp_path / "run", engine="serial", resume=True, **SETTINGS)


def stopped_after(number, out):
    def on_round(record):
        if record.round == number:
            raise Stopped

    with pytest.raises(Stopped):
        fedtaco.run("taco", out=out, engine="serial", resume=True, on_round=on_round, **SETTINGS)


def test_versions_are_recorded_and_others_are_told(tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as older:
        older.setattr("torch.__version__", "2.4.0")
        stopped_after(3, out)
    (first,) = RunFolder(out).config()["ran_by"]["versions"]
    here = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    assert first == {**here, "from_round": 1, "torch": "2.4.0"}
    words = rf"began with torch 2\.4\.0 continues with torch {re.escape(torch.__version__)}: its last bits may differ"
    with pytest.warns(RuntimeWarning, match=words):
        stopped_after(5, out)
    assert RunFolder(out).config()["ran_by"]["versions"] == [first, {**here, "from_round": 4}]
    fedtaco.run("taco", out=out, engine="serial", resume=True, **SETTINGS)
    assert RunFolder(out).config()["ran_by"]["versions"] == [first, {**here, "from_round": 4}]
    assert_same_end(out, fedtaco.run("taco", engine="serial", **SETTINGS))


def test_a_folder_without_versions_goes_on_and_keeps_those_it_goes_on_with(tmp_path):
    out = tmp_path / "run"
    stopped_after(3, out)
    folder = RunFolder(out)
    ran_by = folder.config()["ran_by"]
    del ran_by["versions"]
    folder.record_ran_by(ran_by)
    fedtaco.run("taco", out=out, engine="serial", resume=True, **SETTINGS)
    (only,) = folder.config()["ran_by"]["versions"]
    assert only["from_round"] == 4


@pytest.mark.parametrize(
    "manifest", ["[]", "3", "{}", '{"shared": "a", "clients": {}}', '{"clients": []}', "\xff", '{"round": 1', None]
)
def test_a_damaged_checkpoint_is_told(manifest, tmp_path):
    folder = tmp_path / "run"
    fedtaco.run("scaffold", out=folder, engine="serial", **SETTINGS)
    (folder / "summary.json").unlink()
    if manifest is None:
        shared = next((folder / "checkpoint").glob("shared-*"))
        shared.write_bytes(shared.read_bytes()[:100])
    else:
        (folder / "checkpoint" / "manifest.json").write_text(manifest, encoding="latin-1")
    with pytest.raises(InvalidInput, match=r"checkpoint is damaged: .*; start the run again"):
        fedtaco.run("scaffold", out=folder, engine="serial", resume=True, **SETTINGS)


@pytest.mark.parametrize("file", ["rounds.jsonl", "clients.jsonl"])
@pytest.mark.parametrize("line", ["3\n", "{}\n", "\xff\n", '{"round": 1, "surprise": 2}\n', "[]\n"])
def test_damaged_records_are_told(file, line, tmp_path):
    folder = tmp_path / "run"
    fedtaco.run("fedavg", out=folder, engine="serial", **SETTINGS)
    with (folder / file).open("a", encoding="latin-1") as records:
        records.write(line)
    with pytest.raises(InvalidInput, match=rf"{file} is damaged"):
        fedtaco.run("fedavg", out=folder, engine="serial", resume=True, **SETTINGS)


def test_a_checkpoint_of_another_model_is_told(tmp_path):
    stopped_after(3, tmp_path)
    checkpoint = RunFolder(tmp_path).checkpoint
    number, shared, clients = checkpoint.load()
    checkpoint.save(number, {**shared, "state/weights": shared["state/weights"][1:]}, clients)
    with pytest.raises(InvalidInput, match=r"is of another model; start the run again \(overwrite\)"):
        fedtaco.run("taco", out=tmp_path, engine="serial", resume=True, **SETTINGS)


def test_a_lost_checkpoint_is_begun_anew(tmp_path):
    folder = tmp_path / "run"
    stopped_after(3, folder)
    shutil.rmtree(folder / "checkpoint")
    fedtaco.run("taco", out=folder, engine="serial", resume=True, **SETTINGS)
    assert_same_end(folder, fedtaco.run("taco", engine="serial", **SETTINGS))


def test_a_disk_too_full_for_a_checkpoint_gives_a_sentence(tmp_path):
    out = tmp_path / "run"
    in_a_process("scaffold", "serial", out, limit=20_000).join()
    assert (out / "sentence.txt").read_text().startswith(f"Cannot write to {out}: ")
    in_a_process("scaffold", "serial", out).join()
    assert_same_end(out, fedtaco.run("scaffold", engine="serial", **SETTINGS))


def test_a_full_disk_gives_a_sentence_and_loses_no_finished_round(tmp_path):
    """No file may grow beyond 6000 bytes: the records hit that limit after a few rounds."""
    out = tmp_path / "run"
    settings = {"model": "mlp:2", "clients": 3, "partition": "iid", "rounds": 40}
    in_a_process("fedavg", "serial", out, limit=6000, **settings).join()
    sentence = (out / "sentence.txt").read_text()
    assert sentence.startswith(f"Cannot write to {out}: File too large. Finished rounds are kept: free some space")
    kept = RunFolder(out).history()
    assert 2 < len(kept) < 40
    whole = fedtaco.run("fedavg", engine="serial", **{**SETTINGS, **settings})
    assert untimed(kept.table()) == untimed(whole.history.table())[: len(kept)]
    in_a_process("fedavg", "serial", out, **settings).join()
    assert_same_end(out, whole)
