#!/usr/bin/env python3
"""Write the tables of docs/stability.md from the runs of scripts/run_stability.py, or from their compact results.

With a folder, its runs are first reduced to one line each in scripts/stability-results.json. Campaigns with an
unfinished run are skipped.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pages import DOCS, finished_runs, markdown_table, subfolders, write_sections

from fedtaco.records import RunFolder
from fedtaco.records.swings import first_swing, swings

RESULTS = Path(__file__).parent / "stability-results.json"
LEAD = 2
"""Number of rounds before the first swing by which a warning must be raised to count as a hit."""
PLACES = 4
"""Decimal places of accuracies and gains in the compact results."""

Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the folder that scripts/run_stability.py wrote")
    folder = parser.parse_args().folder
    if folder is not None:
        lines = [line for campaign in subfolders(folder) for line in reduce_campaign(campaign)]
        RESULTS.write_text("[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n", encoding="utf-8")
    lines = json.loads(RESULTS.read_text(encoding="utf-8"))
    write_sections(DOCS / "stability.md", {"warnings": warning_table(lines), "accuracies": accuracy_table(lines)})


def reduce_campaign(campaign: Path) -> Iterable[Line]:
    """Return one line per run; a run swings, compared with FedAvg on its seed, in the end or at some time."""
    runs = [(folder, folder.summary() or {}) for folder in finished_runs(campaign)]
    fedavg = {summary["seed"]: summary for _, summary in runs if summary["method"] == "fedavg"}
    return [reduce_run(campaign.name, folder, summary, fedavg.get(summary["seed"])) for folder, summary in runs]


def reduce_run(campaign: str, folder: RunFolder, summary: Line, fedavg: Line | None) -> Line:
    """Return what the tables need of a run."""
    rounds = folder.rounds()
    tested = [record.accuracy for record in rounds if record.accuracy is not None]
    return {
        "campaign": campaign,
        "method": summary["method"],
        "seed": summary["seed"],
        "first_swing": first_swing(rounds),
        "swings": swings(summary, fedavg),
        "warned": [record.round for record in rounds if record.warning is not None],
        "largest_gain": max((round(record.gain, PLACES) for record in rounds if record.gain is not None), default=None),
        "rounds": len(rounds),
        "last_ten": [round(accuracy, PLACES) for accuracy in tested[-10:]],
        "best": round(summary["best_accuracy"], PLACES),
        "average": round(summary["average_accuracy"], PLACES),
    }


def warning_table(lines: Sequence[Line]) -> str:
    """Return hits, late warnings, misses and false alarms of each campaign and method."""
    headers = [
        "setting",
        "method",
        "runs",
        "swinging",
        "hit",
        "late",
        "missed",
        "rounds ahead",
        "settled",
        "false alarms",
    ]
    rows = []
    for campaign, method, runs in grouped(lines):
        swinging = [run for run in runs if run["first_swing"] is not None or run["swings"]]
        settled = [run for run in runs if run not in swinging]
        leads = [lead for run in swinging if (lead := lead_of(run)) is not None]
        hits = sum(lead >= LEAD for lead in leads)
        alarms = sum(bool(run["warned"]) for run in settled)
        ahead = f"{median(leads):g} ({min(leads)} to {max(leads)})" if leads else "–"
        missed = sum(not run["warned"] for run in swinging)
        counts = [hits, len(swinging) - hits - missed, missed, ahead] if swinging else ["–"] * 4
        rows.append([campaign, method, len(runs), len(swinging), *counts, len(settled), alarms if settled else "–"])
    return markdown_table(headers, rows)


def lead_of(run: Line) -> int | None:
    """Return how many rounds before its first swing a run was warned; ``None`` if it was not, or only afterwards.

    Only the warning that is in force at the swing counts: the first of consecutive rounds with a warning, the last of
    which is not more than two rounds before the swing. A run that swings only compared with FedAvg, in the end, swings
    from the first of its last ten rounds on.
    """
    warned = set(run["warned"])
    swing = run["first_swing"] or run["rounds"] - len(run["last_ten"]) + 1
    last = max((number for number in warned if swing - LEAD <= number <= swing), default=None)
    if last is None:
        return None
    while last - 1 in warned:
        last -= 1
    return int(swing - last)


def accuracy_table(lines: Sequence[Line]) -> str:
    """Return the accuracies at the end, of the best round and of the averaged model, for each campaign and method."""
    headers = ["setting", "method", "last round", "last ten rounds", "best round", "average of the last ten models"]
    rows = []
    for campaign, method, runs in grouped(lines):
        lows, highs = [min(run["last_ten"]) for run in runs], [max(run["last_ten"]) for run in runs]
        rows.append(
            [
                campaign,
                method,
                percent(run["last_ten"][-1] for run in runs),
                f"{percent(lows)} to {percent(highs)}",
                percent(run["best"] for run in runs),
                percent(run["average"] for run in runs),
            ]
        )
    return markdown_table(headers, rows)


def grouped(lines: Sequence[Line]) -> Iterable[tuple[str, str, list[Line]]]:
    """Yield the runs of each campaign and method, in the order in which they appear."""
    for campaign, method in dict.fromkeys((line["campaign"], line["method"]) for line in lines):
        yield campaign, method, [line for line in lines if (line["campaign"], line["method"]) == (campaign, method)]


def percent(fractions: Iterable[float]) -> str:
    """Format the mean of fractions."""
    return f"{100 * fmean(fractions):.1f}"


if __name__ == "__main__":
    main()
