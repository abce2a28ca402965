"""Run folders: their contents, and folders that are occupied, damaged or left by a run that was killed."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedtaco
from fedtaco import InvalidInput
from fedtaco.records import RunFolder

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
    assert all(row["schema"] == 2 and 0 <= row["accuracy"] <= 1 for row in rows)
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
    config.write_text(config.read_text().replace("schema = 2", "schema = 1"))
    with pytest.raises(InvalidInput, match=r"written by another version of fedtaco \(schema 1, not 2\)"):
        fedtaco.load(out)
    with pytest.raises(InvalidInput, match="written by another version"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)
    fedtaco.run("fedavg", out=out, overwrite=True, **QUICK)
    assert len(fedtaco.load(out).history) == QUICK["rounds"]


# Runs that failed or were killed while the folder was created


def test_folder_of_a_killed_replacement_can_be_used(tmp_path):
    """Between the removal of the old configuration and the new one, there is a lock and what the run did not write."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("lock", "notes.txt", "partition.npz", "config.toml.part"):
        (folder / name).touch()
    fedtaco.run("taco", out=folder, resume=True, **QUICK)
    assert (folder / "notes.txt").exists()
    assert RunFolder(folder).summary()


def test_folder_of_a_failed_start_can_be_used(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("numpy.savez_compressed", full)
        with pytest.raises(InvalidInput, match=r"No space left on device\. Finished rounds are kept"):
            fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)
    fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)


# Damaged files


def test_damaged_files_are_named(tmp_path):
    out = tmp_path / "run"
    fedtaco.run("fedavg", out=out, **QUICK)
    rounds = (out / "rounds.jsonl").read_text().splitlines(keepends=True)
    (out / "rounds.jsonl").write_text("".join(rounds[:1] + rounds[2:]))
    with pytest.raises(InvalidInput, match=r"rounds\.jsonl lacks some of the 3 rounds"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)
    (out / "checkpoint" / "manifest.json").write_text("{")
    with pytest.raises(InvalidInput, match="checkpoint is damaged"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)
    (out / "config.toml").write_text("schema = ")
    with pytest.raises(InvalidInput, match=r"config\.toml is damaged"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)


@pytest.mark.parametrize("file", ["rounds.jsonl", "clients.jsonl"])
@pytest.mark.parametrize("line", ["3\n", "{}\n", "\xff\n", '{"round": 1, "surprise": 2}\n', "[]\n"])
def test_damaged_lines_are_reported(file, line, tmp_path):
    folder = tmp_path / "run"
    fedtaco.run("fedavg", out=folder, **QUICK)
    with (folder / file).open("a", encoding="latin-1") as records:
        records.write(line)
    with pytest.raises(InvalidInput, match=rf"{file} is damaged"):
        fedtaco.run("fedavg", out=folder, resume=True, **QUICK)
