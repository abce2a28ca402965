"""Run one experiment, with or without a run folder, from the start or from where it stopped; load a run."""

import copy
from pathlib import Path

import torch
from torch import nn

from fedtaco.data import dataset_info
from fedtaco.errors import InvalidInput
from fedtaco.experiment.prepared_run import PreparedSimulation, build_named_model
from fedtaco.files import reading
from fedtaco.models import MAX_PARAMETERS, FlatModel
from fedtaco.parameters import split_names
from fedtaco.records import RunFolder
from fedtaco.runs.callbacks import Callback, Run
from fedtaco.runs.execution import PreparedRun
from fedtaco.runs.options import RunOptions
from fedtaco.runs.personal_layers import read_personal_layers
from fedtaco.runs.recorder import Recorder
from fedtaco.runs.result import Result, load_model
from fedtaco.settings.own_task import OwnModel, OwnTask
from fedtaco.settings.run_spec import RunSpec


def run_experiment(spec: RunSpec, folder: RunFolder | None, options: RunOptions, callback: Callback) -> Result:
    """Do a run.

    Parameters
    ----------
    spec
        What to run.
    folder
        Run folder to record everything in, or ``None``.
    options
        How to run; with ``resume``, the run in ``folder`` is continued, or only loaded if it has finished.
    callback
        Called as the run proceeds.

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
        return _execute(spec, None, options, callback)
    with folder.claim(spec.to_stored(), resume=options.resume, overwrite=options.overwrite):
        if options.resume and is_finished(folder):
            callback.on_run_skipped(recorded_run(spec, folder))
            return load(folder.path, spec.task.model)
        return _execute(spec, folder, options, callback)


def _execute(spec: RunSpec, folder: RunFolder | None, options: RunOptions, callback: Callback) -> Result:
    previous = folder.config()["ran_by"] if folder is not None and options.resume and folder.exists() else None
    prepared = PreparedSimulation.prepare(spec, options, previous)
    recorder, engine = Recorder(folder, spec, prepared.partition), prepared.engine
    run = PreparedRun(prepared.federation, recorder, str(engine), engine.to_config(), prepared.final_figures)
    return run.execute(callback, resume=options.resume)


def is_finished(folder: RunFolder) -> bool:
    """Return whether a folder contains a run that finished; one that diverged or was ended early can be continued."""
    summary = folder.summary() if folder.exists() else None
    return summary is not None and summary["stopped"] is None and summary["ended_early"] is None


def recorded_run(spec: RunSpec, folder: RunFolder) -> Run:
    """Return a run that has ended as callbacks see it."""
    summary = folder.summary()
    assert summary is not None
    engine, rounds = summary.get("engine", ""), folder.rounds()
    return Run(spec.config, folder.path, engine, rounds, lambda: load(folder.path, spec.task.model).model)


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
        info = dataset_info(config["dataset"])
        return build_named_model(config, info.shape, info.classes)
