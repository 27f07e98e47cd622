"""`wavedsl demo`: copy and GEMM on every target, run on the emulator with all checks, compared with NumPy, measured.

The kernels are compiled to the text of the chip named, and that text is executed instruction by instruction.
"""

# Annotations of kernels are expressions over symbols, which type checkers take for types.
# mypy: disable-error-code="valid-type, type-arg, misc"

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import wavedsl as wd
from wavedsl.ir.errors import WaveError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.reports import registers_text, table

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BM: 16, BN: 64})
def copy(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
    wd.write(wd.read(a), b)


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, BM / 2),
        wd.WaveConstraint(N, BN / 2),
    ],
    subs={BM: 64, BN: 64, BK: 32},
)
def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


@dataclass(frozen=True)
class Measurement:
    """One kernel on one target. `error` and `bound` are absolute; times in milliseconds."""

    kernel: str
    target: str
    error: float
    bound: float
    executed: int
    registers: str
    shared_bytes: int
    compile_ms: float
    emulate_ms: float
    findings: int

    @property
    def passed(self) -> bool:
        return self.error <= self.bound and not self.findings


HEAD = ("kernel", "target", "error", "bound", "instructions", "registers", "LDS B", "compile ms", "emulate ms", "")


def inputs(name: str, m: int, n: int, k: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Arguments of a demo kernel (the output last), the right answer, and how far it may be off, element by element."""
    random = np.random.default_rng(0)
    if name == "copy":
        a = random.standard_normal((m, n)).astype(np.float16)
        return [a, np.full_like(a, np.nan)], a, np.zeros(a.shape)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    # Products are exact, sums are rounded to f32 some K times: docs/numerics.md.
    bound = (k + 8) * 2.0**-24 * (np.abs(wide_a) @ np.abs(wide_b).T)
    return [a, b, np.full((m, n), np.nan, np.float32)], wide_a @ wide_b.T, bound


def measure(kernel: Any, target: str, m: int = 128, n: int = 128, k: int = 128) -> Measurement:
    """Compile and emulate one of the demo kernels."""
    arguments, want, bound = inputs(kernel.name, m, n, k)
    start = time.perf_counter()
    compiled = kernel.compile(*arguments, target=target)
    compiled_at = time.perf_counter()
    report = compiled.emulate(*arguments, checks="report")
    done = time.perf_counter()
    error = np.abs(arguments[-1].astype(np.float64) - want)
    worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error - bound)), error.shape)
    return Measurement(
        kernel.name,
        target,
        float(error[worst]),
        float(bound[worst]),
        sum(report.instructions.values()),
        registers_text(compiled.resources),
        compiled.shared_bytes,
        1e3 * (compiled_at - start),
        1e3 * (done - compiled_at),
        len(report.findings),
    )


def run(targets: Sequence[str]) -> int:
    """Measure and print; the exit status: 0 if every result is right and no check found anything."""
    import warnings

    print("Copy 128x128 (f16) and GEMM 128x128x128 (f16, f32 sums): each target's own text, emulated with all checks.")
    rows: list[tuple[object, ...]] = []
    failures: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # registers of PTX are `-` without ptxas; `wavedsl doctor` says so
        for target in targets:
            for kernel in (copy, gemm):
                try:
                    got = measure(kernel, target)
                except WaveError as error:
                    failures.append(f"{kernel.name} on {target}: {error}")
                    continue
                verdict = "ok" if got.passed else "WRONG" if not got.findings else f"{got.findings} FINDINGS"
                size = got.executed, got.registers, got.shared_bytes
                rows.append(
                    (got.kernel, got.target, got.error, got.bound, *size, got.compile_ms, got.emulate_ms, verdict)
                )
    print(table(HEAD, rows))
    for failure in failures:
        print(f"\n{failure}")
    print("\nerror: of the element that is closest to its bound; LDS: shared memory of a workgroup.")
    return 0 if not failures and all(row[-1] == "ok" for row in rows) else 1
