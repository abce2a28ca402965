"""Trackers: runs shown as they go in TensorBoard, MLflow or Weights & Biases, each an extra of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import time_ns
from typing import Any, Generic, TypeVar

from fedtaco.engines import Choice
from fedtaco.errors import InvalidInput, unknown
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.watching import Watcher
from fedtaco.records import RoundRecord

Session = TypeVar("Session")


class Tracker(Watcher, ABC, Generic[Session]):
    """Opens a session for each run, logs its numbers round by round, and closes it.

    One that fails is left out from there on: training matters more.
    """

    package: str
    """What must be installed for it."""

    def __init__(self, name: str) -> None:
        try:
            self.library = importlib.import_module(self.package)
        except ImportError as error:
            raise InvalidInput(f"{name} is not installed: pip install 'fedtaco[{name}]'.") from error
        try:
            self.connect()
        except Exception as error:
            raise InvalidInput(f"{name} is not ready: {error}") from error
        self.name, self.works = name, True
        self.sessions: dict[int, Session] = {}

    def run_begun(self, experiment: Experiment, folder: Path | None, engine: Choice) -> None:
        self._try(lambda: self.sessions.update({id(experiment): self.open(experiment, folder or Path("runs"))}))

    def round_done(self, experiment: Experiment, record: RoundRecord) -> None:
        numbers = _numbers(dataclasses.asdict(record))
        self._try(lambda: self.log(self.sessions[id(experiment)], record.round, numbers))

    def run_ended(self, experiment: Experiment, summary: Mapping[str, Any]) -> None:
        self._try(lambda: self.close(self.sessions.pop(id(experiment)), summary))

    def _try(self, action: Callable[[], None]) -> None:
        if not self.works:
            return
        try:
            action()
        except Exception as error:
            self.works = False
            warnings.warn(
                f"{self.name} failed and is left out from here on ({type(error).__name__}: {error}); training goes on.",
                RuntimeWarning,
                stacklevel=3,
            )

    def connect(self) -> None:
        """Make ready, before the first run begins."""

    @abstractmethod
    def open(self, experiment: Experiment, folder: Path) -> Session: ...

    @abstractmethod
    def log(self, session: Session, step: int, numbers: Mapping[str, float]) -> None: ...

    @abstractmethod
    def close(self, session: Session, summary: Mapping[str, Any]) -> None: ...


class TensorBoard(Tracker[Any]):
    """Event files in ``tensorboard/`` inside the run folder; ``tensorboard --logdir runs`` shows them."""

    package = "torch.utils.tensorboard"

    def open(self, experiment: Experiment, folder: Path) -> Any:
        writer = self.library.SummaryWriter(str(folder / "tensorboard"))
        settings = "\n".join(f"    {name} = {value}" for name, value in experiment.stored().items())
        writer.add_text("settings", settings)
        return writer

    def log(self, session: Any, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            session.add_scalar(name, value, step)

    def close(self, session: Any, summary: Mapping[str, Any]) -> None:
        session.close()


class Mlflow(Tracker[str]):
    """Runs of the MLflow experiment ``fedtaco`` in the store that MLFLOW_TRACKING_URI names."""

    package = "mlflow"

    def connect(self) -> None:
        self.client = self.library.MlflowClient()

    def open(self, experiment: Experiment, folder: Path) -> str:
        """A resumed run goes on where it was: it is found by its folder."""
        known = self.client.get_experiment_by_name("fedtaco")
        home = known.experiment_id if known else self.client.create_experiment("fedtaco")
        tag = _mark(folder)
        earlier = self.client.search_runs([home], f"tags.`fedtaco.folder` = '{tag}' and attributes.status = 'RUNNING'")
        if earlier:
            return str(earlier[0].info.run_id)
        name = f"{experiment.method} {experiment.dataset} seed {experiment.seed}"
        run = self.client.create_run(home, run_name=name, tags={"fedtaco.folder": tag})
        for setting, value in experiment.stored().items():
            self.client.log_param(run.info.run_id, setting, value)
        return str(run.info.run_id)

    def log(self, session: str, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.client.log_metric(session, name, value, step=step)

    def close(self, session: str, summary: Mapping[str, Any]) -> None:
        self.client.set_terminated(session, "FAILED" if summary["stopped"] else "FINISHED")


class WeightsAndBiases(Tracker[Any]):
    """Runs of the project ``fedtaco``; WANDB_MODE=offline keeps them on this machine."""

    package = "wandb"

    def connect(self) -> None:
        """Ask for a key that is not known yet now, not in the midst of training."""
        self.library.login()

    def open(self, experiment: Experiment, folder: Path) -> Any:
        return self.library.init(
            project="fedtaco",
            id=_mark(folder),
            name=f"{experiment.method} {experiment.dataset} seed {experiment.seed}",
            config=experiment.stored(),
            dir=str(folder),
            resume="allow",
            reinit="create_new",
        )

    def log(self, session: Any, step: int, numbers: Mapping[str, float]) -> None:
        session.log(dict(numbers), step=step)

    def close(self, session: Any, summary: Mapping[str, Any]) -> None:
        session.finish(exit_code=1 if summary["stopped"] else 0)


TRACKERS: dict[str, type[Tracker[Any]]] = {
    "tensorboard": TensorBoard,
    "mlflow": Mlflow,
    "wandb": WeightsAndBiases,
}


def build_trackers(names: Sequence[str]) -> list[Watcher]:
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
    return [TRACKERS[name](name) for name in names]


def _numbers(fields: Mapping[str, Any]) -> dict[str, float]:
    """What can be drawn over rounds."""
    return {name: value for name, value in fields.items() if isinstance(value, int | float) and name != "round"}


def _mark(folder: Path) -> str:
    """A name for a run that stays the same when it is resumed and is another when it is replaced."""
    first = folder / "partition.npz"
    begun = first.stat().st_mtime_ns if first.exists() else time_ns()
    return hashlib.sha256(f"{folder.absolute()} {begun}".encode()).hexdigest()[:16]
