"""``fedtaco flower run`` explains what is missing; tests/flower/test_run_command.py runs an app."""

from __future__ import annotations

import sys

from fedtaco.flower import process_group


def test_what_is_missing_is_explained_in_a_sentence(cli, tmp_path, monkeypatch):
    assert cli("flower", "new", "my-app").returncode == 0
    for arguments, sentence in (
        (["elsewhere"], "elsewhere has no pyproject.toml; name the folder of an app that 'fedtaco flower new' wrote."),
        (["my-app", "--run-config", "rounds=3"], "There is no setting of the app 'rounds'; did you mean"),
        (["my-app", "--nodes", "1"], "nodes is 1; it must be a whole number at least 2 and at most 100."),
        (["my-app", "--out", "my-app"], "my-app exists and is not a run folder"),
    ):
        done = cli("flower", "run", *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith(f"Error: {sentence}")
    monkeypatch.setattr(process_group, "BIN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = cli("flower", "run", "my-app")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: There is no command flower-superlink in ")


def test_without_flower_the_error_says_what_to_install(cli, monkeypatch):
    assert cli("flower", "new", "my-app").returncode == 0
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in [name for name in sys.modules if name.startswith("fedtaco.flower")]:
        monkeypatch.delitem(sys.modules, name)
    done = cli("flower", "run", "my-app")
    assert done.returncode == 2
    assert done.stderr == "Error: Running on Flower needs flwr: pip install 'fedtaco[flower]'.\n"
