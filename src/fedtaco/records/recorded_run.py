"""Read and verify the files of a run.

``config.toml``, ``summary.json`` and ``checkpoint/manifest.json`` contain a checksum of their own entries, and digests
of other files: ``config.toml`` that of the partition, the summary those of the configuration, the records and the
models, and the manifest those of the checkpoint's files and of the records up to the checkpoint. Each file is verified
when it is read. Records after the last checkpoint are never read, since a resumed run writes them again.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict, TypeVar

import numpy.typing as npt

from fedtaco.errors import InvalidInput
from fedtaco.files import SCHEMA, reading_run
from fedtaco.parameters import Domain
from fedtaco.records.checkpoint import Arrays, Checkpoint, Manifest
from fedtaco.records.diagnostics import Diagnostics, RoundDiagnostics
from fedtaco.records.digest import FileDigest
from fedtaco.records.documents import read_document
from fedtaco.records.evaluations import ClientEvaluation
from fedtaco.records.history import ClientRecord, History, RoundRecord
from fedtaco.records.partition import PartitionRecord
from fedtaco.records.record_file import RecordFile
from fedtaco.records.schema import read_as

Record = TypeVar("Record")
Written = tuple[Mapping[str, FileDigest], bool]
"""Digests of records by file name, and whether they are those of whole files."""
Count = Annotated[int, Domain("a number of things, at least one", low=1, whole=True)]


class StoredFolder(TypedDict):
    """The entries under ``folder`` in ``config.toml``."""

    run: str
    """Identifier of the run, by which files of an earlier run in the same folder are recognised."""
    partition: FileDigest
    """Digest of ``partition.npz``."""


class StoredConfig(TypedDict):
    """The entries of ``config.toml`` that reading a run needs; there are others."""

    clients: Count
    rounds: Count
    diagnose: NotRequired[bool]
    folder: StoredFolder


class StoredSummary(TypedDict):
    """The entries of ``summary.json`` that reading a run needs; there are others."""

    run: str
    """Identifier of the run."""
    files: dict[str, FileDigest]
    """Digests of the other files of the run, by name."""


class RecordedRun:
    """Reads the files of a run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint = Checkpoint(self.path / "checkpoint")
        self._config, self._summary = self.path / "config.toml", self.path / "summary.json"
        self._partition = self.path / "partition.npz"
        self._rounds, self._clients, self._diagnostics, self._evaluations = (
            RecordFile(self.path / f"{name}.jsonl")
            for name in ("rounds", "clients", "diagnostics", "client_evaluations")
        )

    def exists(self) -> bool:
        """Return whether the folder contains a run, that is, a ``config.toml`` that starts as those of fedtaco do."""
        with suppress(OSError):
            if self._config.is_file():
                with self._config.open("rb") as file:
                    return file.read(6) == b"schema"
        return False

    def config(self) -> dict[str, Any]:
        """Read the settings of the run.

        Raises
        ------
        InvalidInput
            If there is no run, it is damaged, or another version of fedtaco wrote it.
        """
        entries = {name: value for name, value in self._stored_config().items() if name != "folder"}
        return {"schema": SCHEMA, **entries}

    def summary(self) -> dict[str, Any] | None:
        """Read the summary of the run; ``None`` if it has not ended."""
        stored = self._stored_summary()
        if stored is None:
            return None
        return {"schema": SCHEMA, **{name: value for name, value in stored.items() if name not in ("run", "files")}}

    def written(self) -> Written:
        """Return which records are complete; given to several of the following methods, they read the same rounds.

        Of a run that has ended, these are whole files; otherwise, their beginnings up to the last checkpoint.
        """
        stored = self._stored_summary()
        if stored is not None:
            return stored["files"], True
        manifest = self._manifest()
        return {} if manifest is None else manifest.records, False

    def history(self, written: Written | None = None) -> History:
        """Read all records of the run; if it has not ended, those up to its last checkpoint."""
        written = written or self.written()
        return History(self.rounds(written), list(self._read(self._clients, ClientRecord.from_row, written)))

    def rounds(self, written: Written | None = None) -> list[RoundRecord]:
        """Read the records of the rounds only."""
        return list(self._read(self._rounds, partial(read_as, RoundRecord), written))

    def client_rows(self, written: Written | None = None) -> Iterator[dict[str, Any]]:
        """Read the records of the clients one at a time, for large runs, as the lines of ``clients.jsonl``."""
        return map(ClientRecord.to_row, self._read(self._clients, ClientRecord.from_row, written))

    def diagnostics(self, written: Written | None = None) -> Diagnostics | None:
        """Read the diagnostics of the recorded rounds; ``None`` if rounds were not diagnosed."""
        if not self._stored_config().get("diagnose", False):
            return None
        return Diagnostics(list(self._read(self._diagnostics, partial(read_as, RoundDiagnostics), written)))

    def client_evaluations(self, written: Written | None = None) -> list[ClientEvaluation]:
        """Read the evaluations on each client's own samples; empty if there were none, or the run has not ended."""
        written = written or self.written()
        if self._evaluations.path.name not in written[0]:
            return []
        return list(self._read(self._evaluations, partial(read_as, ClientEvaluation), written))

    def partition(self) -> PartitionRecord:
        """Read which client held which samples."""
        stored = self._stored_config()
        with reading_run(self._partition):
            stored["folder"]["partition"].verify(self._partition)
            return PartitionRecord.load(self._partition)

    def has_model(self, name: str) -> bool:
        """Return whether the run has ended and has a model of its own by this name, such as ``output``."""
        stored = self._stored_summary()
        return stored is not None and f"{name}.safetensors" in stored["files"]

    def model_path(self, name: str) -> Path:
        """Return the file of the global model (``model``), or of another one if the run has it, such as ``output``.

        Raises
        ------
        InvalidInput
            If the run has not ended, or the file is damaged.
        """
        stored = self._stored_summary()
        if stored is None:
            raise InvalidInput(f"{self.path} has no model: the run has not ended; continue it (resume).")
        file = f"{name}.safetensors"
        path = self.path / (file if self.has_model(name) else "model.safetensors")
        with reading_run(path):
            stored["files"][path.name].verify(path)
        return path

    def load_checkpoint(self) -> tuple[int, Arrays, dict[int, dict[str, npt.NDArray[Any]]]] | None:
        """Return the last saved round, the shared arrays and each client's memory, or ``None`` if nothing was saved."""
        manifest = self._manifest()
        return None if manifest is None else (manifest.round, *self.checkpoint.load(manifest))

    def _stored_config(self) -> StoredConfig:
        if not self._config.exists():
            raise InvalidInput(f"{self.path} is not a run folder: it has no config.toml.")
        with reading_run(self._config):
            return read_as(StoredConfig, read_document(self._config))

    def _stored_summary(self) -> StoredSummary | None:
        """Read ``summary.json``; ``None`` if there is none, or it belongs to an earlier run in the same folder."""
        if not self._summary.exists():
            return None
        with reading_run(self._summary):
            stored = read_as(StoredSummary, read_document(self._summary))
            config_digest = stored["files"]["config.toml"]
        if stored["run"] != self._stored_config()["folder"]["run"]:
            return None
        with reading_run(self._config):
            config_digest.verify(self._config)
        return stored

    def _manifest(self) -> Manifest | None:
        return self.checkpoint.manifest(self._stored_config()["folder"]["run"])

    def _read(
        self, file: RecordFile, parse: Callable[[dict[str, Any]], Record], written: Written | None
    ) -> Iterator[Record]:
        """Verify a file, and then yield its records one at a time; none if nothing is recorded."""
        with reading_run(file.path):
            digests, is_whole = written or self.written()
            if digests:
                yield from map(parse, file.read(digests[file.path.name], is_whole=is_whole))
