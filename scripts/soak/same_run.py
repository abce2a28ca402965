"""Comparison of two run folders, timing aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

TIMES = {"seconds", "wall_seconds", "evaluation_seconds", "slowest_client_seconds"}


def fingerprint(folder: Path) -> dict[str, Any]:
    """Return the models and records of a finished run, without times."""
    models = {path.name: _arrays(path) for path in sorted(folder.glob("*.safetensors"))}
    return {**models, **{name: _rows(folder / name) for name in ("rounds.jsonl", "clients.jsonl")}}


def difference(expected: dict[str, Any], found: dict[str, Any]) -> str | None:
    """Return the name of the first file that differs; ``None`` if all are equal."""
    return next((name for name in {**expected, **found} if expected.get(name) != found.get(name)), None)


def _arrays(path: Path) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in load_file(path).items()}


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
