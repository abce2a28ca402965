"""The partition ``noise``: the same noise for a sample however it is read, larger for later clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from run_helpers import Interrupted, assert_same_result, interrupt_after
from torch.utils.data import TensorDataset

import fedtaco
from fedtaco import InvalidInput
from fedtaco.data import as_samples, load_dataset, partition
from fedtaco.data.noise import NoisySamples
from fedtaco.experiment import build_spec
from fedtaco.experiment.prepared_run import PreparedSimulation
from fedtaco.records import RunFolder
from fedtaco.runs.options import RunOptions

CLIENTS = 5
X, Y = torch.zeros(1000, 20), torch.arange(1000) % 3
SETTINGS = {"dataset": "digits", "clients": CLIENTS, "rounds": 4, "local_steps": 6, "partition": "noise:0.5"}


class NotInMemory(torch.utils.data.Dataset):
    def __len__(self):
        return len(Y)

    def __getitem__(self, index):
        return X[index], Y[index]


def inputs_of(samples):
    return samples.batch(torch.arange(len(samples)))[0]


def test_deviation_grows_from_0_for_the_first_client_to_sigma_for_the_last():
    assert partition("noise:0.8", np.zeros(20), CLIENTS, seed=0).noise == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert partition("noise:0.8", np.zeros(20), 1, seed=0).noise == [0]
    measured = [float(inputs_of(client).std()) for client in fedtaco.split((X, Y), "noise:0.8", CLIENTS)]
    assert measured == pytest.approx([0, 0.2, 0.4, 0.6, 0.8], rel=0.05)
    assert measured[0] == 0


def test_samples_are_those_of_iid():
    one, other = (partition(spec, np.zeros(100), CLIENTS, seed=3).indices for spec in ("noise:0.1", "iid"))
    assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


def test_noise_depends_on_seed_and_sample_alone():
    first, same_seed, other_seed = (NoisySamples(as_samples((X, Y)), torch.ones(len(X)), seed) for seed in (0, 0, 1))
    noise = inputs_of(first)
    assert torch.equal(inputs_of(same_seed), noise)
    assert not torch.equal(inputs_of(other_seed), noise)
    assert len(noise.unique(dim=0)) == len(noise)
    assert torch.equal(first.batch(torch.tensor([7, 2]))[0], noise[[7, 2]])
    assert torch.equal(first.subset([9, 7]).batch(torch.tensor([1]))[0], noise[[7]])


def test_samples_that_are_not_in_memory_have_the_same_noise():
    for one, other in zip(
        *(fedtaco.split(data, "noise:0.5", CLIENTS) for data in ((X, Y), NotInMemory())), strict=True
    ):
        assert isinstance(other, NoisySamples)
        order = torch.tensor([5, 0, 3])
        for part, same in zip(one.batch(order), other.batch(order), strict=True):
            assert torch.equal(part, same)


def test_integers_have_no_noise():
    codes = torch.arange(3000).reshape(1000, 3)
    noisy, targets = fedtaco.split(((codes, X), codes[:, 0]), "noise:50", 2)[1].batch(torch.arange(500))
    assert torch.equal(noisy[0][:, 0], targets)
    assert (noisy[1] != 0).all()
    with pytest.raises(InvalidInput, match=r"needs floating-point inputs, but these are torch\.int64"):
        fedtaco.split((codes, Y), "noise:0.5", 2)


@pytest.mark.parametrize("spec", ["noise", "noise:0", "noise:-1", "noise:nan", "noise:2e6"])
def test_invalid_deviations_are_refused(spec):
    with pytest.raises(InvalidInput, match=r"partition is '?noise"):
        partition(spec, np.zeros(20), CLIENTS, seed=0)


def test_engines_agree_and_noise_matters():
    serial, pool, batched = (
        fedtaco.run("taco", engine=engine, workers=None if engine == "serial" else 2, **SETTINGS)
        for engine in ("serial", "pool", "batched")
    )
    assert_same_result(serial, pool)
    clean = fedtaco.run("taco", engine="serial", **{**SETTINGS, "partition": "iid"})
    for name, tensor in serial.model.state_dict().items():
        torch.testing.assert_close(batched.model.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)
        assert not torch.equal(clean.model.state_dict()[name], tensor)


def test_own_data_give_the_same_run_as_the_shipped_dataset():
    data = load_dataset("digits")
    whole = data.train.batch(torch.arange(len(data.train)))
    prepared = PreparedSimulation.prepare(build_spec(method="taco", **SETTINGS), RunOptions())
    for form in (whole, TensorDataset(*whole)):
        clients = fedtaco.split(form, "noise:0.5", CLIENTS)
        for own, shipped in zip(clients, prepared.clients.runner.clients.values(), strict=True):
            assert torch.equal(inputs_of(own), inputs_of(shipped))


def test_held_out_samples_have_the_noise_of_their_client():
    def prepared(validation):
        config = build_spec(method="taco", **SETTINGS, validation=validation)
        return PreparedSimulation.prepare(config, RunOptions())

    noisy = {
        tuple(row.tolist())
        for client in prepared(0).clients.runner.clients.values()
        for row in inputs_of(client).flatten(1)
    }
    held_out = inputs_of(prepared(0.2).clients.data.validation).flatten(1)
    assert {tuple(row.tolist()) for row in held_out} <= noisy


def test_partition_file_and_resume(tmp_path):
    expected = fedtaco.run("scaffold", **SETTINGS)
    with pytest.raises(Interrupted):
        fedtaco.run("scaffold", out=tmp_path / "run", callbacks=[interrupt_after(2)], **SETTINGS)
    resumed = fedtaco.run("scaffold", out=tmp_path / "run", resume=True, **SETTINGS)
    assert_same_result(expected, resumed)
    recorded = RunFolder(tmp_path / "run").partition().indices
    assert sorted(np.concatenate(recorded)) == list(range(1437))
    with pytest.raises(InvalidInput, match="partition"):
        fedtaco.run("scaffold", out=tmp_path / "run", resume=True, **{**SETTINGS, "partition": "noise:0.4"})
