"""Callbacks: a list of callbacks passes every event on, and the default callback ignores them."""

from __future__ import annotations

import inspect

from fedtaco.runs.callbacks import Callback, CallbackList

EVENTS = {name: hook for name, hook in inspect.getmembers(Callback, inspect.isfunction) if name.startswith("on_")}


class Recording(Callback):
    """Records the events it receives."""

    def __init__(self):
        self.received = []

    def __getattribute__(self, name):
        if name in EVENTS:
            return lambda *details: self.received.append((name, details))
        return super().__getattribute__(name)


def test_callback_list_passes_every_event_to_every_callback():
    callbacks = [Recording(), Recording()]
    for number, (name, hook) in enumerate(EVENTS.items()):
        details = tuple(f"{parameter} {number}" for parameter in list(inspect.signature(hook).parameters)[1:])
        getattr(CallbackList(callbacks), name)(*details)
        for callback in callbacks:
            assert callback.received[number:] == [(name, details)]
    assert len(EVENTS) >= 5


def test_default_callback_ignores_every_event():
    for name, hook in EVENTS.items():
        details = list(inspect.signature(hook).parameters)[1:]
        assert getattr(Callback(), name)(*details) is None
