"""The option --personal."""

from __future__ import annotations

import json

import fedtaco


def test_run_with_personal_norm_layers(cli):
    options = ("--model", "resnet18:batchnorm", "--personal", "*norm*", "--method", "fedavg", "--clients", "2")
    short = ("--rounds", "1", "--local-steps", "1", "--batch-size", "4", "--partition", "iid", "--eval-samples", "20")
    done = cli("run", *options, *short, "--out", "run", "--format", "json")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["personal"] == "*norm*"
    result = fedtaco.load("run")
    own, other = (result.client_model(client).norm for client in range(2))
    assert not own.running_mean.equal(other.running_mean)
    assert result.model.norm.running_mean.abs().max() == 0


def test_the_table_says_what_accuracies_mean(cli):
    settings = ("--rounds", "1", "--local-steps", "1", "--personal", "head.*", "--out", "runs")
    done = cli("compare", "--methods", "fedavg,taco", *settings)
    assert done.returncode == 0, done.stderr
    assert "accuracies are means over the honest clients" in " ".join(done.stdout.split())
    assert "Worst tenth" not in done.stdout


def test_patterns_without_effect_are_explained(cli):
    for pattern, reason in (("bn*", "matches no trainable parameter"), ("*", "matches every trainable parameter")):
        for command in (("run",), ("compare", "--methods", "fedavg,taco")):
            done = cli(*command, "--personal", pattern, "--out", "somewhere")
            assert done.returncode == 2
            assert f"personal is '{pattern}', which {reason}" in " ".join(done.stderr.split())
            assert "head.weight" in done.stderr
    done = cli("run", "--personal", " , ")
    assert done.returncode == 2
    assert "personal is ' , '; it must be a list of names, or text with commas between them" in done.stderr
