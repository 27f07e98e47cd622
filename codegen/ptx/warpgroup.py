"""The warpgroup view of sm_90a: the chip with 128 threads as the wave and `wgmma` as its matrix instructions.

In: the chip's own `Target`, the table `isa_wgmma`. Out: a `Target` for kernels whose products all fit. A warpgroup
spreads over the four sub-cores of an SM, so what a sub-core has four times counts once here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from wavedsl.codegen.ptx.isa_wgmma import TYPES, WARPGROUP, Wgmma, widths
from wavedsl.ir.target import MmaAtom, Target

SHARED_BYTES = 128
"""Bytes of shared memory that an SM reads in a clock (32 banks of 4 bytes)."""

_RATE = {8: 4096, 16: 2048, 32: 1024}
"""Multiply-adds per clock of an SM by bits per element: the H100's 989.5 TFLOP/s of dense f16 at 1.83 GHz on 132 SMs
are 2048 a clock; 8-bit types twice, tf32 half of that (data sheet)."""


def _atom(w: Wgmma) -> MmaAtom:
    """An instruction takes the longer of its arithmetic and of reading both operands from shared memory."""
    bits = w.a_dtype.bits
    reading = (w.m + w.n) * w.k * bits // 8 // SHARED_BYTES
    cycles = max(1, w.m * w.n * w.k // _RATE[bits], reading)
    result = {"M": w.d["M"], "N": " ".join(w.d["N"].split()[:3])}
    return MmaAtom(
        w.name, w.m, w.n, w.k, w.a_dtype, w.b_dtype, w.d_dtype, w.a, {}, result, w.a_regs, 0, w.d_regs, cycles,
        cycles, w.mnemonic, asynchronous=True, transposes=w.transposable,
    )  # fmt: skip


@cache
def view(name: str) -> Target:
    """The chip of this name as a warpgroup sees it."""
    from wavedsl.codegen.ptx.target import target

    chip = target(name)
    atoms = tuple(_atom(Wgmma(n, k, a, b, d)) for a, b, d, k in TYPES for n in reversed(widths(a)))
    return replace(
        chip,
        wave_size=WARPGROUP,
        max_waves=chip.max_threads // WARPGROUP,
        simds=1,
        mma_atoms=atoms,
        load_atoms=tuple(a for a in chip.load_atoms if not a.lane),
        tile_rows=64,
        default_waves=2,
        warpgroup=None,
    )
