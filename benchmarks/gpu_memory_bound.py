"""Memory-bound kernels on a GPU beside torch (cuBLAS) and torch.compile (Triton), in one run.

    python benchmarks/gpu_memory_bound.py                         on cuda:0, all cases; needs torch
    python benchmarks/gpu_memory_bound.py --cases copy softmax
    python benchmarks/gpu_memory_bound.py --budget 600            what fits into ten minutes of a borrowed chip
    python benchmarks/gpu_memory_bound.py --compile sm_90a        full sizes compiled and assembled, nothing runs
    python benchmarks/gpu_memory_bound.py --emulate sm_90a        tiny sizes on the emulator: right or wrong, no times

Every result is compared with a NumPy or torch reference before it is timed. A rate is the bytes (or FLOP) that the
algorithm needs, divided by the median time with a cold L2 cache. The table also gives the share of the copy rate that
the same run measured; a provider that cannot do a case has no number. On a GPU the rows
are written to results/gpu_memory_bound.json with GPU, driver, machine and versions. A case that fails, hangs or kills
the context is a row that says so, and the next one runs (`units`).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import wavedsl as wd

sys.path.append(str(Path(__file__).resolve().parent))

import memory_bound_kernels as kernels
import record
import units
from on_gpu import Case, Space, Work, error_of
from rehearsal import Rehearsal

EPS = 1e-5


# --------------------------------------------------------------------------------------------------------------- cases


def _count(size: tuple[int, ...]) -> int:
    return int(np.prod(size))


def copied(space: Space, size: tuple[int, ...]) -> Work:
    a, want = space.array(size, wd.f16)
    b = space.empty(size, wd.f16)
    run = kernels.copy(wd.f16).bind(a, b)
    return Work(space.providers(run, lambda t: lambda: b.copy_(a)), b, lambda: want, 0.0, 2 * 2 * _count(size))


def elementwise(space: Space, size: tuple[int, ...]) -> Work:
    (a, x), (b, y) = space.array(size, wd.f16), space.array(size, wd.f16)
    c = space.empty(size, wd.f16)
    run = kernels.scaled_sum(wd.f16).bind(a, b, c)
    calls = space.providers(run, lambda t: lambda: t.add(b, a, alpha=2, out=c))
    return Work(calls, c, lambda: 2 * x + y, 4e-3, 3 * 2 * _count(size), 2 * _count(size))


def softmax(space: Space, size: tuple[int, ...]) -> Work:
    a, x = space.array(size, wd.f16)
    b = space.empty(size, wd.f16)
    run = kernels.softmax(wd.f16, size[1]).bind(a, b)

    def want() -> np.ndarray:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    calls = space.providers(run, lambda t: lambda: t.softmax(a, -1))
    return Work(calls, b, want, 2e-3, 2 * 2 * _count(size))


def rms_norm(space: Space, size: tuple[int, ...]) -> Work:
    (a, x), (w, y) = space.array(size, wd.f16), space.array(size[1:], wd.f16)
    c = space.empty(size, wd.f16)
    run = kernels.rms_norm(wd.f16, size[1]).bind(a, w, c, EPS)

    def want() -> np.ndarray:
        return x / np.sqrt((x * x).mean(1, keepdims=True) + EPS) * y

    calls = space.providers(run, lambda t: lambda: t.nn.functional.rms_norm(a, size[1:], w, EPS))
    return Work(calls, c, want, 2e-2, 2 * 2 * _count(size) + 2 * size[1])


def row_sum(space: Space, size: tuple[int, ...]) -> Work:
    a, x = space.array(size, wd.f16)
    s = space.empty(size[:1], wd.f32)
    run = kernels.row_sum(wd.f16, size[1]).bind(a, s)
    calls = space.providers(run, lambda t: lambda: t.sum(a, -1, dtype=t.float32))
    return Work(calls, s, lambda: x.sum(1), 1e-3, 2 * _count(size) + 4 * size[0], _count(size))


def transpose(space: Space, size: tuple[int, ...]) -> Work:
    a, x = space.array(size, wd.f16)
    b = space.empty(size[::-1], wd.f16)
    run = kernels.transpose(wd.f16).bind(a, b)
    return Work(space.providers(run, lambda t: lambda: b.copy_(a.T)), b, lambda: x.T, 0.0, 2 * 2 * _count(size))


def product(dtype: wd.DType, tolerance: float) -> Callable[[Space, tuple[int, ...]], Work]:
    """C = A B^T of M, N, K by the strategy that the roofline recommends."""

    def make(space: Space, size: tuple[int, ...]) -> Work:
        from wavedsl.strategies import plan_gemm

        m, n, k = size
        (a, x), (b, y) = space.array((m, k), dtype), space.array((n, k), dtype)
        c = space.empty((m, n), dtype)
        plan = plan_gemm(a, b, c, transpose_b=True)
        bound = [launch.kernel.bind(*launch.arguments) for launch in plan.launches]

        def run() -> None:
            for launch in bound:
                launch()

        calls = space.providers(run, lambda t: lambda: t.matmul(a, b.T, out=c))
        moved = (m * k + n * k + m * n) * dtype.bits // 8
        return Work(calls, c, lambda: x @ y.T, tolerance * np.sqrt(k), moved, 2 * m * n * k)

    return make


def grouped(space: Space, size: tuple[int, ...]) -> Work:
    """Ragged groups of rows, each times a matrix of its own: (groups, rows on average, N, K) in bf16."""
    from wavedsl.strategies import plan_grouped

    groups, average, n, k = size
    counts = np.random.default_rng(groups).multinomial(groups * average, np.full(groups, 1 / groups)).tolist()
    (a, x), (b, y) = space.array((sum(counts), k), wd.bf16), space.array((groups, n, k), wd.bf16)
    c = space.empty((sum(counts), n), wd.bf16)
    (launch,) = plan_grouped(a, b, c, counts, transpose_b=True).launches
    ends = np.cumsum([0, *counts]).tolist()
    parts = list(itertools.pairwise(ends))

    def one_by_one(t: Any) -> Callable[[], None]:
        def call() -> None:
            for group, (i, j) in enumerate(parts):
                t.matmul(a[i:j], b[group].T, out=c[i:j])

        return call

    moved = (sum(counts) * (k + n) + groups * n * k) * wd.bf16.bits // 8
    run = launch.kernel.bind(*launch.arguments)
    want = lambda: np.concatenate([x[i:j] @ m.T for (i, j), m in zip(parts, y)])  # noqa: E731
    calls = space.providers(run, one_by_one)
    return Work(calls, c, want, 2e-2 * np.sqrt(k), moved, 2 * sum(counts) * n * k)


HUGE = [(4096, 4096), (8192, 8192), (16384, 16384)]
TINY = [(5, 300)]
SKINNY = [1, 2, 4, 8, 16, 32, 64]

CASES = (
    Case("copy", copied, HUGE, TINY),
    Case("elementwise", elementwise, HUGE, TINY),
    Case("softmax", softmax, [(8192, 1024), (8192, 4096), (8192, 16384)], TINY),
    Case("rms_norm", rms_norm, [(8192, 1024), (8192, 4096), (8192, 16384)], TINY),
    Case("row_sum", row_sum, [(8192, 1024), (8192, 4096), (8192, 16384)], TINY),
    Case("transpose", transpose, [(4096, 4096), (8192, 8192)], [(70, 90)]),
    Case("gemv", product(wd.bf16, 2e-2), [(1, 8192, 8192), (4, 16384, 4096)], [(2, 70, 140)]),
    Case("skinny", product(wd.bf16, 2e-2), [(m, 8192, 8192) for m in SKINNY], [(10, 70, 140)]),
    Case("small_k", product(wd.bf16, 2e-2), [(8192, 8192, k) for k in (16, 32, 64, 128)], [(40, 50, 24)]),
    Case("split_k", product(wd.bf16, 2e-2), [(256, 256, 65536), (512, 512, 16384)], [(20, 30, 200)]),
    Case("stream_k", product(wd.bf16, 2e-2), [(2304, 2048, 4096), (1536, 1792, 8192)], [(40, 50, 200)]),
    Case("grouped", grouped, [(8, 16, 4096, 4096), (64, 256, 2048, 4096)], [(3, 20, 40, 56)]),
    Case("f32", product(wd.f32, 1e-5), [(2048, 2048, 2048), (8192, 8192, 64)], [(40, 36, 50)]),
    Case("f64", product(wd.f64, 1e-12), [(2048, 2048, 2048), (8192, 8192, 64)], [(40, 36, 50)]),
)


# ----------------------------------------------------------------------------------------------------------------- run


def run_case(space: Space, case: Case, size: tuple[int, ...], timed: bool, copy_rate: float | None) -> dict[str, Any]:
    """A row: our result's error, and with `timed` each provider's rate."""
    work = case.make(space, size)
    work.calls["wavedsl"]()
    row: dict[str, Any] = {"case": case.name, "size": list(size), "bytes": work.bytes, "flops": work.flops}
    row["error"] = error_of(space, work)
    if not timed:
        return row
    from wavedsl.testing import bench

    for provider, call in work.calls.items():
        try:
            times = bench(call, 0.025, 0.1)
        except Exception as error:
            if provider == "wavedsl":
                raise
            row.setdefault("missing", {})[provider] = f"{type(error).__name__}: {error}"  # a rival's failure is its own
            continue
        assert times.clock == "device"
        row[provider] = {"seconds": times.median, "best": times.best, "runs": times.count}
        row[provider]["bytes_per_second"] = work.bytes / times.median
    if copy_rate:
        row["of_copy"] = row["wavedsl"]["bytes_per_second"] / copy_rate
    return row


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table: GB/s by provider, and the share of the best of the others."""
    from wavedsl.reports import table

    def rate(row: dict[str, Any], provider: str) -> float | None:
        return row[provider]["bytes_per_second"] / 1e9 if provider in row else None

    out = []
    for row in rows:
        rates = [rate(row, p) for p in ("wavedsl", "torch", "triton")]
        others = [r for r in rates[1:] if r]
        ratio = rates[0] / max(others) if rates[0] and others else None
        size = " x ".join(map(str, row["size"]))
        out.append((row["case"], size, *rates, ratio, row.get("of_copy"), row.get("error", row.get("failed"))))
    heads = ("case", "size", "wavedsl GB/s", "torch GB/s", "triton GB/s", "of best", "of copy", "error of allowed")
    return table(heads, out)


def compile_all(cases: Sequence[Case], target: str) -> int:
    """Compile every case at its full size, as a run on the chip would."""
    rehearsal = Rehearsal(target)
    space = Space(empty_arrays=True)
    for case in cases:
        for size in case.sizes:
            with rehearsal.unit(f"{case.name} {size}"):
                case.make(space, size)
        print(f"{case.name}: {len(case.sizes)} sizes compile for {target}")
    return rehearsal.report()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=[c.name for c in CASES], help="default: all")
    parser.add_argument("--compile", metavar="TARGET", help="compile every case at its full size, run nothing")
    parser.add_argument("--emulate", metavar="TARGET", help="tiny sizes on the emulator, without times")
    parser.add_argument("--out", type=Path, help="folder of the JSON (default: benchmarks/results)")
    units.option(parser)
    given = parser.parse_args(arguments)
    chosen = [c for c in CASES if not given.cases or c.name in given.cases]
    torch = None
    if given.compile:
        return compile_all(chosen, given.compile)
    if given.emulate:
        os.environ["WAVEDSL_DEVICE"] = f"emulator:{given.emulate}"
    else:
        import torch

        if not torch.cuda.is_available():
            print("no GPU: --emulate TARGET runs tiny sizes without times", file=sys.stderr)
            return 1
    space = Space(torch)
    rows: list[dict[str, Any]] = []
    done = units.Units(
        (given.out or record.HERE / "results") / "gpu_memory_bound.part.json", budget=given.budget, limit=given.limit,
        resume=given.resume, alive=units.alive(torch) if arguments is None else None, keep=torch is not None,
    )  # fmt: skip
    copy_rate: float | None = None
    for case in chosen:
        for size in case.tiny if given.emulate else case.sizes:
            work = functools.partial(run_case, space, case, size, torch is not None, copy_rate)
            row = done.run(f"{case.name} {size}", {"case": case.name, "size": list(size)}, work)
            rows.append(row)
            print(f"{case.name} {size}: {row.get('failed', 'done')}", file=sys.stderr)
            if case.name == "copy" and "wavedsl" in row:
                best = max(row[p]["bytes_per_second"] for p in ("wavedsl", "torch", "triton") if p in row)
                copy_rate = max(copy_rate or 0.0, best)
    print(text(rows))
    wrong = [row for row in rows if not row.get("error", math.inf) <= 1]
    for row in wrong:
        print(f"WRONG: {row['case']} {row['size']} {row.get('failed', '')}", file=sys.stderr)
    if torch is not None:
        print(f"written to {record.write('gpu_memory_bound', rows, given.out, gpu=record.gpu(torch))}")
    done.done()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
