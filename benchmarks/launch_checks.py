"""The launch path on a real driver: graphs whose arrays are gone, streams, threads. (`gpu_launch.py` has host time.)

In: torch on a GPU (graphs and streams need one; threads run on the emulator as well). Out: rows of units, as the other
checks have them: `error` is 0 or infinite.
"""

from __future__ import annotations

import functools
import gc
import math
import threading
from collections.abc import Callable
from typing import Any

import memory_bound_kernels as kernels
import numpy as np
import units
from on_gpu import Space

import wavedsl as wd

SHAPE = (512, 1024)
THREADS, CALLS = 2, 20


def _copy(space: Space) -> tuple[Any, np.ndarray, Any]:
    a, want = space.array(SHAPE if space.torch is not None else (8, 512), wd.f16)
    return a, want, space.empty(want.shape, wd.f16)


def _verdict(right: bool) -> dict[str, Any]:
    return {"error": 0.0 if right else math.inf}


def graph(space: Space) -> dict[str, Any]:
    """What was captured runs after Python has let go of kernel, arguments and the input's tensor, whose memory torch's
    pool of the graph keeps."""
    torch = space.torch
    a, want, b = _copy(space)
    kernel = kernels.copy(wd.f16)
    kernel(a, b)
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        own = a.clone()  # of the graph's pool
        kernel(own, b)
    del own
    gc.collect()
    b.fill_(math.nan)
    made.replay()
    torch.cuda.synchronize()
    once = bool((space.host(b) == want).all())
    a.mul_(2)
    made.replay()
    torch.cuda.synchronize()
    return _verdict(once and bool((space.host(b) == 2 * want).all()))


def bound_graph(space: Space) -> dict[str, Any]:
    """A bound product, with tensor maps, captured; the bound object is dropped before the replay."""
    import gemm_checks
    from gemm_kernels import product

    torch = space.torch
    (a, x), (b, y) = space.array((512, 256), wd.bf16), space.array((256, 256), wd.bf16)
    c = space.empty((512, 256), wd.bf16)
    bound = product(gemm_checks.BF16, gemm_checks.default_config(gemm_checks.BF16)).bind(a, b, c)
    bound()
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        bound()
    del bound
    gc.collect()
    c.fill_(math.nan)
    made.replay()
    torch.cuda.synchronize()
    want, size = x @ y.T, np.abs(x) @ np.abs(y).T
    off = np.abs(space.host(c) - want) / gemm_checks.allowed_of(gemm_checks.BF16, want, size, 256)
    return {"error": float(np.where(np.isnan(off), np.inf, off).max())}


def streams(space: Space) -> dict[str, Any]:
    """Two streams of torch's at once: each launch goes to the stream that is current."""
    torch = space.torch
    work = [(*_copy(space), torch.cuda.Stream()) for _ in range(2)]
    torch.cuda.synchronize()
    kernel = kernels.copy(wd.f16)
    for _ in range(CALLS):
        for a, _, b, stream in work:
            with torch.cuda.stream(stream):
                b.fill_(math.nan)  # the launch on another stream could come before this
                kernel(a, b)
    torch.cuda.synchronize()
    return _verdict(all(bool((space.host(b) == want).all()) for _, want, b, _ in work))


def threads(space: Space) -> dict[str, Any]:
    """Two threads that call one kernel on arrays of their own, compiled by whoever comes first."""
    kernels.copy.cache_clear()
    kernel = kernels.copy(wd.f16)
    work = [_copy(space) for _ in range(THREADS)]
    errors: list[BaseException] = []

    def calls(a: Any, b: Any) -> None:
        try:
            for _ in range(CALLS if space.torch is not None else 1):
                kernel(a, b)
            if space.torch is not None:
                space.torch.cuda.synchronize()
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=calls, args=(a, b)) for a, _, b in work]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return _verdict(all(bool((space.host(b) == want).all()) for _, want, b in work))


CHECKS: dict[str, tuple[Callable[[Space], dict[str, Any]], bool]] = {
    "threads": (threads, False),
    "two streams": (streams, True),
    "graph, arrays dropped": (graph, True),
    "graph of a bound product": (bound_graph, True),
}
"""Name → (check, whether it needs a GPU)."""


def run_checks(done: Any, space: Space, on_gpu: bool = True) -> list[dict[str, Any]]:
    """A row per check that can run here."""
    return [
        done.run(f"launch {name}", {"check": f"launch: {name}"}, functools.partial(check, space), units.TINY_LIMIT,
                 ("launch",))
        for name, (check, needs) in CHECKS.items() if on_gpu or not needs
    ]  # fmt: skip


__all__ = ["CHECKS", "run_checks"]
