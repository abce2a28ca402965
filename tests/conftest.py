"""Shared by all tests: one torch thread, and the published datasets if they are available."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder with the published datasets, which FEDTACO_DATA names; skip the test if there is none."""
    folder = os.environ.get("FEDTACO_DATA")
    if not folder:
        pytest.skip("FEDTACO_DATA does not name a folder with the published datasets")
    return Path(folder)
