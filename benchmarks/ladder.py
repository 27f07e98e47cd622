"""The smallest correct things first: which feature is the first to fail on a chip.

Each rung has one thing more than those above it: a copy, a product of one tile without any pipeline, then loops, rings,
roles, clusters and so on. In: a `Space`. Out: rows as `gemm_checks` makes them, with the feature's name.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import units
from gemm_checks import BF16, E4M3, TF32, Check, checked
from gemm_kernels import Config, Form
from on_gpu import Space, error_of

import wavedsl as wd

KIND = "ladder"
PLAIN = {"stages": 1, "specialize": False, "cluster": (1, 1, 1), "persistent": False}


def rung(
    name: str, size: tuple[int, int, int], *, form: Form = BF16, tiles: tuple[int, ...] = (64, 64, 64, 64, 64),
    **schedule: Any,
) -> Check:  # fmt: skip
    """A product of these tiles by PLAIN with what is said in its place; None leaves a choice to the compiler."""
    chosen = {k: v for k, v in {**PLAIN, **schedule}.items() if v is not None}
    config = Config(*tiles, tuple(chosen.items()))  # type: ignore[arg-type]
    return Check(name, form, size, size, config)


WIDE = (128, 128, 64, 64, 128)
ROLES: dict[str, Any] = {"stages": 3, "specialize": True}
FREE = dict.fromkeys(PLAIN)
LADDER = (
    rung("one tile, one trip", (64, 64, 64)),
    rung("trips of K", (64, 64, 256)),
    rung("several tiles", (128, 192, 128)),
    rung("ragged edges", (72, 80, 72)),
    rung("ring", (64, 64, 320), stages=3),
    rung("roles", (64, 64, 320), **ROLES),
    rung("two warpgroups", (128, 128, 192), tiles=WIDE, **ROLES),
    rung("persistent", (200, 136, 136), **{**ROLES, "persistent": True}),
    rung("cluster", (128, 64, 192), **{**ROLES, "cluster": (2, 1, 1)}),
    rung("cluster, persistent", (256, 72, 136), **{**ROLES, "cluster": (2, 1, 1), "persistent": True}),
    rung("cluster along both axes", (256, 72, 136), **{**ROLES, "cluster": (2, 2, 1), "persistent": None}),
    rung("ping-pong", (200, 72, 136), **{**ROLES, "persistent": True, "ping_pong": True}),
    rung("split-K", (64, 64, 320), **{**FREE, "split_k": 3}),
    rung("stream-K", (136, 72, 320), **{**FREE, "stream_k": 3}),
    rung("dependent launch", (72, 80, 136), **{**FREE, "dependent": True}),
    rung("rows of no 16 bytes", (72, 80, 70), **FREE),
    rung("tf32", (64, 64, 96), form=TF32, tiles=(64, 64, 32, 64, 64), **FREE),
    rung("fp8", (64, 64, 256), form=E4M3, tiles=(64, 64, 128, 64, 64), **FREE),
    rung("K along rows of neither", (64, 64, 128), form=replace(BF16, a="KM", b="KN"), **FREE),
    rung("the compiler's own choice", (256, 256, 256), tiles=(128, 256, 64, 64, 256), **FREE),
)


def run_ladder(done: Any, space: Space, rungs: Sequence[Check] = LADDER) -> list[dict[str, Any]]:
    """A row per rung, the copy first. One that fails does not end the climb: others tell what still works."""
    first = done.run("ladder copy", {"check": "copy"}, lambda: copied(space), 2 * units.TINY_LIMIT, (KIND,))

    def climbed(check: Check) -> dict[str, Any]:
        work = checked(space, check, tiny=False)
        work.calls["wavedsl"]()
        return {"error": error_of(space, work)}

    return [first] + [
        done.run(
            f"ladder {c.name}", {"check": c.name, "size": list(c.size)}, functools.partial(climbed, c),
            units.TINY_LIMIT, (KIND,),
        )
        for c in rungs
    ]  # fmt: skip


def copied(space: Space) -> dict[str, Any]:
    """A copy of a small array: that a kernel is compiled, loaded and launched at all."""
    import memory_bound_kernels

    a, want = space.array((5, 300), wd.f16)
    b = space.empty((5, 300), wd.f16)
    memory_bound_kernels.copy(wd.f16)(a, b)
    return {"error": 0.0 if (space.host(b) == want).all() else float("inf")}


def first_to_fail(rows: Sequence[dict[str, Any]]) -> str | None:
    """The lowest rung that was run and is not right."""
    for row in rows:
        absent = str(row.get("failed", "")).startswith(("left out", "not measured"))
        if not absent and not row.get("error", float("inf")) <= 1:
            return str(row["check"])
    return None


__all__ = ["LADDER", "first_to_fail", "run_ladder"]
