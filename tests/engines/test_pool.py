"""The pool engine has the results of the serial one, to the last bit, and copes with workers that die."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch

from fedtaco.engines import PoolEngine, SerialEngine
from fedtaco.errors import InvalidInput, ProcessDied
from fedtaco.methods import METHODS, FedAvg, Scaffold, Taco
from fedtaco.testing.small_federation import final_state, make_federation, run_rounds, skewed_clients


def pool_of(workers):
    def engine(runner):
        return PoolEngine(runner, workers)

    return engine


def assert_same_state(first, second):
    assert torch.equal(first.server.weights, second.server.weights)
    assert first.server.memory.keys() == second.server.memory.keys()
    for name, tensor in first.server.memory.items():
        assert torch.equal(tensor, second.server.memory[name]), name
    assert first.memories.keys() == second.memories.keys()
    for client, memory in first.memories.items():
        for name, tensor in memory.items():
            assert torch.equal(tensor, second.memories[client][name]), (client, name)


@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=lambda method: method.name)
def test_pool_equals_serial_to_the_last_bit(method):
    options = {"participation": 1.0 if method.needs_all_clients else 0.6, "steps": [1, 5, 2, 4, 3]}
    assert_same_state(final_state(method, **options), final_state(method, engine=pool_of(2), **options))


@pytest.mark.parametrize("workers", [1, 3, 9])
def test_result_does_not_depend_on_the_number_of_workers(workers):
    assert_same_state(final_state(Scaffold()), final_state(Scaffold(), engine=pool_of(workers)))


@pytest.mark.parametrize("method", [FedAvg(), Taco()], ids=lambda method: method.name)
def test_training_losses_equal_those_of_serial_to_the_last_bit(method):
    losses = []
    for engine in (SerialEngine, pool_of(2)):
        federation = make_federation(method, engine=engine, steps=[1, 5, 2, 4, 3])
        finished = run_rounds(federation, federation.initial)
        losses.append([record.quantities["training_loss"] for one in finished for record in one.clients])
    assert losses[0] == losses[1]
    assert None not in losses[0]
    assert len(set(losses[0])) == 20


def test_seconds_of_every_client_are_recorded():
    federation = make_federation(Taco(), engine=pool_of(2))
    (finished,) = run_rounds(federation, federation.initial, 1)
    assert all(record.seconds > 0 for record in finished.clients)


class SignalsWorker:
    """Samples that send a signal to the worker that fetches them: the first one if there is a ``marker``, else each."""

    def __init__(self, samples, marker=None, number=signal.SIGKILL):
        self.samples, self.marker, self.number, self.parent = samples, marker, number, os.getpid()

    def __len__(self):
        return len(self.samples)

    def batch(self, indices):
        if os.getpid() != self.parent and (self.marker is None or not self.marker.exists()):
            if self.marker is not None:
                self.marker.touch()
            os.kill(os.getpid(), self.number)
        return self.samples.batch(indices)


def test_client_of_a_dead_worker_is_run_again(tmp_path):
    clients = skewed_clients()
    clients[3] = SignalsWorker(clients[3], tmp_path / "died")
    with pytest.warns(RuntimeWarning, match=r"Worker \d+ died \(exit code -9\) while it ran client 3; a new worker"):
        state = final_state(Scaffold(), clients=clients, engine=pool_of(2))
    assert_same_state(final_state(Scaffold()), state)


def test_worker_that_dies_between_rounds_is_replaced():
    federation = make_federation(Scaffold(), engine=pool_of(2))
    rounds = federation.rounds(federation.initial)
    next(rounds)
    victim = multiprocessing.active_children()[0]
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    with pytest.warns(RuntimeWarning, match=rf"Worker {victim.pid} died \(exit code -9\) before it ran client"):
        *_, last = rounds
    assert_same_state(final_state(Scaffold()), last.state)


def test_run_ends_if_a_client_kills_its_worker_twice():
    clients = skewed_clients()
    clients[3] = SignalsWorker(clients[3])
    with (
        pytest.warns(RuntimeWarning, match="client 3"),
        pytest.raises(ProcessDied, match="while it ran client 3, for the second time"),
    ):
        final_state(FedAvg(), clients=clients, engine=pool_of(2))


def test_stopped_worker_is_named_once_and_can_be_continued(tmp_path, monkeypatch):
    clients = skewed_clients()
    clients[3] = SignalsWorker(clients[3], tmp_path / "stopped", signal.SIGSTOP)
    warned = []

    def show(message, *_):
        warned.append(str(message))
        pid = int(re.search(r"kill -CONT (\d+)", warned[-1])[1])
        threading.Timer(0.5, os.kill, (pid, signal.SIGCONT)).start()

    monkeypatch.setattr("fedtaco.processes.CHECK_SECONDS", 0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        assert_same_state(final_state(Scaffold()), final_state(Scaffold(), clients=clients, engine=pool_of(2)))
    (warning,) = warned
    assert re.fullmatch(
        r"Process (\d+), which runs client 3, has been stopped since \d\d:\d\d:\d\d and does not answer\. "
        r"Let it continue \(kill -CONT \1\), or end everything with Ctrl-C\.",
        warning,
    )


ENDLESS = """
import multiprocessing, signal
import fedtaco

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it

class PrintsWorkers(fedtaco.Callback):
    def on_round_end(self, run, record):
        if record.round == 1:
            print(*(process.pid for process in multiprocessing.active_children()), flush=True)

settings = dict(clients=4, rounds=100000, local_steps=2, eval_every=100000)
fedtaco.run("fedavg", engine="pool", workers=2, callbacks=[PrintsWorkers()], **settings)
"""


def test_interrupt_ends_a_run_with_a_stopped_worker():
    command = [sys.executable, "-c", ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        try:
            pids = [int(pid) for pid in parent.stdout.readline().split()]
            os.kill(pids[0], signal.SIGSTOP)
            assert f"Process {pids[0]}, which runs client" in parent.stderr.readline()
            parent.send_signal(signal.SIGINT)
            parent.communicate(timeout=60)
        finally:
            parent.kill()
    assert not any(is_alive(pid) for pid in pids)


def test_error_in_a_worker_is_raised_in_the_caller():
    class Broken:
        def __len__(self):
            return 12

        def batch(self, indices):
            raise KeyError("no such file")

    clients = [*skewed_clients()[:2], Broken()]
    with pytest.raises(KeyError, match="no such file") as error:
        final_state(FedAvg(), clients=clients, engine=pool_of(2))
    assert "client 2 in round 1" in error.value.__notes__[0]


def test_shared_memory_does_not_depend_on_the_size_of_dev_shm():
    """Containers often have only 64 MB there."""
    federation = make_federation(FedAvg(), engine=pool_of(2))
    before = Path("/proc/self/maps").read_text().count("/dev/shm/")
    for _ in federation.rounds(federation.initial):
        assert Path("/proc/self/maps").read_text().count("/dev/shm/") == before


def test_lack_of_memory_is_reported(monkeypatch):
    def no_memory(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", no_memory)
    with pytest.raises(InvalidInput, match=r"no memory for the uploads of a round, .*: .*Cannot allocate memory"):
        final_state(FedAvg(), engine=pool_of(2))


def test_no_worker_is_left_after_a_run():
    federation = make_federation(FedAvg(), engine=pool_of(2))
    workers = [len(multiprocessing.active_children()) for _ in federation.rounds(federation.initial)]
    assert workers == [2] * 4
    assert multiprocessing.active_children() == []


def test_no_worker_is_left_after_a_run_is_abandoned():
    federation = make_federation(FedAvg(), engine=pool_of(2))
    rounds = federation.rounds(federation.initial)
    next(rounds)
    rounds.close()
    assert multiprocessing.active_children() == []


PARENT = """
import time
import warnings
from fedtaco.engines import PoolEngine
from fedtaco.methods import FedAvg
from fedtaco.testing.small_federation import make_federation
import multiprocessing
federation = make_federation(FedAvg(), engine=lambda runner: PoolEngine(runner, 2))
rounds = federation.rounds(federation.initial)
next(rounds)
print(*(process.pid for process in multiprocessing.active_children()), flush=True)
time.sleep(60)
"""


def test_workers_end_when_their_parent_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in pids)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
