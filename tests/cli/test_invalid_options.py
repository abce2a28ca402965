"""Invalid options of ``fedtaco run`` and ``fedtaco data``: one sentence, exit code 2, and nothing written."""

from __future__ import annotations

import sys

import pytest

QUICK = ["--rounds", "2", "--local-steps", "2"]


def option_ids(value):
    return " ".join(value) if isinstance(value, list) else ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "fedprx"], "did you mean 'fedprox'"),
        (["--dataset", "digit"], "did you mean 'digits'"),
        (["--model", "mpl"], "did you mean 'mlp'"),
        (["--model", "lstm"], "sequences of characters"),
        (["--model", "mlp:a"], "write hidden layers as mlp:64-32"),
        (["--partition", "groupes"], "did you mean 'groups'"),
        (["--detector", "papr"], "did you mean 'paper'"),
        (["--clients", "5000"], "more than the 1437 training samples"),
        (["--clients", "0"], "clients is 0"),
        (["--local-steps", "0"], "local_steps is 0"),
        (["--batch-size", "0"], "batch_size is 0"),
        (["--local-lr", "-1"], "local_lr is -1.0"),
        (["--participation", "0"], "participation is 0.0"),
        (
            ["--participation", "0.5", "--method", "fedcomgate"],
            "fedcomgate needs all clients; set it to 1",
        ),
        (["--compress", "gzip"], "There is no codec 'gzip'"),
        (["--compress", "topk:1.5"], "topk.ratio is 1.5; it must be a number above 0 and at most 1"),
        (["--compress", "q8:2"], "compress is 'q8:2', which is not valid; write it as 'q8'"),
        (["--compress", "json:dumps"], "is not a codec"),
        (["--compress", "sign", "--method", "mime"], "but mime also sends answers without training; use q8 or q4"),
        (["--compress", "randk:0.1", "--method", "scaffold"], "grows from round to round in the memory of scaffold"),
        (["--weighting", "size"], "weighting is 'size'; it must be one of uniform, samples"),
        (["--engine", "seriel"], "engine is 'seriel'"),
        (["--set", "taco.gama=0.1"], "did you mean 'taco.gamma'"),
        (["--set", "taco.gamma=1.5"], "taco.gamma is 1.5; it must be a number at least 0 and at most 1"),
        (["--set", "taco.gamma=high"], "taco.gamma is 'high'"),
        (["--set", "paper.kappa=0", "--detector", "paper"], "paper.kappa is 0; it must be a number above 0"),
        (["--set", "paper.kappa=0.5"], "belongs to the detector paper, which is not used"),
        (["--set", "fedprox.zeta=0.5"], "belongs to the method fedprox, which is not used"),
        (["--set", "gamma"], "write it as taco.gamma=0.02"),
        (["--format", "xml"], "it must be one of table, json, csv, markdown, latex"),
        (["--plot", "plot.gif"], "plot is 'plot.gif'; its name must end in .pdf, .png or .svg"),
        (["--plot", "nowhere/plot.pdf"], "plot is 'nowhere/plot.pdf', but there is no folder nowhere"),
        (["--method", "no.such:Thing"], "Cannot import 'no.such'"),
        (["--method", "json:dumps"], "is not a method"),
        (["--method", "json:Nothing"], "has no class 'Nothing'"),
        (["--metod", "taco"], "No such option"),
        (["--method", "TACO"], "did you mean 'taco'"),
        (["--method", "./own.py:Thing"], "Write it as package.module:Class"),
        (["--out", "/proc/nowhere/run"], "Cannot write to /proc/nowhere/run"),
        (["--resume", "--overwrite"], "not both"),
        (["--engine", "serial", "--workers", "2"], "workers are for the engines pool and batched"),
        (["--engine", "pool", "--workers", "0"], "workers is 0"),
        (["--target", "90"], "target is 90.0"),
        (["--seed", "99999999999999999999"], "seed is"),
        (["--model", "mlp:²"], "write hidden layers as mlp:64-32"),
        (["--model", "mlp:9999999-9999999"], "at most 100,000,000 are possible"),
        (["--model", f"mlp:{'9' * 5000}"], "write hidden layers as mlp:64-32"),
        (["--batch-size", "9223372036854775807"], "batch_size is 9223372036854775807; it must be a whole number"),
        (["--local-steps", "2147483648"], "local_steps is 2147483648; it must be a whole number"),
        (["--local-steps", "1000000", "--batch-size", "1000000"], "local_steps times batch_size is 1,000,000,000,000"),
        (["--detector", "guard", "--set", "guard.max_strikes=99999999999999999999"], "guard.max_strikes is 999"),
        (["--method", "fedacg", "--set", "fedacg.beta=1e308"], "fedacg.beta is 1e+308; it must be a number at least 0"),
        (["--set", f"taco.gamma={'9' * 5000}"], "taco.gamma is '99999"),
        (["--set", f"taco.gamma={'[' * 5000}"], "taco.gamma is '[[["),
        (["--workers", "99999999999999999999"], "workers is 99999999999999999999; it must be a whole number"),
        (["--out", "x" * 300], "File name too long"),
        (["--nesterov"], "nesterov has no effect without momentum"),
        (["--optimizer", "adam", "--momentum", "0.9"], "momentum is 0.9, but adam has its own"),
        (["--optimizer", "adam", "--method", "stem"], "which allows one gradient per step, but stem computes 2"),
        (["--lr-schedule", "step:10"], "lr_schedule is 'step:10'; it must be constant, cosine, step:10,0.5"),
        (["--local-epochs", "2"], "Both local_steps and local_epochs are given"),
    ],
    ids=option_ids,
)
def test_invalid_run_options(cli, tmp_path, options, message):
    done = cli("run", *QUICK, *options)
    assert done.returncode == 2
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["show", "--dataset", "mnst"], "did you mean 'mnist'"),
        (["show", "--dataset", "mnist", "--data-dir", "here"], "fedtaco data fetch mnist"),
        (["show", "--partition", "dirichlet"], "takes a number above 0"),
        (["show", "--out", "labels.txt"], "must end in .pdf, .png or .svg"),
        (["show", "--out", "nowhere/labels.png"], "there is no folder nowhere"),
        (["show", "--out", "/proc/labels.png"], "Cannot write to /proc/labels.png"),
        (["show", "--clients", "0"], "clients is 0"),
        (["show", "--seed", "-1"], "seed is -1"),
        (["fetch", "mnst"], "did you mean 'mnist'"),
        (["fetch", "digits"], "nothing to fetch"),
        (["fetch", "adult", "--from", "file:///nowhere.zip", "--data-dir", "here"], "Adult could not be fetched"),
    ],
    ids=option_ids,
)
def test_invalid_data_options(cli, tmp_path, options, message):
    done = cli("data", *options)
    assert done.returncode == 2
    assert message in done.stderr.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_missing_matplotlib_is_reported_before_anything_is_run(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for command in (["reproduce", "table-rounds", "--datasets", "adult"], ["compare", "--plot", "plot.pdf"]):
        done = cli(*command)
        assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
        assert "pip install 'fedtaco[plot]'" in done.stderr
