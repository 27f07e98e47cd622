"""A drawn kernel as data: its arrays, how it is cut, its statements; and as the source text that is run and printed.

Statements are text over variables `v1`, `v2`, …, each defined once, so that uses are found and replaced by name. Blocks
(loops, conditions, while loops) hold statements and say what they carry and give back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

VARIABLE = re.compile(r"\bv\d+\b")


@dataclass(frozen=True)
class Type:
    """A register value: its dimensions in order and its dtype, both by name. `bound`: the largest magnitude it has."""

    dims: tuple[str, ...]
    dtype: str
    bound: int = 60

    def fill(self, number: int = 1) -> str:
        """Source of a value of this type."""
        return f"wd.Register[{', '.join((*self.dims, 'wd.' + self.dtype))}]({number})"

    def alike(self, other: Type) -> bool:
        return (self.dims, self.dtype) == (other.dims, other.dtype)


@dataclass
class Array:
    """An argument: `dims` outermost first, `low` and `high` of its whole numbers; `spread`: how it lies in memory;
    `special`: whether some elements are NaN or infinite; `tolerance`: how far apart results may be; `shared_bits`:
    whether all chips give the same bits nevertheless."""

    name: str
    dims: tuple[str, ...]
    dtype: str
    low: int
    high: int
    space: str | None = None
    spread: str = "plain"
    special: bool = False
    tolerance: float = 0.0
    shared_bits: bool = False

    def annotation(self) -> str:
        space = () if self.space is None else (f"wd.{self.space}",)
        return f"{self.name}: wd.Memory[{', '.join((*self.dims, *space, 'wd.' + self.dtype))}]"


@dataclass
class Let:
    """`name = text`."""

    name: str
    type: Type
    text: str

    def lines(self) -> list[str]:
        return [f"{self.name} = {self.text}"]


@dataclass
class Do:
    """A statement for its effect."""

    text: str

    def lines(self) -> list[str]:
        return [self.text]


@dataclass
class Block:
    """A loop over tiles (`iterate`), a condition (`cond`), a loop that ends by itself (`while`) or a function that is
    called where it stands, as many parameters as results (`call`).

    `head`: the loop's dimension and bounds, or the condition's text. `carried`: parameter, type, value before.
    `bodies`: one region, or two for a condition; `yields`: per body, a variable per result; `names`: the results'.
    """

    kind: str
    head: str
    names: list[tuple[str, Type]]
    carried: list[tuple[str, Type, str]]
    bodies: list[list[Any]]
    yields: list[list[str]]
    label: str = "f1"

    def lines(self) -> list[str]:
        parameters = ", ".join(p for p, _, _ in self.carried)
        found = []
        functions = [self.label] if len(self.bodies) == 1 else [f"{self.label}a", f"{self.label}b"]
        for function, body, yields in zip(functions, self.bodies, self.yields):
            lines = [line for s in body for line in s.lines()]
            if yields:
                lines.append(f"return {', '.join(yields)}")
            if self.kind == "iterate":
                first = ", ".join(v for _, _, v in self.carried)
                found.append(f"@wd.iterate({self.head}, init_args=[{first}])")
            found.append(f"def {function}({parameters}):")
            found += ["    " + line for line in lines or ["pass"]]
        result = ", ".join(n for n, _ in self.names)
        if self.kind == "iterate":
            if result:
                found.append(f"{result} = {functions[0]}")
            return found
        if self.kind == "call":
            call = f"{functions[0]}({', '.join(v for _, _, v in self.carried)})"
        elif self.kind == "cond":
            call = f"wd.cond({self.head}, {', '.join(functions)})"
        else:
            first = ", ".join(v for _, _, v in self.carried)
            call = f"wd.while_loop(lambda {parameters}: {self.head}, {functions[0]}, [{first}])"
        found.append(f"{result} = {call}" if result else call)
        return found


@dataclass
class Program:
    """One kernel with its arguments. `sizes`: extents; `subs`: further symbols; `cut`: constraints as text; `schedule`
    and `hopper`: options of `wd.Schedule` for every chip and for sm_90a alone; `dynamic`: run-time dimensions; `by`: if
    any, the dtype of a second number, 3, that is passed by value; `way`: how it is called where not by `compile`
    (`ways.py`); `globe`: the value of a global `GLOBE` that its helper functions read, if any; `tiles`: those of M to
    choose from where they are tuned, the one that `cut` says first."""

    seed: int
    sizes: dict[str, int]
    subs: dict[str, int]
    cut: list[str]
    arrays: list[Array]
    flag: int
    body: list[Any] = field(default_factory=list)
    schedule: dict[str, Any] = field(default_factory=dict)
    hopper: dict[str, Any] = field(default_factory=dict)
    dynamic: tuple[str, ...] = ()
    by: str = ""
    way: str = ""
    globe: int | None = None
    tiles: tuple[int, ...] = ()

    def leave_out(self) -> None:
        """Drops dimensions that nothing mentions: the compiler could not know their extents."""
        text = " ".join(line for s in self.body for line in s.lines())
        text += " ".join(d for a in self.arrays for d in a.dims)
        for d in [d for d in (*self.sizes, *self.subs) if not re.search(rf"\b{d}\b", text)]:
            if d not in ("M", "N"):
                self.sizes.pop(d, None)
                self.subs.pop(d, None)
                self.cut = [c for c in self.cut if not re.search(rf"\({d},", c)]
        self.dynamic = tuple(d for d in self.dynamic if any(d in a.dims for a in self.arrays))

    def bound(self) -> dict[str, int]:
        """Symbols that no array gives a value."""
        return {**self.subs, **{d: n for d, n in self.sizes.items() if not any(d in a.dims for a in self.arrays)}}

    def open_cut(self) -> list[str]:
        """Constraints whose tile of M is the symbol BM."""
        tile = next(int(m[1]) for c in self.cut if (m := re.match(r"wd\.WorkgroupConstraint\(M, (\d+),", c)))
        found = []
        for c in self.cut:
            c = re.sub(r"(WorkgroupConstraint\(M, )\d+", r"\1BM", c)
            wave = re.search(r"WaveConstraint\(M, (\d+)", c)
            found.append(f"wd.WaveConstraint(M, BM / {tile // int(wave[1])})" if wave else c)
        return found

    def source(self, target: str = "", tuned: bool = False) -> str:
        """The kernel `drawn` as Python text; `SCHEDULE` is what the target's schedule is. `tuned`: its tile of M is
        open."""
        used = "\n".join(line for s in self.body for line in s.lines())
        head = [a.annotation() + "," for a in self.arrays]
        hopper = self.hopper if target == "sm_90a" else {}
        shared = hopper.keys() & {"split_k", "stream_k"}  # a loop's trips are shared in one way
        options = {k: v for k, v in self.schedule.items() if not shared or k not in ("split_k", "stream_k")} | hopper
        schedule = f"wd.Schedule({', '.join(f'{k}={v}' for k, v in options.items())})" if options else "None"
        symbols = sorted({*self.sizes, *self.subs, *(("BM",) if tuned else ())})
        lines = ["import wavedsl as wd", "", f"{', '.join(symbols)} = wd.symbols({' '.join(symbols)!r})"]
        if "small(" in used or self.globe is not None:
            lines += ["", *SMALL]
        lines += [line for name, text in CHAINS.items() if f"{name}(" in used for line in ("", *text.splitlines())]
        if self.globe is not None:
            lines += ["", f"GLOBE = {self.globe}", "", *GLOBAL]
        lines += ["", "@wd.wave("]
        lines += [f"    [{', '.join(self.open_cut() if tuned else self.cut)}],"]
        more = f" dynamic=[{', '.join(self.dynamic)}]," if self.way and self.dynamic else ""
        more += " buckets={M: (16, 100)}," if tuned else ""
        subs = ", ".join(f"{k}: {v}" for k, v in self.bound().items())
        lines += [f"    subs={{{subs}}}, schedule={schedule},{more}", ")"]
        lines += ["def drawn(", *(f"    {h}" for h in head), "    flag: wd.Scalar[wd.i32],"]
        lines += [f"    by: wd.Scalar[wd.{self.by}],", "):"] if self.by else ["):"]
        lines += ["    " + line for line in used.splitlines()] or ["    pass"]
        extents = ", ".join(f"{k}={v}" for k, v in self.sizes.items())
        spread = ", ".join(f"{a.name} {a.spread}" for a in self.arrays if a.spread != "plain")
        lines.append(
            f"# {extents}, flag={self.flag}" + (f", dynamic=[{', '.join(self.dynamic)}]" if self.dynamic else "")
        )
        if self.way:
            lines.append(f"# called by {self.way}" + (f", tiles of M: {self.tiles}" if self.tiles else ""))
        if spread:
            lines.append(f"# in memory: {spread}")
        if any(a.special for a in self.arrays):
            lines.append(f"# NaN and infinities in {', '.join(a.name for a in self.arrays if a.special)}")
        return "\n".join(lines) + "\n"


SMALL = '''\
def small(x):
    """Back within 60, and whole."""
    if x.dtype.is_float:
        return wd.clamp(wd.floor(x), -60, 60)
    return wd.clamp(x, 0 if x.dtype.kind == "uint" else -60, 60)'''.splitlines()


CHAINS = {
    "mixed": '''\
def mixed(x, count):
    """Steps of a hash, each of which takes the one before four times."""
    for i in range(count):
        x = (x * 5 + (x >> 3)) ^ (x & i % 50) ^ (x << 1)
    return x''',
    "folded": '''\
def folded(x, count):
    """Whole numbers that stay within 64, each made of the one before four times."""
    for i in range(count):
        y = abs(x - i % 7)
        x = wd.where(y > 40, y - 37, wd.minimum(y, x + 3))
    return x''',
}
"""Helper functions of hundreds of operations: a loop of Python's, which tracing unrolls."""


GLOBAL = '''\
def moved(x):
    """By a number from outside, back within 60."""
    return small(small(x) + (abs(GLOBE) if x.dtype.kind == "uint" else GLOBE))'''.splitlines()


def statements(body: list[Any]) -> list[Any]:
    """All statements of a region, blocks before what they hold."""
    found = []
    for s in body:
        found.append(s)
        if isinstance(s, Block):
            for inner in s.bodies:
                found += statements(inner)
    return found
