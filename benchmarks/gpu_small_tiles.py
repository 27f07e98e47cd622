"""Small tiles on a Hopper GPU: what one warpgroup and what warps take for them, beside what the compiler estimates.

    python benchmarks/gpu_small_tiles.py --out FILE             packed weights, norms before a product, attention
    python benchmarks/gpu_small_tiles.py --emulate sm_90a       tiny ones on the emulator: right or wrong, no times

Each row is a kernel by warpgroups beside one that copies (`threads_per_wave=128`), by warpgroups that copy for
themselves, by warps (32), and as the compiler chooses (`ir/earlier_roles.py`), in CUDA graphs whose launches rotate
through more operands than L2 holds. Results are compared with f64 first.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

import gpu_gemm
import gpu_session  # noqa: F401  finds wavedsl where it is not installed
import numpy as np
import record

import wavedsl as wd
from wavedsl.reports import table

H, M, N, K = wd.symbols("H M N K")
GROUP = 128
HEADS = 16
WAYS: dict[str, dict[str, Any]] = {
    "roles": {"lanes": 128}, "unaided": {"specialize": False}, "warps": {"lanes": 32}, "chosen": {},
}  # fmt: skip
CASES = (
    ("u4", (16, 64, 64), (16, 16384, 4096)), ("u4", (16, 64, 64), (1, 8192, 8192)),
    ("u4", (64, 64, 64), (64, 8192, 4096)), ("u4", (64, 64, 64), (2048, 8192, 4096)),
    ("u4", (64, 64, 64), (4096, 4096, 256)),
    ("i8", (16, 64, 64), (16, 16384, 4096)), ("i8", (64, 64, 64), (4096, 4096, 256)),
    ("norm", (32, 64, 32), (32, 65536, 256)), ("norm", (32, 64, 32), (64, 16384, 4096)),
    ("attention", (64, 64, 0), (4096, 4096, 64)), ("attention", (64, 128, 0), (4096, 4096, 64)),
    ("attention", (64, 64, 0), (4096, 4096, 32)), ("attention", (64, 64, 0), (4096, 4096, 128)),
)  # fmt: skip
TINY = (
    ("u4", (16, 64, 64), (5, 128, 256)), ("i8", (64, 64, 64), (70, 128, 256)), ("norm", (32, 64, 32), (40, 128, 256)),
    ("attention", (64, 64, 0), (70, 100, 32)),
)  # fmt: skip
LOG2_E = 1.4426950408889634
BEYOND_L2 = 200e6
"""Bytes of operands that launches rotate through."""


def kernel_of(
    kind: str, tile: tuple[int, int, int], lanes: int | None = None, specialize: bool | None = None
) -> wd.Kernel:
    """A product with weights of a kind, or one whose rows' roots of squares divide it, or attention."""
    schedule = wd.Schedule(specialize=specialize)
    asked = [wd.HardwareConstraint(threads_per_wave=lanes)] if lanes else []
    if kind == "attention":
        return attention_of(tile, asked, schedule)
    cut = [
        wd.WorkgroupConstraint(M, tile[0], 0), wd.WorkgroupConstraint(N, tile[1], 1), wd.TilingConstraint(K, tile[2]),
        *asked,
    ]  # fmt: skip
    packed = wd.u4 if kind == "u4" else wd.i8

    @wd.wave(cut, schedule=schedule)
    def weights(
        x: wd.Memory[M, K, wd.SHARED, wd.f16], q: wd.Memory[N, K, wd.SHARED, packed],
        scale: wd.Memory[N, K / GROUP, wd.f16], y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            w = wd.cast(wd.read(q), wd.f16) - (8 if kind == "u4" else 0)
            return wd.mma(wd.read(x), w * wd.repeat_interleave(wd.read(scale), K), acc)

        wd.write(loop, y)

    @wd.wave(cut, schedule=schedule)
    def norm(
        x: wd.Memory[M, K, wd.f16], gain: wd.Memory[K, wd.f16], w: wd.Memory[N, K, wd.f16], y: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0), wd.Register[M, wd.f32](0.0)])
        def loop(acc, squares):
            row = wd.read(x)
            full = wd.cast(row, wd.f32)
            return wd.mma(row * wd.read(gain), wd.read(w), acc), squares + wd.sum(full * full, dim=K)

        total, squares = loop
        wd.write(total * wd.rsqrt(squares / K + 1e-5), y)

    return norm if kind == "norm" else weights


def attention_of(tile: tuple[int, int, int], asked: list[Any], schedule: wd.Schedule) -> wd.Kernel:
    """Attention of all keys, heads of K elements, in tiles of queries and keys."""
    cut = [wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, tile[0], 0), wd.TilingConstraint(N, tile[1])]

    @wd.wave([*cut, *asked], schedule=schedule)
    def attention(
        q: wd.Memory[H, M, K, wd.f16], k: wd.Memory[H, N, K, wd.f16], v: wd.Memory[H, N, K, wd.f16],
        o: wd.Memory[H, M, K, wd.f32],
    ):  # fmt: skip
        query = wd.read(q)
        start = [wd.Register[M, wd.f32](-1e30), wd.Register[M, wd.f32](0.0), wd.Register[M, K, wd.f32](0.0)]

        @wd.iterate(N, init_args=start)
        def loop(top, total, acc):
            scores = wd.mma(query, wd.read(k), wd.Register[M, N, wd.f32](0.0)) * (LOG2_E * K**-0.5)
            new = wd.maximum(top, wd.max(scores, dim=N))
            p, old = wd.exp2(scores - new), wd.exp2(top - new)
            return new, total * old + wd.sum(p, dim=N), wd.mma(wd.cast(p, wd.f16), wd.read(v), acc * old)

        _, total, acc = loop
        wd.write(acc / total, o)

    return attention


def operands(kind: str, size: tuple[int, int, int]) -> tuple[list[np.ndarray], Callable[[], tuple[np.ndarray, float]]]:
    """Arguments with a poisoned result, and what gives it in f64 with the error that is allowed."""
    m, n, k = size
    rng = np.random.default_rng(0)
    if kind == "attention":
        q, keys, v = (rng.standard_normal((HEADS, rows, k), np.float32).astype(np.float16) for rows in (m, n, n))

        def attended() -> tuple[np.ndarray, float]:
            scores = np.einsum("hmd,hnd->hmn", q.astype(np.float32), keys.astype(np.float32)) * k**-0.5
            p = np.exp(scores - scores.max(-1, keepdims=True))
            return np.einsum("hmn,hnd->hmd", p, v.astype(np.float32)) / p.sum(-1, keepdims=True), 2e-3

        return [q, keys, v, np.full((HEADS, m, k), np.nan, np.float32)], attended
    x, y = rng.standard_normal((m, k)).astype(np.float16), np.full((m, n), np.nan, np.float32)
    if kind == "norm":
        gain, w = rng.integers(1, 3, k).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)

        def normed() -> tuple[np.ndarray, float]:
            row = x.astype(np.float64)
            return row / np.sqrt((row**2).mean(1, keepdims=True) + 1e-5) * gain @ w.astype(np.float64).T, 2e-3 * k**0.5

        return [x, gain, w, y], normed
    codes = rng.integers(0, 16, (n, k)) if kind == "u4" else rng.integers(-8, 8, (n, k))
    q = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8) if kind == "u4" else codes.astype(np.int8)
    scale = 2.0 ** rng.integers(-3, 0, (n, k // GROUP))

    def product() -> tuple[np.ndarray, float]:
        w = (codes - (8 if kind == "u4" else 0)) * np.repeat(scale, GROUP, 1)
        return x.astype(np.float64) @ w.T, 2e-3 * k**0.5

    return [x, q, scale.astype(np.float16), y], product


def row(torch: Any, kind: str, tile: tuple[int, int, int], size: tuple[int, int, int]) -> dict[str, Any]:
    """Per way the error of what is allowed and, on a GPU, the seconds of one launch of many."""
    given, reference = operands(kind, size)
    want, allowed = reference()
    found: dict[str, Any] = {"kind": kind, "tile": tile, "size": size, "error": {}, "seconds": {}}
    copies = max(1, min(64, int(BEYOND_L2 / sum(a.nbytes for a in given)))) if torch else 1
    sets = [[torch.from_numpy(a).cuda() for a in given] if torch else [a.copy() for a in given] for _ in range(copies)]
    for way, asked in WAYS.items():
        kernel = kernel_of(kind, tile, **asked)
        calls = [kernel.bind(*arguments) for arguments in sets]
        calls[0]()
        got = sets[0][-1].cpu().numpy() if torch else sets[0][-1]
        error = float(np.abs(got - want).max() / allowed)
        found["error"][way] = error if np.isfinite(error) else 1e9
        found["seconds"][way] = gpu_gemm.median_time(torch, calls)[0] if torch else None
    found["chosen"] = _chosen(kernel_of(kind, tile), given)
    return found


def _chosen(kernel: wd.Kernel, given: list[np.ndarray]) -> str:
    """Who computes the tile and why so, by the compiler's record; empty where nobody does it earlier than roles."""
    reasons = kernel.compile(*given, target="sm_90a").kernel_ir.notes["decisions"].reasons
    return next((r for r in reasons if "estimated, for" in r), "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file for the rows")
    parser.add_argument("--emulate", metavar="TARGET", help="tiny sizes on the emulator, without times")
    given = parser.parse_args(arguments)
    torch = None
    if given.emulate:
        os.environ["WAVEDSL_DEVICE"] = f"emulator:{given.emulate}"
    else:
        import torch
    rows = [row(torch, *case) for case in (TINY if given.emulate else CASES)]
    lines = [
        [r["kind"], " x ".join(map(str, r["tile"])), " x ".join(map(str, r["size"])),
         *(f"{s * 1e6:.2f} us" if (s := r["seconds"][way]) else "–" for way in WAYS),
         r["chosen"].partition(":")[0] or "roles", f"{max(r['error'].values()):.2f}"]
        for r in rows
    ]  # fmt: skip
    print(table(("kind", "tile", "M x N x K", *WAYS, "chosen are", "error of allowed"), lines))
    if given.out:
        gpu = torch and record.gpu(torch)
        given.out.write_text(json.dumps({**record.surroundings(), "gpu": gpu, "rows": rows}, indent=1) + "\n")
    return 0 if all(e <= 1 for r in rows for e in r["error"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
