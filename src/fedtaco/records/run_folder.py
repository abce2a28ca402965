"""A run folder: the files of one run.

============================  ========================================================
``config.toml``               the settings, and under ``ran_by`` the engine and versions
``partition.npz``             which client held which samples, and who misbehaved
``rounds.jsonl``              one JSON object per round, each on a line
``clients.jsonl``             one JSON object per client and round, each on a line
``diagnostics.jsonl``         one JSON object per round, each on a line, if rounds are diagnosed
``checkpoint/``               the state from which the run can be resumed
``summary.json``              the results; present once the run has ended
``client_evaluations.jsonl``  the final model on each client's own samples, one client per line
``model.safetensors``         the trained global model
``output.safetensors``        the model that the method returns, if it is another one
``average.safetensors``       the average of the last models, if ``average_last`` is set
``best.safetensors``          the global model of the best round, if BestModel saves it
``replacement.part/``         the run that will replace this one, until its first checkpoint
``lock``                      present while a process uses the folder
============================  ========================================================
"""

import dataclasses
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from fedtaco.errors import InvalidInput
from fedtaco.files import SCHEMA, replacing, writing, writing_run
from fedtaco.records.checkpoint import Arrays
from fedtaco.records.diagnostics import Diagnostics, RoundDiagnostics
from fedtaco.records.digest import FileDigest
from fedtaco.records.documents import read_document, write_document
from fedtaco.records.evaluations import ClientEvaluation
from fedtaco.records.history import ClientRecord, History, RoundRecord
from fedtaco.records.lock import LOCK, FolderLock, locked
from fedtaco.records.partition import PartitionRecord
from fedtaco.records.record_file import RecordFile
from fedtaco.records.recorded_run import RecordedRun

RECORDS = (
    "partition.npz",
    "rounds.jsonl",
    "clients.jsonl",
    "diagnostics.jsonl",
    "client_evaluations.jsonl",
    "model.safetensors",
    "output.safetensors",
    "average.safetensors",
    "best.safetensors",
    "checkpoint",
    "summary.json",
)
"""Files and folders that a run writes besides ``config.toml``; the last two are only read if the others are there."""
LOGS = ("tensorboard", "wandb")
"""Folders of trackers. When a run is replaced, only these and :data:`RECORDS` are removed."""
FREE_SPACE = " Free some space, or choose another folder (out)"
REPLACEMENT = "replacement.part"
"""Folder inside the run folder for the first round of a run that will replace the one there."""


class RunFolder(RecordedRun):
    """Reads and writes one run folder."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._lock: FolderLock | None = None
        self._run = ""
        """Identifier of the run that is being written."""
        self._written: dict[str, FileDigest] = {}
        """Digests of the records of all finished rounds, and of the models."""
        self._appended: tuple[RecordFile, ...] = ()
        """The files to which every round of the run is appended."""
        self._replaced: Path | None = None
        """The folder of the run that this one will replace."""

    @contextmanager
    def claim(self, config: Mapping[str, Any], *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Check that the folder may be used for a run, and lock it; see :meth:`check_available`."""
        self.check_available(config, resume=resume, overwrite=overwrite)
        with locked(self.path) as lock:
            self._lock = lock
            try:
                self.check_available(config, resume=resume, overwrite=overwrite)
                yield
            finally:
                if lock.is_held():
                    with suppress(OSError):
                        self._discard_replacement()
                self._lock = None

    def check_available(self, config: Mapping[str, Any], *, resume: bool, overwrite: bool) -> None:
        """Check that a run may use the folder; nothing is written.

        Raises
        ------
        InvalidInput
            If the folder contains something else, or a run that may not be replaced and cannot be resumed.
        """
        self._refuse_links()
        if not self.exists():
            with writing_run(self.path):
                if self.path.exists() and not (self.path.is_dir() and self._is_unused()):
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

    def start(self, config: Mapping[str, Any], partition: PartitionRecord) -> "RunFolder":
        """Start a new run, and return the folder to which it is written.

        If there is a run here, that is a folder inside this one until :meth:`replace`, so that the earlier run stays as
        it is. The logs of its trackers are moved there, and back if the new run is never put in its place.
        """
        if not self.exists():
            self.create(config, partition)
            return self
        replacement = RunFolder(self.path / REPLACEMENT)
        replacement._lock, replacement._replaced = self._lock, self.path
        with replacement._writing():
            self._discard_replacement()
            replacement.create(config, partition)
            _move(LOGS, self.path, replacement.path)
        return replacement

    def create(self, config: Mapping[str, Any], partition: PartitionRecord) -> None:
        """Write the files with which a run starts."""
        self._require_lock()
        with self._reporting(f"{FREE_SPACE}."):
            self.path.mkdir(parents=True, exist_ok=True)
            with replacing(self._partition) as new_partition:
                partition.save(new_partition)
                digest = dataclasses.asdict(FileDigest.of(new_partition))
                self._run = secrets.token_hex(8)
                write_document(self._config, {**config, "folder": {"run": self._run, "partition": digest}})
        with self._writing():
            self.checkpoint.create()
            self._appended = (self._rounds, self._clients, *([self._diagnostics] if config.get("diagnose") else []))
            for file in self._appended:
                file.create()
        self._written = self._digests_of_records()

    def replace(self, replacement: "RunFolder") -> None:
        """Put the run that :meth:`start` began in the place of the earlier one.

        Files are only renamed and removed, which needs no space. From when the configuration is that of the new run,
        files of the earlier one are not read any more, because they name another run.
        """
        with self._writing():
            replacement._config.replace(self._config)
            for name in RECORDS:
                _remove(self.path / name)
            _move(RECORDS, replacement.path, self.path)
            shutil.rmtree(replacement.path)

    def record_ran_by(self, ran_by: Mapping[str, Any]) -> None:
        """Replace the recorded engine and versions."""
        with self._writing():
            write_document(self._config, {**read_document(self._config), "ran_by": ran_by})

    def rewind(self) -> tuple[History, Diagnostics | None]:
        """Return the records and diagnostics up to the checkpoint; remove later ones and the summary.

        Raises
        ------
        InvalidInput
            If there is no checkpoint, or the records are not those that were written before it.
        """
        manifest = self._manifest()
        if manifest is None:
            raise InvalidInput(f"{self.path} has no checkpoint; start the run again (overwrite).")
        written = manifest.records, False
        history, diagnostics = self.history(written), self.diagnostics(written)
        with self._writing():
            self._summary.unlink(missing_ok=True)
            self._appended = tuple(
                file for file in (self._rounds, self._clients, self._diagnostics) if file.path.name in manifest.records
            )
            for file in self._appended:
                file.rewind(manifest.records[file.path.name])
        self._run, self._written = manifest.run, self._digests_of_records()
        return history, diagnostics

    def append_round(
        self, record: RoundRecord, clients: Sequence[ClientRecord], diagnostics: RoundDiagnostics | None = None
    ) -> None:
        """Add the records of a finished round."""
        with self._writing():
            if diagnostics is not None:
                self._diagnostics.append([dataclasses.asdict(diagnostics)])
            self._clients.append([client.to_row() for client in clients])
            self._rounds.append([dataclasses.asdict(record)])
        self._written = self._digests_of_records()

    def save_checkpoint(self, round_number: int, shared: Arrays, changed: Mapping[int, Arrays]) -> None:
        """Write the state after a round; see :class:`~fedtaco.records.checkpoint.Checkpoint`."""
        with self._writing():
            self.checkpoint.save(self._run, round_number, self._written, shared, changed)

    def save_model(self, model: Arrays, name: str = "model") -> None:
        """Write a model as safetensors."""
        path = self.path / f"{name}.safetensors"
        with self._writing(), replacing(path) as temporary:
            save_file(dict(model), temporary, metadata={"schema": str(SCHEMA)})
            self._written[path.name] = FileDigest.of(temporary)

    def save_client_evaluations(self, evaluations: Sequence[ClientEvaluation]) -> None:
        """Write the evaluations on each client's own samples."""
        with self._writing():
            self._evaluations.create()
            self._evaluations.append([dataclasses.asdict(evaluation) for evaluation in evaluations])
        self._written[self._evaluations.path.name] = self._evaluations.digest

    def save_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary of a run that has ended."""
        with self._writing():
            digests = {"config.toml": FileDigest.of(self._config), **self._written}
            files = {name: dataclasses.asdict(digest) for name, digest in digests.items()}
            write_document(self._summary, {**summary, "run": self._run, "files": files})

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Check that this process still has the lock, and report errors of writing."""
        self._require_lock()
        with self._reporting():
            yield

    def _reporting(self, advice: str | None = None) -> AbstractContextManager[None]:
        """Report errors of writing; without ``advice``, say how to resume."""
        if self._replaced is not None:
            return writing(self._replaced, f"{FREE_SPACE}; the run that was in the folder before is still there.")
        return writing_run(self.path) if advice is None else writing(self.path, advice)

    def _require_lock(self) -> None:
        if self._lock is not None:
            self._lock.require()

    def _digests_of_records(self) -> dict[str, FileDigest]:
        return {file.path.name: file.digest for file in self._appended}

    def _is_unused(self) -> bool:
        """Return whether the folder is empty, or a run was killed before it wrote its configuration."""
        return all(path.name == LOCK or path.suffix == ".part" for path in self.path.iterdir())

    def _refuse_links(self) -> None:
        """Raise InvalidInput if writing a file of the run would write somewhere else."""
        own = (self._config.name, LOCK, REPLACEMENT, *RECORDS, *LOGS)
        paths = [self.path / f"{name}{suffix}" for name in own for suffix in ("", ".part")]
        for path in (*paths, *self.checkpoint.folder.glob("*")):
            if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
                raise InvalidInput(f"{path} is not a plain file or folder; remove it, or choose another folder (out).")

    def _discard_replacement(self) -> None:
        """Remove what was written of a run that has not replaced the one here."""
        if (self.path / REPLACEMENT).exists():
            _move(LOGS, self.path / REPLACEMENT, self.path)
            shutil.rmtree(self.path / REPLACEMENT)


def _move(names: Sequence[str], source: Path, target: Path) -> None:
    """Move files and folders to another folder, in place of those there."""
    for name in names:
        if (source / name).exists():
            _remove(target / name)
            (source / name).replace(target / name)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


OWN_DIFFERENCES = {
    "data": "the samples of its clients or of its test set are not those given here",
    "weights": "the initial weights of its model are not those given here",
    "steps": "the local steps of its clients are not those given here",
}
"""How differences between entries under ``own`` are described, for entries that are digests."""


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    own = stored.get("own", {}), wanted.get("own", {})
    there = {**stored, **{f"own.{name}": value for name, value in own[0].items()}, "own": None}
    here = {**wanted, **{f"own.{name}": value for name, value in own[1].items()}, "own": None}
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return "; ".join(
        OWN_DIFFERENCES.get(
            name.removeprefix("own."), f"{name} is {there.get(name)!r} there and {here.get(name)!r} here"
        )
        for name in names
    )
