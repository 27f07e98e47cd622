"""What the examples share: options, data, and the report that each prints."""

from __future__ import annotations

import argparse
import time
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.ir.dtypes import ALL, DType

import wavedsl as wd
from wavedsl.reports import resources_text

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")


def options(description: str | None, dtypes: tuple[str, ...], **sizes: int) -> argparse.ArgumentParser:
    """The parser of an example: --target, --dtype, --seed, --asm and one option per size."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=TARGETS, default="gfx942", help="whose text to compile and emulate")
    parser.add_argument("--dtype", choices=dtypes, default=dtypes[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--asm", action="store_true", help="print the target text too")
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    return parser


def data(shape: tuple[int, ...], dtype: DType, seed: int) -> np.ndarray:
    """Normal numbers for floats, -8 to 8 for integers."""
    random = np.random.default_rng(seed)
    if dtype.is_float:
        return random.standard_normal(shape).astype(dtype.storage)
    return random.integers(-8 if dtype.is_signed else 0, 9, shape).astype(dtype.storage)


def dtype_called(name: str) -> DType:
    return ALL[name]


def run(kernel: Any, arguments: list[Any], given: argparse.Namespace, subs: Any = None) -> Any:
    """Compile for the target, execute the text on the emulator with all checks, print what was used and measured.
    `subs` binds extents that no array has."""
    start = time.perf_counter()
    compiled: wd.CompiledKernel = kernel.compile(*arguments, target=given.target, subs=subs)
    compiled_at = time.perf_counter()
    report = compiled.emulate(*arguments)
    done = time.perf_counter()
    if given.asm:
        print(compiled.asm)
    print(resources_text(compiled))
    print(
        f"compiled in {1e3 * (compiled_at - start):.1f} ms; emulated in {1e3 * (done - compiled_at):.1f} ms: "
        f"{sum(report.instructions.values())} instructions, no findings, {report.cycles} cycles by the model"
    )
    return compiled


def verdict(name: str, got: np.ndarray, want: np.ndarray, bound: np.ndarray | float) -> int:
    """Print the error against NumPy beside what is allowed; the exit status."""
    if got.size == 0:
        print(f"{name}: no elements")
        return 0
    got = got.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(got == want, 0.0, np.abs(got - want))  # infinities are equal or wrong
    within = error <= bound  # False where NaN
    share = np.where(error == 0, 0.0, error / np.maximum(bound, np.finfo(np.float64).tiny))
    print(f"{name}: largest error against NumPy {error.max():.3g}, {share.max():.2g} of what is allowed")
    if not within.all():
        print(f"WRONG at {tuple(int(i) for i in np.argwhere(~within)[0])}")
    return 0 if within.all() else 1


def bound(want: np.ndarray, dtype: DType, units: float = 2.0, magnitude: np.ndarray | float = 0.0) -> np.ndarray:
    """What `units` roundings to `dtype` may change in results that stand for numbers as large as `magnitude`.

    Functions that chips approximate, and sums in f32, count as roundings to f32 where the dtype is f32.
    """
    unit = 2.0 ** -(dtype.mantissa + 1)
    return units * unit * (np.abs(want) + magnitude) + np.finfo(np.float32).tiny


def taken_as_zero(a: np.ndarray, b: np.ndarray, target: str) -> np.ndarray | float:
    """What a @ b may lose where a chip's matrix unit takes denormal operands as zeros (MI200; docs/numerics.md)."""
    if target != "gfx90a" or a.dtype.itemsize > 2:
        return 0.0
    wide = [np.abs(x.astype(np.float64)) for x in (a, b)]
    tiny = [np.where(x < float(ml_dtypes.finfo(a.dtype).smallest_normal), x, 0.0) for x in wide]
    return tiny[0] @ wide[1] + wide[0] @ tiny[1]


def verdicts(*found: int) -> int:
    """The exit status of several verdicts."""
    return max(found)
