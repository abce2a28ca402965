"""Classes by name: the registered ones, and users' own classes and functions as ``package.module:name``."""

import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from fedtaco.errors import InvalidInput, unknown
from fedtaco.parameters import Configurable, ParameterValue, check_class
from fedtaco.printable import quoted

Base = TypeVar("Base", bound=Configurable)


def names_code(spec: str, known: Iterable[str]) -> bool:
    """Return whether a text names a user's own code, as ``package.module:name``, and not one of the known names.

    >>> names_code("mine:split", ["dirichlet"]), names_code("dirichlet:mine", ["dirichlet"]), names_code("mine:0.5", [])
    (True, False, False)
    """
    module, _, name = spec.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split(".")) and module not in known


def import_object(spec: str, kind: str, what: str) -> Any:
    """Import a user's class or function, also from the current folder.

    Parameters
    ----------
    spec
        ``package.module:name``.
    kind
        What the object is for, such as ``method``, for messages.
    what
        What the name stands for: ``Class`` or ``function``.

    Raises
    ------
    InvalidInput
        If the module cannot be imported or does not have this name.
    """
    module_name, _, name = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        line = _last_line(error)
        advice = f"It is raised in {line}." if line else f"Write it as package.module:{what}."
        raise InvalidInput(f"Cannot import '{module_name}' for the {kind} '{spec}': {error}. {advice}") from error
    found = getattr(module, name, None)
    if found is None:
        raise InvalidInput(f"The module '{module_name}' has no {what.lower()} '{name}'.")
    return found


def call_own(spec: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function that the settings name.

    Raises
    ------
    InvalidInput
        If it raises an error; the message says which, and on which line of the user's code.
    """
    try:
        return function(*arguments)
    except InvalidInput:
        raise
    except Exception as error:
        where = _last_line(error) or "when it was called"
        raise InvalidInput(f"{spec} failed with {type(error).__name__}: {error} ({where}).") from error


def _last_line(error: Exception) -> str | None:
    """Return where in a user's code an error was raised, such as ``mine.py, line 3``; ``None`` if it was not there."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    if last.filename == __file__ or "importlib" in last.filename:
        return None
    return f"{Path(last.filename).name}, line {last.lineno}"


class Registry(dict[str, type[Base]], Generic[Base]):
    """The registered subclasses of a base class, by name.

    Parameters
    ----------
    base
        The class that all registered classes derive from, such as ``Method``.
    classes
        The classes that fedtaco ships, in the order in which they are listed.
    """

    def __init__(self, base: type[Base], classes: Sequence[type[Base]]) -> None:
        super().__init__({cls.name: cls for cls in classes})
        self.base = base

    def find(self, spec: str) -> type[Base]:
        """Return a registered class by name, or import a user's own by ``package.module:Class``.

        Raises
        ------
        InvalidInput
            If there is no such class, or it cannot be imported, does not derive from the base class or is not valid.
        """
        if ":" in spec:
            return self._check(spec, import_object(spec, self.base.kind, "Class"))
        if spec not in self:
            raise unknown(self.base.kind, spec, self)
        return self[spec]

    def split_options(self, spec: str) -> tuple[str, list[str]]:
        """Return the name in ``name:option:option``, which may be ``package.module:Class``, and the options."""
        name, *options = spec.split(":")
        if name in self or not options:
            return name, options
        return f"{name}:{options[0]}", options[1:]

    def class_of(self, given: Base | type[Base] | str) -> type[Base]:
        """Return the class of an instance, a class or a name; raise InvalidInput if it is none of these."""
        if isinstance(given, str):
            return self.find(given)
        cls = given if isinstance(given, type) else type(given)
        if not issubclass(cls, self.base):
            raise InvalidInput(f"{self.base.kind} is {quoted(given)}; it must be a {self.base.__name__} or a name.")
        return self._check(_spec_of(cls), cls)

    def instance(self, given: Base | type[Base] | str, parameters: Mapping[str, ParameterValue] | None = None) -> Base:
        """Return an instance from an instance, a class or a name.

        Entries of ``parameters`` whose names, such as ``taco.gamma``, belong to its class replace defaults, but not
        what an instance changes itself.

        Raises
        ------
        InvalidInput
            If ``given`` is something else, or a parameter is not valid.
        """
        default = self.class_of(given)()
        if isinstance(given, str | type):
            return default.with_parameters(parameters or {})
        chosen = {name for name, value in given.parameters().items() if value != default.parameters().get(name)}
        return given.with_parameters({name: value for name, value in (parameters or {}).items() if name not in chosen})

    def spec(self, instance: Base) -> str:
        """Return the name of the class of an instance; of a user's own class, ``package.module:Class``."""
        cls = type(instance)
        return cls.name if self.get(cls.name) is cls else _spec_of(cls)

    def _check(self, spec: str, found: Any) -> type[Base]:
        """Return a user's class; raise InvalidInput if it is not a valid one."""
        kind = self.base.kind
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise InvalidInput(f"'{spec}' is not a {kind}: derive it from {self.base.__name__}.")
        check_class(found)
        if self.get(found.name, found) is not found:
            raise InvalidInput(f"The name '{found.name}' of the {kind} '{spec}' is used by fedtaco; choose another.")
        return found


def _spec_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
