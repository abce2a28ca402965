"""Comparisons: one run per method and seed, each with the parameters of its own method."""

from __future__ import annotations

import pytest

from fedtaco import InvalidInput
from fedtaco.experiment import Callback, RunOptions
from fedtaco.experiment.comparison import plan_comparison, run_comparison

QUICK = {"dataset": "digits", "clients": 4, "rounds": 2, "local_steps": 2, "engine": "serial"}


def test_methods_share_everything_but_their_parameters():
    parameters = {"taco.gamma": 0.3, "fedprox.zeta": 0.4, "guard.copy": 0.1}
    configs = plan_comparison(["taco", "fedprox"], [5, 6], parameters=parameters, detector="guard", **QUICK)
    configs = [one.config for one in configs]
    assert [(one["method"], one["seed"]) for one in configs] == [(m, s) for s in (5, 6) for m in ("taco", "fedprox")]
    taco, fedprox = configs[:2]
    own = {"method", "parameters"}
    assert {name: taco[name] for name in taco if name not in own} == {
        name: fedprox[name] for name in fedprox if name not in own
    }
    assert {name.partition(".")[0] for name in taco["parameters"]} == {"taco", "guard"}
    assert {name.partition(".")[0] for name in fedprox["parameters"]} == {"fedprox", "guard"}
    assert (taco["parameters"]["taco.gamma"], fedprox["parameters"]["fedprox.zeta"]) == (0.3, 0.4)


@pytest.mark.parametrize(
    ("methods", "parameters", "message"),
    [
        ([], {}, "methods is empty; name at least one"),
        (["taco", "fedavg", "taco"], {}, "methods names taco more than once"),
        (["taco", "all"], {}, "methods names all together with others"),
        (["fedavg"], {"taco.gamma": 0.1}, r"taco\.gamma has no effect: it belongs to the method taco"),
    ],
)
def test_invalid_comparisons_are_refused(methods, parameters, message):
    with pytest.raises(InvalidInput, match=message):
        plan_comparison(methods, [0], parameters=parameters, **QUICK)


def test_a_method_that_cannot_use_the_optimizer_is_refused_before_anything_is_run():
    with pytest.raises(
        InvalidInput, match="optimizer is 'adam', which allows one gradient per step, but stem computes"
    ):
        plan_comparison(["fedavg", "stem"], [0], optimizer="adam", **QUICK)


def test_each_run_has_a_folder_named_after_method_and_seed(tmp_path):
    configs = plan_comparison(["fedavg", "taco"], [3], **QUICK)
    summaries = run_comparison(configs, tmp_path, RunOptions(), Callback())
    assert [summary["folder"] for summary in summaries] == [
        str(tmp_path / "fedavg-seed3"),
        str(tmp_path / "taco-seed3"),
    ]
    assert [(summary["method"], summary["rounds"]) for summary in summaries] == [("fedavg", 2), ("taco", 2)]
