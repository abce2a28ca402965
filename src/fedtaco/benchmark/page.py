"""The page of a benchmark, as HTML or Markdown, drawn from its record alone."""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from html import escape
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from fedtaco.benchmark.figures import LINEAR, draw_curves, draw_differences
from fedtaco.benchmark.plan import CONTROL_FOLDERS
from fedtaco.benchmark.record import LAST_ROUNDS, BenchmarkRecord, TaskRecord
from fedtaco.benchmark.tables import (
    accuracy_table,
    cost_table,
    course_table,
    describe_ranking,
    overview_table,
    rates_table,
    tuning_table,
    twins_table,
)
from fedtaco.benchmark.task_comparison import TaskComparison
from fedtaco.files import replacing, writing
from fedtaco.printable import printable
from fedtaco.records.formatting import pluralize
from fedtaco.report.labels import figure_class
from fedtaco.report.output_files import check_output_file
from fedtaco.report.table_formats import MARKDOWN, FormattedTable, format_table

SUFFIXES = (".html", ".md")
MAX_SENTENCE = 2000
"""Maximum number of characters in a sentence."""
LEGEND = (
    f"Accuracy is the mean over the last {LAST_ROUNDS} rounds of a run on the test set, then the mean ± standard "
    "deviation over seeds; a run that diverged counts as 0, and the other columns of accuracy leave it out. Runs with "
    "the same seed have the same partition, initial weights and batches.",
    "Differences are in percentage points, paired by seed, with Student's 95 % confidence interval; p is that of the "
    "paired t-test, corrected by Holm's method for all differences to the reference on the task, and a difference is "
    "called significant if that is at most 0.05. The best other method is chosen by the same runs, which favours it.",
    "Rounds to the target are the lower median over seeds, in which a run that does not reach the target counts as "
    "later than any that does.",
    "A run swings if the range of its last rounds is more than three times that of FedAvg with the same seed; FedAvg "
    "itself, and any run with a seed with which FedAvg diverged, if the range exceeds three percentage points and four "
    "changes alternate in sign.",
    "In the tables of tuning, rounds are means over the tuning seeds, on held-out samples; a run that does not reach "
    "the target counts as one round more than it has. The fastest accurate setting shows how early a method could be: "
    "among its settings whose held-out accuracy is at most a percentage point below the best of any method, it is the "
    "one that reaches the target first. Only settings that were tried with all tuning seeds count. These settings were "
    "not evaluated.",
    "A second table of tuning shows how sensitive methods are to the local learning rate: their held-out accuracy at "
    "each rate with the first tuning seed, at the best values of their other parameters. A run that diverged counts "
    "as 0.",
    "Worst tenth: the mean accuracy, after the last round, of the tenth of the clients with the lowest accuracy. The "
    "accuracy of a client is the test accuracy of each class, weighted by its own label distribution.",
    "Own output: the model that the method returns; for most methods it is the global model w.",
)


@dataclass(frozen=True)
class _Section:
    """A part of the page."""

    title: str
    sentences: Sequence[str]
    tables: Sequence[FormattedTable]
    figure: Callable[[], str] | None = None
    """Returns the figure below the sentences, in HTML."""


def write_page(record: BenchmarkRecord, out: Path) -> None:
    """Write the page of a benchmark.

    Parameters
    ----------
    record
        The results.
    out
        File to write: a self-contained HTML page with figures (``.html``), or Markdown (``.md``).

    Raises
    ------
    InvalidInput
        If the file has another suffix or cannot be written, or matplotlib is missing for the figures.
    """
    check_page(out)
    text = (_to_html if out.suffix == ".html" else _to_markdown)(record, list(_sections(record)))
    with writing(out), replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_page(out: Path) -> None:
    """Raise InvalidInput if :func:`write_page` could not write a page to this file."""
    check_output_file(out, SUFFIXES)
    if out.suffix == ".html":
        figure_class()


def findings(record: BenchmarkRecord) -> tuple[FormattedTable, list[str]]:
    """Return the accuracies of all methods on the primary tasks, and a sentence on each of these tasks.

    All tasks count if none of them is primary.
    """
    return _findings(record, [TaskComparison(task, record.reference) for task in record.tasks])


def _findings(record: BenchmarkRecord, comparisons: Sequence[TaskComparison]) -> tuple[FormattedTable, list[str]]:
    primary = _primary(comparisons)
    return overview_table(record, primary), [f"{one.task.name}: {describe_ranking(one)}" for one in primary]


def _primary(comparisons: Sequence[TaskComparison]) -> Sequence[TaskComparison]:
    return [one for one in comparisons if one.task.primary] or comparisons


def _sections(record: BenchmarkRecord) -> Iterator[_Section]:
    comparisons = [TaskComparison(task, record.reference) for task in record.tasks]
    overview, sentences = _findings(record, comparisons)
    yield _Section("Overview", sentences, [overview], partial(_differences_figure, _primary(comparisons)))
    yield _Section("How it was made", [*_protocol(record), *LEGEND], [])
    for one in sorted(comparisons, key=lambda one: not one.task.primary):
        task = one.task
        kind = "Primary task" if task.primary else "Secondary task"
        settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in task.settings.items())
        twins = twins_table(one, record.twins)
        results = [accuracy_table(one), course_table(one), *([twins] if twins.rows else [])]
        seeds = ", ".join(map(str, one.seeds))
        sentences = [f"{kind}: {settings}; seeds {seeds}.", describe_ranking(one)]
        yield _Section(task.name, sentences, results, partial(_curves_figure, one))
        notes = [_describe_tuning(record, task), *(note for entry in task.entries for note in entry.notes)]
        rates = rates_table(task, record.tuning_seeds[0])
        yield _Section(f"{task.name}: tuning", notes, [tuning_table(task), *([rates] if rates.rows else [])])
    yield _Section("Cost for a client", [], [cost_table(record)])


def _protocol(record: BenchmarkRecord) -> Iterator[str]:
    yield (
        f"Every method was tuned on each task with {pluralize(record.budget, 'setting')}, by its mean accuracy over "
        f"the last {LAST_ROUNDS} rounds on a tenth of each client's samples, which were held out. It was then "
        "evaluated with the best of them on fresh seeds, trained on all samples."
    )
    if any(entry.name in CONTROL_FOLDERS for task in record.tasks for entry in task.entries):
        yield (
            "Momentum β lets a model move 1/(1 − β) times as far. The two controls are FedAvg with its rate raised by "
            "that factor, at the clients or at the server, from the rate of the best momentum method; they were not "
            "tuned."
        )
    yield f"Written by fedtaco {record.fedtaco}, preset {record.name}."


def _describe_tuning(record: BenchmarkRecord, task: TaskRecord) -> str:
    first, *others = record.tuning_seeds
    if not others:
        return f"Settings were tried with the seed {first}."
    seeds = ", ".join(map(str, others))
    if task.finalists == record.budget:
        return f"Settings were tried with the seeds {first}, {seeds}; their mean decided."
    noun = "seed" if len(others) == 1 else "seeds"
    return (
        f"Settings were tried with the seed {first}, and the best {task.finalists} of each method with the {noun} "
        f"{seeds} too; among these, the mean over all seeds decided."
    )


def _to_markdown(record: BenchmarkRecord, sections: Sequence[_Section]) -> str:
    parts = [f"# {_escape_markdown(record.title)}"]
    for section in sections:
        parts.append(f"## {_escape_markdown(section.title)}")
        parts += ["\n".join(f"- {_escape_markdown(sentence)}" for sentence in section.sentences)]
        parts += [format_table(_escape_cells(table), "markdown").rstrip() for table in section.tables]
    return "\n\n".join(part for part in parts if part) + "\n"


def _escape_markdown(text: str) -> str:
    return printable(text, MAX_SENTENCE).translate(MARKDOWN)


def _escape_cells(table: FormattedTable) -> FormattedTable:
    """Escape all cells but those that ``format_table`` escapes itself, in the first column."""
    rows = [[first, *(cell.translate(MARKDOWN) for cell in others)] for first, *others in table.rows]
    return FormattedTable(table.header, rows, table.records)


def _to_html(record: BenchmarkRecord, sections: Sequence[_Section]) -> str:
    body = []
    for section in sections:
        body.append(f"<section><h2>{escape(section.title)}</h2>")
        items = "".join(f"<li>{escape(printable(sentence, MAX_SENTENCE))}</li>" for sentence in section.sentences)
        body += [f"<ul>{items}</ul>"] if items else []
        body += [section.figure()] if section.figure else []
        body += [f'<div class="scroll" tabindex="0">{table.to_html()}</div>' for table in section.tables]
        body.append("</section>")
    style = resources.files("fedtaco.report").joinpath("page.css").read_text(encoding="utf-8")
    title = escape(printable(record.title))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>fedtaco: {title}</title>
<style>
{style}
</style>
</head>
<body>
<header><p class="kind">fedtaco benchmark</p><h1>{title}</h1></header>
<main>
{chr(10).join(body)}
</main>
</body>
</html>
"""


def _differences_figure(comparisons: Sequence[TaskComparison]) -> str:
    """Return the differences to the reference as an image with a caption; empty if there are none."""
    with _image_file() as path:
        if not draw_differences(comparisons, path):
            return ""
        return _embed(
            path,
            f"Differences to {comparisons[0].reference} on each task",
            f"Differences to {comparisons[0].reference} in percentage points, with 95 % confidence intervals; a filled "
            f"dot is a significant difference. The scale is linear from −{LINEAR:g} to {LINEAR:g}, and logarithmic "
            "beyond.",
        )


def _curves_figure(comparison: TaskComparison) -> str:
    """Return the accuracy over rounds as an image with a caption; empty if there is none."""
    with _image_file() as path:
        drawn = draw_curves(comparison, path)
        if not drawn:
            return ""
        return _embed(
            path,
            f"Test accuracy over rounds of {', '.join(drawn)}",
            "The reference, if it was evaluated, and the methods with the highest accuracy. Line: mean over the seeds "
            "that have not diverged by then. Band: from the lowest to the highest of them.",
        )


@contextmanager
def _image_file() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder) / "figure.svg"


def _embed(image: Path, alt: str, caption: str) -> str:
    source = b64encode(image.read_bytes()).decode()
    alt, caption = (escape(printable(text, MAX_SENTENCE)) for text in (alt, caption))
    return f'<img alt="{alt}" src="data:image/svg+xml;base64,{source}">\n<p class="note">{caption}</p>'
