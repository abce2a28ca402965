"""Plan the runs of a benchmark: what is tuned, which controls follow from it, and what is evaluated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedtaco.benchmark.presets import PER_STEP, Preset, Task, TunedMethodPlan
from fedtaco.errors import InvalidInput
from fedtaco.experiment.comparison import plan_comparison
from fedtaco.experiment.config_file import NAMES_CODE
from fedtaco.experiment.specs import build_spec
from fedtaco.experiment.sweep import Trial, TunedMethod, folder_of_trial, plan_sweep
from fedtaco.methods import METHODS
from fedtaco.settings.declarations import SWEEP_VALIDATION
from fedtaco.settings.run_spec import RunSpec

LOCAL_CONTROL, SERVER_CONTROL = "fedavg (local rate × 1/(1−β))", "fedavg (server rate × 1/(1−β))"
"""Names of the controls for the effective rate."""
CONTROL_FOLDERS = {LOCAL_CONTROL: "control-local", SERVER_CONTROL: "control-server"}


@dataclass(frozen=True)
class Choice:
    """A method with the settings at which it is evaluated."""

    name: str
    """The method as the preset names it; a control has a name of its own."""
    method: str
    settings: Mapping[str, float | str]
    """The local rate and the parameters that were tuned or, of a control, derived; empty if all runs diverged."""
    notes: Sequence[str] = field(default_factory=list)
    """Sentences on how the settings were chosen."""
    score: float = 0.0
    """Accuracy on held-out samples at these settings; 0 for a control, which is not tuned."""

    def specs(self, task: Task) -> list[RunSpec]:
        """Return the run of each seed of the evaluation, in which nothing is held out.

        There are none for a method whose runs all diverged when it was tuned.
        """
        if not self.settings:
            return []
        parameters = {name: value for name, value in self.settings.items() if "." in name}
        rates = {name: value for name, value in self.settings.items() if "." not in name}
        return plan_comparison([self.method], task.seeds, parameters=parameters, **{**task.settings, **rates})

    def folder(self, seed: int) -> Path:
        """Return the folder of a run, relative to that of the evaluation."""
        name = CONTROL_FOLDERS.get(self.name) or METHODS.find(self.method).name
        return Path(folder_of_trial(name, self.settings)) / f"seed{seed}"


def refuse_code(preset: Preset, named: Sequence[str]) -> None:
    """Raise InvalidInput if a preset names code of a task, or of a method that is not among those ``named``.

    Running a stranger's preset then never runs a stranger's code.
    """
    for one in preset.methods:
        if NAMES_CODE["method"](one.method) and one.method not in named:
            raise InvalidInput(
                f"{preset.name} names code, {one.method}, which is only imported if you name it too: list all "
                f"methods to compare, as in --methods {preset.reference},{one.method}."
            )
    for task in preset.tasks:
        for name, value in task.settings.items():
            if name in NAMES_CODE and isinstance(value, str) and NAMES_CODE[name](value):
                raise InvalidInput(f"The task {task.name} has {name} '{value}', which is code; name one of fedtaco's.")


def task_spec(task: Task) -> RunSpec:
    """Return a run of FedAvg on a task, with the settings of the task and defaults."""
    return build_spec(method="fedavg", **task.settings)


def plan_tuning(preset: Preset, task: Task) -> list[Trial]:
    """Return the trials of all methods on a task, in which a tenth of each client's samples is held out.

    Each trial has a run for every tuning seed; only those of :func:`choose_finalists` are run with all.

    Raises
    ------
    InvalidInput
        If a setting of the task, or a parameter in a grid, is not valid, or a grid contains a value twice.
    """
    spec, settings = task_spec(task), {**task.settings, "validation": SWEEP_VALIDATION}
    planned = []
    for one in preset.methods:
        trials = plan_sweep([one.method], _grid(one, spec.settings), preset.tuning_seeds, **settings)
        if len(trials) < preset.budget:
            raise InvalidInput(
                f"The grid of {one.method} has equal values on the task {task.name}; remove one of them."
            )
        planned += trials
    return planned


def _grid(one: TunedMethodPlan, config: Mapping[str, Any]) -> dict[str, list[float | str]]:
    rates: list[float | str] = [_round(rate * config["local_lr"]) for rate in one.rates]
    steps = config["local_steps"]
    return {"local_lr": rates, **{name: [_value(given, steps) for given in own] for name, own in one.grid.items()}}


def _value(given: float | str, local_steps: int) -> float | str:
    """Return a value of a grid, in which ``"0.5/K"`` is divided by the number of local steps.

    >>> _value("0.5/K", 100), _value("0.5", 100), _value(0.5, 100)
    (0.005, '0.5', 0.5)
    """
    if not isinstance(given, str) or not given.endswith(PER_STEP):
        return given
    try:
        return _round(float(given.removesuffix(PER_STEP)) / local_steps)
    except ValueError:
        raise InvalidInput(f"A grid contains '{given}'; write a number before {PER_STEP}.") from None


def _round(number: float) -> float:
    """Return a number with six digits, so that 0.1 times 3 is 0.3 in names of folders and tables."""
    return float(f"{number:.6g}")


def choose_finalists(trials: Sequence[Trial], tuned: Sequence[TunedMethod], count: int) -> list[Trial]:
    """Return the ``count`` trials of each method that have the highest scores.

    Parameters
    ----------
    trials
        The trials of all methods, as planned.
    tuned
        The same by method, with the scores.
    count
        Number of trials to keep of each method.
    """
    methods = dict.fromkeys(trial.method for trial in trials)
    kept = {
        method: [result.point for result in sorted(one.trials, key=lambda result: -result.validation_accuracy)[:count]]
        for method, one in zip(methods, tuned, strict=True)
    }
    return [trial for trial in trials if trial.point in kept[trial.method]]


def choose_settings(tuned: TunedMethod, method: str) -> Choice:
    """Return a method with the setting that has the highest score."""
    if not tuned.best:
        return Choice(method, method, {}, tuned.notes)
    notes = list(tuned.notes)
    if len(tuned.best) > 1:
        notes.append(f"{len(tuned.best)} settings of {tuned.method} are tied; the one with the lowest values is used.")
    return Choice(method, method, tuned.best[0].point, notes, tuned.best[0].validation_accuracy)


def plan_controls(preset: Preset, task: Task, tuned: Sequence[Choice]) -> list[Choice]:
    """Return FedAvg at the effective rate of the momentum method with the highest score, locally and at the server.

    Momentum β lets the weights move 1/(1 - β) times as far in the end. FedAvg with a rate of η/(1 - β), where η and β
    are those of the best momentum method, shows what such steps do without momentum.

    Parameters
    ----------
    preset, task
        What is compared.
    tuned
        Methods with the settings that were chosen for them.

    Returns
    -------
    list of Choice
        The two controls; none if no momentum method was tuned.
    """
    with_momentum = [one for one in tuned if one.method in preset.momentum and one.settings]
    if not with_momentum:
        return []
    best = max(with_momentum, key=lambda one: one.score)
    rate, beta = float(best.settings["local_lr"]), float(best.settings[preset.momentum[best.method]])
    spec = task_spec(task)
    steps = spec.optimizer.effective_steps(spec.settings["local_steps"])
    note = f"The controls use η = {rate:g} and β = {beta:g} of {best.name}."
    return [
        Choice(LOCAL_CONTROL, "fedavg", {"local_lr": _round(rate / (1 - beta))}, [note]),
        Choice(SERVER_CONTROL, "fedavg", {"local_lr": rate, "server_lr": _round(steps * rate / (1 - beta))}),
    ]


@dataclass(frozen=True)
class Work:
    """How much a task of a benchmark takes."""

    task: str
    tuning_runs: int
    evaluation_runs: int
    client_steps: int
    """Gradients that clients compute in all runs together."""


def estimate_work(preset: Preset, task: Task) -> Work:
    """Return how many runs a task needs, and how many gradients: local steps times clients times rounds."""
    trials = plan_tuning(preset, task)
    specs = [trial.specs[0] for trial in trials]
    specs += [
        spec
        for number, trial in enumerate(trials)
        if number % preset.budget < task.finalists  # which settings are the best is unknown, only how many
        for spec in trial.specs[1:]
    ]
    evaluated = [trial.specs[0] for trial in trials[:: preset.budget]]
    if not preset.momentum.keys().isdisjoint(one.method for one in preset.methods):
        evaluated += len(CONTROL_FOLDERS) * [task_spec(task)]
    evaluated *= len(task.seeds)
    steps = sum(map(_client_steps, specs + evaluated))
    return Work(task.name, len(specs), len(evaluated), steps)


def _client_steps(spec: RunSpec) -> int:
    settings = spec.settings
    gradients = spec.method.cost.gradients
    return gradients * int(settings["rounds"]) * int(settings["local_steps"]) * spec.cohort_size(settings["clients"])
