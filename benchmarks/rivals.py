"""Whom `gpu_gemm.py` is timed against: cuBLAS through torch, and GEMMs in Triton, where these can be imported.

Each of `RIVALS` makes, of torch and operands, a function that computes a b^T. The Triton kernels are the two that its
users start from: one tile per program with tiles loaded by pointers, and a persistent one that loads by tensor
descriptors; each tries a few configurations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def cublas(torch: Any, a: Any, b: Any, c: Any) -> Callable[[], Any]:
    """torch.matmul for 16-bit operands, torch._scaled_mm with unit scales and fast sums for fp8."""
    if "float8" in str(a.dtype):
        one = torch.ones((), device="cuda")
        columns = b.t()
        return lambda: torch._scaled_mm(
            a, columns, scale_a=one, scale_b=one, out_dtype=c.dtype, use_fast_accum=True
        )
    return lambda: torch.matmul(a, b.T, out=c)


CONFIGS = [(128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 4, 4), (256, 128, 64, 8, 3), (64, 256, 64, 4, 4)]
"""BM, BN, BK (of 16-bit elements), warps, stages."""
SMALL = [(16, 128, 128, 4, 5), (32, 128, 128, 4, 5), (64, 128, 64, 4, 5)]
PERSISTENT = [(128, 256, 64, 8, 4, True, False), (128, 256, 64, 4, 3, False, True), (256, 128, 64, 4, 4, True, True)]
"""Further choices of persistent programs: the same, whether results leave in halves, whether warps have roles."""
GROUP = 8
"""Rows of tiles that are walked together, for L2."""


def configs(m: int, itemsize: int) -> list[tuple[int, int, int, int, int]]:
    chosen = CONFIGS if m >= 128 else SMALL
    return [(bm, bn, bk * 2 // itemsize, warps, stages) for bm, bn, bk, warps, stages in chosen]


@functools.cache
def _kernels() -> Any:
    """The Triton kernels, compiled by Triton from functions that are defined here."""
    import rivals_triton

    return rivals_triton


def pointers(torch: Any, a: Any, b: Any, c: Any) -> Callable[[], Any]:
    """One tile per program."""
    kernels = _kernels()
    m, k = a.shape
    n = b.shape[0]

    def run(config: tuple[int, ...]) -> None:
        bm, bn, bk, warps, stages = config
        grid = (-(-m // bm) * -(-n // bn),)
        kernels.tiles[grid](a, b, c, m, n, k, k, k, n, bm, bn, bk, GROUP, num_warps=warps, num_stages=stages)

    return _fastest(run, ("pointers", m, n, k, a.dtype), configs(m, a.element_size()))


def descriptors(torch: Any, a: Any, b: Any, c: Any) -> Callable[[], Any]:
    """Persistent programs that load and store by tensor descriptors."""
    import triton

    kernels = _kernels()
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    m, k = a.shape
    n = b.shape[0]
    units = torch.cuda.get_device_properties("cuda").multi_processor_count

    def run(config: tuple[int, ...]) -> None:
        bm, bn, bk, warps, stages, halves, roles = config
        grid = (min(units, -(-m // bm) * -(-n // bn)),)
        kernels.persistent[grid](
            a, b, c, m, n, k, bm, bn, bk, GROUP, units, HALVES=halves, ROLES=roles, num_warps=warps, num_stages=stages
        )

    size = a.element_size()
    choices = [(*config, False, False) for config in configs(m, size)]
    if m >= 128:
        choices += [(bm, bn, bk * 2 // size, *rest) for bm, bn, bk, *rest in PERSISTENT]
    return _fastest(run, ("descriptors", m, n, k, a.dtype), choices)


_CHOSEN: dict[Any, Any] = {}
"""Kernel, shape and dtype → the configuration that was fastest."""


def _fastest(run: Callable[[Any], None], what: Any, candidates: list[Any]) -> Callable[[], Any]:
    """`run` with the configuration that is fastest here; one that does not fit the chip is left out."""
    from wavedsl.testing import bench

    if what not in _CHOSEN:
        times = {}
        why: Exception = ValueError("no candidates")
        for config in candidates:
            try:
                times[config] = bench(functools.partial(run, config), 0.005, 0.02).median
            except Exception as error:  # too much shared memory, or an instruction that this release has not
                why = error
        if not times:
            raise why
        _CHOSEN[what] = min(times, key=times.__getitem__)
    return functools.partial(run, _CHOSEN[what])


RIVALS: dict[str, Callable[[Any, Any, Any, Any], Callable[[], Any]]] = {
    "cublas": cublas,
    "triton": pointers,
    "triton tma": descriptors,
}
