"""A run folder: everything about one run, complete, self-describing and safe to resume.

=====================  ========================================================
``config.toml``        what was run
``partition.npz``      which client held which training samples
``rounds.jsonl``       one object a round
``clients.jsonl``      one object a client and round
``checkpoint/``        the state after the last finished round
``summary.json``       how the run ended; present once it has
``model.safetensors``  the trained global model
``output.safetensors``  the model the method returns, where that is another one
=====================  ========================================================
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from fedtaco.errors import InvalidInput
from fedtaco.records.history import ClientRecord, History, RoundRecord

SCHEMA = 1
Arrays = Mapping[str, npt.NDArray[Any]]


class RunFolder:
    """Reads and writes one run folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    # What there is

    def exists(self) -> bool:
        return self._config.is_file()

    def config(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self._config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InvalidInput(f"{self.path} is not a run folder: it has no config.toml.") from None
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput(f"{self._config} is damaged: {error}.") from error

    def summary(self) -> dict[str, Any] | None:
        """How the run ended; ``None`` while it has not."""
        path = self.path / "summary.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def history(self) -> History:
        return History(
            [RoundRecord(**_round_fields(row)) for row in _read_lines(self._rounds)],
            [ClientRecord(**row) for row in _read_lines(self._clients)],
        )

    def partition(self) -> tuple[list[npt.NDArray[np.int64]], list[str] | None]:
        """The samples of each client, and the clients' groups where there are any."""
        with np.load(self.path / "partition.npz", allow_pickle=False) as stored:
            parts = np.split(stored["indices"], np.cumsum(stored["sizes"])[:-1])
            groups = [str(name) for name in stored["groups"]] or None
        return parts, groups

    def checkpoint(self) -> tuple[int, Arrays] | None:
        """The last finished round and the state after it."""
        if not self._checkpoint.is_file():
            return None
        try:
            with safe_open(self._checkpoint, framework="numpy") as stored:
                round_number = int(stored.metadata()["round"])
            return round_number, load_file(self._checkpoint)
        except SafetensorError as error:
            raise InvalidInput(f"{self._checkpoint} is damaged ({error}); start the run again (overwrite).") from error

    def model_path(self, name: str) -> Path:
        """Where a model lies: ``output`` is the global ``model`` unless the method returns another."""
        path = self.path / f"{name}.safetensors"
        if not path.is_file():
            path = self.path / "model.safetensors"
        if not path.is_file():
            raise InvalidInput(f"{self.path} holds no model: the run has not finished.")
        return path

    # What is written

    def claim(self, config: Mapping[str, Any], *, resume: bool, overwrite: bool) -> None:
        """Refuse a folder that belongs to something else; nothing is written."""
        if not self.exists():
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
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

    def begin(
        self, config: Mapping[str, Any], parts: Sequence[npt.NDArray[np.int64]], groups: list[str] | None
    ) -> None:
        """Start the folder anew."""
        try:
            if self.path.exists():
                shutil.rmtree(self.path)
            self._checkpoint.parent.mkdir(parents=True)
        except OSError as error:
            raise InvalidInput(
                f"Cannot write to {self.path}: {error.strerror}. Choose another folder (out)."
            ) from error
        with _replacing(self.path / "partition.npz") as temporary, temporary.open("wb") as file:
            np.savez_compressed(
                file,
                indices=np.concatenate(parts),
                sizes=np.array([len(part) for part in parts]),
                groups=np.array(groups or [], dtype=str),
            )
        with _replacing(self._config) as temporary:
            temporary.write_text(tomli_w.dumps({"schema": SCHEMA, **config}), encoding="utf-8")

    def rewind(self, round_number: int) -> None:
        """Forget what was recorded after a round, and how the run ended."""
        for path in (self._rounds, self._clients):
            kept = [row for row in _read_lines(path) if row["round"] <= round_number]
            if {row["round"] for row in kept} != set(range(1, round_number + 1)):
                raise InvalidInput(
                    f"{path} lacks some of the {round_number} rounds in the checkpoint; start again (overwrite)."
                )
            with _replacing(path) as temporary:
                temporary.write_text("".join(_line({"schema": SCHEMA, **row}) for row in kept), encoding="utf-8")
        (self.path / "summary.json").unlink(missing_ok=True)

    def append(self, record: RoundRecord, clients: Sequence[ClientRecord]) -> None:
        """Add a finished round."""
        _append(self._clients, [dataclasses.asdict(client) for client in clients])
        _append(self._rounds, [dataclasses.asdict(record)])

    def save_checkpoint(self, round_number: int, state: Arrays) -> None:
        with _replacing(self._checkpoint) as temporary:
            save_file(dict(state), temporary, metadata={"schema": str(SCHEMA), "round": str(round_number)})

    def save_model(self, model: Arrays, name: str = "model") -> None:
        with _replacing(self.path / f"{name}.safetensors") as temporary:
            save_file(dict(model), temporary, metadata={"schema": str(SCHEMA)})

    def end(self, summary: Mapping[str, Any]) -> None:
        with _replacing(self.path / "summary.json") as temporary:
            text = json.dumps({"schema": SCHEMA, **summary}, indent=2, allow_nan=False)
            temporary.write_text(text + "\n", encoding="utf-8")

    @property
    def _config(self) -> Path:
        return self.path / "config.toml"

    @property
    def _rounds(self) -> Path:
        return self.path / "rounds.jsonl"

    @property
    def _clients(self) -> Path:
        return self.path / "clients.jsonl"

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint" / "state.safetensors"


class _replacing:  # noqa: N801 - reads as a verb in a with statement
    """A temporary path that takes the place of ``path`` once it is whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.temporary = path, path.with_name(path.name + ".part")

    def __enter__(self) -> Path:
        return self.temporary

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is None:
            self.temporary.replace(self.path)
        else:
            self.temporary.unlink(missing_ok=True)


def _append(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(_line({"schema": SCHEMA, **row}) for row in rows)
        file.flush()
        os.fsync(file.fileno())


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; one that a crash cut off is left out."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [{name: value for name, value in row.items() if name != "schema"} for row in rows]


def _round_fields(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "dropped": {int(client): reason for client, reason in row["dropped"].items()}}


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
    return "; ".join(f"{name} is {stored.get(name)!r} there and {wanted.get(name)!r} here" for name in names)
