"""`record` makes of a class what `dataclass` does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest
from wavedsl.ir.records import record


def classes(decorator: Any) -> dict[str, type]:
    """The same classes by one of the two decorators."""

    @decorator
    class Plain:
        a: int
        b: str = "b"
        made: list[int] = field(default_factory=list)
        quiet: int = field(default=3, repr=False, compare=False)

    @decorator(frozen=True)
    class Frozen:
        a: int
        b: tuple[int, ...] = ()
        memo: dict[int, int] = field(default_factory=dict, init=False, compare=False, repr=False)

    @decorator(frozen=True)
    class One:
        only: float
        """A lone field is compared as one."""

    @decorator(frozen=True)
    class Checked:
        a: int
        twice: int = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.a)

    @decorator(eq=False)
    class Itself:
        a: int = field(kw_only=True, default=1)
        late: int = field(init=False, default=7)

    @decorator(frozen=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    @decorator
    class Longer(Plain):
        c: int = 5

    @decorator(frozen=True)
    class Empty:
        pass

    return {c.__name__: c for c in (Plain, Frozen, One, Checked, Itself, Own, Longer, Empty)}


OURS, THEIRS = classes(record), classes(dataclass)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Plain", (1,), {}), ("Plain", (1, "x", [2], 9), {}), ("Plain", (1,), {"quiet": 4}), ("Plain", (), {}),
    ("Frozen", (1,), {}), ("Frozen", (2, (3,)), {}), ("Frozen", (1, (), {}), {}), ("One", (0.5,), {}),
    ("One", (2.5,), {}), ("Checked", (4,), {}), ("Checked", (), {"a": 5}), ("Itself", (), {"a": 2}), ("Itself", (2,), {}), ("Own", (1,), {}),
    ("Longer", (1, "x", [], 2, 3), {}), ("Empty", (), {}), ("Empty", (1,), {}),
]  # fmt: skip


def told(made: dict[str, type], call: tuple[str, tuple[Any, ...], dict[str, Any]]) -> Any:
    """What an object says of itself, or how making it fails."""
    name, args, named = call
    try:
        x = made[name](*args, **named)
    except TypeError as error:
        return str(error).split(".")[-1]
    return repr(x).split(".")[-1], vars(x), [(f.name, getattr(x, f.name, None)) for f in dataclasses.fields(x)]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_objects_are_the_same(call: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    assert told(OURS, call) == told(THEIRS, call)


@pytest.mark.parametrize("first", CALLS, ids=str)
def test_what_is_equal_and_what_has_a_hash(first: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    def relations(made: dict[str, type]) -> list[Any]:
        objects = []
        for name, args, named in (first, *CALLS):
            try:
                objects.append(made[name](*args, **named))
            except TypeError:
                objects.append(None)
        x = objects[0]
        same = [y for y in objects if x == y and type(x) is type(y)]
        hashes = {hash(y) for y in same} if x.__hash__ is not None and x.__class__.__name__ != "Own" else None
        return [x.__hash__ is None, [x == y for y in objects], hashes and len(hashes)]

    assert relations(OURS) == relations(THEIRS)


@pytest.mark.parametrize("name", OURS)
def test_signatures_and_fields(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__  # type: ignore[attr-defined]


def test_frozen_ones_do_not_change() -> None:
    x = OURS["Frozen"](1, (2,))
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        x.a = 2  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
        del x.a  # type: ignore[attr-defined]
    assert dataclasses.replace(x, a=5) == OURS["Frozen"](5, (2,))
    assert copy.copy(x) == x and dataclasses.asdict(x) == {"a": 1, "b": (2,), "memo": {}}


@record
class Around:
    """Holds itself."""

    inside: Any = None


def test_cycles_print_and_objects_travel() -> None:
    x = Around()
    x.inside = x
    assert repr(x) == "Around(inside=...)"
    assert pickle.loads(pickle.dumps(Around(3))) == Around(3)
