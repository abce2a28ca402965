"""Run folders: what is in them, and that a broken run ends where an unbroken one does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedtaco
from fedtaco import InvalidInput, Taco
from fedtaco.experiment import resolve_config
from fedtaco.experiment.defaults import DEFAULTS
from fedtaco.methods import METHODS
from fedtaco.records import RunFolder

QUICK = {"dataset": "digits", "rounds": 3, "local_steps": 2}
TIMES = {"wall_seconds", "slowest_client_seconds", "seconds"}


def untimed(rows):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def test_a_run_folder_describes_itself(tmp_path):
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
    split = folder.partition()
    assert sorted(np.concatenate(split.indices)) == list(range(1437))
    assert sorted(set(split.groups)) == ["A", "B", "C"]
    assert split.label_counts.shape == (20, 10)
    assert split.label_counts.sum(1).tolist() == [len(part) for part in split.indices]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["final_accuracy"] == result.history.final_accuracy
    assert set(summary["alpha"]) == {"A", "B", "C"}
    rows = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert all(row["schema"] == 2 and 0 <= row["accuracy"] <= 1 for row in rows)
    clients = [json.loads(line) for line in (out / "clients.jsonl").read_text().splitlines()]
    wanted = {"round", "client", "alpha", "cosine", "norm", "weight", "seconds", "strikes", "expelled"}
    assert len(clients) == 60
    assert wanted <= set(clients[0])


def test_what_the_partition_had_to_do_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtaco.data.partitions.skew.MAX_DRAWS", 1)
    fedtaco.run("fedavg", out=tmp_path / "run", **QUICK | {"clients": 60, "partition": "dirichlet:0.05"})
    assert "were moved from the largest" in RunFolder(tmp_path / "run").summary()["partition_notes"][0]


def test_a_finished_run_is_read_back(tmp_path):
    result = fedtaco.run("taco", out=tmp_path / "run", **QUICK)
    loaded = fedtaco.load(tmp_path / "run")
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(loaded.model(x), result.model(x))
    assert torch.equal(loaded.output_model(x), result.output_model(x))
    assert loaded.history == result.history


def test_a_run_that_stopped_is_read_back_too(tmp_path):
    with pytest.raises(fedtaco.RunStopped):
        fedtaco.run("taco", out=tmp_path / "run", **QUICK | {"local_lr": 1e20, "rounds": 9})
    assert len(fedtaco.load(tmp_path / "run").history) < 9


def test_a_run_is_read_back_without_its_method(tmp_path, monkeypatch):
    (tmp_path / "gone.py").write_text((Path(__file__).parents[2] / "examples" / "own_method.py").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    fedtaco.run("gone:Clipped", out=tmp_path / "run", **QUICK)
    (tmp_path / "gone.py").unlink()
    monkeypatch.delitem(sys.modules, "gone")
    assert len(fedtaco.load(tmp_path / "run").history) == 3


def test_damaged_folders_are_named(tmp_path):
    out = tmp_path / "run"
    fedtaco.run("fedavg", out=out, **QUICK)
    rounds = (out / "rounds.jsonl").read_text().splitlines(keepends=True)
    (out / "rounds.jsonl").write_text("".join(rounds[:1] + rounds[2:]))
    with pytest.raises(InvalidInput, match=r"rounds\.jsonl lacks some of the 3 rounds"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)
    (out / "checkpoint" / "manifest.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"checkpoint is damaged"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)
    (out / "config.toml").write_text("schema = ")
    with pytest.raises(InvalidInput, match=r"config\.toml is damaged"):
        fedtaco.run("fedavg", out=out, resume=True, **QUICK)


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_run_ends_where_an_unbroken_one_does(tmp_path, method):
    class Interrupt(Exception):
        pass

    def stop_after_two(record):
        if record.round == 2:
            raise Interrupt

    settings = QUICK | {"participation": 0.5, "detector": "paper"}
    whole = fedtaco.run(method, out=tmp_path / "whole", **settings)
    with pytest.raises(Interrupt):
        fedtaco.run(method, out=tmp_path / "broken", on_round=stop_after_two, **settings)
    with (tmp_path / "broken" / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "accur')
    resumed = fedtaco.run(method, out=tmp_path / "broken", resume=True, **settings)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name])
    assert untimed(resumed.history.table()) == untimed(whole.history.table())
    assert untimed(resumed.history.client_table()) == untimed(whole.history.client_table())
    assert resumed.history == RunFolder(tmp_path / "broken").history()
    lines = (tmp_path / "broken" / "clients.jsonl").read_text().splitlines()
    assert all(json.loads(line)["schema"] == 2 for line in lines)


def test_a_folder_with_another_run_is_left_alone(tmp_path):
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


def test_a_foreign_configuration_does_not_make_a_run_folder(tmp_path):
    (tmp_path / "config.toml").write_text("baseURL = 'https://example.org'")
    for overwrite in (False, True):
        with pytest.raises(InvalidInput, match="is not a run folder; choose another"):
            fedtaco.run("fedavg", out=tmp_path, overwrite=overwrite, **QUICK)
    assert (tmp_path / "config.toml").exists()


def test_only_what_a_run_writes_is_replaced(tmp_path):
    fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)
    (tmp_path / "run" / "notes.txt").write_text("look at round 2")
    fedtaco.run("taco", out=tmp_path / "run", overwrite=True, **QUICK)
    assert (tmp_path / "run" / "notes.txt").exists()
    assert RunFolder(tmp_path / "run").config()["method"] == "taco"


def test_a_replacement_that_was_killed_is_no_obstacle(tmp_path):
    """Between the removal of the old configuration and the new one there is the lock, and what is not the run's."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("lock", "notes.txt", "partition.npz", "config.toml.part"):
        (folder / name).touch()
    fedtaco.run("taco", out=folder, resume=True, **QUICK)
    assert (folder / "notes.txt").exists()
    assert RunFolder(folder).summary()


def test_a_start_that_failed_is_no_obstacle(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("numpy.savez_compressed", full)
        with pytest.raises(InvalidInput, match=r"No space left on device\. Finished rounds are kept"):
            fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)
    fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)


def test_a_folder_with_other_things_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(InvalidInput, match="is not a run folder; choose another"):
            fedtaco.run("fedavg", out=tmp_path, overwrite=overwrite, **QUICK)
    assert (tmp_path / "thesis.tex").exists()


def test_a_pool_gives_the_same_run(tmp_path):
    serial = fedtaco.run("scaffold", engine="serial", **QUICK)
    pool = fedtaco.run("scaffold", out=tmp_path / "run", engine="pool", workers=2, **QUICK)
    for name, tensor in serial.model.state_dict().items():
        assert torch.equal(tensor, pool.model.state_dict()[name])
    assert untimed(serial.history.client_table()) == untimed(pool.history.client_table())
    assert RunFolder(tmp_path / "run").config()["engine"] == "pool"


def test_a_method_object_keeps_its_parameters(tmp_path):
    fedtaco.run(Taco(gamma=0.03), out=tmp_path / "run", **QUICK)
    assert RunFolder(tmp_path / "run").config()["parameters"]["taco.gamma"] == 0.03


def test_settings_come_from_the_dataset_unless_given():
    config = resolve_config(method="fedavg", dataset="digits", local_lr=0.2)
    names = ("rounds", "local_steps", "local_lr", "partition")
    assert [config[name] for name in names] == [20, 50, 0.2, "groups"]


def test_a_dataset_without_an_entry_gets_generic_defaults(monkeypatch):
    monkeypatch.delitem(DEFAULTS, "digits")
    config = resolve_config(method="fedavg", dataset="digits")
    assert (config["rounds"], config["local_steps"], config["local_lr"], config["target"]) == (50, 100, 0.01, 0.7)


def test_a_folder_of_another_version_is_refused(tmp_path):
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


def test_methods_see_the_same_batches(monkeypatch):
    from fedtaco.data import TensorSamples

    seen = []
    batch = TensorSamples.batch

    def watched(self, indices):
        seen.append(indices.tolist())
        return batch(self, indices)

    monkeypatch.setattr(TensorSamples, "batch", watched)
    orders = []
    for method in ("fedavg", "taco", "stem"):
        seen.clear()
        fedtaco.run(method, dataset="digits", rounds=1, local_steps=2, engine="serial")
        _warm_up, *steps = [indices for indices in seen if len(indices) == 64]
        orders.append(steps)
    assert orders[0] == orders[1] == orders[2]
    assert len(orders[0]) == 40


def test_the_methods_own_output_is_evaluated_in_the_last_round():
    settings = {"dataset": "digits", "clients": 4, "rounds": 3, "local_steps": 2, "engine": "serial"}
    with_output, without = (fedtaco.run(method, **settings).history for method in ("taco", "fedavg"))
    assert [record.output_accuracy is None for record in with_output] == [True, True, False]
    assert all(record.output_accuracy is None for record in without)
