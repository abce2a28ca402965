"""Callbacks that follow one measured quantity of a run: early stopping, and the model of the best round."""

from pathlib import Path

from fedtaco.errors import InvalidInput, StopTraining, unknown
from fedtaco.files import replacing, writing
from fedtaco.records import RoundRecord
from fedtaco.runs.callbacks import Callback, Run
from fedtaco.runs.result import save_model

MONITORED = ("accuracy", "loss", "validation_accuracy", "validation_loss")
"""Fields of round records that can be followed; of losses, lower ones are better."""


class Monitor:
    """The best value of a quantity, and its round.

    Parameters
    ----------
    quantity
        One of :data:`MONITORED`.
    min_delta
        By how much a value must exceed the best one so far to be an improvement.

    Raises
    ------
    InvalidInput
        If there is no such quantity.
    """

    def __init__(self, quantity: str, min_delta: float = 0.0) -> None:
        if quantity not in MONITORED:
            raise unknown("quantity to monitor", quantity, MONITORED)
        self.quantity, self.min_delta = quantity, min_delta
        self.best: float | None = None
        self.best_round = 0

    def improves(self, record: RoundRecord) -> bool:
        """Take a round into account; return whether its value is an improvement. A round without a value is not."""
        value: float | None = getattr(record, self.quantity)
        if value is None:
            return False
        score = -value if self.quantity.endswith("loss") else value
        if self.best is not None and score <= self.best + self.min_delta:
            return False
        self.best, self.best_round = score, record.round
        return True


class EarlyStopping(Callback):
    """Ends a run when a measured quantity has not improved for some rounds.

    Parameters
    ----------
    patience
        Number of rounds without an improvement after which the run ends.
    min_delta
        By how much a value must be better than the best one so far to be an improvement.
    monitor
        ``accuracy`` or ``loss`` on the test set, or ``validation_accuracy`` or ``validation_loss`` on samples that
        are held out (``validation``), which is the fairer choice if the test accuracy is reported.

    Raises
    ------
    InvalidInput
        If an argument is not valid; and, during the run, if it does not measure the quantity.

    Examples
    --------
    >>> import fedtaco
    >>> stopping = EarlyStopping(patience=1, min_delta=1.0)
    >>> result = fedtaco.run("fedavg", rounds=5, local_steps=1, callbacks=[stopping])
    >>> len(result.history), result.summary["ended_early"]
    (2, 'accuracy has not improved since round 1')
    """

    def __init__(self, patience: int, min_delta: float = 0.0, monitor: str = "accuracy") -> None:
        if patience < 1:
            raise InvalidInput(f"patience is {patience}; it must be at least 1.")
        if min_delta < 0:
            raise InvalidInput(f"min_delta is {min_delta}; it must be at least 0.")
        Monitor(monitor)  # raises InvalidInput if there is no such quantity
        self.patience, self.min_delta, self.monitor = patience, min_delta, monitor
        self.monitors: dict[Run, Monitor] = {}

    def on_run_begin(self, run: Run) -> None:
        """Take the rounds before a resume into account, so that a run that was ended is not continued."""
        self.monitors[run] = Monitor(self.monitor, self.min_delta)
        for record in run.history:
            self.on_round_end(run, record)

    def on_round_end(self, run: Run, record: RoundRecord) -> None:
        monitor = self.monitors[run]
        if monitor.improves(record) or record.round - monitor.best_round < self.patience:
            return
        if monitor.best is None:
            raise InvalidInput(
                f"EarlyStopping follows {self.monitor}, which this run does not measure; give it a test set, hold out "
                "samples (validation), or follow another quantity (monitor)."
            )
        raise StopTraining(f"{self.monitor} has not improved since round {monitor.best_round}")


class BestModel(Callback):
    """Saves the global model of the best round, whenever a round is better than all before it.

    Parameters
    ----------
    path
        Safetensors file to write, which :func:`fedtaco.load_model` reads; ``best.safetensors`` in the folder of each
        run by default. If several runs write to the same path, it contains the best model of all.
    monitor
        What to compare rounds by, as in :class:`EarlyStopping`.

    Raises
    ------
    InvalidInput
        If there is no such quantity; and, when a run begins, if it has no folder and there is no ``path``.

    Examples
    --------
    >>> import fedtaco
    >>> result = fedtaco.run("taco", out="runs/best", callbacks=[BestModel()])  # doctest: +SKIP
    >>> best = fedtaco.load_model(result.model, "runs/best/best.safetensors")  # doctest: +SKIP
    """

    def __init__(self, path: str | Path | None = None, monitor: str = "accuracy") -> None:
        Monitor(monitor)  # raises InvalidInput if there is no such quantity
        self.path, self.monitor = path, monitor
        self.monitors: dict[Path, Monitor] = {}

    def on_run_begin(self, run: Run) -> None:
        """Take the rounds before a resume into account, if their best model was saved."""
        path = self._path(run)
        monitor = self.monitors.setdefault(path, Monitor(self.monitor))
        if path.exists():
            for record in run.history:
                monitor.improves(record)

    def on_round_end(self, run: Run, record: RoundRecord) -> None:
        path = self._path(run)
        if self.monitors[path].improves(record):
            with writing(path), replacing(path) as temporary:
                save_model(run.model(), temporary)

    def _path(self, run: Run) -> Path:
        if self.path is not None:
            return Path(self.path)
        if run.folder is None:
            raise InvalidInput("BestModel needs a path, because the run has no folder (out).")
        return run.folder / "best.safetensors"
