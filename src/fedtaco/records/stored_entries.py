"""Types of the entries in ``config.toml`` and ``summary.json`` that are read back."""

from typing import Annotated, NotRequired, TypedDict

from fedtaco.parameters import Domain
from fedtaco.records.digest import FileDigest
from fedtaco.records.history import Bytes, Metric

Count = Annotated[int, Domain("a number of things", low=0, whole=True)]
Positive = Annotated[int, Domain("a number of things, at least one", low=1, whole=True)]


class StoredVersions(TypedDict, total=False):
    """The versions with which a part of a run was made."""

    from_round: Count
    python: str
    torch: str
    numpy: str


class StoredEngine(TypedDict):
    """The entries under ``ran_by``."""

    engine: str
    reason: str
    chunk: NotRequired[Positive]
    run: NotRequired[str]
    versions: NotRequired[list[StoredVersions]]


class StoredFolder(TypedDict):
    """The entries under ``folder``."""

    run: str
    """Identifier of the run, by which files of an earlier run in the same folder are recognised."""
    partition: FileDigest
    """Digest of ``partition.npz``."""


class StoredOwn(TypedDict, total=False):
    """The entries under ``own``: a user's own data and model, which are not stored themselves."""

    data: str
    """Digest of the samples of all clients and of the test set."""
    input_shape: list[Count]
    classes: Count
    """Number of classes; 0 if the targets are not class labels."""
    weights: str
    """Digest of the initial weights."""
    loss: str
    """Name of the loss, if it is not cross entropy."""
    steps: str
    """Digest of the local steps of each client, if they differ."""


class StoredConfig(TypedDict):
    """The entries of ``config.toml``; the other settings are only compared and shown."""

    fedtaco: str
    method: str
    dataset: str
    model: NotRequired[str]
    personal: NotRequired[str]
    compress: NotRequired[str]
    partition: str
    clients: Positive
    rounds: Positive
    seed: Count
    target: Metric
    parameters: dict[str, float | str]
    diagnose: NotRequired[bool]
    engine: NotRequired[str]
    own: NotRequired[StoredOwn]
    ran_by: StoredEngine
    folder: StoredFolder


class StoredDetection(TypedDict):
    """How well freeloaders were detected."""

    freeloaders: Count
    caught: Count
    honest_expelled: Count


class StoredSpread(TypedDict):
    """Mean and extremes of the accuracies of clients."""

    mean: Metric
    worst_tenth: Metric
    best: Metric
    best_client: Count
    worst: Metric
    worst_client: Count


class StoredClientEvaluation(TypedDict):
    """The final model on each client's own samples."""

    clients: Positive
    accuracy: StoredSpread | None
    tuned_accuracy: StoredSpread | None


class StoredOverCorrection(TypedDict):
    """How often corrections went too far."""

    measured: Count
    share: Metric | None
    uphill: Metric | None
    measured_clients: Count
    clients: list[Count]
    measured_rounds: Count
    rounds: Count


class StoredSummary(TypedDict):
    """The entries of ``summary.json``."""

    run: str
    """Identifier of the run."""
    files: dict[str, FileDigest]
    """Digests of the other files of the run, by name."""
    method: str
    seed: Count
    personal: str | None
    compress: NotRequired[str | None]
    stopped: str | None
    """Why the run could not continue, for instance because it diverged."""
    ended_early: str | None
    """Why a callback ended the run."""
    engine: NotRequired[str]
    rounds: Count
    final_accuracy: Metric | None
    majority_share: Metric | None
    predicts_one_class: bool
    balanced_accuracy: Metric | None
    evaluated_samples: Count | None
    test_samples: Count | None
    client_evaluation: StoredClientEvaluation | None
    output_accuracy: Metric | None
    best_accuracy: Metric | None
    average_accuracy: Metric | None
    last_ten_range: Metric | None
    alternates: bool
    validation_accuracy: Metric | None
    worst_tenth_accuracy: Metric | None
    target: Metric
    rounds_to_target: Count | None
    rounds_to_target_is_upper_bound: bool
    client_seconds: Metric | None
    bytes_up: Bytes | None
    bytes_down: Bytes | None
    alpha: dict[str, Metric]
    dropped_uploads: Count
    unanswered: Count
    missed_deadlines: Count
    detection: StoredDetection | None
    over_correction: NotRequired[StoredOverCorrection | None]
    partition_notes: list[str]
