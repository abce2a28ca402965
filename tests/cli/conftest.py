"""A fixture that calls the command line."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from fedtaco.cli.main import main


@dataclass(frozen=True)
class Completed:
    """The exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Return a function that calls the command line in an empty folder, with a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedtaco", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return Completed(int(end.value.code or 0), *capsys.readouterr())

    return call
