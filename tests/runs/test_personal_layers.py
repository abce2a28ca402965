"""Personal layers of a run: resumed, saved with the checkpoint, and loaded from the folder."""

from __future__ import annotations

import shutil

import pytest
import torch
from run_helpers import Interrupted, assert_same_model, assert_same_result, interrupt_after

import fedtaco
from fedtaco import InvalidInput
from fedtaco.methods import METHODS
from fedtaco.records import RunFolder

SETTINGS = {
    "dataset": "digits",
    "clients": 6,
    "rounds": 4,
    "local_steps": 4,
    "batch_size": 16,
    "engine": "serial",
    "participation": 0.5,
    "personal": "head.*",
}


def assert_same_client_models(expected, actual):
    for client in range(SETTINGS["clients"]):
        assert_same_model(expected.client_model(client), actual.client_model(client))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_continues_with_the_layers_of_its_clients(method, tmp_path):
    settings = {**SETTINGS, "participation": 1.0 if METHODS[method].needs_all_clients else 0.5}
    expected = fedtaco.run(method, **settings)
    with pytest.raises(Interrupted):
        fedtaco.run(method, out=tmp_path / "run", callbacks=[interrupt_after(2)], **settings)
    resumed = fedtaco.run(method, out=tmp_path / "run", resume=True, **settings)
    for result in (resumed, fedtaco.load(tmp_path / "run")):
        assert_same_result(expected, result)
        assert_same_client_models(expected, result)
    heads = torch.stack([expected.client_model(client).head.bias for client in range(6)])
    assert len(heads.unique(dim=0)) == 6
    assert not (heads == expected.model.head.bias).all(1).any()
    assert torch.equal(expected.model.head.weight, expected.output_model.head.weight)


def test_a_finished_run_is_only_loaded(tmp_path):
    first = fedtaco.run("taco", out=tmp_path / "run", **SETTINGS)
    again = fedtaco.run("taco", out=tmp_path / "run", resume=True, **SETTINGS)
    assert_same_client_models(first, again)


def test_without_personal_layers_clients_have_the_global_model(tmp_path):
    settings = {name: value for name, value in SETTINGS.items() if name != "personal"}
    result = fedtaco.run("taco", out=tmp_path / "run", **settings)
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    loaded = fedtaco.load(tmp_path / "run")
    for model in (result.client_model(3), loaded.client_model(3)):
        assert_same_model(result.model, model)
    assert result.client_model(3) is not result.model


def test_another_pattern_is_another_run(tmp_path):
    fedtaco.run("fedavg", out=tmp_path / "run", **SETTINGS)
    for personal in ("head.bias", None):
        with pytest.raises(InvalidInput, match=r"personal is 'head\.\*' there and"):
            fedtaco.run("fedavg", out=tmp_path / "run", resume=True, **{**SETTINGS, "personal": personal})


def test_missing_or_damaged_layers_are_reported(tmp_path):
    out = tmp_path / "run"
    fedtaco.run("fedavg", out=out, **SETTINGS)
    (path,) = [path for path in (out / "checkpoint").glob("clients-*") if "4" in path.name]
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InvalidInput, match=r"clients-4\.safetensors is damaged"):
        fedtaco.load(out)
    path.write_bytes(content)
    fedtaco.load(out)
    shutil.rmtree(out / "checkpoint")
    with pytest.raises(InvalidInput, match="no checkpoint of its last round, which contains the personal layers"):
        fedtaco.load(out)


def test_layers_of_the_wrong_size_are_refused(tmp_path, monkeypatch):
    fedtaco.run("fedavg", out=tmp_path / "run", **SETTINGS)
    load_checkpoint = RunFolder.load_checkpoint

    def shortened(folder):
        number, shared, clients = load_checkpoint(folder)
        return number, shared, {client: {name: a[:-1] for name, a in own.items()} for client, own in clients.items()}

    monkeypatch.setattr(RunFolder, "load_checkpoint", shortened)
    with pytest.raises(InvalidInput, match="checkpoint is damaged"):
        fedtaco.load(tmp_path / "run")
