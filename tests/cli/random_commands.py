"""Random command lines: every command and option, with values that users, scripts and attackers may give.

No value that is valid makes a run long, so that thousands of them can be tried.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import typer

from fedtaco.cli.main import app, main


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return text.split()


NASTY_NUMBERS = [
    *words("0 -1 -0 1e308 -1e308 1e-320 nan inf -inf NaN Infinity 0x10 1_000 1.5 ٣ ² ½ 1e9999 true null [] -- -"),
    *words("2147483648 9223372036854775807 9223372036854775808 99999999999999999999 1000000000000000000000000000000"),
    *("", " ", "9" * 400, "9" * 5000),
]
NASTY_TEXTS = [
    *words(": = , . / a=b [red]x[/red] [/] {} {0} %s %n $HOME `id` 😀 ² ﬁ -1 nan json:dumps os:system :x x: a.b:c"),
    *words("...:x no.such:Thing __main__:x x:y:z"),
    *(
        "",
        " ",
        "x" * 5000,
        "\x1b]0;evil\x07",
        "\x1b[2J",
        "\r",
        "\n",
        "a\tb",
        "\x01",
        "\u202edrow",
        "\udcff",
        "\ud800:x",
    ),
]
NASTY_PATHS = [
    *words("/dev/null /dev/full /dev/zero /dev/stdout /dev /proc/self/mem /proc/nowhere . .. nowhere a/b/c file fifo"),
    *words("file/below link loop runs [red] ~ page.html table.tex labels.png fifo.png link.png nowhere/x.png"),
    *("", " ", "x" * 300, "x/" * 200, "\x1b[2J", "\udcff", "new\nline"),
]
PLAUSIBLE = {
    "method": words("taco fedavg scaffold fedacg TACO tako"),
    "methods": words("fedavg fedavg,taco fedavg,fedavg taco, , fedprox"),
    "dataset": words("digits digits mnist adult:standardized femnist: digit"),
    "datasets": words("adult adult,mnist digits ,"),
    "model": [
        *words("mlp mlp:4 mlp:4-2 mlp:² mlp:٣ mlp:0 mlp:-1 mlp: mlp:4- mlp:999999999 mlp:1e3 mlp:100000-100000"),
        *words("cnn cnn:2 lstm resnet18:x resnet18:batchnorm:2"),
        f"mlp:{'9' * 5000}",
    ],
    "partition": [
        *words(
            "iid groups natural dirichlet:0.5 dirichlet:nan dirichlet:0 dirichlet:1e308 dirichlet:² dirichlet:1e-320"
        ),
        *words("dirichlet: dirichlet:0.5:2 dirichlet-client:0.5 dirichlet-client:-1 quantity:0.5 quantity:inf"),
        *words("noise:0.3 noise:1e308 shards:2 shards:0 shards:99999999999999999999 shards:² flwr: flwr:x"),
    ],
    "behaviour": [
        *words("replay replay-scaled:0.3 replay-scaled:nan replay-scaled:1e308 replay-noise:² replay:1e400 zero:late"),
        *words("zero:x disguised: random:intermittent:late sign-flip label-flip gaussian gaussian:inf"),
    ],
    "parameters": [
        *words("taco.gamma=0.1 taco.gamma=nan taco.gamma=² taco.gamma= taco.gamma = .= x.y=1 taco.=1 a.b=c=d"),
        *words("taco.gamma=[1] taco.gamma=true taco.gamma=null taco.delta_scale=literal stem.server_momentum=literal"),
        *words("guard.max_strikes=99999999999999999999 guard.max_strikes=1000000000 paper.max_strikes=2147483648"),
        *words("guard.content=1e308 guard.content=1e29 guard.copy=0 paper.kappa=1e-320 norm.max_norm=1e30"),
        *words("fedacg.beta=1e308 fedacg.beta=1e29 fedprox.zeta=1e30 fedprox.zeta=1e-320 scaffold.alpha=1e29"),
        *words("norm.max_norm=1 fedcm.alpha=1"),
        *(f"taco.gamma={'9' * 5000}", f"taco.gamma={'[' * 5000}", f"{'x.' * 1000}=1"),
    ],
    "grid": [
        *words("local_lr=0.01,0.1 taco.gamma=0.1 taco.gamma= taco.gamma=0/1 rounds=1,² rounds=1,1 seed=1 x=1 =1 a"),
        *words("clients=3,nan partition=iid,/../x model=mlp:4,mlp:² batch_size=99999999999999999999 dataset=digits"),
        *(f"local_lr={','.join(str(n / 1e5) for n in range(20_000))}", f"taco.gamma={'9' * 5000}"),
    ],
    "engine": words("auto serial pool batched flower"),
    "detector": words("off guard paper norm gard"),
    "weighting": words("uniform samples x"),
    "device": words("cpu auto cuda mps cpu:0"),
    "format_": words("table json csv markdown latex xml"),
    "plot": words("out.pdf out.svg out.gif fifo.png link.png"),
    "track": words("tensorboard nothing"),
    "scale": words("smoke full tiny"),
    "timing": words("turns measured x"),
    "name": words("table-rounds figure-gamma table-nothing digits mnist adult"),
    "optimizer": words("sgd adam adamw SGD"),
    "lr_schedule": words("constant cosine step:1,0.5 step:²,0.5 step:0,0.5 step:1 exponential:0.9 exponential:nan"),
    "momentum": words("0.9 0 0.999999999 1"),
    "weight_decay": words("0.1 0 1e30"),
    "clip_norm": words("1 1e-300 1e30 0"),
    "compress": words("none q8 q4 sign topk:0.1 topk:2 topk:1e-300 topk: randk:0.5 randk:nan q9 Q8"),
    "local_work": words("full uniform:0.3,1.0 uniform:0.1,0.5,round uniform:1,0 uniform:0.3 uniform:nan,1"),
    "client_dropout": words("0.2 0.999 1"),
    "deadline": words("0.6 1 1e-300"),
    "average_last": words("1 2 9"),
    "personal": words("layers.* *bias * nothing*"),
    "local_epochs": words("1 2"),
    "local_lr": words("0.1 0 1e30"),
    "server_lr": words("0.1 0 1e30"),
    "participation": words("0.5 1 1e-300"),
    "target": words("0.9 1"),
    "validation": words("0 0.1 0.999999"),
    **{name: words("1 2 3") for name in ("seed", "seeds", "freeloaders", "workers", "budget", "clients")},
    **{name: words("1 2") for name in ("rounds", "local_steps", "batch_size")},
}
"""Values by the name of a parameter, besides the nasty ones of its type."""
TINY = {
    "dataset": "digits",
    "partition": "iid",
    "clients": "3",
    "methods": "fedavg,taco",
    "rounds": "1",
    "local_steps": "1",
    "batch_size": "4",
    "grid": "local_lr=0.1",
}
"""Options that every run gets, unless the command line names them."""
REQUIRES = {
    "behaviour": {"freeloaders": "1"},
    "freeloaders": {"behaviour": "zero"},
    "nesterov": {"momentum": "0.9"},
    "guard": {"detector": "guard"},
    "paper": {"detector": "paper"},
    "norm": {"detector": "norm"},
    **{name: {"method": name, "methods": name} for name in ("fedacg", "fedprox", "scaffold", "stem", "fedcm", "taco")},
}
"""Further options without which an option, or a parameter of a method or detector, would be refused."""
LOCAL_ADDRESSES = ["/dev/null", "/dev", "/proc/self/mem"]
"""Where ``data fetch`` looks for datasets; it must not use the network."""
NEVER = {"help", "version", "open_", "install_completion", "show_completion"}
"""Options that do not work on values, or open a browser."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, its output, and the traceback of an error that was not explained."""

    code: int | None
    output: str
    traceback: str


def make_folder(path: Path) -> None:
    """Create a folder with the files that some of the paths name; the commands must be run in it."""
    path.mkdir(parents=True)
    (path / "file").touch()
    (path / "data").mkdir()
    for name in ("fifo", "fifo.png"):
        os.mkfifo(path / name)
    for name, target in (("link", "file"), ("link.png", "file"), ("loop", "loop")):
        (path / name).symlink_to(target)


def random_command(seed: int) -> list[str]:
    """Return the arguments of a random command line."""
    rng = random.Random(seed)
    command_words, command = _choose(rng)
    options = [option for option in command.params if option.name not in NEVER]
    count = min(len(options), rng.choice((0, 1, 1, 1, 2, 3, 6)))
    chosen = {option.name: option for option in rng.sample(options, count)}
    required = {option.name: option for option in options if option.required and option.name not in TINY}
    safe = dict(TINY)
    required |= {option.name: option for option in options if option.name == "address"}
    arguments = [*command_words]
    for name, option in {**chosen, **required}.items():
        safe.pop(name, None)
        if name == "local_epochs":
            safe.pop("local_steps", None)
        values = [] if getattr(option, "is_flag", False) else [_value(rng, option)]
        arguments += values if isinstance(option, click.Argument) else [rng.choice(option.opts), *values]
        for owner in (name, *(value.partition(".")[0] for value in values if name == "parameters")):
            safe |= REQUIRES.get(owner or "", {})
    names = {option.name: option.opts[0] for option in options if option.name not in {**chosen, **required}}
    return arguments + [word for name, value in safe.items() if name in names for word in (names[name], value)]


def run_command(arguments: list[str]) -> Ended:
    """Run a command line in this process."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    before, sys.argv = sys.argv, ["fedtaco", *arguments]
    code, unexplained = None, ""
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    except Exception:
        unexplained = traceback.format_exc()
    finally:
        sys.argv = before
    output.flush()
    return Ended(code, output.buffer.getvalue().decode(), unexplained)


def _choose(rng: random.Random) -> tuple[list[str], click.Command]:
    """Return a command and the words that name it; commands that run something are more likely."""
    root = _commands()
    name = rng.choice([*root.commands, "run", "run", "run", "compare", "sweep"])
    command = root.commands[name]
    if isinstance(command, click.Group):
        below = rng.choice(sorted(command.commands))
        return [name, below], command.commands[below]
    return [name], command


@cache
def _commands() -> click.Group:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    return root


def _value(rng: random.Random, option: click.Parameter) -> str:
    if option.name == "address":
        return rng.choice(LOCAL_ADDRESSES)
    plausible = PLAUSIBLE.get(option.name or "", [])
    kind = option.type.name
    nasty = NASTY_NUMBERS if kind in ("integer", "float") else NASTY_PATHS if "path" in kind else NASTY_TEXTS
    return rng.choice(plausible if plausible and rng.random() < 0.6 else nasty)
