"""What the compiler's middle must know of a chip. Back ends build one `Target` per chip from their instruction tables.

Cycles are clocks of the compute unit (CU or SM). Every number that is not architectural carries its source where the
back end declares it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass

VECTOR_BYTES = 16
"""Widest access of one lane on every target."""
LANE_REGISTERS = 512
"""Registers per lane that the waves of a SIMD share: 512 on CDNA (its instruction set guides), and on NVIDIA's chips,
whose sub-cores have 16384 for 32 lanes (CUDA programming guide); there a wave can have no more than 255 of them."""
COPYING = 32
"""Registers of a copying warpgroup."""
DEALT = 240
"""The most that one that computes is dealt."""


@dataclass(frozen=True)
class MmaAtom:
    """One matrix instruction as the middle sees it: D[m, n] = A[m, k] B[k, n] + C[m, n] per block.

    `a`, `b`, `d` give the fragment layouts, bit 0 first, as in `{"M": "l0 l1 l2 l3", "K": "e0 e1 l4 l5"}`: which
    element (e) or lane (l) bit drives each coordinate bit.
    """

    name: str
    """The public `wd.MMAType` name, such as `F32_16x16x16_F16`; with `SCALED_` before it where it takes scales."""
    m: int
    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    acc_dtype: DType
    a: Mapping[str, str] = field(compare=False)
    b: Mapping[str, str] = field(compare=False)
    d: Mapping[str, str] = field(compare=False)
    a_words: int
    b_words: int
    d_words: int
    cycles: int
    """Clocks the matrix unit of one SIMD (AMD) or SM sub-core (NVIDIA) is busy."""
    latency: int
    """Clocks until a dependent use that is not accumulator chaining."""
    instruction: str
    """Key of the row in the back end's instruction table."""
    blocks: int = 1
    asynchronous: bool = False
    """The instruction runs beside the wave until it is waited for. It reads B, and A where that is a tile of memory,
    from shared memory in a `span`-wide swizzle (`matrix_tile`); an A in registers has the fragment `a`. `b` is empty.
    Wave tiles must be multiples of the shape."""
    scale_block: int = 0
    """Elements of K that share a scale, of a row of A or a column of B; 0: the instruction takes no scales. Lane l
    holds the scale of row (column) l % m for the block l // m of K."""
    transposes: bool = False
    """Asynchronous: operands may lie in shared memory with M or N contiguous instead of K."""
    parts: int = 1
    """Instructions that carry it out, each with all of A and B and an equal run of D's registers. With two, B is words
    of two neighbouring columns and each picks one of them: for a B whose rows are contiguous in memory."""


@dataclass(frozen=True)
class LoadAtom:
    """A way to get shared memory into registers. `lane`, `element` are bit strings: where (address-supplying lane L,
    element x
    of its contiguous piece) come from, as in `L="l2 l3 l4 e1 e2" x="e0 l0 l1"`; empty for plain per-lane vectors.
    """

    name: str
    bytes: int
    """Bytes each lane receives."""
    piece_bytes: int
    """Contiguous bytes that each supplied address must cover."""
    elsizes: tuple[int, ...]
    lane: str = ""
    element: str = ""
    cycles: int = 4
    latency: int = 64
    bits: int = 0
    """Width of the element that lanes exchange where it is no whole bytes: only units of packed arrays are read so."""
    joined: bool = False
    """Elements that a word takes may come from several loads, by byte permutes: `elsizes` are halves of words."""


@dataclass(frozen=True)
class Unit:
    """Cost of one access: the unit it occupies, for how many clocks, and clocks until its result is usable."""

    unit: str
    cycles: int
    latency: int


@dataclass(frozen=True)
class Target:
    """One chip. See the fields; `costs` keys are `load.global`, `store.global`, `load.shared`, `store.shared`,
    `copy.async`, `special` (functions of the unit for these, where it is one of its own),
    `valu`, `salu`, `barrier`, the memory ones with bytes per lane as in `("load.shared", 16)`."""

    name: str
    vendor: str
    """`amd` or `nvidia`."""
    wave_size: int
    max_threads: int
    max_waves: int
    """Waves per workgroup."""
    simds: int
    """SIMDs per CU, sub-cores per SM: waves are spread over them."""
    units: int
    """CUs or SMs of the chip's reference product."""
    shared_bytes: int
    """Shared memory one workgroup may use."""
    banks: Mapping[int, int]
    """Bytes per lane of an access → shared-memory banks (4 B wide) it sees."""
    phases: Mapping[tuple[str, int], tuple[tuple[int, ...], ...]]
    """(`read` or `write`, bytes per lane) → hypotheses; each is a basis of lane masks whose span is served together."""
    registers: int
    """32-bit registers per lane that one wave may use."""
    mma_atoms: tuple[MmaAtom, ...]
    load_atoms: tuple[LoadAtom, ...]
    copy_async: tuple[int, ...]
    """Bytes per lane of asynchronous global→shared copies without registers, empty where there are none."""
    buffer_bounds: bool
    """Buffers drop accesses past their end in hardware."""
    global_imm: tuple[int, int]
    """Inclusive range of the immediate offset of global accesses."""
    shared_imm: tuple[int, int]
    costs: Mapping[tuple[str, int], Unit]
    dtypes: frozenset[str]
    """Element types with arithmetic or matrix support."""
    instead: Mapping[str, str]
    """A dtype the chip lacks → the one it has (`f8e4m3` → `f8e4m3fnuz` on gfx942)."""
    shared_units: frozenset[str]
    """Units of `costs` that all waves of a compute unit share; the others exist once per SIMD."""
    occupancy: Callable[[int, int, int], int] = field(compare=False)
    """(registers per lane, shared bytes, threads per workgroup) → waves per SIMD (AMD) or warps per SM (NVIDIA)."""
    dies: int = 1
    """Dies with an L2 cache each (AMD's XCDs), to which a launch deals workgroups in turn."""
    memory_rate: float = 0.0
    """Bytes per clock that all dies of the reference product get from memory; 0: not known."""
    bytes_in_flight: float = 0.0
    """Bytes that one unit must have on their way for its share of that rate: what comes in a latency; 0: not known."""
    l2_bytes: int = 0
    """Bytes of the reference product's L2; 0: not known."""
    cache_rate: float = 0.0
    """Bytes per clock that one unit gets from L2 while all units ask; 0: not known."""
    tile_rate: float = 0.0
    """The same where all ask for tiles that others ask for as well; 0: not known."""
    bulk_latency: int = 0
    """Clocks from a bulk copy's start to its barrier's signal, from L2."""
    product_latency: int = 0
    """Clocks from an asynchronous product's last step to the wave that waits for it."""
    line_bytes: int = 32
    """Bytes that caches hand over for the sake of one: a line, or a sector of it."""
    l1_bytes: int = 0
    """Bytes of lines that a unit's own cache holds; 0: not known."""
    assembler_schedules: bool = False
    """Whether the text goes to an assembler that orders instructions and allocates registers by itself (ptxas)."""
    scalar_registers: bool = False
    """Whether what the lanes of a wave have in common lies in registers of its own, and their conditions, as masks."""
    scales_by_powers: bool = False
    """Whether one instruction multiplies an f64 by a power of two, rounded once where that is denormal."""
    casts_saturate: bool = True
    """Whether conversions to 8-bit floats stop at the largest number by themselves."""
    wave_word: str = "wave"
    """What its vendor calls a wave."""
    per_simd: bool = False
    """Whether `occupancy` counts the waves of one SIMD; else those of the unit."""
    shuffle_lanes: int = 32
    """Neighbouring lanes that exchange registers without shared memory."""
    row_patterns: bool = False
    """Whether lanes of a row of 16 hand over by patterns that cost nothing: neighbours, and halves that agree."""
    loads_by_words: bool = False
    """Whether a load of several words from global memory begins at any word; else at a multiple of its size."""
    shuffles_by_bytes: bool = False
    """Whether an exchange with lanes named at run time takes 4 times a lane's number."""
    lockstep: bool = False
    """Whether shared memory serves the lanes of a wave in the order of its instructions: what one wrote the others
    read without a barrier."""
    waves_alternate: bool = False
    """Whether two waves of a SIMD can take turns at products and copies within a loop (`plan_ping_pong`)."""
    fences_wait: bool = False
    """Whether a fence also waits for a wave's own copies to shared memory."""
    accumulators_apart: bool = False
    """Whether sums that lack registers move to accumulation registers of their own."""
    rounds_tf32: bool = False
    """Whether matrix instructions of tf32 round f32 numbers themselves; else they cut the low bits off."""
    fma_columns: tuple[int, ...] = (0, 1, 2)
    """Lane bits along N of a product by multiply-adds. Lanes apart by the others read the same columns."""
    packed_f32: bool = False
    """Whether f32 sums, products and multiply-adds of two neighbouring registers are one instruction."""
    doubles: str = ""
    """How numbers of f64 are put in order, where that is fast: `extremes`, an instruction gives the larger of two at
    the rate of f32; `compare`, their comparison has a unit of its own beside that of integers."""
    skips_work: bool = False
    """Whether a branch of a wave around a dozen instructions costs less than they do: waves issue in order, and a
    branch that is not taken by a neighbour holds up nobody."""
    lane_swaps: tuple[int, ...] = ()
    """Lane bits that one instruction exchanges with a bit of the register's number."""
    transposing: Mapping[int, str] = field(default_factory=dict, compare=False)
    """Width of a packed element in bits → the transposing read of shared memory for 16 x 16 of them."""
    pairs: frozenset[tuple[str, str]] = frozenset()
    """(operation, f16 or bf16): what is computed for both halves of a word at once."""
    widens: frozenset[tuple[str, str]] = frozenset()
    """(packed dtype, f16 or bf16): pairs that become a word of the wider one without single numbers between."""
    small_floats: frozenset[str] = frozenset()
    """Floats below a byte whose numbers the chip's own instructions pack and unpack."""
    atomics: frozenset[tuple[str, str]] = frozenset()
    """(what an atomic on global memory does, type) that is one instruction."""
    atomics_at_addresses: frozenset[tuple[str, str]] = frozenset()
    """Those of them that no buffer has: each lane has an address of its own."""
    shared_atomics: frozenset[tuple[str, str]] = frozenset()
    """(what an atomic on shared memory does, type) that is one instruction. Nobody asks it what was there."""
    cache_swizzle: bool = False
    """Whether a buffer's descriptor can ask for a swizzle of the caches (LLVM: introduced in gfx942)."""
    copy_linear: bool = False
    """Whether an asynchronous copy fills shared memory lane by lane from an address that is the wave's; else each lane
    has its own."""
    prefetches: bool = False
    """Whether lines can be brought into the second-level cache by an instruction of its own."""
    register_banks: bool = False
    """Whether a multiply-add waits where registers of one bank hold more of its operands than can be read at a time."""
    clock_unit: int = 4
    """Clocks per scheduling tick: the greatest common divisor of all occupancies."""
    batch_words: int = 0
    """Registers of reads from shared memory that a loop waits for together, where waits are instructions; 0: each read
    is waited for by hardware."""
    tile_rows: int = 16
    """Rows and columns below which a wave's share of a matrix tile is not cut when the compiler divides it."""
    default_waves: int = 4
    """Waves of a workgroup with matrix products, where the constraints leave it open."""
    warpgroup: Callable[[], Target] | None = field(default=None, compare=False)
    """The same chip with four warps as the wave, for kernels whose every product fits its matrix instructions."""

    @property
    def lane_bits(self) -> int:
        """Bits of a lane's number."""
        return self.wave_size.bit_length() - 1

    @property
    def asynchronous(self) -> bool:
        """Whether its matrix instructions run beside what follows them and take operands from shared memory."""
        return any(atom.asynchronous for atom in self.mma_atoms)

    def multiplies(self, a: DType, b: DType | None = None) -> bool:
        """Whether it has a matrix instruction for operands of these types (`b`: as `a`)."""
        return any(atom.a_dtype is a and atom.b_dtype is (b or a) for atom in self.mma_atoms)

    def warpgroups_multiply(self, a: DType, b: DType | None = None) -> bool:
        """Whether the chip has an asynchronous matrix instruction, of four warps, for operands of these types."""
        return self.warpgroup is not None and self.warpgroup().multiplies(a, b)

    @property
    def paired_results(self) -> bool:
        """Whether a lane's results of a matrix instruction are neighbours along N."""
        return any(atom.d["N"].startswith("e") for atom in self.mma_atoms if atom.parts == 1)

    def resident_waves(self, registers: int, shared_bytes: int, threads: int) -> int:
        """Waves that a unit holds at a time, all SIMDs together: of a warpgroup's view, warpgroups (`occupancy` counts
        warps)."""
        found = self.occupancy(registers, shared_bytes, threads) * (self.simds if self.per_simd else 1)
        return found * self.shuffle_lanes // self.wave_size

    def cost(self, kind: str, bytes: int = 0) -> Unit:
        """The cost of one access or instruction. Raises KeyError with the kind when the table has no row."""
        return self.costs[kind, bytes]


def wave_room(target: Target, waves: int) -> int:
    """Registers of a lane where a workgroup of `waves` waves is alone on its compute unit."""
    return min(target.registers, LANE_REGISTERS // -(-waves // target.simds))


def compute_room(target: Target, waves: int) -> int:
    """The same of waves that another may copy for, which then keeps some registers of each SIMD (`Strategy`)."""
    copying, most = (COPYING, DEALT) if target.asynchronous else (0, target.registers)
    return min(most, (LANE_REGISTERS - copying) // -(-waves // target.simds))


def lacking(target: Target, dtype: DType, loc: Loc | None, where: str = "") -> ConstraintError:
    """The error for an element type that a chip lacks: it names the one the chip has."""
    instead = target.instead.get(dtype.name)
    return ConstraintError(
        f"{where}{target.name} has no {dtype.name}", loc, f"use {instead}" if instead else "choose another dtype"
    )
