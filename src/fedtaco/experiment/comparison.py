"""Several methods on the same data, seeds and batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.experiment.build import check_overrides, method_class, relevant
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.runs import run_experiment
from fedtaco.records import RoundRecord, RunFolder


def plan_comparison(methods: Sequence[str], seeds: Sequence[int], **settings: Any) -> list[Experiment]:
    """One experiment per method and seed; each takes those of the parameters that are its own."""
    if not methods:
        raise InvalidInput("methods is empty; name at least one, as fedavg,taco.")
    names = [method_class(method).name for method in methods]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInput(f"methods names {', '.join(repeated)} more than once.")
    overrides, detector = settings.pop("parameters", {}), settings.get("detector") or "off"
    check_overrides(overrides, methods, detector)
    return [
        Experiment.of(method=method, seed=seed, parameters=relevant(overrides, method, detector), **settings)
        for seed in seeds
        for method in methods
    ]


def run_comparison(
    experiments: Sequence[Experiment],
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: Path | None = None,
    workers: int | None = None,
    on_round: Callable[[Experiment, RoundRecord], None],
) -> list[dict[str, Any]]:
    """Run all, each in a folder of its own below ``out``, and return their summaries.

    A run that diverges says so in its summary and does not stop the others; a finished one is not
    run again when resumed.
    """
    if RunFolder(out).exists():
        raise InvalidInput(f"{out} holds a single run; choose another folder (out) for a comparison.")
    folders = [RunFolder(out / f"{method_class(one.method).name}-seed{one.seed}") for one in experiments]
    for experiment, folder in zip(experiments, folders, strict=True):
        folder.claim(experiment.stored(), resume=resume, overwrite=overwrite)
    summaries = []
    for experiment, folder in zip(experiments, folders, strict=True):

        def tell(record: RoundRecord, experiment: Experiment = experiment) -> None:
            on_round(experiment, record)

        if not (resume and folder.summary()):
            with suppress(RunStopped):
                run_experiment(
                    experiment,
                    folder,
                    resume=resume,
                    overwrite=overwrite,
                    data_dir=data_dir,
                    workers=workers,
                    on_round=tell,
                )
        summaries.append({"folder": str(folder.path), **(folder.summary() or {})})
    return summaries
