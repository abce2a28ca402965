"""The examples, and the Python code in the README and the documentation, run unchanged."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run_python(*arguments, cwd):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_example_runs(script, tmp_path):
    assert run_python(script, cwd=tmp_path).stdout.strip()


PAGES = [
    "python",
    "own-method",
    "datasets",
    "own-data",
    "local-training",
    "evaluation",
    "partial-models",
    "unequal-work",
    "compression",
    "theory",
]


RUN_PAGES = """
import json, os, sys
for page, code in json.loads(sys.argv[1]).items():
    os.makedirs(page)
    os.chdir(page)
    exec(compile(code, page, "exec"), {"__name__": "__main__"})
    os.chdir(os.path.pardir)
"""


def test_code_in_the_documentation_runs(tmp_path):
    """All pages run in one process, each in a folder of its own, so that torch is imported once."""
    files = {page: ROOT / "docs" / f"{page}.md" for page in PAGES} | {"README": ROOT / "README.md"}
    texts = {page: path.read_text(encoding="utf-8") for page, path in files.items()}
    blocks = {page: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for page, text in texts.items()}
    assert all(blocks.values())
    run_python("-c", RUN_PAGES, json.dumps({page: "\n".join(code) for page, code in blocks.items()}), cwd=tmp_path)
