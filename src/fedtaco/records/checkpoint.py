"""Checkpoints that write only what changed since the last one.

``manifest.json`` names the files of the checkpoint: one with the shared arrays, and for each client
the file in which its memory was last written. The manifest is replaced last, so that a crash at any
moment leaves the previous checkpoint intact; files that it no longer names are then removed.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from fedtaco.errors import InvalidInput
from fedtaco.records.files import UNREADABLE, reason_of, replacing, write_json

Arrays = Mapping[str, npt.NDArray[Any]]


class Checkpoint:
    """The folder ``checkpoint/`` of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._manifest = folder, folder / "manifest.json"

    def save(self, round_number: int, shared: Arrays, changed: Mapping[int, Arrays]) -> None:
        """Write the shared arrays, and the memories of the clients that changed since the last checkpoint."""
        self.folder.mkdir(exist_ok=True)
        stored = self._read()
        files = {"shared": f"shared-{round_number}.safetensors", "clients": f"clients-{round_number}.safetensors"}
        owners = {**(stored["clients"] if stored else {}), **{str(client): files["clients"] for client in changed}}
        self._write(files["shared"], shared)
        if changed:
            memories = {f"{client}/{name}": array for client, own in changed.items() for name, array in own.items()}
            self._write(files["clients"], memories)
        write_json(self._manifest, {"round": round_number, "shared": files["shared"], "clients": owners})
        in_use = {self._manifest.name, files["shared"], *owners.values()}
        for path in self.folder.iterdir():
            if path.name not in in_use:
                path.unlink()

    def load(self) -> tuple[int, Arrays, dict[int, dict[str, npt.NDArray[Any]]]] | None:
        """Return the last saved round, the shared arrays and each client's memory, or ``None`` without a checkpoint."""
        try:
            stored = self._read()
            if stored is None:
                return None
            shared = load_file(self.folder / stored["shared"])
            memories: dict[int, dict[str, npt.NDArray[Any]]] = {}
            for file in set(stored["clients"].values()):
                for key, array in load_file(self.folder / file).items():
                    client, _, name = key.partition("/")
                    if stored["clients"][client] == file:
                        memories.setdefault(int(client), {})[name] = array
            return int(stored["round"]), shared, memories
        except UNREADABLE as error:
            raise InvalidInput(
                f"{self.folder} is damaged: {reason_of(error)}; start the run again (overwrite)."
            ) from error

    def _read(self) -> dict[str, Any] | None:
        if not self._manifest.is_file():
            return None
        stored: dict[str, Any] = json.loads(self._manifest.read_text(encoding="utf-8"))
        return stored

    def _write(self, name: str, arrays: Arrays) -> None:
        with replacing(self.folder / name) as temporary:
            save_file(dict(arrays), temporary)
