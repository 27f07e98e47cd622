"""Runs a drawn kernel: graph evaluator against target text on the emulator with every check on.

`verdicts` evaluates once and asks each chip; a pair (kernel, chip) is "right", "refused" (with the reason) or a
`Disagreement`. A refusal is a WaveError that names what the chip lacks; any other exception counts as a disagreement.
"""

from __future__ import annotations

import itertools
import linecache
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import cut_for
import numpy as np

import wavedsl as wd
from generator.program import Array, Program
from generator.ways import launch
from wavedsl import compiler

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")

LIMITS = (
    "whole words are changed", "two matrix products that meet in one value need it in different layouts",
    "can be addressed from one place",
)  # fmt: skip
"""What the documentation says is not there (docs/design/005-language.md), though the error has no class of its own."""

LOST = "nothing uses what the loop gives"
"""In the message of a refusal that a drawn kernel may meet: its loop's result is unused, and its start is not."""

_COUNTER = itertools.count()


@dataclass(frozen=True)
class Verdict:
    """`kind`: right, refused, or what went wrong (an exception's name, or "numbers"); `detail`: its text."""

    target: str
    kind: str
    detail: str = ""

    @property
    def wrong(self) -> bool:
        return self.kind not in ("right", "refused")


def kernel_of(program: Program, target: str = "", file: str = "", tuned: bool = False) -> Any:
    """The kernel object, traced from the printed source. `file`: the name of another one's, whose text it has; `tuned`:
    its tile of M is open."""
    text = program.source(target, tuned)
    file = file or f"<drawn-{program.seed}-{next(_COUNTER) % 64}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"__name__": "drawn"}
    exec(compile(text, file, "exec", dont_inherit=True), space)
    return space["drawn"]


def arguments(program: Program, sizes: dict[str, int] | None = None) -> list[Any]:
    """Arrays of whole numbers, the same for every run of a program, then the numbers. `sizes`: other extents."""
    sizes = {**program.sizes, **program.subs, **(sizes or {})}
    found: list[Any] = []
    for place, array in enumerate(program.arrays):
        rng = np.random.default_rng([program.seed, place])
        dtype = getattr(wd, array.dtype)
        shape = [extent_of(d, sizes) for d in array.dims]
        if array.dtype == "i1":
            found.append(laid_out(rng.integers(array.low, array.high + 1, shape).astype(np.bool_), array))
            continue
        if dtype.bits < 8:
            low, high = (array.low, array.high + 1) if array.low == array.high else (0, 256)
            packed = rng.integers(low, high, (*shape[:-1], shape[-1] * dtype.bits // 8))
            found.append(packed.astype(np.uint8).view(dtype.storage))
            continue
        numbers = rng.integers(array.low, array.high + 1, shape)
        if dtype == wd.f8e8m0:
            found.append(numbers.astype(np.uint8).view(dtype.storage))
            continue
        if array.special:
            kinds = rng.choice([0.0, np.nan, np.inf, -np.inf], numbers.shape, p=[0.94, 0.02, 0.02, 0.02])
            numbers = numbers + kinds
        with np.errstate(invalid="ignore"):
            whole = numbers.astype(dtype.storage)
        found.append(laid_out(whole, array))
    numbers = [np.int32(program.flag)]
    return [*found, *numbers, *([getattr(wd, program.by).storage.type(3)] if program.by else [])]


def extent_of(dim: str, sizes: dict[str, int]) -> int:
    """The extent of a dimension, of a part of one such as `K / 32`, or of twice one."""
    if dim.startswith("2 * "):
        return 2 * sizes[dim[4:]]
    name, _, part = dim.partition(" / ")
    return sizes[name] // int(part or 1)


def laid_out(x: np.ndarray, array: Array) -> np.ndarray:
    """The same elements with other strides; what lies between them would spoil results."""
    step = {"plain": None, "transposed": None, "rows": (3, 1), "columns": (1, 2), "inside": (1, 1),
            "repeated": None, "far": None}[array.spread]  # fmt: skip
    if array.spread == "transposed":
        return np.ascontiguousarray(x.T).T
    if array.spread == "repeated" and x.size:  # one row, or one element of each row, for all
        along = x.ndim - 1 if array.low % 2 else 0
        return np.broadcast_to(np.take(x, [0], axis=along), x.shape)
    if array.spread == "far" and x.size:
        gap = (1 << 26) + (0, 48, 1 << 20, 16)[array.high % 4]  # bytes between rows, so that few of them pass 2^32
        return far(x, (*((x.nbytes // len(x) + gap * x.shape[-2],) * (x.ndim - 2)), gap, x.itemsize)[-x.ndim :])
    if step is None:
        return x
    before, after = (2, 3) if array.spread == "inside" else (0, 0)
    steps = [1] * (x.ndim - 2) + list(step[-min(x.ndim, 2) :])
    around = np.full([before + n * s + after for n, s in zip(x.shape, steps)], 101).astype(x.dtype)
    view = around[tuple(slice(before, before + n * s, s) for n, s in zip(x.shape, steps))]
    view[...] = x
    return view


def far(x: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """A copy with these strides, on memory that is committed only where it is touched."""
    size = sum((n - 1) * s for n, s in zip(x.shape, strides)) + x.itemsize
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE, flags)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)  # else each row takes 2 MiB
    found = np.ndarray(x.shape, x.dtype, memory, 0, strides)
    found[...] = x
    return found


def copies(given: Sequence[Any]) -> list[Any]:
    """Copies with the same strides, and everything around them."""
    found = []
    for x in given:
        if isinstance(x, np.ndarray) and not x.flags.writeable:  # elements that share a place are read only
            found.append(x)
        elif isinstance(x, np.ndarray) and isinstance(x.base, mmap.mmap):
            found.append(far(x, x.strides))
        elif isinstance(x, np.ndarray) and x.base is not None and x.base.size > x.size:
            around = x.base.copy()
            offset = x.__array_interface__["data"][0] - x.base.__array_interface__["data"][0]
            found.append(np.ndarray(x.shape, x.dtype, around.reshape(-1).view(np.uint8).data, offset, x.strides))
        elif isinstance(x, np.ndarray):
            found.append(x.copy(order="K"))
        else:
            found.append(x)
    return found


def emulated(compiled: Any, arguments: Sequence[Any]) -> None:
    compiled.emulate(*arguments)


def verdicts(
    program: Program, targets: Sequence[str] = TARGETS, assemble: Any = None,
    run: Callable[[Any, Sequence[Any]], None] = emulated,
) -> list[Verdict]:  # fmt: skip
    """One verdict per chip. `assemble(compiled)` is called where it is given, and may raise; `run(compiled, arguments)`
    executes a text."""
    given = arguments(program)
    meant = copies(given)
    plain = kernel_of(program)
    try:
        plain.evaluate(*meant)
    except wd.ConstraintError as error:  # what has no meaning is refused by every chip
        found = [_verdict(program, plain, target, copies(given), meant, assemble, run) for target in targets]
        wrong = Verdict("evaluator", "ConstraintError", error.message)
        return [v if v.kind == "refused" else wrong for v in found]
    except Exception as error:
        if isinstance(error, wd.TraceError) and LOST in error.message:
            return [Verdict(target, "refused", error.message) for target in targets]
        return [Verdict("evaluator", type(error).__name__, str(error))]
    found, first = [], {}
    for target in targets:
        kernel = kernel_of(program, target) if program.hopper and target == "sm_90a" else plain
        got = copies(given)
        with cut_for.warpgroups() if program.seed % 2 else nullcontext():
            verdict = _verdict(program, kernel, target, got, meant, assemble, run)
        if verdict.kind == "right":
            verdict = _same_bits(program, target, got, first)
        found.append(verdict)
    return found


def _same_bits(program: Program, target: str, got: list[Any], first: dict[str, tuple[str, np.ndarray]]) -> Verdict:
    """Whether a chip's results of functions of f64 are those of the first chip, which `first` keeps by array."""
    for array, mine in zip(program.arrays, got):
        if not array.shared_bits:
            continue
        other, theirs = first.setdefault(array.name, (target, mine))
        apart = (mine != theirs) | (np.signbit(mine) != np.signbit(theirs))
        apart &= ~(np.isnan(mine) & np.isnan(theirs))
        if apart.any():
            at = tuple(int(i) for i in np.argwhere(apart)[0])
            return Verdict(target, "bits", f"{array.name}{list(at)} is {mine[at].hex()}, on {other} {theirs[at].hex()}")
    return Verdict(target, "right")


def _verdict(
    program: Program, kernel: Any, target: str, got: list[Any], meant: list[Any], assemble: Any,
    run: Callable[[Any, Sequence[Any]], None],
) -> Verdict:  # fmt: skip
    symbols = wd.symbols(" ".join(program.dynamic) + " _") if program.dynamic else ()
    try:
        with few_units(program):
            compiled = kernel.compile(*got, target=target, dynamic=list(symbols[:-1]) or None)
    except (wd.ConstraintError, wd.RegisterPressureError) as error:
        return Verdict(target, "refused", error.message)
    except wd.CompileError as error:
        kind = "refused" if any(text in error.message for text in LIMITS) else "CompileError"
        return Verdict(target, kind, str(error))
    except Exception as error:
        return Verdict(target, type(error).__name__, str(error))
    hand_out(compiled, program.seed)
    if program.way and run is emulated:
        run = _by_way(program, kernel, target)
    try:
        run(compiled, got)
        if assemble is not None:
            assemble(compiled)
    except Exception as error:
        kind = "refused" if isinstance(error, wd.LaunchError) and LIMITS[-1] in error.message else type(error).__name__
        return Verdict(target, kind, str(error))
    found = compared(program, target, got, meant)
    if not found.wrong and program.dynamic:
        found = _again(program, kernel, compiled, run)
    return found if found.wrong or program.globe is None else _from_outside(program, kernel, target)


def _by_way(program: Program, kernel: Any, target: str) -> Callable[[Any, Sequence[Any]], None]:
    """How a kernel that is not called by `compile` runs."""

    def again(tuned: bool = False) -> Any:
        return kernel_of(program, target, "" if tuned else kernel.function.__code__.co_filename, tuned)

    def run(compiled: Any, got: Sequence[Any]) -> None:
        with few_units(program):
            launch(program.way, kernel, again, compiled, target, got, program.tiles)

    return run


def _from_outside(program: Program, kernel: Any, target: str) -> Verdict:
    """Whether the kernel notices that a global of its helper functions has changed: a new one says what it means."""
    assert program.globe is not None
    new = replace(program, globe=program.globe + 1)
    meant, got = copies(arguments(new)), copies(arguments(new))
    known = kernel.function.__globals__
    try:
        kernel_of(new).evaluate(*meant)
        known["GLOBE"] = new.globe
        symbols = wd.symbols(" ".join(program.dynamic) + " _") if program.dynamic else ()
        with few_units(program):
            compiled = kernel.compile(*got, target=target, dynamic=list(symbols[:-1]) or None)
        hand_out(compiled, program.seed)
        (_by_way(new, kernel, target) if program.way else emulated)(compiled, got)
    except Exception as error:
        return Verdict(target, type(error).__name__, f"with another global: {error}")
    finally:
        known["GLOBE"] = program.globe
    return compared(program, target, got, meant)


@contextmanager
def few_units(program: Program) -> Iterator[None]:
    """Where workgroups take tiles or trips in turn, the chip's product has one to three compute units, so that they
    have several."""
    known = compiler.reference_product
    if program.schedule.get("persistent") or program.schedule.get("stream_k"):
        compiler.reference_product = lambda name: replace(known(name), units=1 + program.seed % 3)
    try:
        yield
    finally:
        compiler.reference_product = known


def hand_out(compiled: Any, seed: int) -> None:
    """Lets few workgroups take all tiles in turn, where the kernel hands tiles out: a chip has more than tiles here."""
    lowering = compiled.kernel_ir.notes.get("lowering")
    order = getattr(getattr(lowering, "strategy", None), "order", None)
    if order is not None and isinstance(compiled.grid[0], int):
        compiled.grid = (min(compiled.grid[0], order.cluster.count * (1 + seed % 3)), *compiled.grid[1:])


def shorter(program: Program) -> dict[str, int]:
    """Extents for a second call of a text that takes some at run time. None is longer: sums stay exact."""
    rng = np.random.default_rng([program.seed, 99])
    return {
        d: int(rng.choice([n // 2, n - 1, max(n - 16, 1), n // 32 * 16, 1]))
        for d in program.dynamic
        if (n := program.sizes[d]) > 1
    }


def _again(program: Program, kernel: Any, compiled: Any, run: Callable[[Any, Sequence[Any]], None]) -> Verdict:
    """What the text gives for other extents than those of the call that it was compiled for."""
    given = arguments(program, shorter(program))
    meant, got = copies(given), copies(given)
    try:
        kernel.evaluate(*meant)
        run(compiled, got)
    except wd.LaunchError:  # strides that the text has as numbers
        return Verdict(compiled.target, "right")
    except Exception as error:
        return Verdict(compiled.target, type(error).__name__, f"called again with {shorter(program)}: {error}")
    return compared(program, compiled.target, got, meant)


def compared(program: Program, target: str, got: list[Any], meant: list[Any]) -> Verdict:
    """Whether all arrays, and what lies around them, are what the evaluator says."""
    for array, mine, theirs in zip(program.arrays, got, meant):
        a, b = (x.base if isinstance(x.base, np.ndarray) else x for x in (mine, theirs))
        if not _same(a, b, array.tolerance):
            wrong = np.argwhere(~_equal(mine, theirs, array.tolerance))
            if len(wrong):
                at = tuple(int(i) for i in wrong[0])
                text = f"{array.name}{list(at)} is {mine[at]}, not {theirs[at]}; {len(wrong)} of {mine.size} differ"
            else:
                text = f"elements around {array.name} changed"
            return Verdict(target, "numbers", text)
    return Verdict(target, "right")


def _equal(a: np.ndarray, b: np.ndarray, tolerance: float) -> Any:
    if a.dtype.kind in "iub":
        return a == b
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return (a == b) | (np.isnan(a) & np.isnan(b)) | (abs(a - b) <= tolerance)


def _same(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    return a.shape == b.shape and bool(_equal(a, b, tolerance).all())
