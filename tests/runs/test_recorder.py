"""The recorder: how often it writes checkpoints, and the models of its result."""

from __future__ import annotations

import time

import torch
from small_training import make_clients, train
from torch import nn

import fedtaco
from fedtaco.records import RunFolder

SETTINGS = {"dataset": "digits", "clients": 6, "rounds": 8, "local_steps": 4, "batch_size": 16, "engine": "serial"}


def test_slow_checkpoints_are_written_rarely(tmp_path, monkeypatch):
    """A checkpoint that takes as long as ten rounds is written after the first round and the last."""
    saved = []
    save = RunFolder.save_checkpoint

    def slow_save(self, round_number, shared, changed):
        saved.append(round_number)
        time.sleep(0.2)
        save(self, round_number, shared, changed)

    monkeypatch.setattr(RunFolder, "save_checkpoint", slow_save)
    fedtaco.run("fedavg", out=tmp_path / "run", **SETTINGS)
    assert saved == [1, 8]


def test_model_is_saved_and_loaded(tmp_path):
    result = train()
    result.save(tmp_path / "model.safetensors")
    loaded = fedtaco.load_model(nn.Linear(5, 3), tmp_path / "model.safetensors")
    x = make_clients(1)[0][0]
    assert torch.equal(loaded(x), result.model(x))
