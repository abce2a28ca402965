"""The legend of the results table."""

from __future__ import annotations

from run_summaries import run_summary

from fedtaco.records.method_summary import MethodSummary, summarize_methods
from fedtaco.report import explain_results


def summary(**figures):
    plain = {"method": "taco", "seeds": 1, "accuracy": 0.9, "accuracy_deviation": None, "rounds": 20}
    missing = dict.fromkeys(("client_seconds", "worst_tenth_accuracy", "output_accuracy", "rounds_to_target"))
    counts = dict.fromkeys(
        ("stopped", "ended_low", "one_class", "dropped_uploads", "freeloaders", "caught", "honest_expelled"), 0
    )
    return MethodSummary(**{**plain, **missing, **counts, "alpha": {}, **figures})


def legend(*rows, **options):
    return " ".join(explain_results(rows, **options))


def test_only_what_the_table_shows_is_explained():
    text = legend(summary(rounds_to_target=16.0))
    assert text.startswith("Final accuracy: on the test set in %, after the last round. Worst tenth: ")
    for mark in (
        "Difference",
        "N+",
        "↓",
        "×",
        "Client seconds",
        "α",
        "A, B, C",
        "model that it returns",
        "expelled",
        "dropped",
        "diverged",
    ):
        assert mark not in text
    rows = [
        summary(seeds=3, ended_low=1, client_seconds=1.0, alpha={"A": 0.1, "B": 0.2, "C": 0.3}),
        summary(stopped=1),
    ]
    text = legend(*rows, rounds=20, reference="fedavg")
    assert "after 20 rounds, mean ± standard deviation over 3 seeds." in text
    for mark in ("Difference to fedavg:", "N+:", "↓:", "×:", "Client seconds:", "α:", "A, B, C:"):
        assert mark in text


def test_events_are_given_by_method_in_singular_and_plural():
    one = summary(stopped=1, seeds=3, dropped_uploads=1, honest_expelled=1, output_accuracy=0.9421)
    assert legend(one).endswith(
        "taco: the model that it returns has an accuracy of 94.2 %; 1 client was expelled; 1 upload was dropped."
    )
    many = summary(method="stem", dropped_uploads=3, freeloaders=8, caught=6, honest_expelled=1)
    assert legend(many).endswith(
        "stem: 6 of 8 misbehaving clients and 1 honest client were expelled; 3 uploads were dropped."
    )
    assert "taco: 2 clients were expelled." in legend(summary(honest_expelled=2))


def test_clients_without_an_answer_are_counted_by_reason():
    one = summary(dropped_uploads=1, missed_deadlines=1)
    assert legend(one).endswith("taco: 1 upload was dropped because the client missed the deadline.")
    some = summary(dropped_uploads=3, unanswered=1)
    assert legend(some).endswith("taco: 3 uploads were dropped, 1 because the client did not answer.")
    many = summary(dropped_uploads=1234, unanswered=1200, missed_deadlines=30)
    assert legend(many).endswith(
        "taco: 1,234 uploads were dropped, 1,200 because the client did not answer and 30 because the client missed "
        "the deadline."
    )


def test_runs_that_a_callback_ended_are_mentioned():
    runs = [run_summary("taco", seed, ended_early="enough" if seed else None) for seed in range(2)]
    text = legend(*summarize_methods(runs))
    assert "taco: a callback ended 1 of 2 seeds before the last round." in text


def test_runs_that_are_not_in_the_means_are_mentioned():
    assert "×: a run diverged or could not continue." in legend(summary(stopped=3, seeds=3))
    assert "×: a run diverged or could not continue; it is not in the means." in legend(summary(stopped=1, seeds=3))


def test_notes_on_the_partition_come_last_and_once():
    assert legend(summary(), partition_notes=["b.", "a.", "b."]).endswith(" a. b.")


def test_swings_and_averaged_models_are_stated():
    one = summary(swinging=1, best_accuracy=0.82, average_accuracy=0.815)
    text = legend(one)
    assert "↕: the accuracy swings: its range" in text
    assert text.endswith(
        "taco: the accuracy swings, and the best round has 82.0 %; the average of the last models has an accuracy of "
        "81.5 %."
    )
    assert "the accuracy swings in 2 of 3 seeds, and" in legend(summary(seeds=3, swinging=2, best_accuracy=0.8))
    assert "swings" not in legend(summary())


def test_unbalanced_classes_and_parts_of_the_test_set_are_explained():
    rows = [
        summary(accuracy=0.77, balanced_accuracy=0.55, majority_share=0.7638, samples=(1000, 16281)),
        summary(method="fedavg", accuracy=0.7638, balanced_accuracy=0.5, majority_share=0.7638, samples=(1000, 16281)),
    ]
    text = legend(*rows)
    assert text.count("Accuracy is measured on 1,000 of the 16,281 test samples.") == 1
    assert "Balanced accuracy, the mean over classes: taco 55.0 %, fedavg 50.0 %." in text
    assert "Always predicting the most frequent class would give an accuracy of 76.4 %." in text
    text = legend(summary(accuracy=0.9, balanced_accuracy=0.895, majority_share=0.12))
    for word in ("Balanced", "most frequent", "measured on"):
        assert word not in text
