"""The registry: classes by name, users' own classes by import path, and errors for everything else."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from fedtaco import METHODS, FedAvg, FedProx, InvalidInput, Method, Taco, parameter
from fedtaco.registry import Registry, call_own
from fedtaco.trust import DETECTORS, PaperDetector


@dataclass(frozen=True)
class Clipped(Method):
    """A user's method, which is found as ``test_registry:Clipped``."""

    name, summary = "clipped", "clips uploads"
    limit: float = parameter(1.0, "maximum length of an upload", low=0, open_low=True)


@dataclass(frozen=True)
class Impostor(Method):
    name, summary = "taco", "has the name of a registered method"


class Nameless(Method):
    summary = "has no name"


SMALL = Registry(Method, [FedAvg, Taco])


def test_registry_is_a_mapping_in_the_given_order():
    assert list(SMALL.items()) == [("fedavg", FedAvg), ("taco", Taco)]
    assert (len(SMALL), "taco" in SMALL, "stem" in SMALL) == (2, True, False)


def test_find_by_name_and_by_import_path():
    assert SMALL.find("taco") is Taco
    assert SMALL.find("test_registry:Clipped") is Clipped


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder; it is removed from ``sys.path`` after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_find_imports_from_the_current_folder(folder):
    (folder / "registry_plugin.py").write_text(
        "from fedtaco import Method\nclass Own(Method):\n    name, summary = 'own', 'is found'\n"
    )
    assert SMALL.find("registry_plugin:Own").name == "own"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tako", "There is no method 'tako'; did you mean 'taco'? Known: fedavg, taco."),
        ("xyz", "There is no method 'xyz'. Known: fedavg, taco."),
        (
            "no_such_module:Clipped",
            "Cannot import 'no_such_module' for the method 'no_such_module:Clipped': No module named 'no_such_module'. "
            "Write it as package.module:Class.",
        ),
        ("test_registry:Cliped", "The module 'test_registry' has no class 'Cliped'."),
        ("test_registry:SMALL", "'test_registry:SMALL' is not a method: derive it from Method."),
        ("fedtaco.trust:Guard", "'fedtaco.trust:Guard' is not a method: derive it from Method."),
        ("test_registry:Nameless", "The method Nameless needs a class attribute 'name'."),
        (
            "test_registry:Impostor",
            "The name 'taco' of the method 'test_registry:Impostor' is used by fedtaco; choose another.",
        ),
    ],
)
def test_find_explains_what_is_wrong(spec, message):
    with pytest.raises(InvalidInput) as error:
        SMALL.find(spec)
    assert str(error.value) == message


def test_module_that_raises_an_error_is_reported(folder):
    (folder / "broken_plugin.py").write_text("1 / 0\n")
    with pytest.raises(InvalidInput) as error:
        DETECTORS.find("broken_plugin:Own")
    assert str(error.value) == (
        "Cannot import 'broken_plugin' for the detector 'broken_plugin:Own': division by zero. It is raised in "
        "broken_plugin.py, line 1."
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import torch\nimport no_such_library\n", r"No module named 'no_such_library'. It is raised in %s.py, line 2"),
        ("x = 1\nx = = 2\n", r"It is raised in %s.py, line 2"),
    ],
)
def test_the_line_of_an_error_in_a_module_is_reported(folder, code, message):
    name = f"broken_{len(code)}"
    (folder / f"{name}.py").write_text(code)
    with pytest.raises(InvalidInput, match=message % name):
        DETECTORS.find(f"{name}:Own")


def test_a_function_that_cannot_be_called_is_reported():
    with pytest.raises(InvalidInput, match=r"mine:split failed with TypeError: .* \(when it was called\)"):
        call_own("mine:split", lambda labels: labels, 1, 2)


def test_instance_uses_the_parameters_of_the_class_alone():
    parameters = {"taco.gamma": 0.2, "fedprox.zeta": 0.5, "clipped.limit": 3.0}
    assert METHODS.instance("taco", parameters) == Taco(gamma=0.2)
    assert METHODS.instance("fedprox", parameters) == FedProx(zeta=0.5)
    assert METHODS.instance("test_registry:Clipped", parameters) == Clipped(limit=3.0)
    assert METHODS.instance("fedavg", parameters) == FedAvg()
    with pytest.raises(InvalidInput, match=r"clipped\.limit is 0; it must be a number above 0"):
        METHODS.instance("test_registry:Clipped", {"clipped.limit": 0})


def test_instance_from_an_instance_a_class_or_a_name():
    given = PaperDetector(kappa=0.9)
    assert DETECTORS.instance(given) is given
    assert DETECTORS.instance(PaperDetector) == DETECTORS.instance("paper") == PaperDetector()
    assert METHODS.instance("test_registry:Clipped") == Clipped()


@pytest.mark.parametrize(("instance", "spec"), [(Taco(gamma=0.1), "taco"), (Clipped(), "test_registry:Clipped")])
def test_spec_finds_the_class_again(instance, spec):
    assert METHODS.spec(instance) == spec
    assert METHODS.find(spec) is type(instance)


def test_spec_of_a_class_with_a_registered_name_is_its_import_path():
    assert METHODS.spec(Impostor()) == "test_registry:Impostor"
