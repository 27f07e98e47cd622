"""`dataclass` as the standard library's, whose methods cost nothing until they are used.

The standard library writes the source of up to six methods for each class and compiles it. A first compile imports a
hundred and forty dataclasses, and that was more than half of the time their modules took. The idea: equality, hash and
representation are closures over `operator.attrgetter`, and `__init__` is worth compiling only where it is called often:
the first `OFTEN` instances of a class are made field by field, and the next one has `__init__` written. Of ninety-five
classes that a GEMM uses, two thirds make no more than ten.

`dataclasses.fields`, `replace` and `asdict` work on such a class. It takes only what the compiler needs: `frozen` and
`eq`, plain fields and class variables. Classes that a user makes keep the standard library's, for their signatures.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """The class with `__init__`, `__repr__`, unless `eq` is False `__eq__`, and if it is frozen `__hash__`."""
        return _made(cls, frozen, eq) if cls is not None else lambda cls: _made(cls, frozen, eq)


def _made(cls: type, frozen: bool, eq: bool) -> type:
    """The class with the methods of a dataclass that it does not write itself, as closures."""
    own = vars(cls)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__
    hashable = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
    fields = _collect(cls)
    methods: dict[str, Any] = {"__init__": _first_init(cls, frozen)}
    if "__repr__" not in own:
        methods["__repr__"] = _repr([f.name for f in fields if f.repr])
    if eq:
        values = _values([f.name for f in fields if f.compare])
        if "__eq__" not in own:
            methods["__eq__"] = _eq(values)
        if not hashable:
            methods["__hash__"] = _hash(values) if frozen else None
    if frozen:
        methods["__setattr__"] = _frozen("assign to")
        methods["__delattr__"] = _frozen("delete")
    for name, method in methods.items():
        if method is not None:
            method.__name__ = name
            method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
    return cls


def _collect(cls: type) -> list[dataclasses.Field[Any]]:
    """The fields of a class and of those that it is made of, left where the standard library's functions look."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        found.update(getattr(base, "__dataclass_fields__", {}))
    given: Any
    for name, annotation in inspect.get_annotations(cls).items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = getattr(cls, name, dataclasses.MISSING)
        if isinstance(given, MemberDescriptorType):  # a slot
            given = dataclasses.MISSING
        f: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
        if type(f.default).__hash__ is None:
            raise ValueError(f"{cls.__name__}.{name}: instances would share a default that changes")
        if f is given:
            if f.default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, f.default)
        f.name, f.type, f._field_type = name, annotation, _PLAIN
        if f.kw_only is dataclasses.MISSING:
            f.kw_only = False
        found[name] = f
    fields = list(found.values())
    match_args = tuple(f.name for f in fields if f.init and not f.kw_only)
    left = {"__dataclass_fields__": found, "__dataclass_params__": _SAMPLE.__dataclass_params__}
    for name, what in {**left, "__match_args__": match_args}.items():
        setattr(cls, name, what)
    return fields


def _sample() -> Any:
    class Sample:
        """What the standard library leaves in a class with a field."""

        x: int

    return dataclasses.dataclass(init=False, repr=False, eq=False)(Sample)


_SAMPLE = _sample()
_PLAIN = dataclasses.fields(_SAMPLE)[0]._field_type  # type: ignore[attr-defined]


def _values(names: list[str]) -> Callable[[Any], Any]:
    """A function of an object: the tuple of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    one = [attrgetter(name) for name in names]
    return lambda self: (one[0](self),) if one else ()


def _repr(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _eq(values: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


def _frozen(action: str) -> Callable[..., None]:
    def refuse(self: Any, name: str, *_: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot {action} field {name!r}")

    return refuse


OFTEN = 24
"""Instances of a class before its `__init__` is compiled. That costs what thirty to sixty made field by field do, so
whatever comes after, a class pays little more than twice what the better of both costs."""


def _first_init(cls: type, frozen: bool) -> Callable[..., None]:
    """An `__init__` that sets the fields in turn, and puts the written one in its place when instances are many, or
    where arguments do not fit: that one says what is wrong. Two threads may both do so: they write the same."""
    put = object.__setattr__ if frozen else setattr
    behind = hasattr(cls, "__post_init__")
    left = OFTEN
    rows: list[tuple[str, Any, Any]] = []
    positional: list[str] = []
    known: frozenset[str] = frozenset()

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal left, rows, positional, known
        if left == OFTEN:
            fields = dataclasses.fields(cls)
            rows = [(f.name, f.default, f.default_factory) for f in fields if f.init or _is_made(f)]
            positional = [f.name for f in fields if f.init and not f.kw_only]
            known = frozenset(f.name for f in fields if f.init)
        left -= 1
        given = {**dict(zip(positional, args, strict=False)), **kwargs}
        if left >= 0 and len(given) == len(args) + len(kwargs) and given.keys() <= known:
            for name, default, factory in rows:
                if name in given:
                    put(self, name, given[name])
                elif factory is not dataclasses.MISSING:
                    put(self, name, factory())
                elif default is not dataclasses.MISSING:
                    put(self, name, default)
                else:
                    break
            else:
                if behind:
                    self.__post_init__()
                return
        init = _written_init(cls, frozen)
        type.__setattr__(cls, "__init__", init)
        init(self, *args, **kwargs)

    return __init__


def _is_made(f: dataclasses.Field[Any]) -> bool:
    return f.default_factory is not dataclasses.MISSING


def _written_init(cls: type, frozen: bool) -> Callable[..., None]:
    """The function that sets one field after the other, from source."""
    places: dict[str, Any] = {"__name__": __name__, "_set": object.__setattr__, "_unset": dataclasses.MISSING}
    positional: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for f in dataclasses.fields(cls):
        value, default = f.name, ""
        if f.default_factory is not dataclasses.MISSING:
            places[f"_make_{f.name}"] = f.default_factory
            value = f"_make_{f.name}() if {f.name} is _unset else {f.name}" if f.init else f"_make_{f.name}()"
            default = "=_unset"
        elif f.default is not dataclasses.MISSING:
            places[f"_default_{f.name}"] = f.default
            default = f"=_default_{f.name}"
        if f.init:
            (by_name if f.kw_only else positional).append(f.name + default)
        if f.init or f.default_factory is not dataclasses.MISSING:
            body.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), places)
    init: Callable[..., None] = places["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


__all__ = ["dataclass"]
