"""Linear attention with a decay per head (retention), in chunks: o[t] = sum over s <= t of g^(t-s) (q[t] · k[s]) v[s].

    python examples/retention.py --target gfx950 --time 100 --d 64 --e 32

A loop over chunks carries the state S = sum of g^(last-s) k[s]ᵀ v[s], which stays in registers. In a chunk, queries
meet keys of the same chunk as in attention, and all earlier ones through the state: three products for what would be a
step per element. A chunk's elements have two names, T as queries and S as keys; `k[…, start : start + S, :]` is the
chunk under the other one. E is cut over workgroups: a column of the state needs no other. From 64 rows of the state on
waves share them as well, and add up what each makes of its rows.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

B, H, T, S, D, E = wd.symbols("B H T S D E")


def retention_kernel(dtype: wd.DType, *, chunk: int = 32, columns: int = 32, rows: tuple[int, int] | None = None):
    """`columns` of E per workgroup; `rows`: those of the state, rounded up, and how many waves share them."""
    constraints = [
        wd.WorkgroupConstraint(B, 1, 2),
        wd.WorkgroupConstraint(H, 1, 1),
        wd.WorkgroupConstraint(E, columns, 0),
        wd.TilingConstraint(T, chunk),
    ]
    if rows is not None:
        constraints += [wd.WorkgroupConstraint(D, rows[0], 0), wd.WaveConstraint(D, rows[0] // rows[1])]

    @wd.wave(constraints, subs={S: chunk})
    def retention(
        q: wd.Memory[B, H, T, D, dtype], k: wd.Memory[B, H, T, D, dtype], v: wd.Memory[B, H, T, E, dtype],
        log_decay: wd.Memory[H, wd.f32], o: wd.Memory[B, H, T, E, dtype],
    ):  # fmt: skip
        rate = wd.read(log_decay)

        @wd.iterate(T, init_args=[wd.Register[D, E, wd.f32](0.0)])
        def chunks(state):
            start = wd.tile_start(T)
            queries, keys = wd.read(q), wd.read(k[:, :, start : start + S, :])
            values = wd.read(v[:, :, start : start + S, :])
            t, s = wd.cast(wd.index(T) - start, wd.f32), wd.cast(wd.index(S), wd.f32)
            fade = wd.where(t >= s, wd.exp2((t - s) * rate), 0.0)
            scores = wd.mma(queries, keys, wd.Register[T, S, wd.f32](0.0)) * fade
            before = wd.mma(queries, wd.cast(state, dtype), wd.Register[T, E, wd.f32](0.0)) * wd.exp2((t + 1.0) * rate)
            wd.write(wd.cast(wd.mma(wd.cast(scores, dtype), values, before), dtype), o)
            faded = wd.cast(wd.cast(keys, wd.f32) * wd.exp2((chunk - 1 - s) * rate), dtype)
            return wd.mma(faded, values, state * wd.exp2(rate * chunk))

    return retention


def rows_of(target: str, d: int) -> tuple[int, int] | None:
    """`rows` that suit a target: the state of 128 rows takes the registers of two waves of its own."""
    waves = 4 if target.startswith("gfx") or d > 128 else 2
    return (-(-d // (16 * waves)) * 16 * waves, waves) if d > 64 else None


def main(arguments: list[str] | None = None) -> int:
    given = common.options(__doc__, ("bf16", "f16"), batch=1, heads=2, time=80, d=32, e=32).parse_args(arguments)
    dtype = common.dtype_called(given.dtype)
    rows = given.batch, given.heads, given.time
    q, k, v = (common.data((*rows, n), dtype, given.seed + i) for i, n in enumerate((given.d, given.d, given.e)))
    rate = np.log2(1 - 2.0 ** (-5 - np.arange(given.heads))).astype(np.float32)
    o = np.zeros_like(v)
    common.run(retention_kernel(dtype, rows=rows_of(given.target, given.d)), [q, k, v, rate, o], given)

    time = np.arange(given.time)
    apart = time[:, None] - time
    fade = np.where(apart >= 0, 2.0 ** (rate[:, None, None].astype(np.float64) * np.maximum(apart, 0)), 0.0)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    scores = np.einsum("bhtd,bhsd->bhts", wide[0], wide[1]) * fade
    large = np.einsum("bhtd,bhsd->bhts", np.abs(wide[0]), np.abs(wide[1])) * fade @ np.abs(wide[2])
    # Scores, state and faded keys are rounded to the dtype, each once; so is the result.
    return common.verdict("o", o, scores @ wide[2], common.bound(scores @ wide[2], dtype, 1.01, 3 * large))


if __name__ == "__main__":
    sys.exit(main())
