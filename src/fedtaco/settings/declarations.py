"""Every setting of a run, declared once: type, default, valid values, help, and whether it is sent to Flower's nodes.

These declarations determine the options of the command line, the keyword arguments of :func:`fedtaco.train`,
:func:`fedtaco.run`, :func:`fedtaco.compare`, :func:`fedtaco.sweep` and :class:`fedtaco.flower.FedStrategy`, their
validation, and the wire format. Nothing here imports torch, so that ``fedtaco --help`` answers at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, TypedDict, get_args, get_type_hints

from fedtaco.parameters import Configurable, Domain, ParameterValue

EXPERIMENT, TRAINING, OUTPUT = "What is run", "How it is trained", "Where results go"
"""Panels of the command line's help."""
MAX_COUNT = 1_000_000
"""Maximum number of clients, rounds, local steps, and samples in a batch."""
SWEEP_VALIDATION = 0.1
"""Fraction of the samples that a sweep holds out by default."""


@dataclass(frozen=True)
class Setting:
    """The declaration of a setting, besides its type."""

    default: Any
    """The value if none is given."""
    domain: Domain
    """Valid values and help."""
    panel: str
    """Panel of the command line's help."""
    by_dataset: bool
    """Whether the default of experiments depends on the dataset (``experiment/defaults.py``)."""
    on_wire: bool
    """Whether the server sends it to Flower's nodes."""


def setting(
    default: Any, meaning: str, panel: str = TRAINING, by_dataset: bool = False, on_wire: bool = False, **domain: Any
) -> Setting:
    """Declare a setting inside ``Annotated``.

    Parameters
    ----------
    default
        The value if none is given; ``None`` if it is derived.
    meaning
        Help text, a sentence.
    panel, by_dataset, on_wire
        See :class:`Setting`.
    **domain
        The valid values, as in :func:`fedtaco.parameter`.
    """
    return Setting(default, Domain(meaning, **domain), panel, by_dataset, on_wire)


what_is_run = partial(setting, panel=EXPERIMENT)
where_results_go = partial(setting, panel=OUTPUT)


class SharedSettings(TypedDict, total=False):
    """Settings of the simulator and of Flower."""

    batch_size: Annotated[int, setting(64, "Samples per local step.", low=1, high=MAX_COUNT, on_wire=True)]
    local_lr: Annotated[
        float, setting(0.01, "Local learning rate, η_l.", low=0, high=1e30, by_dataset=True, on_wire=True)
    ]
    server_lr: Annotated[
        float | None,
        setting(None, "Server learning rate, η_g; K·η_l by default (plain averaging).", low=0, high=1e30, on_wire=True),
    ]
    optimizer: Annotated[
        str,
        setting(
            "sgd",
            "Optimizer of local training: sgd, adam, or adamw (decoupled weight decay).",
            choices=("sgd", "adam", "adamw"),
            on_wire=True,
        ),
    ]
    momentum: Annotated[
        float, setting(0.0, "Momentum of sgd, ρ, within a round.", low=0, high=1, open_high=True, on_wire=True)
    ]
    nesterov: Annotated[bool, setting(False, "Use Nesterov's form of momentum.", on_wire=True)]
    weight_decay: Annotated[float, setting(0.0, "Weight decay, λ.", low=0, high=1e30, on_wire=True)]
    clip_norm: Annotated[
        float | None,
        setting(None, "Maximum norm of the gradient in a local step.", low=0, open_low=True, high=1e30, on_wire=True),
    ]
    lr_schedule: Annotated[
        str,
        setting(
            "constant",
            "Learning rate over the rounds: constant, cosine (towards 0 at the end), step:10,0.5 (every 10 rounds "
            "times 0.5) or exponential:0.998 (times 0.998 in each round).",
            on_wire=True,
        ),
    ]
    local_epochs: Annotated[
        int | None,
        setting(
            None,
            "Passes over a client's samples per round, instead of a number of local steps.",
            low=1,
            high=MAX_COUNT,
            on_wire=True,
        ),
    ]
    local_work: Annotated[
        str,
        setting(
            "full",
            "Share of its local steps that each client takes: full, uniform:0.3,1.0 (drawn once for each client) or "
            "uniform:0.3,1.0,round (drawn anew in each round).",
        ),
    ]
    personal: Annotated[
        str | Sequence[str] | None,
        setting(
            None,
            "Layers that each client keeps for itself and does not send: names of parameters and buffers, or patterns "
            "of them such as head.* or *norm*, separated by commas.",
            on_wire=True,
        ),
    ]
    compress: Annotated[
        str | Configurable | type[Configurable],
        setting(
            "none",
            "Compression of uploads: none, q8 or q4 (8 or 4 bits per number), topk:0.1 (the largest tenth of the "
            "numbers), randk:0.1 (a random tenth), sign (1 bit per number), or your own as package.module:Class.",
            on_wire=True,
        ),
    ]
    seed: Annotated[
        int, setting(0, "Random seed; with several seeds, the first one.", low=0, high=2**63 - 1, on_wire=True)
    ]
    eval_every: Annotated[
        int, setting(1, "Rounds between two evaluations; the last round is always evaluated.", low=1, high=MAX_COUNT)
    ]


class TrainSettings(SharedSettings, total=False):
    """Settings of :func:`fedtaco.train`, besides those in its signature."""

    weighting: Annotated[
        str,
        setting("uniform", "Weights of uploads: uniform, or samples (by client size).", choices=("uniform", "samples")),
    ]
    participation: Annotated[float, setting(1.0, "Fraction of clients in each round.", low=0, open_low=True, high=1)]
    client_dropout: Annotated[
        float,
        setting(
            0.0, "Probability that a client of a round does not answer, drawn by seed.", low=0, high=1, open_high=True
        ),
    ]
    deadline: Annotated[
        float | None,
        setting(
            None,
            "Simulated time after which a round ends without the slower clients, in units of K steps at speed 1; the "
            "speeds of clients, from 1/2 to 2, are drawn by seed.",
            low=0,
            open_low=True,
            high=1e6,
        ),
    ]
    engine: Annotated[
        str,
        setting(
            "auto",
            "How clients run: serial (one by one, exact seconds), pool (on all cores, same bits as serial), batched "
            "(many in one computation), or auto, which chooses by a fixed rule and reports its choice.",
            choices=("auto", "serial", "pool", "batched"),
        ),
    ]
    eval_samples: Annotated[
        int | None, setting(None, "Evaluate on this many test samples, drawn by seed; all by default.", low=1)
    ]
    average_last: Annotated[
        int,
        setting(
            0,
            "Number of rounds, the last ones, whose global models are averaged; the average is evaluated and saved "
            "besides the last model. 0 for none.",
            low=0,
            high=MAX_COUNT,
        ),
    ]
    fine_tune_steps: Annotated[
        int,
        setting(
            0,
            "Local steps of FedAvg, at the rate of the first round, by which the final model is fine-tuned for each "
            "client, to be evaluated on the client's own held-out samples; 0 for none.",
            low=0,
            high=MAX_COUNT,
        ),
    ]
    diagnose: Annotated[
        bool,
        where_results_go(
            False,
            "Diagnose each round: the quantities of the paper's analysis, and whether corrections go too far for the "
            "global loss. It repeats the training of each client, and changes no result.",
        ),
    ]
    device: Annotated[str, setting("cpu", "Device: cpu, cuda, mps, or auto (an accelerator if there is one).")]
    freeloaders: Annotated[
        int, what_is_run(0, "Number of clients that misbehave; the seed chooses them evenly from all groups.", low=0)
    ]
    behaviour: Annotated[
        str | None,
        what_is_run(
            None,
            "Behaviour: replay (send back the last global update; the default), replay-scaled:0.3, replay-noise:0.5, "
            "zero, disguised, random, each also with :late (honest in the first third of the rounds) or :intermittent "
            "(in every other round); an attack: sign-flip, label-flip, gaussian, boost:100; or your own as "
            "package.module:Class.",
        ),
    ]
    parameters: Annotated[
        Mapping[str, ParameterValue],
        what_is_run({}, "A parameter, such as taco.gamma=0.02; may be repeated. 'fedtaco methods' lists them."),
    ]
    target: Annotated[
        float,
        what_is_run(None, "Test accuracy to which rounds are counted.", low=0, open_low=True, high=1, by_dataset=True),
    ]
    validation: Annotated[
        float, what_is_run(0.0, "Fraction of each client's samples to hold out.", low=0, high=1, open_high=True)
    ]


class ComparisonSettings(TrainSettings, total=False):
    """Settings of :func:`fedtaco.compare` and :func:`fedtaco.sweep`, besides those in their signatures."""

    partition: Annotated[
        str,
        what_is_run(
            None,
            "Which client holds which samples: groups, dirichlet:0.5, dirichlet-client:0.5, shards:2, quantity:0.5, "
            "noise:0.3 (equal parts, with noise on the inputs), iid, natural, flwr:ClassName of flwr-datasets, or your "
            "own function as package.module:function.",
            by_dataset=True,
        ),
    ]
    rounds: Annotated[
        int, setting(None, "Communication rounds, T.", low=1, high=MAX_COUNT, by_dataset=True, on_wire=True)
    ]
    local_steps: Annotated[
        int,
        setting(None, "Local steps per client and round, K.", low=1, high=MAX_COUNT, by_dataset=True, on_wire=True),
    ]


class RunSettings(ComparisonSettings, total=False):
    """Settings of :func:`fedtaco.run`, besides those in its signature."""

    dataset: Annotated[
        str,
        what_is_run(
            "digits",
            "Dataset by name, as 'fedtaco data list' shows, or your own function as package.module:function; other "
            "defaults depend on it.",
        ),
    ]
    clients: Annotated[int, what_is_run(20, "Number of clients, N.", low=1, high=MAX_COUNT, on_wire=True)]


class ExperimentConfig(RunSettings, total=False):
    """All settings of one run; :func:`~fedtaco.experiment.build_spec` checks and completes them."""

    method: Annotated[str, what_is_run("taco", "A method by name, or your own as package.module:Class.")]
    model: Annotated[
        str,
        what_is_run(
            None,
            "Model: mlp, mlp:64-32, cnn, resnet18, resnet18:batchnorm, lstm, or your own as package.module:Class.",
            by_dataset=True,
        ),
    ]
    detector: Annotated[
        str,
        what_is_run(
            "off",
            "Freeloader detection: off; norm, which only limits the norm of uploads; guard, which drops uploads "
            "without anything new and expels clients that keep sending them; paper, TACO's rule, which expels clients "
            "whose α reached paper.kappa (0.6) in paper.max_strikes rounds (a fifth of all), including honest ones if "
            "data are evenly distributed; or your own as package.module:Class.",
        ),
    ]


SIMULATION_SETTINGS = frozenset(TrainSettings.__annotations__).difference(
    SharedSettings.__annotations__, ("weighting", "participation", "target", "parameters")
)
"""Settings that only simulated clients have, and no deployment."""


@cache
def declared(kind: Any) -> Mapping[str, tuple[Any, Setting]]:
    """Return the type and declaration of each setting of a class, in the order of the command line's help.

    >>> declared(TrainSettings)["batch_size"][1].default
    64
    """
    hints = get_type_hints(kind, include_extras=True)
    names: list[str] = []
    for base in (SharedSettings, TrainSettings, ComparisonSettings, RunSettings, ExperimentConfig):
        names = [name for name in base.__annotations__ if name in hints and name not in names] + names
    names = [name for name in hints if name not in names] + names
    return {name: get_args(hints[name]) for name in names}
