"""The example app runs unchanged: its server app and its client app on nodes in this process."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from nodes import Nodes

from fedtaco.records import RunFolder

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-digits"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    yield
    for name in ("client_app", "server_app", "task"):
        sys.modules.pop(name, None)


def test_the_example_learns_digits(example, tmp_path):
    import client_app
    import server_app

    config = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    out = tmp_path / "run"
    context = Context(1, 0, {}, RecordDict(), {**config, "checkpoint": str(out)})
    server_app.app(Nodes([client_app.app] * 3), context)
    history = RunFolder(out).history()
    assert len(history) == config["num-server-rounds"]
    assert history.final_accuracy > 0.9
    assert RunFolder(out).summary()["nodes"] == [101, 102, 103]


def test_without_flower_the_import_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in [name for name in sys.modules if name.startswith("fedtaco.flower")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"pip install 'fedtaco\[flower\]'"):
        importlib.import_module("fedtaco.flower")
