"""``fedtaco flower new`` writes the app in the examples, with any method."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedtaco import InvalidInput
from fedtaco.cli.flower import FILES
from fedtaco.cli.main import app
from fedtaco.methods import METHODS

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-digits"


def create_app(folder, *options):
    return CliRunner().invoke(app, ["flower", "new", str(folder), *options])


def test_created_app_equals_the_example(tmp_path):
    done = create_app(tmp_path / "flower-digits", "--method", "taco")
    assert done.exit_code == 0, done.output
    assert "taco" in done.output
    written = {path.name: path.read_text() for path in (tmp_path / "flower-digits").iterdir()}
    assert set(written) == set(FILES)
    assert written == {name: (EXAMPLE / name).read_text() for name in FILES}


@pytest.mark.parametrize("method", METHODS)
def test_created_app_uses_the_given_method(method, tmp_path):
    assert create_app(tmp_path / "My App", "--method", method).exit_code == 0
    project = tomllib.loads((tmp_path / "My App" / "pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["config"]["method"] == method
    assert project["project"]["name"] == "my-app"


def test_created_app_allows_your_own_method_on_the_nodes(tmp_path, monkeypatch):
    example = Path(__file__).parents[2] / "examples" / "own_method.py"
    (tmp_path / "flower_own.py").write_text(example.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert create_app(tmp_path / "new", "--method", "flower_own:Clipped").exit_code == 0
    assert 'context, allow_methods=["flower_own:Clipped"])' in (tmp_path / "new" / "client_app.py").read_text()


def test_invalid_folders_and_methods_are_explained(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    for folder, options, message in (
        ("full", (), "is not an empty folder"),
        ("file", (), "is not an empty folder"),
        ("file/below", (), "Cannot write to"),
        ("new", ("--method", "tako"), "did you mean 'taco'"),
    ):
        done = create_app(tmp_path / folder, *options)
        assert isinstance(done.exception, InvalidInput)
        assert message in str(done.exception)
    assert not (tmp_path / "new").exists()
