"""What benchmarks on a GPU share: where arrays lie, a case and its work, how far a result is off.

Without torch everything is NumPy, for the emulator.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import wavedsl as wd

FLUSH_BYTES = 256 << 20
"""Several times any L2 cache."""
ESTIMATES = 5
"""Calls by which the host's time is estimated."""
SPARE = 2
"""Times the host's own time that the GPU is kept busy before a call that is timed."""
MOST_FLUSHES = 20
TORCH = {
    "f64": "float64", "f32": "float32", "tf32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32",
    "i8": "int8", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip
"""torch's names of dtypes."""


@dataclass
class Work:
    """One case at one size: a call per provider, what the algorithm needs, and how far the result may be off: by
    `tolerance` of the largest number, or by what `allowed` gives for each. `want`: the exact result, on the host or
    where the result lies. `bind(cut)`: our call in one of the case's cuts, which is `named(cut)` where its own text
    does not say enough. `compared`: torch's error is told beside ours."""

    calls: dict[str, Callable[[], Any]]
    result: Any
    want: Callable[[], Any]
    tolerance: float
    bytes: int
    flops: int = 0
    allowed: Callable[[], np.ndarray] | None = None
    bind: Callable[[Any], Callable[[], Any]] | None = None
    named: Callable[[Any], str] | None = None
    compared: bool = False


@dataclass(frozen=True)
class Case:
    """`make(space, size)` builds the work; `sizes` for a GPU, `tiny` for the emulator. `cuts`: of a size, the ways in
    which our kernel may be cut, of which the fastest is timed; the first is what `calls` has."""

    name: str
    make: Callable[[Space, tuple[int, ...]], Work]
    sizes: Sequence[tuple[int, ...]]
    tiny: Sequence[tuple[int, ...]]
    cuts: Callable[[tuple[int, ...]], Sequence[Any]] = lambda size: ()


class Space:
    """Where arrays lie: NumPy for the emulator, torch tensors on a GPU; `empty_arrays` have no contents at all."""

    def __init__(self, torch: Any = None, empty_arrays: bool = False):
        self.torch = torch
        self.empty_arrays = empty_arrays
        self.random = np.random.default_rng(0)
        self._other: Any = None

    def array(self, shape: tuple[int, ...], dtype: wd.DType) -> tuple[Any, np.ndarray]:
        """Normal numbers of a dtype (integers: eight times as large), and the same as NumPy f64 for references."""
        if self.empty_arrays:
            return np.empty(shape, dtype.storage), np.empty(0)
        if self.torch is not None:
            there = self._random(shape, dtype)
            return there, self.host(there)
        host = self.random.standard_normal(shape)
        host = (np.rint(8 * host) if dtype.is_int else host).astype(dtype.storage)
        return self.placed(host, dtype), host.astype(np.float64)

    def _random(self, shape: tuple[int, ...], dtype: wd.DType) -> Any:
        """Made where they lie: the host takes seconds over a gigabyte of them."""
        kind = self.torch.float64 if dtype is wd.f64 else self.torch.float32
        there = self.torch.randn(shape, device="cuda", dtype=kind)
        there = (8 * there).round() if dtype.is_int else there
        return there.to(getattr(self.torch, TORCH[dtype.name]))

    @property
    def math(self) -> Any:
        """The module whose functions take what `exact_array` gives: NumPy or torch."""
        return np if self.torch is None else self.torch

    def exact_array(self, shape: tuple[int, ...], dtype: wd.DType) -> tuple[Any, Any]:
        """As `array`, but the f64 numbers stay where the array lies: the host takes seconds for what a GPU does in
        milliseconds."""
        if self.torch is None or self.empty_arrays:
            return self.array(shape, dtype)
        there = self._random(shape, dtype)
        return there, there.double()

    def empty(self, shape: tuple[int, ...], dtype: wd.DType) -> Any:
        if self.empty_arrays:
            return np.empty(shape, dtype.storage)
        return self.placed(np.full(shape, 77 if dtype.is_int else np.nan, np.float32).astype(dtype.storage), dtype)

    def placed(self, host: np.ndarray, dtype: wd.DType) -> Any:
        if self.torch is None:
            return host
        wide = host.astype(np.float64 if dtype is wd.f64 else np.int32 if dtype.is_int else np.float32)
        return self.torch.from_numpy(wide).to("cuda").to(getattr(self.torch, TORCH[dtype.name]))

    def host(self, array: Any) -> np.ndarray:
        return np.asarray(array if self.torch is None else array.double().cpu().numpy(), np.float64)

    def flushed(self, call: Callable[[], Any] | None = None) -> bool | Callable[[], Any]:
        """What comes before a call that is timed: the L2 cache is filled with what nobody needs, by reading it, so that
        no line has to be written back meanwhile. Clearing it would leave 50 MB of such lines, as much as a small case
        moves. True without torch.

        It is read so often that the GPU is still at it when the host has started `call`, which has been called before:
        torch.compile's take it longer than small kernels run, and a queue that is empty would be timed."""
        if self.torch is None:
            return True
        if self._other is None:
            self._other = self.torch.ones(FLUSH_BYTES // 4, device="cuda")
        once = self._other.sum
        times = 1 if call is None else self._times_over(once, call)

        def flush() -> None:
            for _ in range(times):
                once()

        return flush

    def _times_over(self, work: Callable[[], Any], call: Callable[[], Any]) -> int:
        """How often `work` takes the GPU as long as the host needs to start it and `call`, and as long again."""
        event = self.torch.cuda.Event
        host, device = [], []
        for _ in range(ESTIMATES):
            self.torch.cuda.synchronize()
            start, end = (event(enable_timing=True) for _ in range(2))
            began = time.perf_counter()
            start.record()
            work()
            end.record()
            call()
            host.append(time.perf_counter() - began)
            self.torch.cuda.synchronize()
            device.append(start.elapsed_time(end) / 1e3)
        needed = SPARE * statistics.median(host) / statistics.median(device)
        return max(1, min(MOST_FLUSHES, math.ceil(needed)))

    def providers(self, ours: Callable[[], Any], theirs: Callable[[Any], Callable[[], Any]]) -> dict[str, Any]:
        """Our call and, on a GPU, torch's eager and compiled ones; `theirs(torch)` is the function to call."""
        calls: dict[str, Callable[[], Any]] = {"wavedsl": ours}
        if self.torch is not None:
            calls["torch"] = theirs(self.torch)
            calls["triton"] = _compiled(self.torch, theirs)
        return calls

    def products(self, ours: Callable[[], Any], a: Any, b: Any, c: Any) -> dict[str, Any]:
        """Our call for a b^T and, on a GPU, cuBLAS and Triton: torch.compile of a product would call cuBLAS, so Triton
        is the faster of the GEMMs of `rivals`. Where it cannot do these operands, its call says so."""
        if self.torch is None:
            return {"wavedsl": ours}
        torch = self.torch
        calls = {"wavedsl": ours, "torch": lambda: torch.matmul(a, b.T, out=c)}
        if a.dtype == torch.float64:  # tl.dot of f64 has no instruction on Hopper in the releases at hand
            return self.told(calls, "the Triton GEMMs sum in f32: no f64")
        chosen: list[Callable[[], Any]] = []

        def triton() -> Any:
            if not chosen:
                chosen.append(_faster(torch, a, b, c))
            return chosen[0]()

        return {**calls, "triton": triton}

    def told(self, calls: dict[str, Any], why: str) -> dict[str, Any]:
        """The calls, and in Triton's place one that says why there is none."""

        def missing() -> None:
            raise NotImplementedError(why)

        return calls if self.torch is None else {**calls, "triton": missing}


def _compiled(torch: Any, theirs: Callable[[Any], Callable[[], Any]]) -> Callable[[], Any]:
    """What torch.compile makes of a function, at the first call: importing the compiler alone takes ten seconds."""
    made: list[Callable[[], Any]] = []

    def call() -> Any:
        if not made:
            # Every case stands alone: else sizes that were seen before make shapes dynamic, and after eight of them the
            # "compiled" call would silently be the eager one.
            torch.compiler.reset()
            made.append(torch.compile(theirs(torch), dynamic=False))
        return made[0]()

    return call


def _faster(torch: Any, a: Any, b: Any, c: Any) -> Callable[[], Any]:
    """The faster of Triton's GEMMs that can do these operands; raises what the first says where none can."""
    import rivals

    from wavedsl.testing import bench

    times: dict[Callable[[], Any], float] = {}
    whys: list[Exception] = []
    for make in (rivals.pointers, rivals.descriptors):
        try:
            call = make(torch, a, b, c)
            times[call] = bench(call, 0.005, 0.02).median
        except Exception as error:  # it cannot be imported, or not do this
            whys.append(error)
    if not times:
        raise whys[0]
    return min(times, key=times.__getitem__)


def error_of(space: Space, work: Work) -> float:
    """The largest difference from the reference over what is allowed at most (1 is the limit)."""
    want = work.want()
    if not isinstance(want, np.ndarray):
        return _error_there(work, want)
    off = np.abs(space.host(work.result) - want)
    if work.allowed is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(off == 0, 0.0, off / work.allowed())
        return float(np.where(np.isnan(shares), np.inf, shares).max(initial=0.0))
    allowed = work.tolerance * max(1.0, float(np.abs(want).max())) if work.tolerance else 0.0
    worst = float(np.where(np.isnan(off), np.inf, off).max())
    return worst / allowed if allowed else (0.0 if worst == 0 else np.inf)


def relative_error(space: Space, work: Work) -> float:
    """The result's distance from the exact one, over that one's length (both as vectors)."""
    want = work.want()
    result = space.host(work.result) if isinstance(want, np.ndarray) else work.result.double()
    return float(((result - want) ** 2).sum() ** 0.5 / (want**2).sum() ** 0.5)


def _error_there(work: Work, want: Any) -> float:
    """`error_of` of a result and a reference that lie on the GPU."""
    assert work.allowed is None, "bounds per element are for references on the host"
    off = (work.result.double() - want).abs()
    allowed = work.tolerance * max(1.0, float(want.abs().max()))
    worst = float(off.max())  # NaN where something was not written
    if math.isnan(worst):
        return math.inf
    return worst / allowed if allowed else (0.0 if worst == 0 else math.inf)
