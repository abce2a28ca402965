"""Run one experiment, with or without a run folder, from the start or from where it stopped; load a run."""

import copy
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedtaco.errors import InvalidInput, RunStopped, StopTraining
from fedtaco.evaluation import count_classes
from fedtaco.experiment.config import to_stored
from fedtaco.experiment.own_task import NOTHING_OWN, OwnModel, OwnTask
from fedtaco.experiment.prepared_run import PreparedRun, build_initial_model, build_named_model
from fedtaco.files import reading
from fedtaco.models import MAX_PARAMETERS, FlatModel
from fedtaco.parameters import split_names
from fedtaco.records import RunFolder
from fedtaco.runs.callbacks import Callback, Run
from fedtaco.runs.options import RunOptions
from fedtaco.runs.personal_layers import read_personal_layers
from fedtaco.runs.recorder import Recorder
from fedtaco.runs.result import Result, load_model
from fedtaco.runs.settings import ExperimentConfig


def run_experiment(
    config: ExperimentConfig,
    folder: RunFolder | None,
    options: RunOptions,
    callback: Callback,
    own: OwnTask = NOTHING_OWN,
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
    own
        The user's own data, model and loss, if there are any.

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
        return _run(config, dict(config), None, options, callback, own)
    stored = to_stored(config, own)
    with folder.claim(stored, resume=options.resume, overwrite=options.overwrite):
        if options.resume and is_finished(folder):
            callback.on_run_skipped(recorded_run(config, folder, own))
            return load(folder.path, own.model)
        return _run(config, stored, folder, options, callback, own)


def _run(
    config: ExperimentConfig,
    stored: dict[str, Any],
    folder: RunFolder | None,
    options: RunOptions,
    callback: Callback,
    own: OwnTask,
) -> Result:
    previous = folder.config()["ran_by"] if folder is not None and options.resume and folder.exists() else None
    prepared = PreparedRun.prepare(config, options, own, previous)
    simulator, engine = prepared.simulator, prepared.engine
    recorder = Recorder(folder, stored, prepared.partition)
    initial = simulator.initial_state()
    memory = simulator.new_memory(simulator.server.train_instructions(initial, torch.arange(1)))
    state = recorder.begin(initial, engine.to_config(), resume=options.resume, client_memory=memory)
    path = None if folder is None else folder.path
    run = Run(config, path, str(engine), recorder.history.rounds, lambda: recorder.current_model(simulator.model))
    simulator.on_evaluation = partial(callback.on_evaluation_begin, run)
    ending: RunStopped | StopTraining | None = None
    try:
        callback.on_run_begin(run)
        with closing(simulator.rounds(state)) as rounds:
            for finished in rounds:
                recorder.add(finished)
                callback.on_round_end(run, finished.record)
    except (RunStopped, StopTraining) as stop:
        ending = stop
    finally:
        recorder.checkpoint()
    result = recorder.finish(
        simulator.method,
        simulator.model,
        ending,
        evaluations=[] if isinstance(ending, RunStopped) else simulator.evaluate_clients(recorder.state),
        average_accuracy=simulator.evaluate_average(recorder.state),
        output_accuracy=simulator.evaluate_output(recorder.state) if isinstance(ending, StopTraining) else None,
        test_counts=[] if simulator.test is None else count_classes(simulator.test),
        samples=None if simulator.test is None else (len(simulator.test), prepared.test_samples),
        engine=str(engine),
        partition_notes=list(prepared.notes),
    )
    callback.on_run_end(run, result.summary)
    if isinstance(ending, RunStopped):
        ending.history = recorder.history
        raise ending
    return result


def is_finished(folder: RunFolder) -> bool:
    """Return whether a folder contains a run that finished; one that diverged or was ended early can be continued."""
    summary = folder.summary() if folder.exists() else None
    return summary is not None and summary["stopped"] is None and summary["ended_early"] is None


def recorded_run(config: ExperimentConfig, folder: RunFolder, own: OwnTask) -> Run:
    """Return a run that has ended as callbacks see it."""
    summary = folder.summary()
    assert summary is not None
    return Run(
        config, folder.path, summary.get("engine", ""), folder.rounds(), lambda: load(folder.path, own.model).model
    )


def load(path: str | Path, model: OwnModel | None = None) -> Result:
    """Load a run that has ended from its folder.

    Parameters
    ----------
    path
        The run folder.
    model
        The user's own model, if the run trained one: a module of the same architecture, which is copied, or a callable
        that returns one. No code is imported to load a run.

    Returns
    -------
    Result
        The history, the models, their evaluations on each client's own samples, and the diagnostics.

    Raises
    ------
    InvalidInput
        If the folder contains no run, a file is damaged or was written by another version of fedtaco, the run has
        not ended, or ``model`` is missing or does not fit.

    Examples
    --------
    >>> result = load("runs/first")  # doctest: +SKIP
    >>> result.history.final_accuracy  # doctest: +SKIP
    0.942
    """
    folder = RunFolder(path)
    blank = _blank_model(folder, model)
    trained, output = (load_model(copy.deepcopy(blank), folder.model_path(name)) for name in ("model", "output"))
    average = None
    if folder.has_model("average"):
        average = load_model(copy.deepcopy(blank), folder.model_path("average")).eval()
    flat = FlatModel(trained, personal=split_names(folder.config().get("personal", "")))
    folder.partition()  # verified, although the result does not contain it
    return Result(
        folder.history(),
        trained.eval(),
        output.eval(),
        folder.summary() or {},
        read_personal_layers(folder, flat),
        folder.client_evaluations(),
        folder.diagnostics(),
        average,
    )


def _blank_model(folder: RunFolder, model: OwnModel | None) -> nn.Module:
    """Return a model of the architecture that a run trained."""
    config = folder.config()
    if model is not None:
        return OwnTask(model=model).build_model(config["seed"])
    about_own = config.get("own", {})
    if "weights" in about_own or config.get("engine") == "flower":
        raise InvalidInput(
            f"{folder.path} contains a model of your own, {config['model']}; pass one of its kind: "
            "fedtaco.load(folder, model=…)."
        )
    with reading(folder.path / "config.toml"):
        if "data" in about_own:
            shape, classes = about_own["input_shape"], about_own["classes"]
            with torch.device("meta"):  # which takes no memory, however large the numbers in a stranger's file are
                size = sum(one.numel() for one in build_named_model(config, shape, classes).parameters())
            if size > MAX_PARAMETERS:
                raise ValueError(f"its model has {size:,} parameters")
            return build_named_model(config, shape, classes)
        return build_initial_model(config, NOTHING_OWN)
