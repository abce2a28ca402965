"""Every third-party package that fedtaco imports is declared in pyproject.toml and pinned in constraints.txt."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedtaco"


def imported_modules(tree):
    """Return the top-level names of the third-party modules that code imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"fedtaco"}


def find_imports():
    """Return the modules that the core needs, and those that only an extra needs.

    The latter are imported in some ``try`` statement, whose handler names the extra, or in ``flower`` alone. PIL reads
    what ``datasets`` fetched.
    """
    everything, core, optional = set(), set(), {"PIL"}
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        everything |= imported_modules(tree)
        core |= set() if SOURCE / "flower" in path.parents else imported_modules(tree)
        optional.update(*(imported_modules(node) for node in ast.walk(tree) if isinstance(node, ast.Try)))
    return core - optional, everything - (core - optional)


def normalize(requirement):
    """Return the name in a requirement, such as ``tomli_w==1.2.0``, as package indexes compare it."""
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def find_undeclared(modules, requirements):
    declared, distributions = set(map(normalize, requirements)), packages_distributions()
    return {module for module in modules if not declared & set(map(normalize, distributions[module]))}


def test_imported_packages_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core, optional = find_imports()
    assert {"numpy", "torch", "scipy"} <= core
    assert {"flwr", "matplotlib", "pandas"} <= optional
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    assert find_undeclared(core, project["dependencies"]) == set()
    assert find_undeclared(optional, [*project["dependencies"], *extras]) == set()


def test_declared_packages_are_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    pinned = {normalize(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"}
    assert {normalize(requirement) for group in groups for requirement in group} - {"fedtaco"} <= pinned
