"""Federated learning on non-IID data: TACO and the methods it is compared with.

All public names are in ``__init__.pyi``; ``docs/python.md`` describes them. Flower's strategy is in
:mod:`fedtaco.flower`, and checks of methods, detectors and codecs of your own are in :mod:`fedtaco.testing`.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORTS = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
MODULES = {alias.name: one.module for one in _IMPORTS if isinstance(one, ast.ImportFrom) for alias in one.names}
"""The module that defines each public name, so that ``fedtaco --help`` need not wait for torch."""
__all__ = sorted(MODULES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'fedtaco' has no attribute '{name}'")
    return getattr(import_module(str(MODULES[name])), name)


def __dir__() -> list[str]:
    return __all__
