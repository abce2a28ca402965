"""Trackers: callbacks that log runs to TensorBoard, MLflow or Weights & Biases, which are optional dependencies."""

import dataclasses
import hashlib
import importlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import time_ns
from typing import Any, Generic, TypeVar

from fedtaco.errors import InvalidInput, unknown
from fedtaco.records import RoundRecord
from fedtaco.records.run_folder import REPLACEMENT
from fedtaco.runs.callbacks import Callback, Run
from fedtaco.version import __version__

Session = TypeVar("Session")


class Tracker(Callback, ABC, Generic[Session]):
    """Base of trackers: opens a session for each run, logs its numbers after every round, and closes it.

    If a tracker raises an error, a warning is given, the tracker is not called again, and the run continues.
    """

    package: str
    """The module to import; it comes with the extra of the tracker's name."""

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
        self.sessions: dict[Run, Session] = {}

    def on_run_begin(self, run: Run) -> None:
        self._try(lambda: self.sessions.update({run: self.open(run.config, run.folder or Path("runs"))}))

    def on_round_end(self, run: Run, record: RoundRecord) -> None:
        numbers = _numbers(record)
        self._try(lambda: self.log(self.sessions[run], record.round, numbers))

    def on_run_end(self, run: Run, summary: Mapping[str, Any]) -> None:
        self._try(lambda: self.close(self.sessions.pop(run), summary))

    def _try(self, action: Callable[[], None]) -> None:
        if not self.works:
            return
        try:
            action()
        except Exception as error:
            self.works = False
            warnings.warn(
                f"{self.name} failed and is not used any more ({type(error).__name__}: {error}); the run continues.",
                RuntimeWarning,
                stacklevel=3,
            )

    def connect(self) -> None:
        """Connect before the first run begins."""

    @abstractmethod
    def open(self, config: Mapping[str, Any], folder: Path) -> Session:
        """Open the session of a run; ``folder`` is its run folder, or ``runs`` if it has none."""

    @abstractmethod
    def log(self, session: Session, step: int, numbers: Mapping[str, float]) -> None:
        """Log the numbers of a round."""

    @abstractmethod
    def close(self, session: Session, summary: Mapping[str, Any]) -> None:
        """Close the session of a run that has ended."""


class TensorBoard(Tracker[Any]):
    """Writes event files to ``tensorboard/`` in the run folder; ``tensorboard --logdir runs`` shows them."""

    package = "torch.utils.tensorboard"

    def open(self, config: Mapping[str, Any], folder: Path) -> Any:
        writer = self.library.SummaryWriter(str(folder / "tensorboard"))
        settings = "\n".join(f"    {name} = {value}" for name, value in _given(config).items())
        writer.add_text("settings", settings)
        return writer

    def log(self, session: Any, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            session.add_scalar(name, value, step)

    def close(self, session: Any, summary: Mapping[str, Any]) -> None:
        session.close()


class Mlflow(Tracker[str]):
    """Logs to the MLflow experiment ``fedtaco``, in the store that MLFLOW_TRACKING_URI names."""

    package = "mlflow"

    def connect(self) -> None:
        self.client = self.library.MlflowClient()

    def open(self, config: Mapping[str, Any], folder: Path) -> str:
        """Find the session of a resumed run by its folder, or open a new one."""
        experiment = self.client.get_experiment_by_name("fedtaco")
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment("fedtaco")
        tag = _folder_id(folder)
        query = f"tags.`fedtaco.folder` = '{tag}' and attributes.status = 'RUNNING'"
        earlier = self.client.search_runs([experiment_id], query)
        if earlier:
            return str(earlier[0].info.run_id)
        run = self.client.create_run(experiment_id, run_name=_run_name(config), tags={"fedtaco.folder": tag})
        for setting, value in _given(config).items():
            self.client.log_param(run.info.run_id, setting, value)
        return str(run.info.run_id)

    def log(self, session: str, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.client.log_metric(session, name, value, step=step)

    def close(self, session: str, summary: Mapping[str, Any]) -> None:
        self.client.set_terminated(session, "FAILED" if summary["stopped"] else "FINISHED")


class WeightsAndBiases(Tracker[Any]):
    """Logs to the project ``fedtaco``; WANDB_MODE=offline keeps the runs on this machine."""

    package = "wandb"

    def connect(self) -> None:
        """Log in, so that a missing API key is noticed now and not during training."""
        self.library.login()

    def open(self, config: Mapping[str, Any], folder: Path) -> Any:
        return self.library.init(
            project="fedtaco",
            id=_folder_id(folder),
            name=_run_name(config),
            config=_given(config),
            dir=str(folder),
            resume="allow",
            reinit="create_new",
        )

    def log(self, session: Any, step: int, numbers: Mapping[str, float]) -> None:
        session.log(dict(numbers), step=step)

    def close(self, session: Any, summary: Mapping[str, Any]) -> None:
        session.finish(exit_code=1 if summary["stopped"] else 0)


TRACKERS: dict[str, type[Tracker[Any]]] = {"tensorboard": TensorBoard, "mlflow": Mlflow, "wandb": WeightsAndBiases}


def build_trackers(names: Sequence[str]) -> list[Callback]:
    """Return trackers by name.

    Raises
    ------
    InvalidInput
        If there is no such tracker, its package is not installed, or it cannot connect.
    """
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
    return [TRACKERS[name](name) for name in names]


def _given(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that have a value, and the version of fedtaco."""
    return {"fedtaco": __version__, **{name: value for name, value in config.items() if value is not None}}


def _run_name(config: Mapping[str, Any]) -> str:
    return f"{config['method']} {config['dataset']} seed {config['seed']}"


def _numbers(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of a record, without the number of the round; own metrics as ``metrics/name``."""
    own = {f"metrics/{name}": value for name, value in record.metrics.items()}
    fields = {**dataclasses.asdict(record), **own}
    return {name: value for name, value in fields.items() if isinstance(value, int | float) and name != "round"}


def _folder_id(folder: Path) -> str:
    """Return an identifier that stays the same when a run is resumed and changes when it is replaced."""
    files = (place / "partition.npz" for place in (folder / REPLACEMENT, folder))
    created = next((file.stat().st_mtime_ns for file in files if file.exists()), None) or time_ns()
    return hashlib.sha256(f"{folder.absolute()} {created}".encode()).hexdigest()[:16]
