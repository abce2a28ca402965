"""A run folder: everything about one run, complete, self-describing and safe to resume.

=====================  ========================================================
``config.toml``        what was run, and under ``ran_by`` how: engine and versions
``partition.npz``      which client held which training samples and labels, and who misbehaved
``rounds.jsonl``       one object a round
``clients.jsonl``      one object a client and round
``checkpoint/``        the state after the last finished round
``summary.json``       how the run ended; present once it has
``model.safetensors``  the trained global model
``output.safetensors``  the model the method returns, where that is another one
``lock``               there while a process is at work
=====================  ========================================================
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w
from safetensors.numpy import save_file

from fedtaco.errors import InvalidInput
from fedtaco.records.checkpoint import Arrays, Checkpoint
from fedtaco.records.files import SCHEMA, append_lines, json_line, read_lines, reading, replacing, storage, write_json
from fedtaco.records.history import ClientRecord, Decision, History, RoundRecord
from fedtaco.records.lock import LOCK, locked

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Who holds what: training samples, their labels counted (clients, classes), and groups where there are any."""

    indices: Sequence[Integers]
    label_counts: Integers
    groups: list[str] | None = None
    freeloaders: list[int] = field(default_factory=list)
    """The clients that misbehave."""

    @property
    def kinds(self) -> list[str]:
        """What each client is: a freeloader, or else of its group (``all`` where there are none)."""
        own = self.groups or ["all"] * len(self.label_counts)
        return ["freeloaders" if client in self.freeloaders else group for client, group in enumerate(own)]


RECORDS = (
    "partition.npz",
    "checkpoint",
    "rounds.jsonl",
    "clients.jsonl",
    "summary.json",
    "model.safetensors",
    "output.safetensors",
    "tensorboard",
    "wandb",
)
"""What a run writes beside its configuration; nothing else in a folder is ever removed."""


class RunFolder:
    """Reads and writes one run folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint = Checkpoint(self.path / "checkpoint")

    # What there is

    def exists(self) -> bool:
        """Whether there is a run here: a configuration that begins as fedtaco's do."""
        try:
            return self._config.read_text(encoding="utf-8").startswith("schema")
        except (OSError, UnicodeDecodeError):
            return False

    def config(self) -> dict[str, Any]:
        if not self._config.exists():
            raise InvalidInput(f"{self.path} is not a run folder: it has no config.toml.")
        with reading(self._config):
            return tomllib.loads(self._config.read_text(encoding="utf-8"))

    def summary(self) -> dict[str, Any] | None:
        """How the run ended; ``None`` while it has not."""
        path = self.path / "summary.json"
        if not path.is_file():
            return None
        with reading(path):
            ended: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return ended

    def history(self) -> History:
        with reading(self._rounds):
            rounds = [read_round(row) for row in read_lines(self._rounds)]
        with reading(self._clients):
            return History(rounds, [ClientRecord(**row) for row in read_lines(self._clients)])

    def client_rows(self) -> Iterator[dict[str, Any]]:
        """The lines of ``clients.jsonl`` one by one, for runs too large to be held; a cut-off one is left out."""
        if self._clients.is_file():
            with self._clients.open(encoding="utf-8") as file:
                yield from (json.loads(line) for line in file if line.endswith("\n"))

    def partition(self) -> Split:
        """Who held what."""
        with reading(self.path / "partition.npz") as path, np.load(path, allow_pickle=False) as stored:
            parts = np.split(stored["indices"], np.cumsum(stored["sizes"])[:-1])
            freeloaders = stored["freeloaders"].tolist() if "freeloaders" in stored else []
            return Split(parts, stored["label_counts"], [str(name) for name in stored["groups"]] or None, freeloaders)

    def model_path(self, name: str) -> Path:
        """Where a model lies: ``output`` is the global ``model`` unless the method returns another."""
        path = self.path / f"{name}.safetensors"
        if not path.is_file():
            path = self.path / "model.safetensors"
        if not path.is_file():
            raise InvalidInput(f"{self.path} holds no model: the run has not finished.")
        return path

    # What is written

    @contextmanager
    def held(self, config: Mapping[str, Any], *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Claim the folder and keep other processes out of it."""
        self.claim(config, resume=resume, overwrite=overwrite)
        with locked(self.path):
            self.claim(config, resume=resume, overwrite=overwrite)
            yield

    def claim(self, config: Mapping[str, Any], *, resume: bool, overwrite: bool) -> None:
        """Refuse a folder that belongs to something else; nothing is written."""
        if not self.exists():
            with storage(self.path):
                if self.path.exists() and not (self.path.is_dir() and self._is_cut_short()):
                    raise InvalidInput(f"{self.path} exists and is not a run folder; choose another folder (out).")
            return
        if overwrite:
            return
        if not resume:
            raise InvalidInput(
                f"{self.path} holds a run already; go on with it (resume), replace it (overwrite), or choose "
                "another folder (out)."
            )
        stored = {name: value for name, value in self.config().items() if name != "ran_by"}
        differences = _differences(stored, {"schema": SCHEMA, **config})
        if differences:
            raise InvalidInput(f"{self.path} holds another run and cannot be resumed as this one: {differences}.")

    def begin(self, config: Mapping[str, Any], split: Split) -> None:
        """Start the folder anew."""
        with storage(self.path):
            for path in (self._config, *(self.path / name for name in RECORDS)):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            self.checkpoint.folder.mkdir(parents=True)
            with replacing(self.path / "partition.npz") as temporary, temporary.open("wb") as file:
                np.savez_compressed(
                    file,
                    indices=np.concatenate(split.indices),
                    sizes=np.array([len(part) for part in split.indices]),
                    label_counts=split.label_counts,
                    groups=np.array(split.groups or [], dtype=str),
                    freeloaders=np.array(split.freeloaders, dtype=np.int64),
                )
            self._write_config({"schema": SCHEMA, **config})

    def record_how(self, ran_by: Mapping[str, Any]) -> None:
        """Replace what is recorded of how the run is done, which changes nothing of what is run."""
        with storage(self.path):
            self._write_config({**self.config(), "ran_by": ran_by})

    def rewind(self, round_number: int) -> None:
        """Forget what was recorded after a round, and how the run ended."""
        for path in (self._rounds, self._clients):
            with reading(path):
                kept = [row for row in read_lines(path) if row["round"] <= round_number]
            if {row["round"] for row in kept} != set(range(1, round_number + 1)):
                raise InvalidInput(
                    f"{path} lacks some of the {round_number} rounds in the checkpoint; start again (overwrite)."
                )
            with storage(self.path), replacing(path) as temporary:
                temporary.write_text("".join(json_line(row) for row in kept), encoding="utf-8")
        (self.path / "summary.json").unlink(missing_ok=True)

    def append(self, record: RoundRecord, clients: Sequence[ClientRecord]) -> None:
        """Add a finished round."""
        with storage(self.path):
            append_lines(self._clients, [dataclasses.asdict(client) for client in clients])
            append_lines(self._rounds, [dataclasses.asdict(record)])

    def save_checkpoint(self, round_number: int, shared: Arrays, changed: Mapping[int, Arrays]) -> None:
        with storage(self.path):
            self.checkpoint.save(round_number, shared, changed)

    def save_model(self, model: Arrays, name: str = "model") -> None:
        with storage(self.path), replacing(self.path / f"{name}.safetensors") as temporary:
            save_file(dict(model), temporary, metadata={"schema": str(SCHEMA)})

    def end(self, summary: Mapping[str, Any]) -> None:
        with storage(self.path):
            write_json(self.path / "summary.json", summary)

    def _is_cut_short(self) -> bool:
        """Whether the folder is empty, or a start or a replacement was killed in it, which leaves the lock behind."""
        names = {path.name for path in self.path.iterdir() if path.suffix != ".part"}
        return LOCK in names or names <= set(RECORDS)

    def _write_config(self, config: Mapping[str, Any]) -> None:
        with replacing(self._config) as temporary:
            temporary.write_text(tomli_w.dumps(config), encoding="utf-8")

    @property
    def _config(self) -> Path:
        return self.path / "config.toml"

    @property
    def _rounds(self) -> Path:
        return self.path / "rounds.jsonl"

    @property
    def _clients(self) -> Path:
        return self.path / "clients.jsonl"


def read_round(row: dict[str, Any]) -> RoundRecord:
    """A line of ``rounds.jsonl``."""
    dropped = {int(client): str(reason) for client, reason in row["dropped"].items()}
    decisions = [Decision(**decision) for decision in row.get("decisions", [])]
    return RoundRecord(**{**row, "dropped": dropped, "decisions": decisions})


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
    return "; ".join(f"{name} is {stored.get(name)!r} there and {wanted.get(name)!r} here" for name in names)
