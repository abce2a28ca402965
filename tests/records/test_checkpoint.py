"""Checkpoints: what is written, and checkpoints that are damaged, lost, or of another model."""

from __future__ import annotations

import shutil

import pytest
from run_helpers import CallAfterRounds, Interrupted, assert_same_result, interrupt_after

import fedtaco
from fedtaco import InvalidInput
from fedtaco.records import RunFolder

SETTINGS = {"dataset": "digits", "clients": 6, "rounds": 8, "local_steps": 4, "batch_size": 16, "engine": "serial"}


def interrupted_run(out):
    """Run TACO for three rounds."""
    with pytest.raises(Interrupted):
        fedtaco.run("taco", out=out, resume=True, callbacks=[interrupt_after(3)], **SETTINGS)
    return RunFolder(out)


def test_only_changed_memories_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtaco.runs.recorder.CHECKPOINT_SHARE", 1.0)
    sizes_by_round = []

    def measure_files(record):
        files = (tmp_path / "run" / "checkpoint").iterdir()
        sizes_by_round.append({path.name: path.stat().st_size for path in files})

    callbacks = [CallAfterRounds(measure_files)]
    result = fedtaco.run("scaffold", out=tmp_path / "run", callbacks=callbacks, participation=0.34, **SETTINGS)
    cohorts = [{one.client for one in result.history.clients if one.round == number} for number in range(1, 9)]
    assert len(sizes_by_round) == 8
    for number, sizes in enumerate(sizes_by_round, start=1):
        last_round = {
            client: max(n for n in range(1, number + 1) if client in cohorts[n - 1])
            for client in set().union(*cohorts[:number])
        }
        names = {f"clients-{n}.safetensors" for n in last_round.values()}
        assert set(sizes) == {"manifest.json", f"shared-{number}.safetensors", *names}
    assert set(RunFolder(tmp_path / "run").load_checkpoint()[2]) == set().union(*cohorts)
    size_of_a_cohort = sizes_by_round[0]["clients-1.safetensors"]
    for sizes in sizes_by_round:
        assert all(size <= size_of_a_cohort for name, size in sizes.items() if name.startswith("clients"))


@pytest.mark.parametrize(
    "manifest", ["[]", "3", "{}", '{"shared": "a", "clients": {}}', '{"clients": []}', "\xff", '{"round": 1', None]
)
def test_damaged_checkpoint_is_reported(manifest, tmp_path):
    folder = tmp_path / "run"
    fedtaco.run("scaffold", out=folder, **SETTINGS)
    (folder / "summary.json").unlink()
    if manifest is None:
        shared = next((folder / "checkpoint").glob("shared-*"))
        shared.write_bytes(shared.read_bytes()[:100])
    else:
        (folder / "checkpoint" / "manifest.json").write_text(manifest, encoding="latin-1")
    with pytest.raises(InvalidInput, match=r"checkpoint/.* (is damaged: .* start the|was written by another)"):
        fedtaco.run("scaffold", out=folder, resume=True, **SETTINGS)


def test_checkpoint_of_another_model_is_refused(tmp_path):
    folder = interrupted_run(tmp_path)
    number, shared, clients = folder.load_checkpoint()
    folder.rewind()
    folder.save_checkpoint(number, {**shared, "state/weights": shared["state/weights"][1:]}, clients)
    with pytest.raises(InvalidInput, match=r"is of another model; start the run again \(overwrite\)"):
        fedtaco.run("taco", out=tmp_path, resume=True, **SETTINGS)


def test_run_without_its_checkpoint_starts_again(tmp_path):
    folder = interrupted_run(tmp_path / "run")
    shutil.rmtree(folder.checkpoint.folder)
    resumed = fedtaco.run("taco", out=folder.path, resume=True, **SETTINGS)
    assert_same_result(fedtaco.run("taco", **SETTINGS), resumed)
    assert_same_result(resumed, fedtaco.load(folder.path))
