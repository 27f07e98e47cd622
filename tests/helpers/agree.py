"""One kernel, three answers: the graph evaluator, the emulator with all checks, the assembler. For tests of operations.

Imported as `agree` (pytest's `pythonpath` lists this folder).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import products

import wavedsl as wd

TARGETS = products.TARGETS

Compare = Callable[[np.ndarray, np.ndarray], None]


def equal(got: np.ndarray, want: np.ndarray) -> None:
    """The same numbers; a NaN is equal to a NaN."""
    np.testing.assert_array_equal(_plain(got), _plain(want))


def near(ulps: float = 0.0, absolute: float = 0.0) -> Compare:
    """Within some units of the last place of the expected number, or an absolute error."""

    def compare(got: np.ndarray, want: np.ndarray) -> None:
        have, exact = _plain(got), _plain(want)
        if want.dtype.kind != "f" and want.dtype.kind != "V":
            np.testing.assert_array_equal(have, exact)
            return
        mantissa = {8: 52, 4: 23}.get(want.dtype.itemsize, 10 if want.dtype == np.float16 else 7)
        with np.errstate(all="ignore"):
            unit = np.ldexp(1.0, np.frexp(np.abs(exact))[1] - 1 - mantissa)
            bad = np.abs(have - exact) > np.maximum(ulps * unit, absolute)
        bad |= np.isnan(have) != np.isnan(exact)
        bad &= ~((have == exact) | (np.isnan(have) & np.isnan(exact)))
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise AssertionError(f"{int(bad.sum())} of {bad.size} wrong, first at {at}: {have[at]}, not {exact[at]}")

    return compare


def _plain(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype.kind in "fV" or x.dtype.name.startswith(("bfloat", "float8")) else x


def agree(
    kernel: Any,
    arguments: Sequence[Any],
    target: str,
    oracle: Callable[[str], str] | None = None,
    compare: Compare = equal,
    **options: Any,
) -> wd.CompiledKernel:
    """Evaluate and emulate on copies of the arguments and compare every array; assemble where an oracle is given."""
    meant = [np.array(a, copy=True) if isinstance(a, np.ndarray) else a for a in arguments]
    kernel.evaluate(*meant, subs=options.get("subs"))
    got = [np.array(a, copy=True) if isinstance(a, np.ndarray) else a for a in arguments]
    compiled: wd.CompiledKernel = kernel.compile(*got, target=target, **options)
    compiled.emulate(*got)
    for mine, theirs in zip(got, meant):
        if isinstance(mine, np.ndarray):
            compare(mine, theirs)
    if oracle is not None:
        products.assemble(compiled, oracle)
    return compiled
