"""``fedtaco flower new`` writes the app in the examples, with any method."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedtaco import InvalidInput
from fedtaco.cli.flower import FILES
from fedtaco.cli.main import app
from fedtaco.methods import METHODS

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "flower-digits"
BIN = Path(sys.executable).parent


def create_app(folder, *options):
    return CliRunner().invoke(app, ["flower", "new", str(folder), *options])


def test_created_app_equals_the_example(tmp_path):
    done = create_app(tmp_path / "flower-digits", "--method", "taco")
    assert done.exit_code == 0, done.output
    assert "taco" in done.output
    assert "fedtaco flower run" in done.output
    written = {path.name: path.read_text() for path in (tmp_path / "flower-digits").iterdir()}
    assert set(written) == set(FILES)
    assert written == {name: (EXAMPLE / name).read_text() for name in FILES}


def test_the_documentation_shows_the_configuration_of_nginx():
    page = (EXAMPLES.parent / "docs" / "flower.md").read_text()
    assert f"```nginx\n{(EXAMPLE / 'nginx.conf').read_text()}```\n" in page


@pytest.mark.parametrize("method", METHODS)
def test_created_app_uses_the_given_method(method, tmp_path):
    assert create_app(tmp_path / "My App", "--method", method).exit_code == 0
    project = tomllib.loads((tmp_path / "My App" / "pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["config"]["method"] == method
    assert project["project"]["name"] == "my-app"


@pytest.mark.parametrize(
    ("folder", "name"), [("My App", "my-app"), ("2026 trial", "app-2026-trial"), ("_", "app"), ("a" * 40, "a" * 32)]
)
def test_the_name_of_an_app_is_one_that_flower_allows(folder, name, tmp_path):
    assert create_app(tmp_path / folder).exit_code == 0
    assert tomllib.loads((tmp_path / folder / "pyproject.toml").read_text())["project"]["name"] == name


def test_flower_accepts_the_app_and_leaves_out_its_runs(tmp_path):
    assert create_app(tmp_path / "app").exit_code == 0
    (tmp_path / "app" / "runs").mkdir()
    (tmp_path / "app" / "runs" / "config.toml").touch()
    quiet = {"FLWR_HOME": str(tmp_path / "home"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    command = [BIN / "flwr", "build", "--app", tmp_path / "app"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **quiet}, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout
    assert "missing" not in done.stdout
    (bundle,) = tmp_path.glob("*.fab")
    files = set(zipfile.ZipFile(bundle).namelist()) - {".info/CONTENT"}
    assert files == set(FILES) - {".gitignore", "nginx.conf"}


def test_a_superlink_that_installs_dependencies_needs_no_package_index(tmp_path):
    assert create_app(tmp_path / "app").exit_code == 0
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(tmp_path / "environment")}
    as_flower_does = ("--python", sys.executable, "--no-install-project", "--no-install-package", "flwr", "--inexact")
    command = [BIN / "uv", "sync", "--offline", *as_flower_does]
    done = subprocess.run(
        command, cwd=tmp_path / "app", env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "environment").is_dir()


@pytest.fixture
def own_method(tmp_path, monkeypatch):
    """Return a function that writes a method into a module of the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    written = []

    def write(module):
        written.append(module)
        (tmp_path / f"{module}.py").write_text((EXAMPLES / "own_method.py").read_text())
        return f"{module}:Clipped"

    yield write
    for module in written:
        sys.modules.pop(module, None)


def test_created_app_contains_your_own_method_and_allows_it_on_the_nodes(own_method, tmp_path):
    method = own_method("flower_own")
    assert create_app(tmp_path / "new", "--method", method).exit_code == 0
    assert f'context, allow_methods=["{method}"])' in (tmp_path / "new" / "client_app.py").read_text()
    assert (tmp_path / "new" / "flower_own.py").read_text() == (tmp_path / "flower_own.py").read_text()


def test_an_own_method_with_the_name_of_a_file_of_the_app_is_refused(own_method, tmp_path):
    done = create_app(tmp_path / "new", "--method", own_method("task"))
    assert isinstance(done.exception, InvalidInput)
    assert "The method is in task.py, which is also the name of a file of the app" in str(done.exception)
    assert not (tmp_path / "new").exists()


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
