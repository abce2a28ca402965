"""How runs are done, apart from what is run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fedtaco.errors import InvalidInput
from fedtaco.settings.checks import check_setting
from fedtaco.settings.declarations import setting, what_is_run, where_results_go


@dataclass(frozen=True)
class RunOptions:
    """How runs are done; none of these options changes a result."""

    resume: Annotated[bool, where_results_go(False, "Continue the runs in the folder.")] = False
    overwrite: Annotated[bool, where_results_go(False, "Replace the runs in the folder.")] = False
    data_dir: Annotated[
        str | Path | None,
        what_is_run(None, "Folder with datasets; by default FEDTACO_DATA, else one in the user's cache."),
    ] = None
    workers: Annotated[
        int | None,
        setting(
            None,
            "Worker processes of the engines pool and batched, by default at most one per core. If given, several "
            "runs are done one after another instead of at the same time.",
            low=1,
            high=1000,
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_setting(RunOptions, "workers", self.workers)
        if self.resume and self.overwrite:
            raise InvalidInput("Either continue a run (resume) or replace it (overwrite), not both.")
