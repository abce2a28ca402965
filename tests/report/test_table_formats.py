"""The results table as JSON, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import json

import pytest
from run_summaries import run_summary

from fedtaco.errors import InvalidInput
from fedtaco.report.table_formats import escape_latex, format_results

FIGURES = {"worst_tenth_accuracy": 0.25, "client_seconds": 1.5, "alpha": {"A": 0.125}}
RUNS = [
    *(run_summary("fedavg", seed, 0.5 + seed / 100, rounds_to_target=10 + seed, **FIGURES) for seed in (0, 1)),
    *(run_summary("my_own", seed, 0.48 - seed / 100, **FIGURES) for seed in (0, 1)),
]


def test_json_and_csv_have_unformatted_figures():
    rows = json.loads(format_results(RUNS, "json"))
    own = rows[1]
    assert list(own)[:4] == ["method", "seeds", "final_accuracy", "final_accuracy_deviation"]
    assert (own["method"], own["seeds"], own["rounds_to_target"], own["alpha_A"]) == ("my_own", 2, None, 0.125)
    assert own["final_accuracy"] == pytest.approx(0.475)
    assert own["difference"] == pytest.approx(-0.03)
    assert own["difference_low"] < -0.03 < own["difference_high"]
    assert (rows[0]["difference"], rows[0]["rounds_to_target"]) == (None, 10.5)
    table = list(csv.DictReader(io.StringIO(format_results(RUNS, "csv"))))
    assert [row["method"] for row in table] == ["fedavg", "my_own"]
    assert float(table[1]["final_accuracy"]) == own["final_accuracy"]
    assert table[0]["difference"] == ""


def test_markdown_escapes_names():
    header, rule, *rows = format_results(RUNS, "markdown").splitlines()
    assert header.startswith("| method | final accuracy, % | difference to fedavg | worst tenth, % | rounds to 50% |")
    assert rule.startswith("| --- | ---: |")
    assert rows[0].startswith("| fedavg | 50.5 ± 0.7 | – | 25.0 | 10.5 |")
    assert rows[1].startswith(r"| my\_own | 47.5 ± 0.7 | −3.0 [−15.7, +9.7] | 25.0 | 20+ |")


def test_latex_sets_signs_in_mathematics():
    text = format_results(RUNS, "latex")
    comment, begin, rule, header, *_ = text.splitlines()
    assert (comment[0], begin, rule) == ("%", r"\begin{tabular}{lrrrrrr}", r"\toprule")
    assert header.startswith(r"method & final accuracy, \% & difference to fedavg & worst tenth, \% &")
    assert r"my\_own & 47.5 $\pm$ 0.7 & $-3.0$ [$-15.7$, $+9.7$] & 25.0 & 20$+$ & 1.50 & 0.12 \\" in text
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"a\b{c}", r"a\textbackslash{}b\{c\}"),
        ("1_000 & 50 % #2 $x ~ ^", r"1\_000 \& 50 \% \#2 \$x \textasciitilde{} \textasciicircum{}"),
        ("×, α, –, 20+↓", r"$\times$, $\alpha$, --, 20$+\downarrow$"),
        ("$+5", r"\$$+5$"),
        ("lr=1e+05", "lr=1e$+$05"),
        ("[own]", "{}[own]"),
        ("*", "{}*"),
    ],
)
def test_special_characters_are_escaped(text, expected):
    assert escape_latex(text) == expected


def test_an_unknown_format_is_refused():
    with pytest.raises(InvalidInput, match="There is no format 'xml'"):
        format_results(RUNS, "xml")


def test_a_method_that_swings_is_marked_and_has_the_figures_of_its_best_round_and_its_averaged_models():
    calm = {"last_ten_range": 0.01, "best_accuracy": 0.81, "average_accuracy": 0.8}
    swinging = {"last_ten_range": 0.04, "best_accuracy": 0.85, "average_accuracy": 0.84}
    runs = [run_summary("fedavg", 0, 0.8, **calm), run_summary("taco", 0, 0.7, **swinging)]
    header, _, fedavg, taco = format_results(runs, "markdown").splitlines()
    assert header.startswith("| method | final accuracy, % | best round, % | averaged models, % | worst tenth, % |")
    assert fedavg.startswith("| fedavg | 80.0 | 81.0 | 80.0 |")
    assert taco.startswith("| taco | 70.0 ↕ | 85.0 | 84.0 |")
    assert r"taco & 70.0 $\updownarrow$ & 85.0 & 84.0 &" in format_results(runs, "latex")
    rows = json.loads(format_results(runs, "json"))
    assert [(row["swinging"], row["best_accuracy"], row["average_accuracy"]) for row in rows] == [
        (0, 0.81, 0.8),
        (1, 0.85, 0.84),
    ]
    calm_runs = [{**run, "last_ten_range": 0.01, "average_accuracy": None} for run in runs]
    assert "best round" not in format_results(calm_runs, "markdown")
    assert "averaged" not in format_results(calm_runs, "markdown")
