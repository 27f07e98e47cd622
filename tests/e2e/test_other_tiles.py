"""Kernels of the files beside this one with other tiles and schedules: what the constraints say changes no result.

A kernel whose meaning depends on its trips (chunks of a recurrence) is held against the evaluator, which has the same.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from families import TARGETS, Case, by_graph, on_chip
from wavedsl.ir.errors import RegisterPressureError

import wavedsl as wd
from wavedsl.kernel_object import Kernel

TILES = (2, 3, 8, 16, 32, 48, 64, 128)
TRIES = 12
"""Of these the first that is not refused is run: a tile may have to divide something, a chip may lack a dtype."""


FILES = sorted(Path(__file__).parent.glob("test_written_*.py"))


def written(path: Path) -> Iterator[tuple[str, Kernel, Any, Any]]:
    """Name, kernel, what makes a case, and sizes, of a file's kernels that have tiles to change."""
    spec = importlib.util.spec_from_file_location(f"other_tiles_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, (kernel, made, sizes, *rest) in module.KERNELS.items():
        if not rest and isinstance(made(*sizes[0]), Case) and any(_can_change(c) for c in kernel.constraints):
            yield name, kernel, made, sizes


def _can_change(constraint: Any) -> bool:
    cuts = isinstance(constraint, (wd.WorkgroupConstraint, wd.TilingConstraint))
    return cuts and constraint.tile.is_Integer and constraint.tile > 1


def retiled(kernel: Kernel, choose: random.Random) -> Kernel:
    """The kernel with other tiles where these are numbers, without what it says of waves, with some of a schedule."""
    constraints = []
    for c in kernel.constraints:
        if _can_change(c) and choose.random() < 0.8:
            tile = int(c.tile)
            c = replace(c, tile=choose.choice([t for t in {*TILES, max(2, tile // 2), 2 * tile} if t != tile]))
        if not isinstance(c, wd.WaveConstraint):
            constraints.append(c)
    options = {"stages": (1, 2, 3), "swizzle": (True, False), "direct_to_shared": (True, False), "split_k": (2,)}
    fixed = {}
    if choose.random() < 0.5:
        name = choose.choice(sorted(options))
        fixed[name] = choose.choice(options[name])
    return Kernel(
        kernel.function, constraints, kernel.subs, kernel.dynamic,
        replace(kernel.schedule or wd.Schedule(), **fixed) if fixed else kernel.schedule,
        kernel.name, kernel.loc, kernel._namespace, kernel.buckets, kernel.fast_math,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[len("test_written_") :])
def test_results_do_not_depend_on_tiles(path: Path) -> None:
    for name, kernel, made, sizes in written(path):
        first_that_works(name, kernel, made, sizes)


def first_that_works(name: str, kernel: Kernel, made: Any, sizes: Any) -> None:
    refusals = []
    for attempt in range(TRIES):
        choose = random.Random(f"{name} {attempt}")
        other, target, case = retiled(kernel, choose), choose.choice(TARGETS), made(*choose.choice(sizes))
        try:
            compiled_and_run(other, case, target, case.dynamic if choose.random() < 0.3 else ())
            return
        except (wd.ConstraintError, RegisterPressureError) as error:
            refusals.append(str(error))
        except Exception as error:
            cut = ", ".join(map(str, other.constraints))
            raise AssertionError(f"{name} on {target}, {cut}, {other.schedule}: {error}") from error
    pytest.fail(f"{name}: every choice was refused: " + "\n".join(refusals))


def compiled_and_run(kernel: Kernel, case: Case, target: str, dynamic: Any) -> None:
    try:
        on_chip(kernel, case, target, dynamic)
    except AssertionError:
        with pytest.raises(AssertionError):  # or the evaluator is right, and the text is not
            by_graph(kernel, case)
        mine = [a.copy() if hasattr(a, "copy") else a for a in case.arguments]
        kernel.evaluate(*mine, subs=case.subs or None)
        on_chip(kernel, replace(case, wants={i: mine[i] for i in case.wants}), target, dynamic)
