"""`record`: dataclasses that are quick to define.

In: a class with annotated fields, as for `dataclasses.dataclass`. Out: the same class with the same methods; `fields`,
`replace` and `match` work on it. The standard decorator compiles up to six functions per class from text, 0.3 to 0.9
ms; with more than a hundred classes that was a third of a first compile. Here only `__init__`, whose speed matters, is
compiled; the others are closures over the names of the fields. Type checkers see the standard decorator.

Not there: `slots`, `order`, `unsafe_hash`, `InitVar`. Classes that need those take `dataclass`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """The class with `__init__`, `__repr__`, and as asked for `__eq__`, `__hash__` and immutability.

        What the class defines itself stays.
        """
        if cls is None:
            return lambda c: record(c, frozen=frozen, eq=eq)
        own = set(cls.__dict__)
        if cls.__dict__.get("__hash__") is None:  # left there by the class's own `__eq__`
            own.discard("__hash__")
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        fields = dataclasses.fields(cls)
        made: dict[str, Any] = {"__init__": _initialiser(cls, fields, frozen), "__repr__": _representation(fields)}
        if eq:
            values = _values([f.name for f in fields if f.compare])
            made["__eq__"] = _equality(values)
            made["__hash__"] = _hash(values) if frozen else None
        if frozen:
            made |= {"__setattr__": _no_assignment, "__delattr__": _no_deletion}
        for name, method in made.items():
            if name not in own:
                setattr(cls, name, method)
        return cls


def _initialiser(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """`__init__`, compiled: fields in order, those for keywords only behind a star."""
    space: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    positional: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for f in fields:
        value = f.name
        if f.default_factory is not MISSING:
            space[f"_make_{f.name}"] = f.default_factory
            value = f"_make_{f.name}() if {f.name} is _missing else {f.name}" if f.init else f"_make_{f.name}()"
        elif not f.init:
            if f.default is MISSING:
                continue
            value = f"_default_{f.name}"
        if f.default is not MISSING:
            space[f"_default_{f.name}"] = f.default
        if f.init:
            default = "_missing" if f.default_factory is not MISSING else f"_default_{f.name}"
            known = f.default is not MISSING or f.default_factory is not MISSING
            (by_name if f.kw_only else positional).append(f"{f.name}={default}" if known else f.name)
        body.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), space)
    init = space["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**{f.name: f.type for f in fields if f.init}, "return": None}
    return init


def _representation(fields: tuple[Field[Any], ...]) -> Callable[[Any], str]:
    names = [f.name for f in fields if f.repr]

    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    return __repr__


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of some fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda x: tuple(getattr(x, n) for n in names)


def _equality(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _no_assignment(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
