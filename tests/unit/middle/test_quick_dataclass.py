"""A class by `quick_dataclass` acts as the standard library's would."""

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any, ClassVar

import pytest
from wavedsl.ir import quick_dataclass


def quick(**options):
    return lambda cls: quick_dataclass.dataclass(cls) if not options else quick_dataclass.dataclass(**options)(cls)


def standard(**options):
    return dataclasses.dataclass(**options)


def point(decorator, **options):
    class Point:
        """A place."""

        known: ClassVar[int] = 3
        x: int
        y: int = 2
        names: list[str] = field(default_factory=list)
        loc: str | None = field(default=None, compare=False, repr=False, kw_only=True)
        memo: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

        def __post_init__(self):
            self.memo["sum"] = self.x + self.y

    return decorator(**options)(Point)


OPTIONS = ({}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False})
pair = pytest.mark.parametrize("options", OPTIONS, ids=str)


@pair
def test_instances(options):
    for cls in (point(quick, **options), point(standard, **options)):
        one, two = cls(1, names=["a"], loc="here"), cls(1, 2, ["a"])
        assert (one.x, one.y, one.names, one.loc, one.memo) == (1, 2, ["a"], "here", {"sum": 3})
        assert repr(one) == f"{cls.__qualname__}(x=1, y=2, names=['a'])"
        assert (one == two) is options.get("eq", True)
        assert one != cls(1, 3) and one != (1, 2, ["a"])
        assert cls(1).names is not cls(1).names
        assert dataclasses.replace(one, y=5, loc="there").memo == {"sum": 6}
        assert [f.name for f in dataclasses.fields(cls)] == ["x", "y", "names", "loc", "memo"]
        assert cls.__match_args__ == ("x", "y", "names")
        assert cls.known == 3


@pair
def test_many_instances(options):
    """What is made before and after `__init__` is compiled is the same."""
    quick_one, standard_one = point(quick, **options), point(standard, **options)
    interim = quick_one.__init__
    for i in range(quick_dataclass.OFTEN + 2):
        for args, names in (((i,), {}), ((i, 5), {"names": ["a"]}), ((), {"loc": "here", "x": i})):
            one, two = quick_one(*args, **names), standard_one(*args, **names)
            assert list(vars(one).items()) == list(vars(two).items())
    assert quick_one.__init__ is not interim


MISFITS = (
    ((), {}),
    ((), {"y": 1}),
    ((1, 2, [], "here"), {}),
    ((1,), {"x": 1}),
    ((1,), {"z": 1}),
    ((1,), {"memo": {}}),
    ((), {}),
)


@pair
@pytest.mark.parametrize("before", [0, 1, quick_dataclass.OFTEN, quick_dataclass.OFTEN + 1])
@pytest.mark.parametrize("first", range(len(MISFITS)))
def test_refusals(options, before, first):
    """The same errors, with the same words, in the first instance and later."""
    messages = []
    for cls in (point(quick, **options), point(standard, **options)):
        said = []
        for _ in range(before):
            cls(1)
        for args, names in MISFITS[first:]:
            with pytest.raises(TypeError) as caught:
                cls(*args, **names)
            said.append(str(caught.value))
        made = cls(1)
        if options.get("frozen"):
            for act in (lambda: setattr(made, "x", 2), lambda: delattr(made, "x")):
                with pytest.raises(dataclasses.FrozenInstanceError) as refused:
                    act()
                said.append(str(refused.value))
        messages.append(said)
        made.__dict__["x"] = 7
        assert made.x == 7
    assert messages[0] == messages[1]


@pair
@pytest.mark.parametrize("own", [(), ("__eq__",), ("__hash__",), ("__eq__", "__hash__"), ("__repr__",)], ids=str)
def test_own_methods_stay(options, own):
    written = {
        "__eq__": lambda self, other: "eq",
        "__hash__": lambda self: 11,
        "__repr__": lambda self: "own",
    }

    def body(names):
        methods = {name: written[name] for name in names}
        return {"__annotations__": {"x": "int"}, "__module__": __name__, "__doc__": "", **methods}

    a, b = (decorator(**options)(type("C", (), body(own))) for decorator in (quick, standard))
    for cls in (a, b):
        one, two = cls(1), cls(1)
        assert (one == two) == ("eq" if "__eq__" in own else options.get("eq", True))
        assert repr(one) == "own" if "__repr__" in own else "C(x=1)" in repr(one)
    assert (a.__hash__ is None) == (b.__hash__ is None)
    if a.__hash__ is not None:
        assert (hash(a(1)) == hash(a(1))) == (hash(b(1)) == hash(b(1)))


@quick_dataclass.dataclass(frozen=True)
class Base:
    """A class that another adds to."""

    x: int


@quick_dataclass.dataclass(frozen=True)
class More(Base):
    """One field more."""

    y: "More | None" = None


@quick_dataclass.dataclass(frozen=True)
class Empty:
    """No field."""


def test_a_class_of_a_class():
    more = More(1, More(2))
    assert repr(more) == "More(x=1, y=More(x=2, y=None))"
    assert more == More(1, More(2)) and hash(more) == hash(More(1, More(2))) and more != More(1) and More(1) != Base(1)
    assert Base(1) == Base(1) and {Base(1): 1}[Base(1)] == 1
    assert pickle.loads(pickle.dumps(more)) == copy.deepcopy(more) == copy.copy(more) == more
    assert Empty() == Empty() and hash(Empty()) == hash(Empty()) and repr(Empty()) == "Empty()"
    assert dataclasses.asdict(more) == {"x": 1, "y": {"x": 2, "y": None}}


def test_what_names_itself_is_shown():
    @quick_dataclass.dataclass
    class Ring:
        """A list that may hold its holder."""

        items: list[Any]

    ring = Ring([])
    ring.items.append(ring)
    assert repr(ring).endswith("Ring(items=[...])")


@pair
def test_fields(options):
    """What the standard library's functions read is as it would have left it."""

    def of(decorator):
        cls = point(decorator, **options)
        further = decorator(**options)(type("More", (cls,), {
            "__annotations__": {"z": "int", "y": "int", "w": ClassVar[int]}, "z": field(default=3, repr=False),
            "__module__": __name__,
        }))  # fmt: skip
        return cls, further

    for quick_one, standard_one in zip(of(quick), of(standard)):
        mine, theirs = (
            [
                (f.name, f.type, f.default, f.default_factory, f.init, f.repr, f.compare, f.kw_only)
                for f in dataclasses.fields(c)
            ]
            for c in (quick_one, standard_one)
        )
        assert mine == theirs
        assert quick_one.__match_args__ == standard_one.__match_args__
        assert dataclasses.is_dataclass(quick_one) and dataclasses.asdict(quick_one(1)) == dataclasses.asdict(
            standard_one(1)
        )
        assert [getattr(quick_one, n, None) for n in "xyz"] == [getattr(standard_one, n, None) for n in "xyz"]


def test_a_default_that_changes_is_refused():
    with pytest.raises(ValueError, match=r"List\.items"):

        @quick_dataclass.dataclass
        class List:
            items: list[int] = []  # noqa: RUF012


def test_a_class_without_a_docstring_asks_for_no_signature(monkeypatch):
    """The standard library writes one from the signature: milliseconds."""
    monkeypatch.setattr("inspect.signature", lambda *_: pytest.fail("asked for a signature"))

    @quick_dataclass.dataclass
    class Plain:
        x: int

    assert Plain.__doc__ == "Plain"
