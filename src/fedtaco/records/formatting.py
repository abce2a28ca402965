"""Format numbers for tables, pages and messages."""


def format_count(mean: float) -> str:
    """Format a mean of whole numbers, with one decimal if it is not whole.

    >>> format_count(1234.0), format_count(16.75)
    ('1234', '16.8')
    """
    return f"{mean:.1f}".removesuffix(".0")


def format_target(target: float) -> str:
    """Format a target accuracy in percent, with no more digits than needed.

    >>> format_target(0.7), format_target(0.785)
    ('70%', '78.5%')
    """
    return f"{100 * target:g}%"


def format_mean(mean: float | None, deviation: float | None = None, digits: int = 1, scale: float = 1.0) -> str:
    """Format a mean and, if given, its standard deviation, both multiplied by ``scale``; a missing mean is a dash.

    >>> format_mean(0.8467, 0.0123, scale=100), format_mean(0.5, digits=2), format_mean(None)
    ('84.7 ± 1.2', '0.50', '–')
    """
    if mean is None:
        return "–"
    spread = "" if deviation is None else f" ± {scale * deviation:.{digits}f}"
    return f"{scale * mean:.{digits}f}{spread}"


def format_megabytes(size: float | None) -> str:
    """Format a number of bytes in megabytes, with three digits; a missing one is a dash.

    >>> format_megabytes(7_712_000), format_megabytes(123_456_000_000), format_megabytes(None)
    ('7.71', '123,456', '–')
    """
    if size is None:
        return "–"
    return f"{size / 1e6:,.0f}" if size >= 1e8 else f"{size / 1e6:.3g}"


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> pluralize(1, "upload"), pluralize(3000, "upload")
    ('1 upload', '3,000 uploads')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
