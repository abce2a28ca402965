"""What tests share: one torch thread, and the real datasets where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the published datasets, named by FEDTACO_DATA."""
    folder = os.environ.get("FEDTACO_DATA")
    if not folder:
        pytest.skip("FEDTACO_DATA does not name a folder with the published datasets")
    return Path(folder)
