"""NVIDIA chips as `Target`s: limits, matrix and load atoms, banks, costs, occupancy.

In: the rows of `mma`. Out: `TARGETS` by name and `target(name)`. Limits are those of the CUDA programming guide's table
of compute capabilities; cycle numbers are of one SM and carry their source beside them. sm_90a here is the `mma.sync`
path with Hopper's limits; its warpgroup instructions are in `warpgroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wavedsl.codegen.ptx.mma import MATRIX_MOVES, MMAS, Mma
from wavedsl.codegen.ptx.products import PRODUCTS
from wavedsl.ir import dtypes as dt
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.kernel.half_pairs import HALVES, OPERATIONS
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import LoadAtom, MmaAtom, Target, Unit

WARP = 32


@dataclass(frozen=True)
class Chip:
    """Limits of one compute capability. Bytes, warps, workgroups per SM; `units` SMs of the reference product."""

    name: str
    number: int
    units: int
    product: str
    shared_block: int
    """Shared memory that one workgroup may use."""
    shared_sm: int
    """Shared memory that the workgroups of an SM share."""
    warps_sm: int
    blocks_sm: int


CHIPS = (
    Chip("sm_80", 80, 108, "A100", 166912, 167936, 64, 32),
    Chip("sm_86", 86, 82, "RTX 3090", 101376, 102400, 48, 16),
    Chip("sm_89", 89, 128, "RTX 4090", 101376, 102400, 48, 24),
    Chip("sm_90a", 90, 132, "H100 SXM", 232448, 233472, 64, 32),
)

_REGISTER_FILE = 65536
_REGISTER_UNIT = 256
"""Registers are given to a warp in this granule."""
_SUB_CORES = 4
_SHARED_UNIT = 128
_SHARED_RESERVED = 1024
"""Shared memory that the system takes per workgroup on compute capability 8.0 and later."""


def _occupancy(chip: Chip) -> Callable[[int, int, int], int]:
    def occupancy(registers: int, shared_bytes: int, threads: int) -> int:
        """Warps resident on an SM, 0 if not one workgroup fits."""
        warps = -(-threads // WARP)
        per_warp = -(-max(registers, 1) * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        # A sub-core has a quarter of the register file, and a workgroup's warps are dealt to the sub-cores in turn.
        by_registers = _REGISTER_FILE // _SUB_CORES // per_warp * _SUB_CORES // warps
        used = -(-(shared_bytes + _SHARED_RESERVED) // _SHARED_UNIT) * _SHARED_UNIT
        blocks = min(chip.blocks_sm, chip.warps_sm // warps, by_registers, chip.shared_sm // used)
        return blocks * warps

    return occupancy


def _mma_atom(m: Mma) -> MmaAtom:
    wide = 2 if m.a_dtype.bits == 64 else 1
    return MmaAtom(
        m.name, m.m, m.n, m.k, m.a_dtype, m.b_dtype, m.d_dtype, m.a, m.b, m.d, m.a_regs * wide, m.b_regs * wide,
        m.d_regs * (2 if m.d_dtype.bits == 64 else 1), m.cycles, m.latency, m.mnemonic,
    )  # fmt: skip


_ROW = {
    # Element bytes → bits of the position in a lane's register and in a row of 16 bytes; the rest says which matrix.
    1: ("e0 e1 l0 l1", 2),
    2: ("e0 l0 l1", 1),
    4: ("l0 l1", 0),
}


def _load_atoms() -> tuple[LoadAtom, ...]:
    """ldmatrix by element size (only 16-bit elements are transposed), then plain vectors.

    Cycles: 128 bytes per clock without conflicts; latencies: arXiv:2208.11174.
    """
    moves = []
    for move in sorted(MATRIX_MOVES, key=lambda m: (m.trans, -m.count)):
        if move.store:
            continue
        for size, (row, first) in _ROW.items():
            if move.trans and size != 2:
                continue
            matrices = [f"e{first + i}" for i in range(move.count.bit_length() - 1)]
            lane, element = (move.L, move.x) if size == 2 else (" ".join(["l2 l3 l4", *matrices]), row)
            moves.append(LoadAtom(move.name, 4 * move.count, 16, (size,), lane, element, move.count, 29 + move.count))
    vectors = [
        LoadAtom("vector", b, b, (1, 2, 4, 8), cycles=max(1, b // 4), latency=23 + b // 4) for b in (16, 8, 4, 2, 1)
    ]
    return (*moves, *vectors)


_HOPPER: dict[str, Any] = {"tile_rate": 56.0, "bulk_latency": 950, "product_latency": 48}
"""What the cycle model, calibrated on an H200, takes for products whose operands bulk copies bring: 4096 x 4096 in
tiles of 64 x 64 to 128 x 128 get 55.6 bytes per clock and SM; a copy from L2 923 clocks, from memory 1300
(`runtime/emulator/cycle_chips.py`)."""


def _costs() -> Mapping[tuple[str, int], Unit]:
    """Clocks of the SM's load/store unit per warp access, and until the result is there.

    Global: 64 bytes per clock between L1 and an SM (half of the 128 that shared memory moves), latency about 290 clocks
    from L2 (arXiv:2208.11174, sm_80); shared 23 to 33 (the same); asynchronous copies take a global access and a shared
    store without registers.
    """
    out: dict[tuple[str, int], Unit] = {
        ("valu", 0): Unit("alu", 2, 4),
        ("salu", 0): Unit("alu", 2, 4),
        ("barrier", 0): Unit("barrier", 2, 20),
        ("special", 0): Unit("sfu", 8, 4),  # 16 results per clock and SM (CUDA programming guide)
    }
    for b in (1, 2, 4, 8, 12, 16):
        words = max(1, b // 4)
        out["load.global", b] = Unit("lsu", 2 * words, 290)
        out["store.global", b] = Unit("lsu", 2 * words, 4)
        out["load.shared", b] = Unit("lsu", words, 23 + 2 * words)
        out["store.shared", b] = out["atomic.shared", b] = Unit("lsu", words, 20)
        out["copy.async", b] = Unit("lsu", 2 * words, 320)
    return out


_PLAIN = frozenset(
    d.name for d in (dt.f64, dt.f32, dt.tf32, dt.f16, dt.bf16, dt.i64, dt.i32, dt.i16, dt.i8, dt.i4, dt.u64, dt.u32,
    dt.u16,
                     dt.u8, dt.u4, dt.i1)
)  # fmt: skip
_FP8 = frozenset({"f8e4m3", "f8e5m2"})
_STORED = frozenset({"f6e2m3", "f6e3m2", "f4e2m1", "f8e8m0"})
"""Formats of arrays without an instruction: casts compute them."""

# Lanes whose shared-memory accesses are served together, as a basis of lane masks: 128 bytes at a time, so 8
# consecutive lanes of 16 bytes, 16 of 8 bytes, the whole warp of 4 or less.
_PHASES = {
    (kind, b): ((tuple(1 << i for i in range(bits)),))
    for kind in ("read", "write")
    for b, bits in ((16, 3), (8, 4), (4, 5), (2, 5), (1, 5))
}


_ATOMIC_INTS = ("add", "min_s", "max_s", "min_u", "max_u", "and", "or", "xor", "xchg", "cas")
_ATOMICS = frozenset(
    {(how, kind) for how in _ATOMIC_INTS for kind in ("i32", "i64")}
    | {("fadd", "f32"), ("fadd", "f64"), ("pk_add_f16", "b32")}
)
_ATOMICS_90 = frozenset({("pk_add_bf16", "b32"), ("fadd", "f32x2"), ("fadd", "f32x4")})
"""What chips from sm_90 on have beside: sums of several neighbours only where nobody asks what was there."""


_SHARED_ATOMICS = frozenset((how, "i32") for how in _ATOMIC_INTS if how not in ("xchg", "cas"))
"""Those of 64 bits and of floats are loops of compare-and-swap in SASS (`ATOMS.CAST.SPIN`)."""


def _widens(number: int) -> frozenset[tuple[str, str]]:
    """What `select_convert` makes halves of in pairs: sums of bf16 and conversions of fp8 are younger than those of
    f16, but for multiply-adds."""
    found = {(source, "f16") for source in ("i4", "u4", "i8", "u8")} | {("f4e2m1", half) for half in ("f16", "bf16")}
    if number >= 89:
        found |= {(source, "f16") for source in ("f8e4m3", "f8e5m2")}
    if number >= 90:
        found |= {(source, "bf16") for source in ("i4", "u4", "i8")}
    return frozenset(found)


def _target(chip: Chip) -> Target:
    """The description of a chip: from its row in `CHIPS`, the instruction tables, and its reference product."""
    fp8 = chip.number >= 89
    instead: dict[str, str] = {}
    for name in ("f8e4m3", "f8e5m2"):
        if not fp8:
            instead[name] = "f16"
        instead[name + "fnuz"] = name if fp8 else "f16"
    product = next((p for p in PRODUCTS if p.target == chip.name), None)
    return Target(
        name=chip.name,
        vendor="nvidia",
        wave_word="warp",
        assembler_schedules=True,
        shuffle_lanes=WARP,
        fma_columns=(0, 2, 3),
        wave_size=WARP,
        max_threads=1024,
        max_waves=32,
        simds=_SUB_CORES,
        units=chip.units,
        shared_bytes=chip.shared_block,
        banks=dict.fromkeys((1, 2, 4, 8, 16), 32),
        phases=dict(_PHASES),
        registers=255,
        mma_atoms=tuple(_mma_atom(m) for m in MMAS if m.min_sm <= chip.number <= m.last_sm),
        load_atoms=_load_atoms(),
        copy_async=(4, 8, 16),
        buffer_bounds=False,
        register_banks=True,
        # A data-centre chip's f64 unit takes half of a warp's lanes per clock or more; the others' a 64th.
        doubles="compare" if chip.number in (80, 90) else "",
        prefetches=True,
        # The 24-bit signed immediate of a load's address in SASS; ptxas adds what does not fit.
        global_imm=(-(1 << 23), (1 << 23) - 1),
        shared_imm=(-(1 << 23), (1 << 23) - 1),
        costs=_costs(),
        shared_units=frozenset(("lsu",)),
        dtypes=_PLAIN | _STORED | (_FP8 if fp8 else frozenset()),
        instead=instead,
        occupancy=_occupancy(chip),
        memory_rate=product.hbm / product.clock if product else 0.0,
        l2_bytes=product.l2_bytes if product else 0,
        bytes_in_flight=product.hbm * product.latency / product.units if product else 0.0,
        **(_HOPPER if chip.name == "sm_90a" else {}),
        shared_atomics=_SHARED_ATOMICS,
        atomics=_ATOMICS | (_ATOMICS_90 if chip.number >= 90 else frozenset()),
        clock_unit=1,
        widens=_widens(chip.number),
        pairs=frozenset(
            (name, half)
            for name in OPERATIONS
            for half in HALVES
            if chip.number >= 90 or (half == "f16" and name in ("fadd", "fsub", "fmul"))
        ),
        warpgroup=_warpgroup if chip.name == "sm_90a" else None,
    )


def _warpgroup() -> Target:
    from wavedsl.codegen.ptx.warpgroup import view  # some hundred instructions, which few kernels need

    return view("sm_90a")


TARGETS: dict[str, Target] = {chip.name: _target(chip) for chip in CHIPS}


def target(name: str) -> Target:
    """The target of this name. Raises ConstraintError that lists the known ones."""
    found = TARGETS.get(name)
    if found is None:
        raise ConstraintError(f"unknown target {name!r}", None, f"known NVIDIA targets: {', '.join(TARGETS)}")
    return found
