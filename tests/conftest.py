"""Shared by all tests: one torch thread, the command line, and the published datasets if they are available."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Completed:
    """The exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Return a function that calls the command line in an empty folder, with a wide terminal."""
    from fedtaco.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedtaco", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return Completed(int(end.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture
def own_method(tmp_path):
    """The specification of a user's method in the current folder."""
    example = Path(__file__).parents[1] / "examples" / "own_method.py"
    (tmp_path / "mine.py").write_text(example.read_text())
    return "mine:Clipped"
