"""A run folder: everything about one run, self-describing and safe to resume.

=====================  ========================================================
``config.toml``        the settings, and under ``ran_by`` the engine and versions
``partition.npz``      which client held which samples, and who misbehaved
``rounds.jsonl``       one object per round
``clients.jsonl``      one object per client and round
``checkpoint/``        the state after the last finished round
``summary.json``       how the run ended; present once it has
``model.safetensors``  the trained global model
``output.safetensors`` the model the method returns, if that is another one
``lock``               present while a process uses the folder
=====================  ========================================================
"""

import dataclasses
import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from safetensors.numpy import save_file

from fedtaco.errors import InvalidInput
from fedtaco.records.checkpoint import Arrays, Checkpoint
from fedtaco.records.files import (
    SCHEMA,
    append_lines,
    json_line,
    read_lines,
    reading,
    replacing,
    write_json,
    writing_run,
)
from fedtaco.records.history import ClientRecord, History, RoundRecord
from fedtaco.records.lock import LOCK, locked
from fedtaco.records.partition import PartitionRecord

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
"""What a run writes besides its configuration; nothing else in a folder is ever removed."""


class RunFolder:
    """Reads and writes one run folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint = Checkpoint(self.path / "checkpoint")
        names = ("config.toml", "rounds.jsonl", "clients.jsonl", "summary.json")
        self._config, self._rounds, self._clients, self._summary = (self.path / name for name in names)

    # Reading

    def exists(self) -> bool:
        """Return whether the folder holds a run: a configuration that starts as fedtaco's do."""
        try:
            return self._config.read_text(encoding="utf-8").startswith("schema")
        except (OSError, UnicodeDecodeError):
            return False

    def config(self) -> dict[str, Any]:
        """Read the settings of the run.

        Raises
        ------
        InvalidInput
            If there is no run, or another version of fedtaco wrote it.
        """
        if not self._config.exists():
            raise InvalidInput(f"{self.path} is not a run folder: it has no config.toml.")
        with reading(self._config):
            config = tomllib.loads(self._config.read_text(encoding="utf-8"))
        if config.get("schema") != SCHEMA:
            raise InvalidInput(
                f"{self.path} was written by another version of fedtaco (schema {config.get('schema')}, not {SCHEMA}); "
                "run it again with this version (overwrite), or read it with that one."
            )
        return config

    def summary(self) -> dict[str, Any] | None:
        """Read how the run ended; ``None`` if it has not."""
        if not self._summary.is_file():
            return None
        with reading(self._summary):
            ended: dict[str, Any] = json.loads(self._summary.read_text(encoding="utf-8"))
            return ended

    def history(self) -> History:
        """Read all records of the run."""
        with reading(self._rounds):
            rounds = [RoundRecord.from_row(row) for row in read_lines(self._rounds)]
        with reading(self._clients):
            return History(rounds, [ClientRecord.from_row(row) for row in read_lines(self._clients)])

    def client_rows(self) -> Iterator[dict[str, Any]]:
        """Read ``clients.jsonl`` line by line, for runs too large for memory; skip a line that a crash cut off."""
        if self._clients.is_file():
            with self._clients.open(encoding="utf-8") as file:
                yield from (json.loads(line) for line in file if line.endswith("\n"))

    def partition(self) -> PartitionRecord:
        """Read which client held which samples."""
        with reading(self.path / "partition.npz") as path, np.load(path, allow_pickle=False) as stored:
            parts = np.split(stored["indices"], np.cumsum(stored["sizes"])[:-1])
            freeloaders = stored["freeloaders"].tolist()
            groups = [str(name) for name in stored["groups"]] or None
            return PartitionRecord(parts, stored["label_counts"], groups, freeloaders)

    def model_path(self, name: str) -> Path:
        """Return the path of a model; ``output`` is the global ``model`` unless the method returns another."""
        path = self.path / f"{name}.safetensors"
        if not path.is_file():
            path = self.path / "model.safetensors"
        if not path.is_file():
            raise InvalidInput(f"{self.path} has no model: the run has not finished.")
        return path

    # Writing

    @contextmanager
    def claim(self, config: Mapping[str, Any], *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Check that the folder may be used for a run, and keep other processes out of it meanwhile."""
        self.check_available(config, resume=resume, overwrite=overwrite)
        with locked(self.path):
            self.check_available(config, resume=resume, overwrite=overwrite)
            yield

    def check_available(self, config: Mapping[str, Any], *, resume: bool, overwrite: bool) -> None:
        """Raise InvalidInput if the folder belongs to something else; nothing is written."""
        if not self.exists():
            with writing_run(self.path):
                if self.path.exists() and not (self.path.is_dir() and self._is_cut_short()):
                    raise InvalidInput(f"{self.path} exists and is not a run folder; choose another folder (out).")
            return
        if overwrite:
            return
        if not resume:
            raise InvalidInput(
                f"{self.path} holds a run already; continue it (resume), replace it (overwrite), or choose "
                "another folder (out)."
            )
        stored = {name: value for name, value in self.config().items() if name != "ran_by"}
        differences = _differences(stored, {"schema": SCHEMA, **config})
        if differences:
            raise InvalidInput(f"{self.path} holds another run and cannot be resumed as this one: {differences}.")

    def create(self, config: Mapping[str, Any], partition: PartitionRecord) -> None:
        """Start a new run; records of an earlier one are removed."""
        with writing_run(self.path):
            for path in (self._config, *(self.path / name for name in RECORDS)):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            self.checkpoint.folder.mkdir(parents=True)
            with replacing(self.path / "partition.npz") as temporary, temporary.open("wb") as file:
                np.savez_compressed(
                    file,
                    indices=np.concatenate(partition.indices),
                    sizes=np.array([len(part) for part in partition.indices]),
                    label_counts=partition.label_counts,
                    groups=np.array(partition.groups or [], dtype=str),
                    freeloaders=np.array(partition.freeloaders, dtype=np.int64),
                )
            self._write_config({"schema": SCHEMA, **config})

    def record_ran_by(self, ran_by: Mapping[str, Any]) -> None:
        """Replace the record of the engine and versions."""
        with writing_run(self.path):
            self._write_config({**self.config(), "ran_by": ran_by})

    def rewind(self, round_number: int) -> None:
        """Remove what was recorded after a round, and the summary."""
        for path in (self._rounds, self._clients):
            with reading(path):
                kept = [row for row in read_lines(path) if row["round"] <= round_number]
            if {row["round"] for row in kept} != set(range(1, round_number + 1)):
                raise InvalidInput(
                    f"{path} lacks some of the {round_number} rounds in the checkpoint; start again (overwrite)."
                )
            with writing_run(self.path), replacing(path) as temporary:
                temporary.write_text("".join(json_line(row) for row in kept), encoding="utf-8")
        self._summary.unlink(missing_ok=True)

    def append_round(self, record: RoundRecord, clients: Sequence[ClientRecord]) -> None:
        """Add the records of a finished round."""
        with writing_run(self.path):
            append_lines(self._clients, [client.to_row() for client in clients])
            append_lines(self._rounds, [dataclasses.asdict(record)])

    def save_checkpoint(self, round_number: int, shared: Arrays, changed: Mapping[int, Arrays]) -> None:
        """Write the state after a round; see :class:`~fedtaco.records.checkpoint.Checkpoint`."""
        with writing_run(self.path):
            self.checkpoint.save(round_number, shared, changed)

    def save_model(self, model: Arrays, name: str = "model") -> None:
        """Write a model as safetensors."""
        with writing_run(self.path), replacing(self.path / f"{name}.safetensors") as temporary:
            save_file(dict(model), temporary, metadata={"schema": str(SCHEMA)})

    def save_summary(self, summary: Mapping[str, Any]) -> None:
        """Write how the run ended."""
        with writing_run(self.path):
            write_json(self._summary, summary)

    def _is_cut_short(self) -> bool:
        """Return whether the folder is empty, or a run was killed while it was created or replaced."""
        names = {path.name for path in self.path.iterdir() if path.suffix != ".part"}
        return LOCK in names or names <= set(RECORDS)

    def _write_config(self, config: Mapping[str, Any]) -> None:
        with replacing(self._config) as temporary:
            temporary.write_text(tomli_w.dumps(config), encoding="utf-8")


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
    return "; ".join(f"{name} is {stored.get(name)!r} there and {wanted.get(name)!r} here" for name in names)
