"""Summaries of runs, written by hand so that every figure in them is known."""

from __future__ import annotations


def run_summary(method, seed=0, accuracy=0.8, **changes):
    """Return the summary of a run, as its folder contains it."""
    missing = dict.fromkeys(
        (
            *("worst_tenth_accuracy", "rounds_to_target", "client_seconds", "output_accuracy", "balanced_accuracy"),
            *("majority_share", "evaluated_samples", "test_samples", "client_evaluation", "bytes_up"),
            *("best_accuracy", "average_accuracy", "last_ten_range"),
            "bytes_down",
        )
    )
    ending = {
        "dropped_uploads": 0,
        "unanswered": 0,
        "missed_deadlines": 0,
        "partition_notes": [],
        "stopped": None,
        "ended_early": None,
    }
    ending |= {"rounds_to_target_is_upper_bound": False, "alternates": False}
    nothing_detected = {"detection": None, "expelled": []}
    run = {"method": method, "seed": seed, "rounds": 20, "target": 0.5, "final_accuracy": accuracy, "alpha": {}}
    return {**missing, **ending, **nothing_detected, **run, **changes}


def run_summaries(accuracies):
    """Return the summaries of several methods, given the final accuracy of each seed."""
    return [run_summary(method, seed, one) for method, own in accuracies.items() for seed, one in enumerate(own)]
