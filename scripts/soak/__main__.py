#!/usr/bin/env python3
"""Long random tests: killed runs, hostile replies, damaged folders, random command lines, and growth.

Every trial has a number, from which everything random in it is drawn. Outcomes are appended to a file per part, so that
an interrupted soak continues where it stopped. The exit code is 1 if any trial failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("scripts", "tests", "tests/flower", "tests/records", "tests/cli")]
FAILED = "FAILED"
"""How the outcome of a trial begins that shows a defect."""


@dataclass(frozen=True)
class Part:
    """One kind of trial."""

    trials: int
    """Number of trials in a whole soak."""
    load: Callable[[], Callable[[int], str]]
    """Returns the function that runs a trial, and imports what it needs."""


def _kills() -> Callable[[int], str]:
    from soak.kills import trial

    return trial


def _replies() -> Callable[[int], str]:
    from soak.replies import trial

    return trial


def _folders() -> Callable[[int], str]:
    from soak.folders import trial

    return trial


def _commands() -> Callable[[int], str]:
    from soak.commands import trial

    return trial


def _growth() -> Callable[[int], str]:
    from soak.growth import trial

    return trial


PARTS = {
    "growth": Part(4, _growth),
    "kills": Part(200, _kills),
    "replies": Part(10_000, _replies),
    "folders": Part(1000, _folders),
    "commands": Part(2000, _commands),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"which of {', '.join(PARTS)}; all by default")
    parser.add_argument("--minutes", type=float, help="end after this time, shared equally between the parts")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "soak", help="folder of the outcomes")
    given = parser.parse_args()
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"there is no part '{unknown[0]}'; choose from {', '.join(PARTS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    seconds = None if given.minutes is None else 60 * given.minutes / len(given.parts)
    sys.exit(1 if sum(run_part(name, given.out / f"{name}.jsonl", seconds) for name in given.parts) else 0)


def run_part(name: str, path: Path, seconds: float | None) -> int:
    """Run the trials of a part that are left, print the outcomes, and return the number of failures."""
    part, started = PARTS[name], time.monotonic()
    outcomes = [str(json.loads(line)["outcome"]) for line in path.read_text().splitlines()] if path.exists() else []
    if len(outcomes) < part.trials:
        trial = part.load()
        with path.open("a") as file:
            while len(outcomes) < part.trials and (seconds is None or time.monotonic() - started < seconds):
                outcome = _outcome(trial, len(outcomes))
                outcomes.append(outcome)
                file.write(json.dumps({"trial": len(outcomes) - 1, "outcome": outcome}) + "\n")
                file.flush()
                if outcome.startswith(FAILED):
                    print(f"{name} {len(outcomes) - 1}: {outcome}", flush=True)
    failures = sum(outcome.startswith(FAILED) for outcome in outcomes)
    kinds = Counter("failed" if outcome.startswith(FAILED) else outcome for outcome in outcomes)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{name}: {len(outcomes):,} of {part.trials:,} trials; {counts}", flush=True)
    return failures


def _outcome(trial: Callable[[int], str], number: int) -> str:
    try:
        return trial(number)
    except Exception:
        return f"{FAILED}: {traceback.format_exc(limit=-4)}"


if __name__ == "__main__":
    main()
