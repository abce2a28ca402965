"""Several runs: comparisons of methods, and sweeps over their settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from torch.nn.functional import cross_entropy

from fedtaco.errors import InvalidInput
from fedtaco.experiment.comparison import plan_comparison, run_comparison
from fedtaco.experiment.results import Comparison, Sweep
from fedtaco.experiment.specs import MethodGiven, shared_folder_name
from fedtaco.experiment.sweep import ParameterGrid, plan_sweep, run_sweep
from fedtaco.experiment.trackers import build_trackers
from fedtaco.models import Loss
from fedtaco.parameters import plain_number
from fedtaco.runs.callbacks import Callback, CallbackList, following
from fedtaco.runs.options import RunOptions
from fedtaco.settings.checks import check_names, check_seeds
from fedtaco.settings.declarations import SWEEP_VALIDATION, ComparisonSettings
from fedtaco.settings.own_task import OwnModel, OwnTask
from fedtaco.trust import Detector


def compare(
    methods: Sequence[MethodGiven],
    *,
    model: OwnModel | str | None = None,
    clients: Sequence[Any] | int | None = None,
    test: Any = None,
    dataset: str | None = None,
    name: str | None = None,
    loss: Loss = cross_entropy,
    detector: Detector | type[Detector] | str = "off",
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    track: Sequence[str] = (),
    workers: int | None = None,
    **settings: Unpack[ComparisonSettings],
) -> Comparison:
    """Compare methods on the same data, seeds and batches.

    The data are either a dataset by name, as in :func:`fedtaco.run`, or the samples of ``clients``, as in
    :func:`fedtaco.train`. Several runs are done at the same time, one per core, unless ``engine``, ``device`` or
    ``workers`` is given.

    Parameters
    ----------
    methods
        The methods, such as ``["fedavg", Taco(gamma=0.02)]``; each at most once.
    model, test, name, loss, detector
        As in :func:`fedtaco.train`. A module starts every seed from the same weights, a callable does not.
    clients
        The samples of each client; or, for a dataset by name, the number of clients.
    dataset
        Name of a dataset; ``digits`` by default, if there are no clients.
    seeds
        The seeds, or how many to use, starting with ``seed``.
    out
        Folder for the run folders; by default one in ``runs/`` for these settings, as on the command line.
    resume, overwrite
        Whether to continue, or to replace, the runs that the folder contains; finished runs are not repeated.
    data_dir, callbacks, track, workers
        As in :func:`fedtaco.run`.
    **settings
        The other settings of all runs, such as ``rounds``, ``local_steps`` and ``partition``.

    Returns
    -------
    Comparison
        The summaries of all runs. A run that diverges is marked in its summary and does not stop the others.

    Raises
    ------
    InvalidInput
        If a setting is not valid, or the folder contains other runs.

    Examples
    --------
    >>> comparison = compare(["fedavg", "taco"], dataset="digits", seeds=2, rounds=5)  # doctest: +SKIP
    >>> comparison.plot("accuracy.pdf")  # doctest: +SKIP
    """
    task, given = _task(model, clients, test, dataset, {"name": name, "loss": loss}, settings)
    specs = plan_comparison(methods, _seeds(seeds, given), task, detector=detector, **given)
    name_of_data = specs[0].settings["dataset"]
    folder = Path("runs") / shared_folder_name(name_of_data, specs, given) if out is None else Path(out)
    callback = CallbackList(callbacks, build_trackers(track))
    with following(callback, [spec.config for spec in specs]):
        summaries = run_comparison(specs, folder, RunOptions(resume, overwrite, data_dir, workers), callback)
    return Comparison(folder, summaries)


def sweep(
    methods: Sequence[MethodGiven],
    grid: ParameterGrid,
    *,
    budget: int | None = None,
    model: OwnModel | str | None = None,
    clients: Sequence[Any] | int | None = None,
    test: Any = None,
    dataset: str | None = None,
    name: str | None = None,
    loss: Loss = cross_entropy,
    detector: Detector | type[Detector] | str = "off",
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    track: Sequence[str] = (),
    workers: int | None = None,
    **settings: Unpack[ComparisonSettings],
) -> Sweep:
    """Tune each method over a grid of settings, by accuracy on held-out training data.

    A tenth of every client's samples is held out, unless ``validation`` is another fraction. The accuracy on the test
    set is reported, but not used to choose.

    Parameters
    ----------
    methods
        The methods, each at most once.
    grid
        The values to try, such as ``{"local_lr": [0.01, 0.1], "taco.gamma": [0.002, 0.02]}``. A setting applies to all
        methods, a parameter to its own method only.
    budget
        Number of points to try for each method, drawn at random from its grid; all by default.
    model, clients, test, dataset, name, loss, detector, seeds, out, resume, overwrite
        As in :func:`fedtaco.compare`.
    data_dir, callbacks, track, workers, **settings
        As in :func:`fedtaco.compare`.

    Returns
    -------
    Sweep
        All trials, and the best one of each method.

    Raises
    ------
    InvalidInput
        If the grid or a setting is not valid, or the folder contains other runs.

    Examples
    --------
    >>> tuned = sweep(["fedprox"], {"fedprox.zeta": [0.01, 0.1]}, dataset="digits", rounds=5)  # doctest: +SKIP
    """
    settings.setdefault("validation", SWEEP_VALIDATION)
    task, given = _task(model, clients, test, dataset, {"name": name, "loss": loss}, settings)
    trials = plan_sweep(methods, grid, _seeds(seeds, given), budget, task, detector=detector, **given)
    specs = [spec for trial in trials for spec in trial.specs]
    start = f"{specs[0].settings['dataset']}-sweep"
    default = Path("runs") / shared_folder_name(start, specs, given, validation=SWEEP_VALIDATION)
    folder = default if out is None else Path(out)
    callback = CallbackList(callbacks, build_trackers(track))
    with following(callback, [spec.config for spec in specs]):
        tuned = run_sweep(trials, folder, RunOptions(resume, overwrite, data_dir, workers), callback)
    runs = [run for method in tuned for trial in method.trials for run in trial.summaries]
    return Sweep(folder, runs, tuned)


def _task(
    model: OwnModel | str | None,
    clients: Sequence[Any] | int | None,
    test: Any,
    dataset: str | None,
    others: dict[str, Any],
    settings: Mapping[str, Any],
) -> tuple[OwnTask, dict[str, Any]]:
    """Return the user's own objects, and the settings of all runs; ``others`` are the name and the loss."""
    check_names(ComparisonSettings, settings)
    shared = {**settings, "model": model if isinstance(model, str) else None}
    if clients is None or isinstance(clients, int):
        if test is not None or others["name"] is not None:
            raise InvalidInput(f"{'name' if test is None else 'test'} has no effect without clients of your own.")
        task = replace(OwnTask.from_settings(dataset, model), loss=others["loss"])
        return task, {**shared, "dataset": dataset, "clients": clients}
    if dataset is not None:
        raise InvalidInput(f"dataset is '{dataset}', but clients of your own are given too; omit one of them.")
    steps = settings.get("local_steps")
    task = OwnTask.from_data(model, clients, test, name=others["name"], local_steps=steps)
    task = replace(task, loss=others["loss"])
    return task, {**shared, "local_steps": steps if task.steps is None else max(task.steps)}


def _seeds(seeds: int | Sequence[int], settings: dict[str, Any]) -> Sequence[int]:
    """Return the seeds; the setting ``seed`` is removed."""
    first, seeds = plain_number(settings.pop("seed", None)), plain_number(seeds)
    if not isinstance(seeds, Iterable):
        check_seeds(seeds)
        return range(first or 0, (first or 0) + seeds)
    seeds = [plain_number(seed) for seed in seeds]
    if first is not None or not seeds:
        raise InvalidInput("seeds is an empty list." if not seeds else "Give either seed or a list of seeds, not both.")
    repeated = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if repeated is not None:
        raise InvalidInput(f"seeds contains {repeated} more than once.")
    return seeds
