"""Helpers for tests that interrupt runs and compare their results."""

from __future__ import annotations

import signal
import subprocess
import time

import torch

from fedtaco.runs.callbacks import Callback

MAX_WAIT = 200
MEASURED_TIMES = {"wall_seconds", "evaluation_seconds", "slowest_client_seconds", "seconds"}


class Interrupted(Exception):
    """Interrupts a run between two rounds."""


class CallAfterRounds(Callback):
    """Calls a function with the record of each finished round."""

    def __init__(self, function):
        self.function = function

    def on_round_end(self, run, record):
        self.function(record)


def interrupt_after(round_number):
    """Return a callback that interrupts a run after a round."""

    def interrupt(record):
        if record.round == round_number:
            raise Interrupted

    return CallAfterRounds(interrupt)


def without_times(rows):
    """Return the rows of a history without what differs between two runs of the same seed."""
    return [{name: value for name, value in row.items() if name not in MEASURED_TIMES} for row in rows]


def assert_same_model(expected, actual):
    """Assert that two modules have the same parameters and buffers, to the last bit."""
    wanted, found = expected.state_dict(), actual.state_dict()
    assert wanted.keys() == found.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


def assert_same_result(expected, actual):
    """Assert that two runs have the same history, apart from measured times, models and evaluations by client."""
    assert_same_model(expected.model, actual.model)
    assert_same_model(expected.output_model, actual.output_model)
    assert actual.client_evaluations == expected.client_evaluations
    assert without_times(actual.history.table()) == without_times(expected.history.table())
    assert without_times(actual.history.client_table()) == without_times(expected.history.client_table())


def terminate(command, is_ready, **options):
    """Start a command, send SIGTERM as soon as it is ready, and return its exit code and its error output."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            deadline = time.monotonic() + MAX_WAIT
            while not is_ready() and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=MAX_WAIT)
        finally:
            process.kill()
    return process.returncode, errors
