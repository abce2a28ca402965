"""All public names are attributes of the package, are imported when they are needed, and are documented."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedtaco
from fedtaco.methods import METHODS
from fedtaco.trust import DETECTORS

PAGE = Path(__file__).parents[1] / "docs" / "python.md"


def test_every_name_is_there_and_listed():
    assert dir(fedtaco) == sorted(fedtaco.__all__)
    for name in fedtaco.__all__:
        assert getattr(fedtaco, name) is not None
    with pytest.raises(AttributeError, match="module 'fedtaco' has no attribute 'trian'"):
        fedtaco.trian  # noqa: B018


def test_every_registered_method_and_detector_is_public():
    for cls in (*METHODS.values(), *DETECTORS.values()):
        assert getattr(fedtaco, cls.__name__) is cls


def test_every_name_is_documented():
    text = PAGE.read_text(encoding="utf-8")
    missing = [name for name in fedtaco.__all__ if not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_importing_the_package_does_not_import_torch():
    code = "import sys, fedtaco; dir(fedtaco); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "fedtaco", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == fedtaco.__version__
