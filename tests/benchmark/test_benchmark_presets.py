"""Presets of benchmarks: what is refused, and that those of fedtaco are as the protocol asks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedtaco import InvalidInput
from fedtaco.benchmark.plan import plan_tuning, refuse_code
from fedtaco.benchmark.presets import load_preset, preset_names, read_preset

OWN = """
title = "Own"
reference = "fedavg"
budget = 2
rates = [1, 3]
tuning_seeds = [10]
seeds = [0, 1]
twins = [["taco", "fedavg"]]

[methods.fedavg]

[methods.taco]
rates = [1]
grid = { "taco.gamma" = [0.01, 0.02] }

[[tasks]]
name = "even"
primary = true
dataset = "digits"
partition = "iid"

[[tasks]]
name = "skewed"
dataset = "digits"
seeds = [5]
finalists = 1
"""
PAPER = ["fedavg", "fedprox", "foolsgold", "scaffold", "stem", "fedacg", "taco"]


def change(old, new):
    assert old in OWN
    return OWN.replace(old, new, 1)


def test_a_preset_is_read():
    preset = read_preset("own", OWN)
    even, skewed = preset.tasks
    assert (even.primary, list(even.seeds), even.settings) == (True, [0, 1], {"dataset": "digits", "partition": "iid"})
    assert (skewed.primary, list(skewed.seeds)) == (False, [5])
    assert (even.finalists, skewed.finalists) == (2, 1)  # by default all settings
    assert [(one.method, one.setting_count) for one in preset.methods] == [("fedavg", 2), ("taco", 2)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (change("seeds = [0, 1]", "seeds = [0, 10]"), r"evaluated with seeds that it is tuned on \(10\)"),
        (change("finalists = 1", "finalists = 9"), "The task skewed has finalists = 9"),
        (change("seeds = [5]", "seeds = [10]"), "The task skewed is evaluated with seeds that it is tuned on"),
        (change("seeds = [0, 1]", "seeds = [0, 0]"), "name each seed once"),
        (change("seeds = [0, 1]", "seeds = []"), "at least one"),
        (change("rates = [1]\n", "rates = [1, 2]\n"), "taco has 4 settings to try and budget is 2"),
        (change("rates = [1, 3]", "rates = [1, 1]"), "fedavg has 1 setting to try and budget is 2"),
        (
            change("budget = 2", "budget = 2\nfinalists = 3"),
            "The task even has finalists = 3; it must be at least 1 and at most the budget, 2",
        ),
        (change("budget = 2", "budget = 2\nfinalists = 0"), "finalists = 0"),
        (change('reference = "fedavg"', 'reference = "stem"'), "The reference is stem, which is not among the methods"),
        (change('["taco", "fedavg"]', '["taco", "stem"]'), "twins contains taco, stem"),
        (change("primary = true\n", ""), "No task is primary"),
        (change("budget = 2", "budget = -2"), "budget is -2; it must be at least 1"),
        (change("budget = 2", "budgett = 2"), "There is no entry of a preset 'budgett'; did you mean 'budget'"),
        (change("seeds = [5]", "seeds = [-1]"), "seed is -1; it must be a whole number at least 0"),
        (change('"taco.gamma" = [0.01, 0.02]', '"taco.gamma" = []'), "The grid of taco has no values for taco.gamma"),
        (
            change('"taco.gamma" = [0.01', 'rounds = [9], "taco.gamma" = [0.01'),
            "The grid of taco contains rounds, which",
        ),
        (change('"taco.gamma" = [0.01', 'local_lr = [1], "taco.gamma" = [0.01'), "write local learning rates as rates"),
        (
            change("0.02] }\n", '0.02] }\nmomentum = "taco.gama"\n'),
            "There is no parameter in the grid of taco 'taco.gama'; did you mean 'taco.gamma'",
        ),
        (change('name = "skewed"', 'name = "even"'), "The tasks even, even would use the same folder"),
        (change('name = "skewed"', 'name = "even/"').replace('"even"', '"even?"'), "even., even/ would use the same"),
        (change('name = "skewed"', 'name = "a, b"'), "A task is named 'a, b'; a name needs a letter or digit, and no"),
        (change('name = "skewed"', 'name = ".."'), "A task is named '..'; a name needs a letter or digit"),
        (change('partition = "iid"', "eval_every = 2"), "The task even sets eval_every"),
        (change('partition = "iid"', "server_lr = 2.0"), "The task even sets server_lr"),
        (change('partition = "iid"', "local_epochs = 2"), "The task even sets local_epochs"),
        (change('partition = "iid"', 'local_work = "uniform:0.3,1.0"'), "The task even sets local_work"),
        (change("twins", "twin"), "There is no entry of a preset 'twin'; did you mean 'twins'"),
        (change("rates = [1]\n", "rate = [1]\n"), "There is no entry of methods.taco 'rate'"),
        (
            change("[0.01, 0.02] }", '["1/K", 1] }\nmomentum = "taco.gamma"'),
            "The momentum of taco is taco.gamma; its grid must give it numbers",
        ),
    ],
)
def test_what_contradicts_the_protocol_is_refused(text, words):
    with pytest.raises(InvalidInput, match=words):
        read_preset("own", text)


@pytest.mark.parametrize(
    ("old", "new"),
    [("finalists = 1", "finalists = 1.5"), ("seeds = [5]", "seeds = 5"), ('name = "skewed"', "name = 3")],
)
def test_entries_of_a_task_with_another_type_are_refused(old, new):
    with pytest.raises(ValueError, match=f"{new.split()[0]} of a task is missing or not valid"):
        read_preset("own", change(old, new))


def test_an_undamped_momentum_of_one_is_refused():
    momentum = '[methods.fedacg]\ngrid = {"fedacg.momentum" = [0.9, 1.0]}\nrates = [1]\nmomentum = "fedacg.momentum"\n'
    with pytest.raises(InvalidInput, match="numbers of at least 0 and below 1"):
        read_preset("own", change("[methods.taco]", f"{momentum}\n[methods.taco]"))


def test_selection():
    preset = read_preset("own", OWN)
    assert [task.name for task in preset.select(["skewed"], []).tasks] == ["skewed"]
    only = preset.select([], ["fedavg"])
    assert ([one.method for one in only.methods], only.twins) == (["fedavg"], preset.twins)
    for tasks, methods, words in (
        (["odd"], [], "There is no task in own 'odd'"),
        ([], ["krum"], "There is no method in own 'krum'"),
    ):
        with pytest.raises(InvalidInput, match=words):
            preset.select(tasks, methods)


def test_a_preset_is_found_by_name_or_path(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    assert load_preset(str(path)).name == "mine"
    with pytest.raises(InvalidInput, match="There is no benchmark 'benchmark-mpl'; did you mean 'benchmark-mlp'"):
        load_preset("benchmark-mpl")
    with pytest.raises(InvalidInput, match="it is missing"):
        load_preset(str(tmp_path / "other.toml"))
    path.write_text(change("budget = 2", 'budget = "2"'))
    with pytest.raises(InvalidInput, match=r"mine.toml is not valid: budget: '2' is not a whole number"):
        load_preset(str(path))
    path.write_text(change("primary = true", 'primary = "yes"'))
    with pytest.raises(InvalidInput, match=r"mine.toml is not valid: primary of a task is missing or not valid"):
        load_preset(str(path))


def test_code_is_not_imported_unless_it_is_named():
    own = read_preset("own", change("[methods.taco]", '[methods."mine:Clipped"]').replace('"taco", ', '"fedavg", '))
    with pytest.raises(InvalidInput, match="names code, mine:Clipped, which is only imported if you name it too"):
        refuse_code(own, [])
    refuse_code(own, ["fedavg", "mine:Clipped"])
    for name, value in (("partition", "mine:split"), ("compress", "mine:Codec:0.1")):
        preset = read_preset("own", change('partition = "iid"', f'{name} = "{value}"'))
        with pytest.raises(InvalidInput, match=f"The task even has {name} '{value}', which is code"):
            refuse_code(preset, [])


@pytest.mark.parametrize("name", preset_names())
def test_presets_can_be_planned_with_equal_budgets(name):
    preset = load_preset(name)
    for task in preset.tasks:
        trials = plan_tuning(preset, task)
        for one in preset.methods:
            own = [trial for trial in trials if trial.method == one.method]
            assert len(own) == preset.budget <= 12
            for config in (spec.settings for trial in own for spec in trial.specs):
                assert config["validation"] == 0.1
                assert config["seed"] in preset.tuning_seeds
                assert "target" in task.settings


def test_presets_of_the_protocol():
    assert preset_names() == ["benchmark-cnn", "benchmark-mlp", "benchmark-participation", "benchmark-smoke"]
    mlp = load_preset("benchmark-mlp")
    parts = ["taco-correction", "taco-uniform", "taco-steady", "taco-steady-uniform", "taco-aggregation"]
    assert [one.method for one in mlp.methods] == [*PAPER, *parts, "fedavgm", "fedcm", "feddyn", "scaffold-m"]
    assert [len(task.seeds) for task in mlp.tasks] == 3 * [10] + 6 * [5]
    assert {task.settings["local_lr"] for task in mlp.tasks if task.settings["dataset"] == "adult"} == {0.003}
    assert mlp.twins == [["taco-correction", "taco-uniform"], ["taco-steady", "taco-steady-uniform"]]
    cnn = load_preset("benchmark-cnn")
    assert [one.method for one in cnn.methods] == ["fedavg", "fedacg", "scaffold", "taco", *cnn.twins[0]]
    assert cnn.twins == [["taco-steady", "taco-steady-uniform"]]
    assert {task.settings["model"] for task in cnn.tasks} == {"cnn"}
    assert {tuple(one.rates) for one in cnn.methods} == {(1, 3, 10, 30)}


def test_the_documented_preset_is_the_smallest_one():
    page = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    (documented,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    smallest = load_preset("benchmark-smoke")
    assert read_preset("benchmark-smoke", documented) == replace(smallest, title="FedAvg, FedACG and TACO on digits")
