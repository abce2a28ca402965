"""Processes: how many, on which systems, errors that are sent between them, and short-lived ones."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time

import pytest

from fedtaco.errors import InvalidInput
from fedtaco.processes import (
    can_fork,
    cores,
    die_with,
    interrupted_by_sigterm,
    map_forked,
    picklable,
    postponed_interrupts,
    set_up_child,
)


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


class TerminatedWhenDeleted:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)


def test_sigterm_that_python_ignores_interrupts_later(capfd):
    with interrupted_by_sigterm() as is_terminated:
        with pytest.raises(KeyboardInterrupt):
            TerminatedWhenDeleted()
            time.sleep(60)
        assert is_terminated()
        signal.raise_signal(signal.SIGTERM)
    assert "ignored" not in capfd.readouterr().err


def test_other_ignored_errors_are_reported(monkeypatch):
    class Fails:
        def __del__(self):
            raise KeyError("ward 3")

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: reported.append(ignored.exc_type))
    with interrupted_by_sigterm():
        Fails()
    Fails()
    assert reported == [KeyError, KeyError]


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


def signal_this_thread():
    signal.raise_signal(signal.SIGTERM)


def signal_another_thread(inside, signalled):
    """Return a function that lets another thread, which does not block signals, receive SIGTERM."""

    def receive():
        inside.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        signalled.set()

    threading.Thread(target=receive).start()

    def send():
        inside.set()
        signalled.wait()

    return send


@pytest.mark.parametrize("to_another_thread", [False, True])
def test_sigterm_waits_until_a_forked_process_is_stored(to_another_thread):
    send = signal_another_thread(threading.Event(), threading.Event()) if to_another_thread else signal_this_thread
    steps = []
    with interrupted_by_sigterm() as is_terminated:
        with pytest.raises(KeyboardInterrupt), postponed_interrupts():
            send()
            steps.append("stored")
        assert is_terminated()
    assert steps == ["stored"]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


def receive_sigterm(connection, parent):
    signal.raise_signal(signal.SIGTERM)
    connection.send("waits")
    set_up_child(parent)
    connection.send("has not ended")


def test_sigterm_before_its_set_up_ends_a_forked_process_without_a_traceback(capfd):
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with interrupted_by_sigterm():
        with postponed_interrupts():
            process = context.Process(target=receive_sigterm, args=(sender, os.getpid()))
            process.start()
        sender.close()
        process.join()
    assert receiver.recv() == "waits"
    with pytest.raises(EOFError):
        receiver.recv()
    assert process.exitcode == -signal.SIGTERM
    assert capfd.readouterr().err == ""


# Short-lived processes


def test_forked_processes_share_the_work_and_results_are_in_order():
    results = map_forked(lambda number: (number**2, os.getpid()), 7, workers=3)
    assert [square for square, _ in results] == [number**2 for number in range(7)]
    processes = [process for _, process in results]
    assert len(set(processes)) == 3
    assert processes[0] == processes[3] == os.getpid()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("count", "workers"), [(0, 2), (1, 2), (3, 1)])
def test_little_work_is_done_in_this_process(count, workers):
    assert map_forked(lambda _: os.getpid(), count, workers) == [os.getpid()] * count


def test_work_of_a_killed_process_is_done_here():
    def compute(number):
        if os.getpid() != parent and number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    parent = os.getpid()
    assert map_forked(compute, 6, workers=2) == list(range(6))


def test_stopped_process_is_named_and_ended():
    def stop(number):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGSTOP)
        return number

    parent = os.getpid()
    with pytest.raises(RuntimeWarning, match=r"Process \d+, which evaluates a model, has been stopped since"):
        map_forked(stop, 2, workers=2)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("place", [0, 1])
def test_error_in_any_process_is_raised_and_no_process_is_left(place):
    def fail(number):
        if number == place:
            raise InvalidInput(f"{number} is not valid")
        return number

    with pytest.raises(InvalidInput, match=f"{place} is not valid"):
        map_forked(fail, 4, workers=2)
    assert not multiprocessing.active_children()
