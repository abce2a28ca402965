"""SIGTERM ends a command as Ctrl-C does: the runs are saved, and a sentence says how to continue them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from run_helpers import terminate


def test_sigterm_stops_a_comparison_and_keeps_its_rounds(tmp_path):
    endless = ["--methods", "fedavg,taco", "--clients", "6", "--rounds", "1000000", "--local-steps", "2"]
    command = [Path(sys.executable).with_name("fedtaco"), "compare", *endless, "--out", tmp_path / "runs"]
    code, errors = terminate(command, lambda: len(list(tmp_path.rglob("manifest.json"))) == 2)
    assert code == 143
    assert errors.splitlines()[-1] == (
        "Stopped. Finished rounds are kept: the same command with --resume (and without --overwrite) continues them."
    )
    assert "Traceback" not in errors
    for name in ("fedavg", "taco"):
        folder = tmp_path / "runs" / f"{name}-seed0"
        saved = json.loads((folder / "checkpoint" / "manifest.json").read_text())["round"]
        finished = len((folder / "rounds.jsonl").read_text().splitlines())
        assert 1 <= saved <= finished <= saved + 1
