"""Check the files that users name for tables, figures and pages, before anything is computed."""

from collections.abc import Sequence
from pathlib import Path

from fedtaco.errors import InvalidInput
from fedtaco.files import writing

PLOT_SUFFIXES = (".pdf", ".png", ".svg")


def check_output_file(path: Path, suffixes: Sequence[str], option: str = "out") -> None:
    """Raise InvalidInput if a file cannot be written, would replace something else than a file, or has another suffix.

    Parameters
    ----------
    path
        The file.
    suffixes
        The suffixes that its name may have.
    option
        The option that names it, for messages.
    """
    with writing(path):
        if not path.parent.is_dir():
            raise InvalidInput(f"{option} is '{path}', but there is no folder {path.parent}.")
        if path.is_symlink():
            raise InvalidInput(f"{option} is '{path}', which is a symbolic link; name the file that it refers to.")
        if path.is_dir():
            example = path / f"file{suffixes[0]}"
            raise InvalidInput(f"{option} is '{path}', which is a folder; name a file, such as {example}.")
        if path.exists() and not path.is_file():
            raise InvalidInput(f"{option} is '{path}', which is a device or another special file; name another file.")
    if path.suffix not in suffixes:
        names = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise InvalidInput(f"{option} is '{path}'; its name must end in {names}.")
