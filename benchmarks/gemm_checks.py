"""What `gpu_gemm.py` compares with float64 before it times anything: every kind of product, each with its reference.

In: a `Space` that makes arrays. Out: the launches of a check, the reference, and how far each element may be off.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gemm_kernels as kernels
import numpy as np
import units
from gemm_kernels import Config, Form
from on_gpu import Space, Work, error_of
from wavedsl.runtime.launch import target_of

import wavedsl as wd
from wavedsl.targets import get_target

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))  # last: it has a copy.py, as the library has
BF16, F16 = Form(wd.bf16), Form(wd.f16, out=wd.f16)
TF32, I8 = Form(wd.tf32, out=wd.f32), Form(wd.i8, wd.i32, wd.i32)
F32 = Form(wd.f32, out=wd.f32)
IN_PLACE = Form(wd.bf16, out=wd.f32, epilogue="in place")
E4M3, E5M2 = Form(wd.f8e4m3), Form(wd.f8e5m2)


@dataclass(frozen=True)
class Check:
    """A product to be compared with its reference: M, N, K on a GPU, and on the emulator (`tiny`). `config`: tiles,
    where not those of `default_config`; `strategy`: a plan of `wavedsl.strategies` instead of one kernel, or "k blocks"
    for fp8 with a scale per row and block of K; `times`: launches one behind the other, each of which needs what the
    one in front of it wrote."""

    name: str
    form: Form
    size: tuple[int, int, int]
    tiny: tuple[int, int, int] = (72, 80, 72)
    config: Config | None = None
    strategy: str = ""
    times: int = 1


def _fixed(name: str, size: tuple[int, int, int], tiny: tuple[int, int, int], **schedule: Any) -> Check:
    small = Config(64, 64, 64, 64, 64, tuple(schedule.items()))
    return Check(name, BF16, size, tiny, small)


RAGGED = (1000, 1208, 1096)
CHECKS = (
    *(Check(f"dtype {f.dtype.name} to {f.out.name}", f, RAGGED, (72, 80, 160 if f.dtype.bits == 8 else 72))
      for f in (BF16, F16, replace(F16, out=wd.f32), TF32, E4M3, E5M2, I8)),
    *(Check(f"operands {a} {b}", replace(BF16, a=a, b=b), RAGGED)
      for a, b in (("KM", "NK"), ("MK", "KN"), ("KM", "KN"))),
    *(Check(f"epilogue {e}", replace(BF16, epilogue=e), RAGGED) for e in kernels.EPILOGUES[1:5]),
    Check("epilogue bias relu, fp8", replace(E4M3, epilogue="bias relu"), RAGGED, (72, 80, 160)),
    *(Check(f"input {i}", replace(BF16, inputs=i), RAGGED) for i in kernels.INPUTS[1:]),
    Check("epilogue silu", replace(BF16, epilogue="silu"), RAGGED),
    Check("in place", IN_PLACE, RAGGED),
    Check("f32 as tf32", replace(F32, precision="tf32"), (1000, 1208, 1096)),
    Check("f32 as 3xtf32", replace(F32, precision="3xtf32"), (1000, 1208, 1096)),
    Check("cache hints", replace(BF16, hints="b"), RAGGED),
    _fixed("prefetch", RAGGED, (72, 80, 264), prefetch=2),
    Check("fp8 scales along K", E4M3, (1000, 1208, 1096), (72, 136, 272), strategy="k blocks"),
    *(Check(f"launches that need each other, dependent {on}", IN_PLACE, RAGGED, (72, 80, 136),
            Config(64, 64, 64, 64, 64, (("dependent", on),)), times=4) for on in (False, True)),
    Check("batched, run-time M", replace(BF16, batched=True, dynamic=True), (500, 408, 328), (72, 40, 72)),
    Check("grouped, empty ends", BF16, (1000, 1208, 1096), (100, 72, 72), strategy="grouped, empty ends"),
    Check("fp8 block scales", replace(E4M3, epilogue="block scales"), RAGGED, (72, 80, 272)),
    Check("batched", replace(BF16, batched=True), (500, 408, 328), (72, 40, 72)),
    Check("grouped", BF16, (1000, 1208, 1096), (100, 72, 72), strategy="grouped"),
    Check("split-K", BF16, (256, 200, 16384), (24, 40, 264), strategy="split_k"),
    Check("stream-K", BF16, (1000, 1208, 4096), (72, 80, 264), strategy="stream_k"),
    Check("skinny", BF16, (16, 4096, 4096), (10, 72, 136), strategy="skinny"),
    _fixed("cluster", (1024, 1208, 1096), (256, 72, 136), cluster=(2, 1, 1), persistent=False),
    _fixed("persistent", (4000, 1208, 1096), (200, 72, 136), persistent=True),
    _fixed("cluster, persistent", (4096, 1208, 1096), (256, 72, 136), cluster=(2, 1, 1), persistent=True),
    _fixed("cluster along both axes", (4096, 1272, 1096), (256, 72, 136), cluster=(2, 2, 1)),
    _fixed("ping-pong", (4000, 1208, 1096), (200, 72, 136), persistent=True, ping_pong=True),
    _fixed("few rows", (40, 1208, 1096), (40, 72, 136)),
    _fixed("few rows, cluster", (40, 1272, 1096), (40, 256, 136), cluster=(1, 2, 1)),
    _fixed("few rows, ping-pong", (40, 9080, 1096), (40, 200, 136), persistent=True, ping_pong=True),
    _fixed("parts of K", RAGGED, (72, 80, 264), split_k=3),
    _fixed("dealt", (1000, 1208, 4096), (200, 80, 264), stream_k=True),
    _fixed("dependent", RAGGED, (72, 80, 136), dependent=True),
    _fixed("no roles", RAGGED, (72, 80, 136), specialize=False),
    _fixed("one stage", RAGGED, (72, 80, 136), stages=1),
    Check("rows of no 16 bytes", BF16, (1000, 1208, 1098), (72, 80, 70)),
    Check("rows of no 4 bytes", BF16, (1000, 1207, 1095), (72, 79, 71)),
)  # fmt: skip


def default_config(form: Form, target: str = "sm_90a") -> Config:
    """Tiles that every form has: two warpgroups on a chip that has them, and four waves elsewhere (in each lane of
    two waves of 32 there would be 256 sums)."""
    wave_n = 128 if get_target(target).warpgroups_multiply(wd.tf32 if form.precision else form.dtype) else 64
    return Config(128, 128, 128 * 8 // max(8, form.dtype.bits if form.dtype.name != "tf32" else 32), 64, wave_n)


def allowed_of(form: Form, want: Any, size: Any, k: int) -> Any:
    """How far each element may be off, in NumPy or torch: half a unit of the output, and errors of its sum."""
    if form.sums.is_int:
        return 0 * want
    out = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24}[form.out.name]
    # f32 sums of exact products; tf32 rounds its operands; fp8 sums keep about 13 bits on the way (hopper). Those of a
    # long K grow on the way as a walk does, with its root: of 67 million results of K = 8192 an H200 had one off by
    # 1.002 of what 2^-12 allows, in tiles of any size alike.
    plain = 2.0**-24 * (8 + math.sqrt(k))
    eight = 2.0**-12 * max(1.0, math.sqrt(k / 2048))
    sums = {"tf32": 2.0**-10, "f8e4m3": eight, "f8e5m2": eight}.get(form.dtype.name, plain)
    # Two tf32 numbers keep 22 bits of an operand; what they leave of each, and the product of the small parts, is gone.
    sums = {"tf32": 2.0**-9, "3xtf32": plain + 2.0**-20}.get(form.precision or "", sums)
    inputs = {"bf16": 2.0**-8, "f16": 2.0**-11}.get(form.dtype.name, 0.0) if form.inputs else 0.0
    if form.dtype.name in ("f8e4m3", "f8e5m2"):
        # Cut off, not rounded, at each instruction's 32 of K: DeepSeek-V3's report has 2 % of results for K = 4096.
        out += 2.0**-13 * k / 32
    return out * abs(want) + (sums + inputs / 8) * size + 1e-6


@dataclass(frozen=True)
class Made:
    """A check on its data: what is launched on which arguments, the output, and the reference with its magnitudes."""

    launches: Sequence[tuple[Any, Sequence[Any]]]
    result: Any
    answers: Callable[[], tuple[np.ndarray, np.ndarray]]


def made(space: Space, check: Check, size: tuple[int, int, int]) -> Made:
    """The launches of a check, nothing computed yet."""
    form, (m, n, k) = check.form, size
    batch = (3,) if form.batched else ()
    a, x = space.array((*batch, *((m, k) if form.a == "MK" else (k, m))), form.dtype)
    if check.strategy == "k blocks":
        return blocks_of_k(space, form, a, x, size)
    groups = {
        "grouped": [m // 3, 0, m - m // 3 - m // 5, m // 5], "grouped, empty ends": [0, 0, m // 2, 0, m - m // 2, 0],
    }.get(check.strategy, [])  # fmt: skip
    leading = (len(groups),) if groups else batch
    b, y = space.array((*leading, *((n, k) if form.b == "NK" else (k, n))), form.dtype)
    before = None
    c = space.empty((*batch, m, n), form.out)
    if form.epilogue == "in place":
        c, before = space.array((m, n), form.out)
    more = [space.array(shape, dtype) for shape, dtype in kernels.extras(form, m, n)]
    if not check.strategy:
        kernel = kernels.product(form, check.config or default_config(form, target_of({"a": a})))
        arguments = [a, b, *(array for array, _ in more), c, *kernels.scalars(form)]
        values = [values for _, values in more] if before is None else [before]
        return Made([(kernel, arguments)] * check.times, c, lambda: repeated(form, x, y, values, check.times))
    from wavedsl.strategies import plan_gemm, plan_grouped

    def grouped() -> tuple[np.ndarray, np.ndarray]:
        ends = np.cumsum([0, *groups])
        parts = [(x[i:j], each.T) for i, j, each in zip(ends, ends[1:], y)]
        return np.concatenate([p @ q for p, q in parts]), np.concatenate([np.abs(p) @ np.abs(q) for p, q in parts])

    if groups:
        plan = plan_grouped(a, b, c, groups, transpose_b=True)
    else:
        plan = plan_gemm(a, b, c, transpose_b=True, strategy=check.strategy)
    answers = grouped if groups else lambda: kernels.reference(form, x, y, [])
    return Made([(launch.kernel, launch.arguments) for launch in plan.launches], c, answers)


def repeated(form: Form, x: Any, y: Any, extras: list[Any], times: int) -> tuple[np.ndarray, np.ndarray]:
    """What so many launches leave, each of which starts from what the one before it wrote."""
    want, size = kernels.reference(form, x, y, extras)
    total = size
    for _ in range(times - 1):
        want, _ = kernels.reference(form, x, y, [want])
        total = size + abs(kernels.BETA) * total
    return want, total


def blocks_of_k(space: Space, form: Form, a: Any, x: np.ndarray, size: tuple[int, int, int]) -> Made:
    """fp8 as `examples/block_scaled_gemm.py` has it: scales per row and per 128 columns, both per 128 of K."""
    from block_scaled_gemm import BLOCK, block_scaled_kernel

    m, n, k = size
    blocks = -(-k // BLOCK)
    b, y = space.array((n, k), form.dtype)
    (sa, p), (sb, q) = space.array((blocks, m), wd.f32), space.array((-(-n // BLOCK), blocks), wd.f32)
    c = space.empty((m, n), form.out)

    def answers() -> tuple[np.ndarray, np.ndarray]:
        left = x * np.repeat(p.T, BLOCK, 1)[:, :k]
        right = y * np.repeat(np.repeat(q, BLOCK, 0)[:n], BLOCK, 1)[:, :k]
        return left @ right.T, np.abs(left) @ np.abs(right).T

    return Made([(block_scaled_kernel(form.dtype, form.out), [a, b, sa, sb, c])], c, answers)


def checked(space: Space, check: Check, tiny: bool) -> Work:
    """A check as a call, and what it is compared with."""
    m, n, k = shape = check.tiny if tiny else check.size
    ready = made(space, check, shape)
    want, size = ready.answers()

    def run() -> None:
        for kernel, arguments in ready.launches:
            kernel(*arguments)

    allowed = functools.partial(allowed_of, check.form, want, size, k)
    return Work({"wavedsl": run}, ready.result, lambda: want, 0.0, 0, 2 * m * n * k, allowed)


def run_checks(done: units.Units, space: Space, checks: Sequence[Check], tiny: bool) -> list[dict[str, Any]]:
    """A row per check: the largest error of what is allowed, or why there is no result."""

    def result(check: Check) -> dict[str, Any]:
        work = checked(space, check, tiny)
        work.calls["wavedsl"]()
        return {"error": error_of(space, work)}

    rows = []
    for check in checks:
        row = {"check": check.name, "size": list(check.tiny if tiny else check.size)}
        rows.append(done.run(f"check {check.name}", row, functools.partial(result, check), units.CHECK_LIMIT,
                             ("product checks",)))
    return rows
