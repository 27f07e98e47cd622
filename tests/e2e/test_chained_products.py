"""A product's result is the next product's operand without shared memory between, for 16-, 8- and 4-bit floats."""

from __future__ import annotations

import re

import numpy as np
import packed
import pytest
from products import K, M, N

import wavedsl as wd

D = wd.sym.D
CASES = [
    ("gfx942", wd.f16), ("gfx942", wd.f8e4m3fnuz), ("gfx950", wd.f16), ("gfx950", wd.f8e4m3), ("gfx950", wd.f4e2m1),
]  # fmt: skip


@pytest.mark.parametrize(("target", "dtype"), CASES, ids=str)
def test_results_stay_in_registers(target: str, dtype: wd.DType) -> None:
    """S = Q Kᵀ, O = S Vᵀ. The order of K that S has in registers is the order in which V is placed: stores of its copy
    must not take elements for neighbours that are so in shared memory only."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WaveConstraint(M, 32), wd.TilingConstraint(N, 64)])
    def chained(
        q: wd.Memory[M, K, dtype], k: wd.Memory[N, K, wd.SHARED, dtype], v: wd.Memory[D, N, wd.SHARED, dtype],
        o: wd.Memory[M, D, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[M, D, wd.f32](0.0)

        @wd.iterate(N, init_args=[zero])
        def loop(acc: wd.Register[M, D, wd.f32]):
            s = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0))
            return wd.mma(wd.cast(s, dtype), wd.read(v), acc)

        wd.write(loop, o)

    rng = np.random.default_rng(4)
    shapes = [(64, 128), (128, 128), (64, 128)]
    if dtype.bits < 8:
        (q, a), (k, b), (v, c) = (packed.operand(rng, dtype, s) for s in shapes)
    else:
        q, k, v = (rng.integers(-1, 2, s).astype(dtype.numpy) for s in shapes)
        a, b, c = (x.astype(np.float64) for x in (q, k, v))
    o = np.zeros((64, 64), np.float32)
    compiled = chained.compile(q, k, v, o, target=target)
    compiled.emulate(q, k, v, o)
    narrow = packed.FLOATS.get(dtype.name, dtype.numpy)
    largest = 6.0 if dtype.bits < 8 else 240.0
    s = np.clip(a @ b.T, -largest, largest).astype(np.float32).astype(narrow).astype(np.float64)
    assert (np.abs(o - s @ c.T) <= 136 * 2.0**-24 * (np.abs(s) @ np.abs(c).T)).all()
    assert not re.search(r"\bscratch\b|ds_bpermute|ds_swizzle", compiled.asm)
