"""Run one experiment, with or without a run folder, from the start or from where it stopped."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Unpack

from fedtaco.errors import RunStopped
from fedtaco.evaluation import OwnMetrics, count_classes
from fedtaco.experiment.config import resolve_config, to_stored
from fedtaco.experiment.prepared_run import PreparedRun, build_blank_model
from fedtaco.files import reading
from fedtaco.methods import METHODS, Method
from fedtaco.models import FlatModel
from fedtaco.parameters import split_names
from fedtaco.records import RoundRecord, RunFolder
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.personal_layers import read_personal_layers
from fedtaco.runs.recorder import Recorder
from fedtaco.runs.result import Result, load_model
from fedtaco.runs.settings import ExperimentConfig, RunOptions, RunSettings


def run(
    method: Method | type[Method] | str = "taco",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: str | Path | None = None,
    workers: int | None = None,
    metrics: OwnMetrics | None = None,
    on_round: Callable[[RoundRecord], None] | None = None,
    **settings: Unpack[RunSettings],
) -> Result:
    """Run a method on a named dataset.

    Parameters
    ----------
    method
        A method, such as ``Taco(gamma=0.02)``, or a name.
    out
        Run folder to record everything in, or ``None``.
    resume, overwrite
        Whether to continue, or to replace, the run that the folder contains.
    data_dir
        Folder with datasets; by default the one in the environment variable FEDTACO_DATA, else one in the
        user's cache.
    workers
        Number of worker processes of the engines ``pool`` and ``batched``; by default at most one per core.
    metrics
        Own metrics by name, such as ``{"f1": f1}``: functions of the model's outputs for all test samples and of their
        targets, both tensors on the CPU, that return a number. They are recorded in each evaluated round.
    on_round
        Called with the record of each finished round.
    **settings
        The other settings of a run, as ``fedtaco run --help`` explains them: ``dataset``, ``rounds``,
        ``local_steps``, ``partition``, ``clients``, ``detector``, ``parameters`` and so on.

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
    if not isinstance(method, str):
        instance = METHODS.instance(method)
        settings["parameters"] = {**settings.get("parameters", {}), **instance.parameters()}
        method = METHODS.spec(instance)
    config = resolve_config(method=method, **settings)
    folder = None if out is None else RunFolder(out)

    class OnRound(Callback):
        def on_round_end(self, config: ExperimentConfig, record: RoundRecord) -> None:
            if on_round is not None:
                on_round(record)

    return run_experiment(config, folder, RunOptions(resume, overwrite, data_dir, workers), OnRound(), metrics)


def run_experiment(
    config: ExperimentConfig,
    folder: RunFolder | None,
    options: RunOptions,
    callback: Callback,
    metrics: OwnMetrics | None = None,
) -> Result:
    """Run a checked configuration.

    Parameters
    ----------
    config
        A complete configuration, as :func:`resolve_config` returns it.
    folder
        Run folder to record everything in, or ``None``.
    options
        How to run; with ``resume``, the run in ``folder`` is continued, or only loaded if it has finished.
    callback
        Called as the run proceeds.
    metrics
        Own metrics, as in :func:`run`.

    Returns
    -------
    Result
        The history and the trained model.

    Raises
    ------
    InvalidInput
        If the folder belongs to another run.
    RunStopped
        If the run diverges or every client is expelled; the records in ``folder`` are kept.
    """
    if folder is None:
        return _run(config, None, options, callback, metrics)
    with folder.claim(to_stored(config), resume=options.resume, overwrite=options.overwrite):
        return _run(config, folder, options, callback, metrics)


def _run(
    config: ExperimentConfig,
    folder: RunFolder | None,
    options: RunOptions,
    callback: Callback,
    metrics: OwnMetrics | None,
) -> Result:
    previous = None
    if folder is not None and options.resume and folder.exists():
        ended = folder.summary()
        if ended is not None and ended["stopped"] is None:
            callback.on_run_skipped(config)
            return load(folder.path)
        previous = folder.config()["ran_by"]
    prepared = PreparedRun.prepare(config, options, previous, metrics)
    simulator, engine = prepared.simulator, prepared.engine
    simulator.on_evaluation = partial(callback.on_evaluation_begin, config)
    recorder = Recorder(folder, to_stored(config), prepared.partition)
    initial = simulator.initial_state()
    memory = simulator.runner.new_memory(simulator.method, initial.server.weights)
    state = recorder.begin(initial, engine.to_config(), resume=options.resume, client_memory=memory)
    callback.on_run_begin(config, None if folder is None else folder.path, engine)
    stopped: RunStopped | None = None
    try:
        for finished in simulator.rounds(state):
            recorder.add(finished)
            callback.on_round_end(config, finished.record)
    except RunStopped as stop:
        stop.history = recorder.history
        stopped = stop
    finally:
        recorder.checkpoint()
    result, summary = recorder.finish(
        simulator.method,
        simulator.model,
        stopped,
        evaluations=simulator.evaluate_clients(recorder.state) if stopped is None else [],
        test_counts=[] if simulator.test is None else count_classes(simulator.test),
        samples=None if simulator.test is None else (len(simulator.test), prepared.test_samples),
        engine=str(engine),
        partition_notes=list(prepared.notes),
    )
    callback.on_run_end(config, summary)
    if stopped is not None:
        raise stopped
    return result


def load(path: str | Path) -> Result:
    """Load a run that has ended from its folder.

    Parameters
    ----------
    path
        The run folder.

    Returns
    -------
    Result
        The history, the models, and their evaluations on each client's own samples.

    Raises
    ------
    InvalidInput
        If the folder contains no run, a file is damaged or was written by another version of fedtaco, or the run has
        not ended.

    Examples
    --------
    >>> result = load("runs/first")  # doctest: +SKIP
    >>> result.history.final_accuracy  # doctest: +SKIP
    0.942
    """
    folder = RunFolder(path)
    with reading(folder.path / "config.toml"):
        config = folder.config()
        blank = build_blank_model(config)
        flat = FlatModel(blank, personal=split_names(config.get("personal", "")))
    model, output = (load_model(copy.deepcopy(blank), folder.model_path(name)) for name in ("model", "output"))
    folder.partition()  # verified, although the result does not contain it
    return Result(
        folder.history(),
        model.eval(),
        output.eval(),
        read_personal_layers(folder, flat),
        folder.client_evaluations(),
    )
