"""Single runs: a user's own model on a user's own clients, or a method on a dataset by name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from torch.nn.functional import cross_entropy

from fedtaco.errors import InvalidInput
from fedtaco.evaluation import OwnMetrics
from fedtaco.experiment.runner import run_experiment
from fedtaco.experiment.specs import build_spec, require_steps_or_epochs
from fedtaco.experiment.trackers import build_trackers
from fedtaco.methods import Method
from fedtaco.models import Loss
from fedtaco.records import RunFolder
from fedtaco.runs.callbacks import Callback, CallbackList, following
from fedtaco.runs.options import RunOptions
from fedtaco.runs.result import Result
from fedtaco.settings.checks import check_names
from fedtaco.settings.declarations import RunSettings, TrainSettings
from fedtaco.settings.own_task import OwnModel, OwnTask
from fedtaco.settings.run_spec import RunSpec
from fedtaco.trust import Detector


def train(
    model: OwnModel | str,
    clients: Sequence[Any],
    test: Any = None,
    *,
    method: Method | type[Method] | str = "taco",
    rounds: int,
    local_steps: int | Sequence[int] | None = None,
    loss: Loss = cross_entropy,
    client_tests: Sequence[Any] | None = None,
    metrics: OwnMetrics | None = None,
    detector: Detector | type[Detector] | str = "off",
    name: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    track: Sequence[str] = (),
    workers: int | None = None,
    **settings: Unpack[TrainSettings],
) -> Result:
    """Train ``model`` over ``clients`` with a federated method.

    Parameters
    ----------
    model
        A module, which is copied and not changed; or a callable without required arguments that returns one, such as
        its class, so that the initial weights depend on the seed. Models that fedtaco ships can be given by name, such
        as ``mlp:64-32``.
    clients
        The samples of each client: a pair ``(x, y)`` of tensors, arrays or frames, a ``Dataset``, a ``DataLoader``, or
        any other form that ``docs/own-data.md`` shows. The model is called as ``model(x)``, with several inputs as
        ``model(*x)`` or ``model(**x)``.
    test
        Samples to evaluate on after each round, in the same form, or ``None``.
    method
        A method, such as ``Taco(gamma=0.02)``, or a name.
    rounds
        Communication rounds, T.
    local_steps
        Local steps per client and round, K; or one number for each client, the largest of which stands for K
        in formulas such as TACO's γ = 1/K. Give either this or ``local_epochs``.
    loss
        The mean loss of a batch, from predictions and targets. If the model returns an object with ``logits``, these
        are the predictions.
    client_tests
        One test set per client, in the same form, or ``None`` for a client without one. The final model is evaluated
        on each, see ``client_evaluations`` of the result; with ``fine_tune_steps``, also after fine-tuning.
    metrics
        Own metrics by name, such as ``{"f1": f1}``: functions of the model's outputs for all test samples and of their
        targets, both tensors on the CPU, that return a number. They are recorded in each evaluated round.
    detector
        A detector, such as ``Guard(copy=1e-9)``, or a name.
    name
        Name of the data in the run folder and the report; ``own data`` by default.
    out
        Run folder to record everything in, or ``None``. :func:`fedtaco.load` reads it, given the model.
    resume, overwrite
        Whether to continue, or to replace, the run that the folder contains. A run is only continued with the same
        data and initial weights.
    callbacks
        Objects that follow the run, such as ``EarlyStopping(patience=5)``.
    track
        Trackers to log to: ``tensorboard``, ``mlflow``, ``wandb``.
    workers
        Number of worker processes of the engines ``pool`` and ``batched``; by default at most one per core.
    **settings
        ``batch_size``, ``local_epochs``, ``local_lr``, ``lr_schedule``, ``optimizer``, ``momentum``, ``nesterov``,
        ``weight_decay``, ``clip_norm``, ``server_lr``, ``local_work``, ``client_dropout``, ``deadline``, ``personal``,
        ``compress``, ``weighting``, ``participation``, ``engine``, ``device``, ``seed``, ``validation``,
        ``eval_every``, ``eval_samples``, ``average_last``, ``fine_tune_steps``, ``target``, ``diagnose``,
        ``freeloaders``, ``behaviour`` and ``parameters``, as ``fedtaco run --help`` explains them.

    Returns
    -------
    Result
        The history and the trained model.

    Raises
    ------
    InvalidInput
        If a setting is not valid, the model does not fit the samples, or the folder belongs to another run.
    RunStopped
        If the run diverges or every client is expelled; the error's ``history`` contains the finished rounds, and
        the records in ``out`` are kept.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> clients = [(torch.randn(30, 4), torch.randint(0, 3, (30,))) for _ in range(5)]
    >>> result = train(nn.Linear(4, 3), clients, test=clients[0], rounds=2, local_steps=3)
    >>> [record.round for record in result.history]
    [1, 2]
    """
    if "partition" in settings:
        raise InvalidInput(
            "There is no setting 'partition', because the samples of each client are given; split those of all with "
            "fedtaco.split(data, 'dirichlet:0.5', clients)."
        )
    check_names(TrainSettings, settings, keywords=("rounds", "local_steps"))
    require_steps_or_epochs({**settings, "local_steps": local_steps})
    task = OwnTask.from_data(
        model,
        clients,
        test,
        name=name,
        local_steps=local_steps,
        client_tests=client_tests,
    )
    task = replace(task, loss=loss, metrics={} if metrics is None else metrics)
    steps = max(local_steps) if isinstance(local_steps, Sequence) else local_steps
    named = model if isinstance(model, str) else None
    spec = build_spec(task, method, detector, model=named, rounds=rounds, local_steps=steps, **settings)
    return run_alone(spec, out, RunOptions(resume, overwrite, workers=workers), callbacks, track)


def run(
    method: Method | type[Method] | str = "taco",
    *,
    model: OwnModel | str | None = None,
    detector: Detector | type[Detector] | str = "off",
    loss: Loss = cross_entropy,
    metrics: OwnMetrics | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    track: Sequence[str] = (),
    workers: int | None = None,
    **settings: Unpack[RunSettings],
) -> Result:
    """Run a method on a dataset that is known by name.

    Parameters
    ----------
    method
        A method, such as ``Taco(gamma=0.02)``, or a name.
    model
        A model by name, a module, or a callable that returns one; the dataset's default model by default.
    data_dir
        Folder with datasets; by default the one in the environment variable FEDTACO_DATA, else one in the
        user's cache.
    detector, loss, metrics, out, resume, overwrite, callbacks, track, workers
        As in :func:`fedtaco.train`.
    **settings
        The other settings of a run, as ``fedtaco run --help`` explains them: ``dataset``, ``rounds``,
        ``local_steps``, ``partition``, ``clients``, ``parameters`` and so on.

    Returns
    -------
    Result
        The history and the trained model.

    Raises
    ------
    InvalidInput
        If a setting is not valid, or the folder belongs to another run.
    RunStopped
        If the run diverges or every client is expelled; the records in ``out`` are kept.

    Examples
    --------
    >>> result = run("fedavg", dataset="digits", rounds=1, local_steps=2)
    >>> len(result.history)
    1
    """
    check_names(RunSettings, settings)
    task = replace(OwnTask.from_settings(settings.get("dataset"), model), loss=loss, metrics=metrics or {})
    named = model if isinstance(model, str) else None
    spec = build_spec(task, method, detector, model=named, **settings)
    return run_alone(spec, out, RunOptions(resume, overwrite, data_dir, workers), callbacks, track)


def run_alone(
    spec: RunSpec, out: str | Path | None, options: RunOptions, callbacks: Sequence[Callback], track: Sequence[str]
) -> Result:
    """Run one specification, followed by callbacks and trackers."""
    if out is None and (options.resume or options.overwrite):
        raise InvalidInput(f"{'resume' if options.resume else 'overwrite'} needs the folder of the run (out).")
    callback = CallbackList(callbacks, build_trackers(track))
    with following(callback, [spec.config]):
        return run_experiment(spec, None if out is None else RunFolder(out), options, callback)
