"""Classes by name: the registered ones, and users' own as ``package.module:Class``."""

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from fedtaco.errors import InvalidInput, unknown
from fedtaco.parameters import Configurable, ParameterValue, check_class, domains

Base = TypeVar("Base", bound=Configurable)


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
            return self._import(spec)
        if spec not in self:
            raise unknown(self.base.kind, spec, self)
        return self[spec]

    def create(self, spec: str, parameters: Mapping[str, ParameterValue]) -> Base:
        """Return an instance with the entries of ``parameters`` whose names, such as ``taco.gamma``, are its own."""
        cls = self.find(spec)
        names = {name: f"{cls.name}.{name}" for name in domains(cls)}
        return cls(**{name: parameters[full] for name, full in names.items() if full in parameters})

    def instance(self, given: Base | type[Base] | str) -> Base:
        """Return an instance from an instance, a class or a name."""
        if isinstance(given, str):
            return self.find(given)()
        return given() if isinstance(given, type) else given

    def spec(self, instance: Base) -> str:
        """Return the text for which :meth:`find` returns the class of an instance."""
        cls = type(instance)
        return cls.name if self.get(cls.name) is cls else f"{cls.__module__}:{cls.__qualname__}"

    def _import(self, spec: str) -> type[Base]:
        kind, (module_name, _, class_name) = self.base.kind, spec.partition(":")
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise InvalidInput(
                f"Cannot import '{module_name}' for the {kind} '{spec}': {error}. Write it as package.module:Class."
            ) from error
        found = getattr(module, class_name, None)
        if found is None:
            raise InvalidInput(f"The module '{module_name}' has no class '{class_name}'.")
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise InvalidInput(f"'{spec}' is not a {kind}: derive it from {self.base.__name__}.")
        check_class(found)
        if self.get(found.name, found) is not found:
            raise InvalidInput(f"The name '{found.name}' of the {kind} '{spec}' is used by fedtaco; choose another.")
        return found
