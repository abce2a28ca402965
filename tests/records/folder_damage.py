"""Damage run folders at random, and judge what fedtaco then makes of them."""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

from run_helpers import Interrupted, assert_same_model, interrupt_after, without_times

import fedtaco
from fedtaco import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.report.page_data import build_page_data

SETTINGS = {
    "dataset": "digits",
    "clients": 6,
    "rounds": 5,
    "local_steps": 2,
    "batch_size": 16,
    "participation": 0.7,
    "detector": "guard",
    "freeloaders": 1,
    "engine": "serial",
    "model": "mlp:8",
    "diagnose": True,
}
RECORDS = ("rounds.jsonl", "clients.jsonl", "diagnostics.jsonl")
DOCUMENTS = ("config.toml", "summary.json", "checkpoint/manifest.json")


@dataclass(frozen=True)
class Specimens:
    """Undamaged folders of one run, at different times."""

    result: fedtaco.Result
    """What the run must end with."""
    older: Path
    """After two rounds."""
    unfinished: Path
    """After four rounds, the last of which is not part of the checkpoint."""
    finished: Path


def prepare_specimens(path: Path) -> Specimens:
    """Run a method with client memory and a detector, and keep its folder at different times."""
    folders = {name: path / name for name in ("older", "unfinished", "finished")}

    def run_until(number):
        try:
            return fedtaco.run(
                "scaffold", out=path / "run", resume=True, callbacks=[interrupt_after(number)], **SETTINGS
            )
        except Interrupted:
            return None

    run_until(2)
    shutil.copytree(path / "run", folders["older"])
    run_until(3)
    with patch.object(RunFolder, "save_checkpoint"):
        run_until(4)
    shutil.copytree(path / "run", folders["unfinished"])
    result = run_until(None)
    shutil.copytree(path / "run", folders["finished"])
    return Specimens(result, **folders)


@cache
def shared_specimens() -> Specimens:
    """Return specimens that all tests of a process use; they are removed when it ends."""
    path = Path(tempfile.mkdtemp(prefix="fedtaco-specimens-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return prepare_specimens(path)


# Damage


def damage(folder: Path, seed: int, older: Path | None = None) -> str:
    """Damage one file of a run folder, and return a description.

    Parameters
    ----------
    folder
        The folder to damage.
    seed
        Determines the file and the damage.
    older
        An earlier copy of the folder, from which a file may be put back.
    """
    rng = random.Random(seed)
    kinds = [flip_bit, flip_bit, cut, remove, append, blank, change_line, change_line, edit_digit, exchange, copy_over]
    kind = rng.choice([*kinds, put_back] if older else kinds)
    return kind(folder, rng, older)


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def flip_bit(folder, rng, older):
    path = rng.choice(files_of(folder))
    content, place, bit = bytearray(path.read_bytes()), rng.randrange(path.stat().st_size), rng.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} of {path.relative_to(folder)} flipped"


def cut(folder, rng, older):
    path = rng.choice(files_of(folder))
    size = rng.randrange(path.stat().st_size)
    path.write_bytes(path.read_bytes()[:size])
    return f"{path.relative_to(folder)} cut to {size} bytes"


def remove(folder, rng, older):
    path = rng.choice([*files_of(folder), folder / "checkpoint"])
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return f"{path.relative_to(folder)} removed"


def append(folder, rng, older):
    path = rng.choice(files_of(folder))
    added = rng.choice([rng.randbytes(rng.randint(1, 50)), path.read_bytes(), b"\n", b"{}\n"])
    path.write_bytes(path.read_bytes() + added)
    return f"{len(added)} bytes appended to {path.relative_to(folder)}"


def blank(folder, rng, older):
    path = rng.choice(files_of(folder))
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.choice([1, 16, 512]))
    content[start:end] = bytes(end - start)
    path.write_bytes(content)
    return f"bytes {start} to {end} of {path.relative_to(folder)} set to zero"


def change_line(folder, rng, older):
    path = folder / rng.choice(RECORDS)
    lines = path.read_bytes().splitlines(keepends=True)
    first, second = (rng.randrange(len(lines)) for _ in range(2))
    action = rng.choice(["swap", "double", "drop", "replace", "move"])
    if action == "swap":
        lines[first], lines[second] = lines[second], lines[first]
    elif action == "double":
        lines.insert(first, lines[first])
    elif action == "drop":
        del lines[first]
    elif action == "replace":
        lines[first] = lines[second]
    else:
        lines.insert(second, lines.pop(first))
    path.write_bytes(b"".join(lines))
    return f"{action} of lines {first} and {second} of {path.name}"


def edit_digit(folder, rng, older):
    """Change one digit of a text, as an editor would: the file keeps its form."""
    path = folder / rng.choice([name for name in (*RECORDS, *DOCUMENTS) if (folder / name).exists()])
    content = bytearray(path.read_bytes())
    place = rng.choice([place for place, letter in enumerate(content) if chr(letter).isdigit()])
    content[place] = rng.choice(b"0123456789")
    path.write_bytes(content)
    return f"digit at byte {place} of {path.relative_to(folder)} replaced by {chr(content[place])}"


def exchange(folder, rng, older):
    first, second = rng.sample(files_of(folder), 2)
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    return f"{first.relative_to(folder)} and {second.relative_to(folder)} exchanged"


def copy_over(folder, rng, older):
    source, target = rng.sample(files_of(folder), 2)
    shutil.copyfile(source, target)
    return f"{target.relative_to(folder)} replaced by {source.relative_to(folder)}"


def put_back(folder, rng, older):
    path = rng.choice([*files_of(older), older / "checkpoint"])
    target = folder / path.relative_to(older)
    if path.is_dir():
        shutil.rmtree(target)
        shutil.copytree(path, target)
    else:
        shutil.copyfile(path, target)
    return f"an older {path.relative_to(older)} put back"


# Judgement


def judge(folder: Path, specimens: Specimens) -> str:
    """Report, load and resume a folder; return ``correct``, ``refused``, ``wrong: …`` or ``traceback: …``.

    A folder that is refused must stay as it was.
    """
    refusals = 0
    for action in (_report, _load, _resume, _load, _report):
        before = _contents(folder)
        try:
            action(folder, specimens)
        except InvalidInput:
            refusals += 1
            if _contents(folder) != before:
                return f"wrong: {action.__name__} refused the folder and changed it"
        except AssertionError:
            return f"wrong: {action.__name__}: {traceback.format_exc(limit=-2)}"
        except Exception:
            return f"traceback: {action.__name__}: {traceback.format_exc(limit=-4)}"
    return "refused" if refusals > _expected_refusals(folder, specimens) else "correct"


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _expected_refusals(folder: Path, specimens: Specimens) -> int:
    """Return how many actions are refused for an undamaged folder: an unfinished run cannot be loaded."""
    return int(folder.name.startswith(specimens.unfinished.name))


def _report(folder: Path, specimens: Specimens) -> None:
    run = RunFolder(folder)
    page, history = build_page_data([run]), run.history()
    assert page.rounds == len(history)
    _assert_beginning(history.table(), specimens.result.history.table())
    _assert_beginning(history.client_table(), specimens.result.history.client_table())
    _assert_beginning(run.diagnostics().client_table(), specimens.result.diagnostics.client_table())
    assert run.partition().equals(RunFolder(specimens.finished).partition())
    assert run.summary() is None or run.summary()["rounds"] == len(history) == len(specimens.result.history)


def _assert_beginning(rows, whole) -> None:
    assert without_times(rows) == without_times(whole)[: len(rows)]


def _load(folder: Path, specimens: Specimens) -> None:
    _assert_result(fedtaco.load(folder), specimens)


def _resume(folder: Path, specimens: Specimens) -> None:
    _assert_result(fedtaco.run("scaffold", out=folder, resume=True, **SETTINGS), specimens)


def _assert_result(result: fedtaco.Result, specimens: Specimens) -> None:
    expected = specimens.result
    assert_same_model(expected.model, result.model)
    assert result.diagnostics == expected.diagnostics
    assert without_times(result.history.table()) == without_times(expected.history.table())
    assert without_times(result.history.client_table()) == without_times(expected.history.client_table())
