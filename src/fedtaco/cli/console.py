"""The consoles of the command line, through which all of its output passes except JSON, CSV, Markdown and LaTeX."""

from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fedtaco.printable import printable

MAX_LINE = 10_000
"""Maximum number of characters in a line that :func:`print_line` prints."""


class PlainConsole(Console):
    """A console for text of any origin: markup in it is not interpreted, and control characters are not printed."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_printable_lines(segment.text))


def _printable_lines(text: str) -> str:
    """Make those lines of a text printable that are not."""
    return "\n".join(line if line.isprintable() else printable(line) for line in text.split("\n"))


stderr = PlainConsole(stderr=True)
"""The console of errors, warnings and progress bars; lines that it prints appear above a bar."""


def print_line(sentence: str, console: Console | None = None, *, style: str = "") -> None:
    """Print a sentence, on standard output by default; a terminal may wrap it, but paths in it stay in one piece."""
    line = Text(printable(sentence, MAX_LINE), style)
    (console or PlainConsole()).print(line, soft_wrap=True)


def fits(table: Table) -> bool:
    """Return whether the terminal is wide enough for a table."""
    console = PlainConsole()
    return console.measure(table, options=console.options.update(max_width=MAX_LINE)).maximum <= console.width


def print_with_notes(table: Table, headline: Sequence[str], notes: Sequence[str]) -> None:
    """Print a table and, below it, sentences on what it shows and, dimmed, sentences that explain it.

    If the table does not fit into the terminal, its columns are printed closer together.
    """
    console = PlainConsole()
    if not fits(table):
        table.padding = 0
    console.print(table)
    for sentences, style in ((headline, ""), (notes, "dim")):
        if sentences:
            console.print()
            console.print(Text(printable(" ".join(sentences), MAX_LINE), style))


def print_error(sentence: str) -> None:
    """Print an error on standard error, as one line."""
    stderr.print(Text.assemble(("Error:", "red"), " ", printable(sentence, MAX_LINE)), soft_wrap=True)
