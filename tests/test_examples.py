"""The examples, and the Python code in the README and the documentation, run unchanged."""

from __future__ import annotations

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
    "theory",
]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{page}.md" for page in PAGES)])
def test_code_in_the_documentation_runs(page, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    run_python("-c", "\n".join(blocks), cwd=tmp_path)
