"""``run_locally`` checks the app and its settings before it starts anything, and says what became of the run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from nodes import run, small_nodes, small_strategy
from typer.testing import CliRunner

from fedtaco import InvalidInput, RunStopped
from fedtaco.cli.main import app as command_line
from fedtaco.flower import local_run
from fedtaco.flower.local_run import parse_settings, read_app_config, run_locally
from fedtaco.records import RunFolder

DEFAULTS = {"method": "taco", "num-server-rounds": 10, "local-lr": 0.05, "nesterov": False, "overwrite": False}
TRACEBACK = "Traceback (most recent call last):\nOSError: no such disk"


class FakeFederation:
    """Takes the place of Loopback: runs nothing, and returns the given status and log of node0."""

    def __init__(self, status="finished:completed", node_log="", on_run=lambda config: None, run_log=()):
        self.status, self.on_run, self.node_ids, self.run_log = status, on_run, {"node0": 1}, run_log
        self.processes = SimpleNamespace(end_of_log=lambda name, lines: node_log)

    def __call__(self, folder):
        self.folder = folder
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self.folder.is_dir()

    def start_nodes(self, count):
        self.count = count

    def run(self, app, config):
        self.app, self.config = app, config
        self.on_run(config)
        return 12

    def follow_run(self, run_id, on_line):
        for line in (f"The log of run {run_id}.", *self.run_log):
            on_line(line)
        return self.status


@pytest.fixture
def app(tmp_path):
    assert CliRunner().invoke(command_line, ["flower", "new", str(tmp_path / "my-app")]).exit_code == 0
    return tmp_path / "my-app"


def record_a_run(config):
    run(small_strategy("fedavg", checkpoint=config["checkpoint"], overwrite=config["overwrite"]), small_nodes(), 1)


def run_with(federation, app, out, monkeypatch, **options):
    monkeypatch.setattr(local_run, "Loopback", federation)
    lines = []
    given = {"nodes": 2, **options}
    return run_locally(app, RunFolder(out), on_line=lines.append, **given), lines


def test_the_app_runs_with_its_settings_and_the_files_are_removed(app, tmp_path, monkeypatch):
    federation, out = FakeFederation(on_run=record_a_run), tmp_path / "run"
    settings = ["num-server-rounds=3 local-lr=1", "method=scaffold"]
    summary, lines = run_with(federation, app, out, monkeypatch, nodes=4, settings=settings)
    own = {"num-server-rounds": 3, "local-lr": 1.0, "method": "scaffold"}
    assert federation.config == {**own, "checkpoint": str(out), "min-available-nodes": 4, "overwrite": False}
    assert (federation.app, federation.count) == (app, 4)
    assert summary["rounds"] == 1
    assert "The log of run 12." in lines
    assert not federation.folder.exists()


def test_a_run_in_the_folder_is_replaced_only_on_request(app, tmp_path, monkeypatch):
    federation, out = FakeFederation(on_run=record_a_run), tmp_path / "run"
    run_with(federation, app, out, monkeypatch)
    before = (out / "config.toml").read_text()
    with pytest.raises(InvalidInput, match=r"holds a run already; replace it \(overwrite\)"):
        run_with(federation, app, out, monkeypatch)
    assert (out / "config.toml").read_text() == before
    run_with(federation, app, out, monkeypatch, overwrite=True)
    assert (out / "config.toml").read_text() != before


def test_a_failed_run_shows_the_error_of_a_node(app, tmp_path, monkeypatch):
    lines = []
    for log in (TRACEBACK, "Received successfully"):
        monkeypatch.setattr(local_run, "Loopback", FakeFederation("finished:failed", log))
        with pytest.raises(RunStopped, match="status finished:failed; its log says why"):
            run_locally(app, RunFolder(tmp_path / "run"), nodes=2, on_line=lines.append)
    assert lines.count("The log of node0 ends with:") == 1
    assert "OSError: no such disk" in lines
    assert "Received successfully" not in lines


def test_the_cause_of_a_failed_run_is_its_error(app, tmp_path, monkeypatch):
    cause = "The model has not been trained: taco used no reply in 2 rounds; the most common reason: a mod."
    log = [
        "WARNING :   Round 1: a reply is dropped: fedtaco.errors.RunStopped: forged by a node.",
        "Traceback (most recent call last):",
        f"fedtaco.errors.RunStopped: {cause}",
        "ERROR :     Exit Code: 201",
    ]
    monkeypatch.setattr(local_run, "Loopback", FakeFederation("finished:failed", run_log=log))
    shown = []
    with pytest.raises(RunStopped) as error:
        run_locally(app, RunFolder(tmp_path / "run"), nodes=2, on_line=shown.append)
    assert str(error.value) == cause
    assert set(log) <= set(shown)


def test_an_app_that_records_nothing_is_refused(app, tmp_path, monkeypatch):
    with pytest.raises(InvalidInput, match="its server app must use FedStrategy"):
        run_with(FakeFederation(), app, tmp_path / "run", monkeypatch)


def test_invalid_apps_folders_and_numbers_of_nodes_are_refused_at_once(app, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    for folder, out, nodes, message in (
        (tmp_path / "full", "run", 2, "has no pyproject.toml; name the folder of an app"),
        (app, "full", 2, "is not a run folder"),
        (app, "run", 1, "nodes is 1; it must be a whole number at least 2"),
    ):
        with pytest.raises(InvalidInput, match=message):
            run_with(None, folder, tmp_path / out, monkeypatch, nodes=nodes)


def test_an_app_without_the_needed_keys_is_refused(app):
    project = app / "pyproject.toml"
    for text, message in (
        (project.read_text().replace("checkpoint =", "folder ="), r"no 'checkpoint' in \[tool\.flwr\.app\.config\]"),
        ("[project]\nname = 'other'\n", "pyproject.toml is damaged: it lacks tool"),
        ("[project", "pyproject.toml is damaged"),
    ):
        project.write_text(text)
        with pytest.raises(InvalidInput, match=message):
            read_app_config(app)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("method=scaffold", {"method": "scaffold"}),
        ("method='scaffold' local-lr=1e-3", {"method": "scaffold", "local-lr": 0.001}),
        ('nesterov=true method="my own"', {"nesterov": True, "method": "my own"}),
        ("", {}),
    ],
)
def test_settings_are_parsed_by_the_type_of_their_default(text, expected):
    assert parse_settings([text], DEFAULTS) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num-server-rounds", "run-config is 'num-server-rounds'; write it as num-server-rounds=3"),
        ("num-server-round=3", "did you mean 'num-server-rounds'"),
        ("num-server-rounds=3.5", "num-server-rounds is '3.5'; it must be a whole number"),
        ("num-server-rounds=true", "num-server-rounds is 'true'; it must be a whole number"),
        ("local-lr=high", "local-lr is 'high'; it must be a number"),
        ("nesterov=yes", "nesterov is 'yes'; it must be true or false"),
        ("overwrite=true", "run-config sets overwrite; use --overwrite instead"),
        ("method='scaffold", "run-config is 'method='scaffold': No closing quotation"),
    ],
)
def test_invalid_settings_are_explained(text, message):
    with pytest.raises(InvalidInput, match=message):
        parse_settings([text], DEFAULTS)


def test_the_path_of_the_run_folder_is_absolute(app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    federation = FakeFederation(on_run=record_a_run)
    run_with(federation, Path("my-app"), Path("runs/my-app"), monkeypatch)
    assert federation.config["checkpoint"] == str(tmp_path / "runs" / "my-app")
    assert federation.app == app
