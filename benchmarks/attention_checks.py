"""Checks of `gpu_attention`: every option of the attention examples, on fresh data, against float64 NumPy.

In: where arrays lie (`Place`), a target, a seed. Out: 0 where the kernel is right. Outputs hold NaN before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import wavedsl as wd

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "examples")]

import attention as forward
import attention_backward as backward
import attention_decode as paged
import attention_varlen as packed
import attention_varlen_backward as packed_backward
from attention_ways import SIZES, Way, gradient_kernels
from rehearsal import Rehearsal

FORWARD: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": True, "lse": True},
    "window": {"causal": True, "window": 100, "sinks": True},
    "grouped": {"group": 4, "order": "bshd"},
    "bias, cap": {"bias": True, "cap": 20.0},
    "alibi": {"alibi": True, "causal": True},
    "f16": {"dtype": wd.f16},
    "f8": {"dtype": wd.f8e4m3, "out": wd.f16, "lse": True},
    "f8, keys along V": {"dtype": wd.f8e4m3, "out": wd.f16, "lse": True, "v_order": "bhds"},
}
GRADIENTS = ("delta", "d_rows", "d_q_sums", "d_q", "d_k", "d_v", "d_bias", "d_slopes", "d_sink")
BACKWARD: dict[str, dict[str, Any]] = {
    "gradients": {},
    "gradients, causal": {"causal": True, "group": 2},
    "gradients by atomics": {"deterministic": False},
    "gradients by atomics, causal": {"causal": True, "group": 2, "deterministic": False},
    "gradients by atomics of lanes": {"deterministic": False, "schedule": wd.Schedule(bulk_atomics=False)},
    "gradients, window, cap": {"causal": True, "window": 60, "cap": 20.0, "bias": True},
    "gradients, alibi, sinks": {"causal": True, "alibi": True, "sinks": True},
    "gradients, f8": {"dtype": wd.f8e4m3, "out": wd.bf16},
}


class Place:
    """Where arrays lie: NumPy for the emulator, torch tensors on a GPU; nowhere in a `rehearsal`."""

    def __init__(self, torch: Any = None, rehearsal: Rehearsal | None = None):
        self.torch, self.rehearsal = torch, rehearsal

    def put(self, x: Any) -> Any:
        """An array of any dtype, bit by bit; scalars stay what they are."""
        if self.torch is None or not isinstance(x, np.ndarray):
            return x
        names = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}
        name = names.get(x.dtype.name)
        if name is None:
            return self.torch.from_numpy(np.ascontiguousarray(x)).cuda()
        bits = self.torch.from_numpy(np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}")).cuda()
        return bits.view(getattr(self.torch, name))

    def back(self, there: Any, like: Any) -> Any:
        """What `put` gave, as NumPy of the dtype of `like`."""
        if there is like or not isinstance(like, np.ndarray):
            return like
        bits = there.contiguous().view(getattr(self.torch, f"int{8 * like.dtype.itemsize}"))
        return bits.cpu().numpy().view(like.dtype)


def poisoned(given: dict[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
    """The arguments with NaN in every element of the outputs."""
    for name in outputs:
        if name in given:
            given[name] = np.full(given[name].shape, np.nan, given[name].dtype)
    return given


def launch(place: Place, kernel: Any, given: dict[str, Any], subs: dict[Any, int] | None = None) -> None:
    """Run a kernel on arguments by name and bring back what it wrote; only compile it in a rehearsal."""
    names = [p.name for p in kernel.parameters]
    there = [place.put(given[name]) for name in names]
    if place.rehearsal is not None:
        if subs:
            place.rehearsal.add(kernel.compile(*there, target=place.rehearsal.target, subs=subs))
        else:
            kernel.bind(*there)
        return
    (kernel.compile(*there, subs=subs) if subs else kernel)(*there)
    for name, x in zip(names, there):
        given[name] = place.back(x, given[name])


def check_forward(place: Place, target: str, options: dict[str, Any], size: dict[str, int], seed: int) -> int:
    variant = forward.Variant(**{"dtype": wd.bf16, **options})
    if variant.dtype is wd.f8e4m3 and target == "gfx942":
        variant = replace(variant, dtype=wd.f8e4m3fnuz)
    given = poisoned(forward.arguments_of(variant, size, seed), ("o", "lse"))
    tile, waves = forward.tile_for(variant, target, size["d"], size["n"])
    launch(place, forward.attention_kernel(variant, tile=tile, waves=waves), given)
    return int(forward.check(variant, given))


def check_backward(place: Place, target: str, options: dict[str, Any], size: dict[str, int], seed: int) -> int:
    deterministic, schedule = options.get("deterministic", True), options.get("schedule")
    options = {name: value for name, value in options.items() if name not in ("deterministic", "schedule")}
    variant = backward.Variant(**{"dtype": wd.bf16, "lse": True, **options})
    if variant.dtype is wd.f8e4m3 and target == "gfx942":
        variant = replace(variant, dtype=wd.f8e4m3fnuz)
    given = poisoned(backward.arguments_of(variant, size, seed), GRADIENTS)
    tiles = backward.tile_for(variant, target, size["d"])
    for kernel in gradient_kernels(variant, Way(tiles, deterministic, schedule if target == "sm_90a" else None)):
        launch(place, kernel, given)
    return int(backward.check(variant, given))


def check_packed_backward(place: Place, target: str, lengths: Sequence[int], d: int, seed: int) -> int:
    variant = packed.Variant(wd.bf16, causal=True, lse=True, group=2, alibi=True, sinks=True)
    given, extents = packed_backward.arguments_of(variant, lengths, lengths, 4, d, seed=seed)
    poisoned(given, GRADIENTS)
    for kernel in packed_backward.kernels(variant, backward.tile_for(variant, target, d, packed=True)):
        mine = packed_backward.arguments_for(kernel, given)
        launch(place, kernel, mine, extents if "starts_q" in mine else None)
        for name, x in mine.items():
            given[name] = x.reshape(given[name].shape) if isinstance(x, np.ndarray) else x
    return int(packed_backward.check(variant, given))


def check_packed(place: Place, target: str, lengths: Sequence[int], d: int, seed: int) -> int:
    variant = packed.Variant(wd.bf16, causal=True, lse=True, group=2)
    given, extents = packed.arguments_of(variant, lengths, lengths, 4, d, seed=seed)
    tile, waves = ((128, 64), 2) if target == "sm_90a" else ((64, 32), 4)
    launch(place, packed.varlen_kernel(variant, tile=tile, waves=waves), poisoned(given, ("o", "lse")), extents)
    return int(packed.check(variant, given))


def check_paged(place: Place, target: str, lengths: Sequence[int], d: int, seed: int) -> int:
    variant = paged.Variant(wd.bf16, group=4)
    given = poisoned(paged.arguments_of(variant, lengths, 8, d, 64, 3, seed), ("partial", "level", "o", "lse"))
    rows = 64 if target == "sm_90a" else 16
    split = paged.split_kernel(variant, page=64, pages=given["table"].shape[1], splits=3, tile=32, rows=rows)
    for kernel in (split, paged.combine_kernel(variant)):
        launch(place, kernel, given)
    return int(paged.check(variant, given))


def checks(tiny: bool) -> list[tuple[str, Callable[[Place, str, int], int]]]:
    """(name, run) of every option; `tiny`: at sizes for the emulator."""
    found: list[tuple[str, Callable[[Place, str, int], int]]] = []
    for d in (64,) if tiny else SIZES:
        m, n = (70, 130) if tiny else (300, 1111)
        size = {"b": 1, "h": 4, "m": m, "n": n, "d": d, "e": d}
        for name, options in FORWARD.items():
            found.append((f"{name}, d {d}", lambda p, t, s, o=options, z=size: check_forward(p, t, o, z, s)))
        for name, options in BACKWARD.items():
            found.append((f"{name}, d {d}", lambda p, t, s, o=options, z=size: check_backward(p, t, o, z, s)))
        lengths = (70, 0, 33) if tiny else (1000, 0, 77, 1, 513)
        found.append((f"packed, d {d}", lambda p, t, s, x=lengths, d=d: check_packed(p, t, x, d, s)))
        found.append(
            (f"gradients, pack of lengths, d {d}", lambda p, t, s, x=lengths, d=d: check_packed_backward(p, t, x, d, s))
        )
        found.append((f"paged, d {d}", lambda p, t, s, x=(*lengths[:1], 1), d=d: check_paged(p, t, x, d, s)))
    return found
