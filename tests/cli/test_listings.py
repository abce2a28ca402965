"""Help, and the commands that list methods and datasets."""

from __future__ import annotations

import json
import subprocess
import sys

from methods_page import describe_methods
from pages import DOCS

from fedtaco.cli.methods import CATEGORIES, explanation
from fedtaco.methods import METHODS


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
    assert {row["method"] for row in rows} == set(METHODS)
    for row in rows:
        assert f"\n{row['method']} " in table
        assert f"\n{row['category']} " in table
    stem = next(row for row in rows if row["method"] == "stem")
    assert (stem["cost"]["gradients"], stem["cost"]["up"]) == (2, 2)
    assert stem["parameters"]["stem.alpha"]["default"] == 0.2


def test_every_method_is_explained_within_eighty_columns():
    for method in METHODS.values():
        assert method.category in CATEGORIES
        assert method.reference
        formulas = [part for part in explanation(method).split("\n\n") if part.startswith("    ")]
        assert len(formulas) == 1, method.name
        assert max(map(len, formulas[0].splitlines())) < 80, method.name


def test_one_method_is_explained(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = cli("methods", "feddyn").stdout
    assert "    x   <- x - local_lr * (g - a e_i + a (x - y)), from x = y\n" in text
    assert "feddyn.a  0.01  a, weight of the pull and of the dual variable; a number at" in text
    assert "1 gradient and 3 further vector operations per step. 1 vector kept" in text
    assert "No K appears" in text
    assert "Acar et al., Federated Learning Based on Dynamic Regularization" in text
    row = json.loads(cli("methods", "mime", "--format", "json").stdout)
    assert (row["category"], row["cost"]["full_passes"]) == ("momentum", 1)


def test_an_own_method_is_explained(cli, own_method):
    text = cli("methods", own_method).stdout
    assert "clipped.limit" in text
    assert "Clipped(" not in text


def test_an_unknown_method_is_refused_with_a_suggestion(cli):
    done = cli("methods", "fedyn")
    assert (done.returncode, done.stdout) == (2, "")
    assert "There is no method 'fedyn'; did you mean 'feddyn'?" in done.stderr


def test_the_page_of_methods_is_up_to_date():
    text = (DOCS / "methods.md").read_text(encoding="utf-8")
    assert f"<!-- methods -->\n{describe_methods()}\n" in text, "run python scripts/methods_page.py"


def test_datasets_are_listed_and_a_partition_is_shown_and_drawn(cli, tmp_path):
    rows = json.loads(cli("data", "list", "--data-dir", ".", "--format", "json").stdout)
    assert {row["name"]: row["available"] for row in rows}["digits"] == "embedded"
    assert len(rows) == 14
    table = cli("data", "list", "--data-dir", ".").stdout
    assert "shakespeare" in table
    shown = cli("data", "show", "--partition", "dirichlet:0.1", "--clients", "5", "--out", "labels.png")
    assert shown.returncode == 0, shown.stderr
    assert "from the overall one" in shown.stdout
    assert (tmp_path / "labels.png").read_bytes().startswith(b"\x89PNG")
    counts = json.loads(cli("data", "show", "--clients", "5", "--format", "json").stdout)["counts"]
    assert sum(map(sum, counts)) == 1437
