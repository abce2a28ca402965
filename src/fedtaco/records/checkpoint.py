"""Checkpoints that write only what changed since the last one.

``manifest.json`` names the files of the checkpoint, with their digests: one with the shared arrays, and those in
which the memories of clients were last written. It also contains the digests of the records up to the round of the
checkpoint. The manifest is replaced last, so that a crash at any moment leaves the previous checkpoint intact; files
that it no longer names are then removed.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from fedtaco.files import reading_run, replacing
from fedtaco.parameters import Domain
from fedtaco.records.digest import FileDigest
from fedtaco.records.documents import read_document, write_document
from fedtaco.records.schema import read_as

Arrays = Mapping[str, npt.NDArray[Any]]
"""Arrays by name."""
FILE_NAME = re.compile(r"(shared|clients)-\d+\.safetensors")


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``."""

    run: str
    """Identifier of the run to which the checkpoint belongs."""
    round: Annotated[int, Domain("last finished round", low=1, whole=True)]
    records: dict[str, FileDigest]
    """Digests of the records up to this round, by file name."""
    shared: str
    """Name of the file with the shared arrays."""
    clients: dict[str, list[int]]
    """The clients whose memory is in a file, by file name."""
    files: dict[str, FileDigest]
    """Digests of all files of the checkpoint."""


class Checkpoint:
    """The folder ``checkpoint/`` of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._path = folder, folder / "manifest.json"
        self._manifest: Manifest | None = None

    def create(self) -> None:
        """Create the folder, without a checkpoint."""
        self.folder.mkdir()
        self._manifest = None

    def manifest(self, run: str) -> Manifest | None:
        """Read the manifest; ``None`` if there is none, or it belongs to an earlier run in the same folder."""
        self._manifest = None
        if self._path.exists():
            with reading_run(self._path):
                found = read_as(Manifest, read_document(self._path))
            self._manifest = found if found.run == run else None
        return self._manifest

    def save(
        self,
        run: str,
        round_number: int,
        records: Mapping[str, FileDigest],
        shared: Arrays,
        changed: Mapping[int, Arrays],
    ) -> None:
        """Write the shared arrays, and the memories of the clients whose memory changed since the last checkpoint.

        Parameters
        ----------
        run
            Identifier of the run.
        round_number
            Number of the last finished round.
        records
            Digests of the records up to this round.
        shared
            The shared arrays.
        changed
            The memories that changed, by client.
        """
        shared_name, clients_name = (f"{kind}-{round_number}.safetensors" for kind in ("shared", "clients"))
        before = self._manifest
        clients = _without(before.clients, changed) if before is not None else {}
        files = {name: before.files[name] for name in clients} if before is not None else {}
        files[shared_name] = self._write(shared_name, shared)
        if changed:
            memories = {f"{client}/{name}": array for client, own in changed.items() for name, array in own.items()}
            clients[clients_name], files[clients_name] = sorted(changed), self._write(clients_name, memories)
        self._manifest = Manifest(run, round_number, dict(records), shared_name, clients, files)
        write_document(self._path, dataclasses.asdict(self._manifest))
        for path in self.folder.iterdir():
            if FILE_NAME.fullmatch(path.name.removesuffix(".part")) and path.name not in files:
                path.unlink()

    def load(self, manifest: Manifest) -> tuple[Arrays, dict[int, dict[str, npt.NDArray[Any]]]]:
        """Return the shared arrays and each client's memory.

        Raises
        ------
        InvalidInput
            If a file is damaged.
        """
        memories: dict[int, dict[str, npt.NDArray[Any]]] = {}
        for name, clients in manifest.clients.items():
            current = set(clients)
            with reading_run(self.folder / name):
                for key, array in self._read(name, manifest).items():
                    client, _, array_name = key.partition("/")
                    if int(client) in current:
                        memories.setdefault(int(client), {})[array_name] = array
        with reading_run(self.folder / manifest.shared):
            return self._read(manifest.shared, manifest), memories

    def _read(self, name: str, manifest: Manifest) -> Arrays:
        manifest.files[name].verify(self.folder / name)
        arrays: Arrays = load_file(self.folder / name)
        return arrays

    def _write(self, name: str, arrays: Arrays) -> FileDigest:
        with replacing(self.folder / name) as temporary:
            save_file(dict(arrays), temporary)
            return FileDigest.of(temporary)


def _without(clients_by_file: Mapping[str, list[int]], removed: Mapping[int, Arrays]) -> dict[str, list[int]]:
    """Return the clients of each file except ``removed``, without files that then have none."""
    remaining = {name: [client for client in own if client not in removed] for name, own in clients_by_file.items()}
    return {name: own for name, own in remaining.items() if own}
