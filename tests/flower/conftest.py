"""What tests of the Flower half share."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def lines():
    """What an operator reads."""
    found: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    handler, logger = Listening(), logging.getLogger("flwr.fedtaco")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)
