"""Generated sections of the pages in ``docs/``, each between the markers ``<!-- name -->`` and ``<!-- /name -->``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedtaco.errors import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.report import find_runs

DOCS = Path(__file__).parents[1] / "docs"


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table.

    >>> print(markdown_table(["method", "seeds"], [["taco", 5]]))
    | method | seeds |
    | --- | --- |
    | taco | 5 |
    """
    lines: list[Sequence[object]] = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def write_sections(page: Path, sections: Mapping[str, str]) -> None:
    """Replace the text between the markers of each section; a section without markers in the page is ignored.

    Parameters
    ----------
    page
        The Markdown file.
    sections
        The new text of each section, by name.
    """
    text = page.read_text(encoding="utf-8")
    for name, content in sections.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        parts = re.split(f"{re.escape(begin)}.*?{re.escape(end)}", text, flags=re.DOTALL)
        text = f"{begin}\n{content}\n{end}".join(parts)
    page.write_text(text, encoding="utf-8")


def finished_runs(folder: Path) -> list[RunFolder]:
    """Return all runs below a folder, or an empty list if one of them is unfinished or there are none."""
    try:
        runs = find_runs(folder)
    except InvalidInput:
        return []
    return runs if all(run.summary() is not None for run in runs) else []


def subfolders(folder: Path) -> list[Path]:
    """Return the folders directly inside a folder, sorted by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir())
