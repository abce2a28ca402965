"""Help, and the commands that list methods and datasets."""

from __future__ import annotations

import json
import subprocess
import sys


def test_commands_without_arguments_show_help(cli):
    for command in ([], ["data"], ["flower"]):
        done = cli(*command)
        assert "Usage:" in done.stdout + done.stderr
        assert "Error" not in done.stderr


def test_help_does_not_import_torch():
    probe = "import sys; import fedtaco.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_methods_are_listed_with_their_cost(cli):
    table = cli("methods").stdout
    rows = json.loads(cli("methods", "--format", "json").stdout)
    assert len(rows) == 14
    for row in rows:
        assert row["method"] in table
    stem = next(row for row in rows if row["method"] == "stem")
    assert (stem["cost"]["gradients"], stem["cost"]["up"]) == (2, 2)
    assert stem["parameters"]["stem.alpha"]["default"] == 0.2


def test_datasets_are_listed_and_a_partition_is_shown_and_drawn(cli, tmp_path):
    rows = json.loads(cli("data", "list", "--data-dir", ".", "--format", "json").stdout)
    assert {row["name"]: row["available"] for row in rows}["digits"] == "embedded"
    assert len(rows) == 11
    table = cli("data", "list", "--data-dir", ".").stdout
    assert "shakespeare" in table
    shown = cli("data", "show", "--partition", "dirichlet:0.1", "--clients", "5", "--out", "labels.png")
    assert shown.returncode == 0, shown.stderr
    assert "from the overall one" in shown.stdout
    assert (tmp_path / "labels.png").read_bytes().startswith(b"\x89PNG")
    counts = json.loads(cli("data", "show", "--clients", "5", "--format", "json").stdout)["counts"]
    assert sum(map(sum, counts)) == 1437
