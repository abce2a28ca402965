"""Worker processes: how many, on which systems, and errors that are sent between them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal

import pytest

from fedtaco.errors import InvalidInput
from fedtaco.processes import can_fork, cores, die_with, interrupted_by_sigterm, picklable, set_up_child


def test_cores_respect_the_affinity_of_the_process(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 7})
    assert cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


@pytest.mark.parametrize(("platform", "expected"), [("linux", True), ("darwin", False), ("win32", False)])
def test_only_linux_can_fork(platform, expected, monkeypatch):
    monkeypatch.setattr("sys.platform", platform)
    assert can_fork() is expected


def test_process_without_its_parent_ends_at_once():
    process = multiprocessing.get_context("fork").Process(target=die_with, args=(os.getpid() + 1,))
    process.start()
    process.join(10)
    assert process.exitcode == 1


def test_picklable_error_is_sent_as_it_is():
    error = InvalidInput("batch_size is 0")
    error.add_note("in round 3")
    assert picklable(error) is error
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["in round 3"]


def test_unpicklable_error_is_replaced_and_keeps_its_notes():
    class LocalError(Exception):
        pass

    error = LocalError("no such ward")
    error.add_note("in round 3")
    replacement = picklable(error)
    assert (type(replacement), str(replacement)) == (RuntimeError, "LocalError: no such ward")
    assert replacement.__notes__ == ["in round 3"]


def test_sigterm_interrupts_once():
    with interrupted_by_sigterm() as is_terminated:
        assert not is_terminated()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert is_terminated()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def report_signals(connection, parent):
    set_up_child(parent)
    connection.send((signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)))


def test_forked_process_leaves_signals_to_its_parent():
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with interrupted_by_sigterm():
        process = context.Process(target=report_signals, args=(sender, os.getpid()))
        process.start()
        sender.close()
        assert receiver.recv() == (signal.SIG_IGN, signal.SIG_DFL)
        process.join()
