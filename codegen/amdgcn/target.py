"""The CDNA chips as `Target`s: limits, matrix and load atoms, LDS banks and phases, costs, occupancy.

In: the matrix rows of `mfma`. Out: `TARGETS`, their names, and `get_target(name)`. Limits are from AMD's CDNA
instruction set guides; cycles are clocks of a compute unit and carry their source beside them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from wavedsl.codegen.amdgcn import isa, roles
from wavedsl.codegen.amdgcn.isa import OFFSETS
from wavedsl.codegen.amdgcn.isa_memory import LDS_SUFFIX
from wavedsl.codegen.amdgcn.mfma import SCALE_BLOCK, Mfma, dense, sparse
from wavedsl.codegen.amdgcn.products import DIES, PRODUCTS
from wavedsl.ir import dtypes as dt
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import LoadAtom, MmaAtom, Target, Unit

WAVE = 64
SIMDS = 4
BATCH_WORDS = 32
"""What a wave tile of 64 x 64 reads per lane for one step along K: fragments in registers twice over still leave room
for its accumulators at two waves per SIMD."""
REGISTERS = 512
"""Registers per lane of a SIMD, vector and accumulation together, shared by the waves on it."""
REGISTER_GRANULE = 8
VGPRS = 256
"""Vector registers that an instruction can name, and accumulation registers."""
SGPRS = 102
MAX_WAVES_PER_SIMD = 8
MAX_THREADS = 1024


@dataclass(frozen=True)
class Chip:
    """Limits of one chip. `units` are the compute units of the reference product, `lds` bytes per unit and
    workgroup."""

    name: str
    units: int
    product: str
    lds: int
    lds_granule: int
    fp8: str
    """Suffix of its 8-bit float formats, or `-` where it has none."""


CHIPS = (
    Chip("gfx90a", 110, "one die of MI250X", 65536, 512, "-"),
    Chip("gfx942", 304, "MI300X", 65536, 512, "fnuz"),
    Chip("gfx950", 256, "MI355X", 163840, 1280, ""),
)


def register_limit(threads: int) -> int:
    """Registers per lane that a wave may use when a workgroup of `threads` must fit a compute unit."""
    waves = (threads + WAVE * SIMDS - 1) // (WAVE * SIMDS)
    return REGISTERS // waves // REGISTER_GRANULE * REGISTER_GRANULE


def lds_bytes(target: str) -> int:
    """LDS of a compute unit, which one workgroup may have."""
    return next(c for c in CHIPS if c.name == target).lds


def resident_groups(target: str, registers: int, shared_bytes: int, threads: int) -> int:
    """Workgroups that fit a compute unit together, 0 if not one does. A part of a workgroup is never resident."""
    chip = next(c for c in CHIPS if c.name == target)
    return _resident(chip, registers, shared_bytes, threads)


def _waves_by_registers(registers: int) -> int:
    granules = -(-max(registers, 1) // REGISTER_GRANULE) * REGISTER_GRANULE
    return min(MAX_WAVES_PER_SIMD, REGISTERS // granules)


def _resident(chip: Chip, registers: int, shared_bytes: int, threads: int) -> int:
    by_registers = _waves_by_registers(registers)
    waves = -(-threads // WAVE)
    if waves > SIMDS and -(-waves // SIMDS) > by_registers:
        return 0
    groups = by_registers * SIMDS // waves if waves > 1 else by_registers * SIMDS
    if shared_bytes:
        groups = min(groups, chip.lds // (-(-shared_bytes // chip.lds_granule) * chip.lds_granule))
    return groups


def _occupancy(chip: Chip) -> Callable[[int, int, int], int]:
    def occupancy(registers: int, shared_bytes: int, threads: int) -> int:
        """Waves per SIMD, 0 if not one workgroup fits."""
        groups = _resident(chip, registers, shared_bytes, threads)
        return min(_waves_by_registers(registers), -(-groups * -(-threads // WAVE) // SIMDS))

    return occupancy


def _atom(row: Mfma, chip: str) -> MmaAtom:
    mnemonic = row.spelling(chip)
    latency = isa.lookup(mnemonic, chip).latency if not row.formats else row.cycles(chip) + 16
    name = f"SCALED_{row.name}" if row.scaled else row.name
    return MmaAtom(
        name, row.m, row.n, row.k, row.a_dtype, row.b_dtype, row.d_dtype, row.a, row.b, row.d,
        row.a_regs, row.b_regs, row.d_regs, row.cycles(chip), latency, mnemonic, row.blocks,
        scale_block=SCALE_BLOCK if row.scaled else 0,
    )  # fmt: skip


def _column_pairs(row: Mfma, chip: str) -> MmaAtom:
    """A product of structured sparsity as a dense one of half its K and twice its columns: B's registers are words of
    two neighbouring columns of one row, A's elements stand at the even places of every four in one instruction and at
    the odd ones in the other (`roles.PAIR_PLACES`).

    Of a lane's 8 elements of B, element 2 k + c is column c of row k; D's second run of registers is the odd columns.
    """
    half = row.k // 2
    own = row.d_regs.bit_length() - 1
    lanes = " ".join(row.b["N"].split())
    rows = [f"e{i + 1}" for i in range(2)] + [x for x in row.a["K"].split() if x.startswith("l")]
    return MmaAtom(
        f"PAIRS_{row.d_dtype.name.upper()}_{row.m}x{2 * row.n}x{half}_{row.a_dtype.name.upper()}",
        row.m, 2 * row.n, half, row.a_dtype, row.b_dtype, row.d_dtype,
        row.a, {"N": f"e0 {lanes}", "K": " ".join(rows)}, {"M": row.d["M"], "N": f"e{own} {lanes}"},
        row.a_regs, row.b_regs, 2 * row.d_regs, 2 * row.cycles(chip),
        row.cycles(chip) + isa.lookup(row.mnemonic, chip).latency, row.mnemonic, parts=2,
    )  # fmt: skip


def _load_atoms(chip: str) -> tuple[LoadAtom, ...]:
    """Plain vectors; on gfx950 also the transposing reads. Latency: typical of LDS, cycles: 128 bytes per clock."""
    atoms = [LoadAtom("vector", b, b, (1, 2, 4, 8), cycles=max(4, b), latency=64 + b) for b in (16, 8, 4, 2, 1)]
    if chip == "gfx950":
        atoms += [
            LoadAtom("tr_b16", 8, 8, (2,), "l2 l3 e0 e1 l4 l5", "l0 l1", 4, 72),
            LoadAtom("tr_b8", 8, 8, (1,), "l3 e0 e1 e2 l4 l5", "l0 l1 l2", 4, 72),
            LoadAtom("tr_b4", 8, 8, (), "e0 e1 e2 e3 l4 l5", "l0 l1 l2 l3", 4, 72, 4),
            LoadAtom("tr_b6", 12, 12, (), "e0 e1 e2 e3 l4 l5", "l0 l1 l2 l3", 4, 76, 6),
        ]
    return tuple(atoms)


# Lanes that LDS serves together, as bases of lane masks. gfx950's are measured (HipKittens, phases experiment);
# those of the older chips are not published: both readings are listed and a placement should be free of conflicts
# under either.
_EIGHT, _SIXTEEN, _HALF = (1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8, 16)
_EIGHT_SPREAD = (1, 2, 20)
_WIDENS = frozenset((name, "f16") for name in ("i4", "u4", "i8", "u8"))
_WIDENS_F4 = frozenset(("f4e2m1", half) for half in ("f16", "bf16"))
"""What becomes halves in pairs; gfx950 has instructions for floats of 4 bits."""
_OLD_PHASES = {
    ("read", 16): (_EIGHT, _EIGHT_SPREAD), ("read", 12): (_EIGHT, _EIGHT_SPREAD), ("read", 8): (_SIXTEEN,),
    ("read", 4): (_HALF,), ("read", 2): (_HALF,), ("read", 1): (_HALF,),
    ("write", 16): (_EIGHT,), ("write", 12): (_EIGHT,), ("write", 8): (_SIXTEEN,), ("write", 4): (_HALF,),
    ("write", 2): (_HALF,), ("write", 1): (_HALF,),
}  # fmt: skip
_NEW_PHASES = {
    **_OLD_PHASES, ("read", 16): ((1, 2, 12, 20),), ("read", 12): (_EIGHT_SPREAD,), ("read", 8): (_HALF,),
}  # fmt: skip


def _costs(chip: str) -> Mapping[tuple[str, int], Unit]:
    """Clocks per wave. VALU and SALU: one wave64 instruction in 4 clocks; LDS 128 bytes per clock, reads on gfx950 256
    (HipKittens' measurements); vector memory 64 bytes per clock of a compute unit (CDNA3 guide); latencies typical of
    hits in L2 and of LDS."""
    reads = 256 if chip == "gfx950" else 128
    out: dict[tuple[str, int], Unit] = {
        ("valu", 0): Unit("valu", 4, 4),
        ("salu", 0): Unit("salu", 4, 4),
        ("barrier", 0): Unit("salu", 4, 32),
    }
    for b in (1, 2, 4, 8, 12, 16):
        bytes_per_wave = WAVE * max(4, b)
        out["load.global", b] = Unit("vmem", bytes_per_wave // 64, 500)
        out["store.global", b] = Unit("vmem", bytes_per_wave // 64, 4)
        out["load.shared", b] = Unit("lds", max(4, bytes_per_wave // reads), 64 + b)
        out["store.shared", b] = out["atomic.shared", b] = Unit("lds", max(4, bytes_per_wave // 128), 32)
        out["copy.async", b] = Unit("vmem", bytes_per_wave // 64, 560)
    return out


_PLAIN = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "i4", "u64", "u32", "u16", "u8", "u4", "i1")


def _atomics(chip: str, names: Mapping[tuple[str, str], str]) -> frozenset[tuple[str, str]]:
    return frozenset(key for key, name in names.items() if _has(name, chip))


def _has(mnemonic: str, chip: str) -> bool:
    try:
        isa.lookup(mnemonic, chip)
    except KeyError:
        return False
    return True


def _direct_widths(chip: str) -> tuple[int, ...]:
    """Bytes per lane of direct-to-LDS copies that fill LDS without gaps; three dwords land in the place of four."""
    return tuple(n for n, name in roles.DIRECT_COPIES.items() if n != 12 and _has(name + LDS_SUFFIX, chip))


def _target(chip: Chip) -> Target:
    """The description of a chip: from its row in `CHIPS`, the instruction tables, and its reference product."""
    dtypes = set(_PLAIN)
    dtypes |= {"f6e2m3", "f6e3m2", "f4e2m1", "f8e8m0"}  # storage formats: what has no instruction is computed
    instead: dict[str, str] = {}
    for base in ("f8e4m3", "f8e5m2"):
        for suffix in ("", "fnuz"):
            if suffix == chip.fp8:
                dtypes.add(base + suffix)
            else:
                instead[base + suffix] = "f16" if chip.fp8 == "-" else base + chip.fp8
    if chip.name == "gfx942":
        dtypes.add(dt.tf32.name)
    else:
        instead[dt.tf32.name] = "f32"
    product = next(p for p in PRODUCTS if p.target == chip.name)
    load_atoms = _load_atoms(chip.name)
    turned_by_reads = any(x.lane for x in load_atoms)
    pairs = () if turned_by_reads else tuple(_column_pairs(m, chip.name) for m in sparse(chip.name))
    return Target(
        name=chip.name,
        vendor="amd",
        wave_size=WAVE,
        max_threads=MAX_THREADS,
        max_waves=MAX_THREADS // WAVE,
        simds=SIMDS,
        units=chip.units,
        shared_bytes=chip.lds,
        banks=dict.fromkeys((1, 2, 4, 8, 12, 16), 32)
        if chip.name != "gfx950"
        else {1: 64, 2: 64, 4: 64, 8: 64, 12: 32, 16: 64},
        phases=_NEW_PHASES if chip.name == "gfx950" else _OLD_PHASES,
        registers=REGISTERS,
        mma_atoms=(*(_atom(m, chip.name) for m in dense(chip.name)), *pairs),
        load_atoms=load_atoms,
        copy_async=_direct_widths(chip.name),
        copy_linear=True,
        lane_swaps=tuple(lane for lane, name in roles.LANE_SWAPS.items() if _has(name, chip.name)),
        cache_swizzle=chip.name != "gfx90a",
        buffer_bounds=True,
        global_imm=OFFSETS["MUBUF"],
        shared_imm=OFFSETS["DS"],
        costs=_costs(chip.name),
        shared_units=frozenset(("lds", "vmem")),
        dtypes=frozenset(dtypes),
        instead=instead,
        occupancy=_occupancy(chip),
        dies=DIES[chip.name],
        cache_rate=min(64.0, (product.l2_rate or 0) / product.units),
        memory_rate=product.hbm / product.clock,
        line_bytes=64 if chip.name == "gfx90a" else 128,  # of the vector L1: white papers
        l1_bytes=1 << (14 if chip.name == "gfx90a" else 15),  # the same
        packed_f32=True,
        scalar_registers=True,
        row_patterns=True,
        loads_by_words=True,
        per_simd=True,
        shuffle_lanes=WAVE,
        shuffles_by_bytes=True,
        lockstep=True,
        doubles="extremes",
        waves_alternate=True,
        fences_wait=True,
        accumulators_apart=True,
        rounds_tf32=True,
        scales_by_powers=True,
        casts_saturate=False,
        pairs=frozenset((name, "f16") for name in roles.HALVES),
        widens=_WIDENS | (frozenset() if chip.name == "gfx950" else _WIDENS_F4),
        skips_work=True,
        transposing={4: "tr_b4", 6: "tr_b6"} if chip.name == "gfx950" else {},
        small_floats=frozenset(("f4e2m1",)) if chip.name == "gfx950" else frozenset(),
        atomics=_atomics(chip.name, roles.ATOMICS) | _atomics(chip.name, roles.FAR_ATOMICS),
        shared_atomics=_atomics(chip.name, roles.SHARED_ATOMICS),
        atomics_at_addresses=_atomics(chip.name, roles.FAR_ATOMICS) - _atomics(chip.name, roles.ATOMICS),
        clock_unit=4,
        batch_words=BATCH_WORDS,
    )


TARGETS = tuple(chip.name for chip in CHIPS)


@functools.cache
def get_target(name: str) -> Target:
    """The target of this name. Raises ConstraintError that lists the known ones."""
    for chip in CHIPS:
        if chip.name == name:
            return _target(chip)
    raise ConstraintError(f"unknown target {name!r}", None, f"known AMD targets: {', '.join(TARGETS)}")
