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
def real_data():
    """Return a function that returns the data folder, or skips the test if a published dataset is not there.

    FEDTACO_DATA names the folder, and FEDTACO_REQUIRE_DATA the datasets without which tests fail, separated by spaces.
    """
    folder = os.environ.get("FEDTACO_DATA", "")
    required = os.environ.get("FEDTACO_REQUIRE_DATA", "").split()

    def require(name):
        from fedtaco.data.sources import find_source

        if not folder or find_source(name).availability(Path(folder)) == "–":
            end = pytest.fail if name.partition(":")[0] in required else pytest.skip
            end(f"{name} is not in the folder that FEDTACO_DATA names ({folder or 'none'})")
        return Path(folder)

    return require


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
