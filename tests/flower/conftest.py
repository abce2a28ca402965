"""Fixtures that the tests of the Flower integration share."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def lines():
    """The messages that fedtaco logs for the operator."""
    found: list[str] = []

    class ListHandler(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    handler, logger = ListHandler(), logging.getLogger("flwr.fedtaco")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)
