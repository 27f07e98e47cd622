"""The kernel IR: typed virtual registers, structured regions, vendor-neutral ops. Data and the table of ops; no passes.

A `Kernel` holds one `Region`; a region is a list of `Op`s in execution order; an op defines `Value`s. Loops and
conditionals are ops that hold regions (`for`, `if`), so there is no control-flow graph here. A value is *uniform* when
all lanes of a wave hold the same number: it lives in a scalar register where the chip has them, and only uniform values
steer control flow. All memory traffic is in 32-bit words: fragments are vectors of `b32`.

Value ranges (`lo`, `hi`, inclusive, of the value read as a signed integer) and known-zero bits (`zeros`, a mask) are
facts that the builder attaches to integer values; the verifier re-derives them.

ORDER: the order of ops in a region is the order of issue. Memory ops, barriers and matrix ops are never reordered after
scheduling; pure ops may sit anywhere that dominates their uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, ClassVar

from wavedsl.ir.dtypes import DType
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------- types

_WORDS = {"pred": 0, "i32": 1, "f32": 1, "b32": 1, "i64": 2, "f64": 2, "b64": 2, "buffer": 4}


class Type:
    """`kind` × `n`: a scalar (n = 1) or a tuple of n registers of that kind. Interned: compare with `is`."""

    __slots__ = ("is_float", "is_int", "kind", "n", "words")
    kind: str
    n: int
    is_int: bool
    is_float: bool
    words: int
    """32-bit registers per lane (0 for predicates)."""
    _all: ClassVar[dict[tuple[str, int], Type]] = {}

    def __new__(cls, kind: str, n: int = 1) -> Type:
        found = cls._all.get((kind, n))
        if found is None:
            if kind not in _WORDS or n < 1:
                raise ValueError(f"no such kernel IR type: {kind} x {n}")
            found = object.__new__(cls)
            found.kind, found.n, found.words = kind, n, _WORDS[kind] * n
            found.is_int, found.is_float = kind in ("i32", "i64"), kind in ("f32", "f64")
            cls._all[kind, n] = found
        return found

    def __reduce__(self) -> tuple:
        return Type, (self.kind, self.n)

    def __repr__(self) -> str:
        return self.kind if self.n == 1 else f"{self.kind}x{self.n}"

    @property
    def element(self) -> Type:
        return Type(self.kind)


PRED, I32, I64 = Type("pred"), Type("i32"), Type("i64")
F32, F64, B32, B64 = Type("f32"), Type("f64"), Type("b32"), Type("b64")
BUFFER = Type("buffer")


def vector(n: int, kind: str = "b32") -> Type:
    return Type(kind, n)


# --------------------------------------------------------------------------------------------------------------- values


class Value:
    """One virtual register (or tuple). `op` defines it; a region argument has `op is None` and a `region`."""

    __slots__ = ("hi", "id", "lo", "name", "op", "region", "type", "uniform", "zeros")

    def __init__(self, id: int, type: Type, uniform: bool, op: Op | None = None, region: Region | None = None):
        self.id = id
        self.type = type
        self.uniform = uniform
        self.op = op
        self.region = region
        self.lo: int | None = None
        self.hi: int | None = None
        self.zeros = 0
        self.name = ""

    def __repr__(self) -> str:
        return f"%{self.name or ''}{self.id}"

    @property
    def const(self) -> int | float | None:
        """The value of a constant (a bool for predicates, None if it is not one)."""
        return self.op.attrs["value"] if self.op is not None and self.op.name == "const" else None


class Op:
    """One operation. `attrs` are compile-time facts (ints, strings, rows); `regions` the nested bodies."""

    __slots__ = ("args", "attrs", "loc", "name", "regions", "results")

    def __init__(
        self,
        name: str,
        args: tuple[Value, ...],
        attrs: dict[str, Any] | None = None,
        loc: Loc | None = None,
        regions: tuple[Region, ...] = (),
    ):
        self.name = name
        self.args = args
        self.attrs = attrs if attrs is not None else {}
        self.results: tuple[Value, ...] = ()
        self.regions = regions
        self.loc = loc

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def row(self) -> OpRow:
        return ROWS[self.name]

    def __repr__(self) -> str:
        return f"<{self.name} {self.results} <- {self.args} {self.attrs}>"


class Region:
    """A body: `args` are defined on entry (for a loop: the induction variable, then the carried values)."""

    __slots__ = ("args", "depth", "ops", "parent")

    def __init__(self, depth: int = 0, parent: Op | None = None):
        self.ops: list[Op] = []
        self.args: list[Value] = []
        self.depth = depth
        self.parent = parent

    def walk(self) -> list[Op]:
        """All ops, outer before inner, in order. (A list: passes go through all of them some fifty times, and a
        generator takes twice as long for each op.)"""
        found: list[Op] = []
        self._gather(found)
        return found

    def _gather(self, found: list[Op]) -> None:
        add = found.append
        for op in self.ops:
            add(op)
            for region in op.regions:
                region._gather(found)

    def regions(self) -> Iterator[Region]:
        """This region and those inside it, outer before inner, in order."""
        yield self
        for op in self.ops:
            for body in op.regions:
                yield from body.regions()


@dataclass
class Param:
    """One kernel parameter. `offset`, `size` in bytes in the argument block; `source` says what a hidden one is."""

    name: str
    kind: str
    """`pointer`, `scalar`, or `tensormap`: an array that is reached by bulk copies, given as its map of 128 bytes."""
    dtype: DType
    offset: int
    size: int
    source: str = ""
    """Empty for the user's arguments; else e.g. `extent K` or `stride a[0]`."""
    access: str = ""
    """`read`, `write` or `readwrite` for pointers and tensor maps."""
    map: TensorBoxes | None = None
    """What a tensor map says of its array."""


@dataclass(frozen=True)
class TensorBoxes:
    """How bulk copies see an array: boxes of `box` elements along its axes `order`, innermost first, at the array's own
    strides. In shared memory a box is dense, its rows swizzled within `span` bytes (16: not at all). `paired`: an axis
    whose coordinate counts fours; the place in the four is a dimension of its own, the second. `ended`: an axis that is
    there once more, as the last dimension, so that boxes may end where coordinates say (`tile_ends`)."""

    array: str
    order: tuple[int, ...]
    box: tuple[int, ...]
    span: int
    ended: int | None = None
    paired: int | None = None


@dataclass
class Kernel:
    """A kernel for one target. `block` is threads per workgroup in x, `shared_bytes` static shared memory."""

    name: str
    target: str
    params: list[Param]
    body: Region
    wave_size: int
    waves: int
    shared_bytes: int = 0
    grid: tuple[Any, ...] = (1, 1, 1)
    """Workgroups per axis: ints, or sympy expressions of dynamic extents."""
    shared_names: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Shared buffers: name → (byte offset, bytes), for comments and reports."""
    cluster: int = 1
    """Workgroups of a cluster, neighbours along the launch's first axis."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What the compiler decided and why (atoms, placements, schedule): read by reports, never by passes."""

    @property
    def block(self) -> int:
        return self.wave_size * self.waves


# ------------------------------------------------------------------------------------------------------------ op table


@dataclass(frozen=True)
class OpRow:
    """One kernel IR op.

    `args` names the operands with their kinds (`i` integer of the result's type, `f` float, `any`, `p` predicate,
    `u:` =
    must be uniform); `result` is how the type follows from the arguments (`same` as the first argument, a fixed type,
    or
    `attr`: given at construction); `effects` is a subset of {"read global", "write global", "read shared",
    "write shared", "sync", "control"}; an op without effects is pure and may be merged and hoisted. `uniform` is `args`
    (uniform iff all arguments are), `always` or `never`.
    """

    name: str
    args: str
    result: str
    doc: str
    effects: frozenset[str] = frozenset()
    uniform: str = "args"
    attrs: tuple[str, ...] = ()
    commutes: bool = False
    pure: bool = field(init=False)
    """Whether it has no effects."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pure", not self.effects)


ROWS: dict[str, OpRow] = {}


def _row(
    name: str,
    args: str,
    result: str,
    doc: str,
    *,
    effects: str = "",
    uniform: str = "args",
    attrs: str = "",
    commutes: bool = False,
) -> None:
    if name in ROWS:
        raise ValueError(f"kernel IR op {name} declared twice")
    marks = frozenset(e.strip() for e in effects.split(",") if e.strip())
    ROWS[name] = OpRow(name, args, result, doc, marks, uniform, tuple(attrs.split()), commutes)


# fmt: off
# Constants and where a wave is ------------------------------------------------------------------------------------
_row("const", "", "attr", "A constant: int, float (for f32/f64) or bool (for pred). Vectors repeat it.", uniform="always", attrs="value")
_row("param", "", "attr", "Kernel parameter `index`: i64 for pointers, i32/i64/f32/f64 for scalars.", uniform="always", attrs="index")
_row("wgid", "", "i32", "Workgroup index along `axis` (0, 1, 2).", uniform="always", attrs="axis")
_row("wgcount", "", "i32", "Workgroups launched along `axis`.", uniform="always", attrs="axis")
_row("wave", "", "i32", "Index of this wave in its workgroup.", uniform="always")
_row("lane", "", "i32", "Index of this lane in its wave.", uniform="never")
_row("tid", "", "i32", "Thread index in the workgroup: wave * wave_size + lane.", uniform="never")
_row("readfirst", "v:any", "same", "The first active lane's value, as a uniform value. `same`: a promise that all active lanes hold it.", uniform="always")
# Integers: i32 and i64, two's complement, wrapping -----------------------------------------------------------------
_row("add", "a:i b:i", "same", "a + b", commutes=True)
_row("sub", "a:i b:i", "same", "a - b")
_row("mul", "a:i b:i", "same", "a * b (low half)", commutes=True)
_row("mulhi_u", "a:i32 b:i32", "i32", "High 32 bits of the unsigned product.", commutes=True)
_row("mul_wide_u", "a:i32 b:i32", "i64", "Full 64-bit unsigned product.", commutes=True)
_row("and", "a:i b:i", "same", "a & b", commutes=True)
_row("or", "a:i b:i", "same", "a | b", commutes=True)
_row("xor", "a:i b:i", "same", "a ^ b", commutes=True)
_row("shl", "a:i s:i32", "same", "a << s, 0 <= s < width")
_row("lshr", "a:i s:i32", "same", "a >> s, zeros shifted in")
_row("ashr", "a:i s:i32", "same", "a >> s, sign shifted in")
_row("min_s", "a:i b:i", "same", "Signed minimum.", commutes=True)
_row("max_s", "a:i b:i", "same", "Signed maximum.", commutes=True)
_row("min_u", "a:i b:i", "same", "Unsigned minimum.", commutes=True)
_row("max_u", "a:i b:i", "same", "Unsigned maximum.", commutes=True)
_row("udiv", "a:i b:i", "same", "Unsigned quotient by a run-time divisor that is not 0.")
_row("urem", "a:i b:i", "same", "Unsigned remainder by a run-time divisor that is not 0.")
_row("zext", "a:i32", "i64", "Zero-extend.")
_row("sext", "a:i32", "i64", "Sign-extend.")
_row("trunc", "a:i64", "i32", "Low 32 bits.")
_row("popcount", "a:i32", "i32", "How many bits are set.")
_row("clz", "a:i32", "i32", "Zeros above the highest set bit, 32 for 0.")
_row("ctz", "a:i32", "i32", "Zeros below the lowest set bit, 32 for 0.")
_row("brev", "a:i32", "i32", "The bits in reverse order.")
_row("funnel", "hi:i32 lo:i32 s:i32", "i32", "The low word of hi:lo moved down by s modulo 32.")
_row("bfe", "a:i32", "i32", "Bits [start, start+width) of a, extended by sign if `signed`.", attrs="start width signed")
_row("cmp", "a:i b:i", "pred", "Integer comparison `how`: eq ne slt sle sgt sge ult ule ugt uge.", attrs="how")
_row("select", "c:p a:any b:any", "second", "c ? a : b, any type.")
_row("pand", "a:p b:p", "pred", "a and b", commutes=True)
_row("por", "a:p b:p", "pred", "a or b", commutes=True)
_row("pxor", "a:p b:p", "pred", "a xor b", commutes=True)
_row("pnot", "a:p", "pred", "not a")
# Floats: f32 and f64, or tuples of them ----------------------------------------------------------------------------
_row("fadd", "a:f b:f", "same", "a + b, round to nearest even", commutes=True)
_row("fsub", "a:f b:f", "same", "a - b")
_row("fmul", "a:f b:f", "same", "a * b", commutes=True)
_row("ffma", "a:f b:f c:f", "same", "a * b + c, one rounding")
_row("fdiv", "a:f b:f", "same", "a / b, correctly rounded")
_row("fmin", "a:f b:f", "same", "IEEE minimumNumber", commutes=True)
_row("fmax", "a:f b:f", "same", "IEEE maximumNumber", commutes=True)
_row("fneg", "a:f", "same", "-a")
_row("fabs", "a:f", "same", "|a|")
_row("ffloor", "a:f", "same", "Largest integer not above a.")
_row("fceil", "a:f", "same", "Smallest integer not below a.")
_row("frint", "a:f", "same", "Nearest integer, ties to even.")
_row("ftrunc", "a:f", "same", "Integer part.")
_row("ldexp", "a:f n:i32", "same", "a * 2 ** n, rounded once; of f64, where the chip has it.")
_row("exp2", "a:f", "same", "2 ** a, the chip's approximation for f32.")
_row("log2", "a:f", "same", "Base-2 logarithm, the chip's approximation for f32.")
_row("rcp", "a:f", "same", "1 / a, the chip's approximation for f32.")
_row("rsqrt", "a:f", "same", "1 / sqrt(a), the chip's approximation for f32.")
_row("sqrt", "a:f", "same", "sqrt(a)")
_row("sqrt_approx", "a:f", "same", "sqrt(a), the chip's approximation for f32.")
_row("sin", "a:f", "same", "sin(a), a in radians.")
_row("cos", "a:f", "same", "cos(a), a in radians.")
_row("fcmp", "a:f b:f", "pred", "Float comparison `how`: eq ne lt le gt ge (ordered; ne is unordered).", attrs="how")
# Conversions. 8- and 16-bit numbers live packed in b32 words, lowest element in the lowest bits ---------------------
_row("cvt", "a:any", "attr", "Number conversion between i32 i64 f32 f64; float to int truncates and saturates; `unsigned` marks unsigned integers.", attrs="unsigned")
_row("pack", "*v:any", "b32", "Round (floats, nearest even) or wrap (ints) 32/dtype.bits numbers, f32 or i32, to `dtype` and pack them.", attrs="dtype")
_row("unpack", "w:b32", "attr", "Element `index` of a word of packed `dtype`, as f32 or i32.", attrs="dtype index")
_row("widen", "w:b32", "b32", "Elements `index` and `index` + 1 of a word of packed `source`, numbers that f16 and bf16 hold, as a word of packed `dtype`.", attrs="source dtype index")
_row("pair", "a:b32 b:b32", "b32", "`operation` (fadd fsub fmul fmin fmax) on both halves of two words of packed `dtype`, f16 or bf16, rounded once.", attrs="operation dtype")
_row("round_tf32", "a:f32", "f32", "Round to tf32, nearest, ties away, low bits zero.")
_row("bitcast", "a:any", "attr", "Same bits, another type of the same width.")
_row("permute_bytes", "hi:b32 lo:b32", "b32", "Result byte i is byte (selector >> 8 i) & 7 of hi:lo (0-3 = lo).", attrs="selector")
# Tuples ------------------------------------------------------------------------------------------------------------
_row("vec", "*v:any", "attr", "Concatenate scalars and tuples of one kind into a tuple.")
_row("slice", "v:any", "attr", "`count` registers of a tuple from `start`: a scalar if count = 1.", attrs="start count")
# Cross-lane --------------------------------------------------------------------------------------------------------
_row("shuffle_xor", "v:any", "same", "The value of lane ^ mask (32-bit types).", uniform="never", attrs="mask")
_row("swap_lanes", "v:b32", "same", "A tuple whose register numbers' bit `register` has changed places with the lane's bit `lane`: of two registers that differ in that bit, each lane keeps the one whose bit is its own and gets the other from the lane that differs in bit `lane`.", uniform="never", attrs="register lane")
_row("any_lane", "a:p", "pred", "Whether a holds in any lane of the wave.", uniform="always")
_row("shuffle_index", "v:any lane:i32", "same", "The value of the given lane (32-bit types). `bytes`: 4 times its number is given.", uniform="never")
# Memory. Addresses are bytes. A masked-off or guarded-off load gives 0, a store does nothing ------------------------
_row("buffer", "u:base:i64 u:bytes:i64", "buffer", "A global array: base address and size. Accesses at or past `bytes` load 0 and store nothing where the target checks bounds (`Target.buffer_bounds`). `cache_stride`: the stride of the cache swizzle to ask for.")
_row("load.global", "u:buf:buffer voff:i32 u:soff:i32 mask:p u:guard:p", "attr",
     "Load `bytes` (1 2 4 8 12 16) at base + voff + soff + imm, voff and soff unsigned. 1 and 2 bytes are zero-extended. `cache`: a hint of `cache_hints`, if any. `bounded`: a promise that where mask and guard hold, all bytes lie in the array or voff + imm alone is past its end.", effects="read global", uniform="never", attrs="bytes imm")
_row("store.global", "u:buf:buffer voff:i32 u:soff:i32 mask:p u:guard:p value:any", "none",
     "Store `bytes` at base + voff + soff + imm; below 4 bytes the low part of the word (`high`: its upper half). `bounded` as in load.global.", effects="write global", uniform="never", attrs="bytes imm high")
_row("load.far", "addr:i64", "attr", "Load `bytes` at a 64-bit address of each lane, which is valid in every lane. `cache` as in load.global.",
     effects="read global", uniform="never", attrs="bytes")
_row("store.far", "addr:i64 mask:p value:any", "none", "Store `bytes` at a 64-bit address of each lane; `high`, `cache` as in store.global.",
     effects="write global", uniform="never", attrs="bytes high")
_row("atomic.global", "u:buf:buffer voff:i32 u:soff:i32 mask:p u:guard:p *v:any", "attr",
     "Indivisibly change the 4 or 8 `bytes` (16: four numbers; of several each by itself) at base + voff + soff + imm by `how` and give what was there: add min_s max_s min_u max_u and or xor xchg (integers), fadd fmin fmax, pk_add_f16 pk_add_bf16 (two in a word), cas (v: expected, then new). Where mask or guard is off the result is unspecified.", effects="read global, write global", uniform="never", attrs="bytes imm how")
_row("atomic.far", "addr:i64 mask:p *v:any", "attr", "atomic.global at a 64-bit address of each lane.", effects="read global, write global", uniform="never", attrs="bytes how")
_row("copy.async", "u:buf:buffer voff:i32 u:soff:i32 mask:p u:guard:p saddr:i32 *here:p", "none",
     "Copy `bytes` from global (+ imm) to shared saddr + simm without registers; masked-off bytes become 0. `here`: lanes that copy, all where there is none. `linear`: saddr is uniform, and lane l's bytes land l * bytes behind it. `bounded` as in load.global. `near`: by way of the first-level cache, where copies may pass it by. Completes at the copy.wait that covers its group.",
     effects="read global, write shared", uniform="never", attrs="bytes imm simm buffer")
_row("touch.global", "u:buf:buffer voff:i32 u:soff:i32 mask:p u:guard:p", "none", "Bring what `load.global` of the same operands would read into the second-level cache; nothing else changes.", effects="read global", uniform="never", attrs="bytes imm")
_row("touch.bulk", "u:map:i64 *u:at:i32", "none", "Bring the box of tensor map `map` at coordinates `at` (innermost first) into the second-level cache; nothing else changes.", effects="read global")
_row("touch.map", "u:map:i64", "none", "Bring tensor map `map` itself to where copies look it up; nothing else changes.", effects="read global")
_row("copy.commit", "", "none", "Close the group of copy.async since the last commit.", effects="sync")
_row("copy.wait", "", "none", "Wait until at most `pending` groups of this lane are in flight.", effects="sync", attrs="pending")
_row("load.shared", "addr:i32", "attr",
     "Load `bytes` per lane at addr + imm by load atom `atom` (`vector`, `ldmatrix.x4`, `ldmatrix.x4.trans`, `tr_b16`, ...). `buffer` names the shared buffer.",
     effects="read shared", uniform="never", attrs="bytes imm atom buffer")
_row("store.shared", "addr:i32 mask:p value:any", "none", "Store `bytes` per lane at addr + imm (`high`: the upper half of a word).", effects="write shared", uniform="never", attrs="bytes imm buffer")
_row("atomic.shared", "addr:i32 mask:p value:any", "none", "Indivisibly change the 4 or 8 `bytes` of shared memory at addr + imm by `how`, of those of atomic.global: add min_s max_s min_u max_u and or xor, fadd. No barrier is needed among them, but between them and other accesses.", effects="read shared, write shared", attrs="bytes imm how buffer")
_row("barrier", "", "none", "All waves of the workgroup arrive, or with `threads` those that name the barrier `id`, or with `half` the lower (0) or upper (1) half of them at a barrier that the others pass elsewhere; shared-memory accesses before it are complete and visible after it.", effects="sync, read shared, write shared")
_row("priority", "", "none", "From here on the wave issues at priority `level` (0 to 3); 0 is what it starts with.", effects="sync", attrs="level")
_row("fence", "", "none", "A barrier at which what the workgroup's waves wrote to global memory before is visible to all workgroups, and what others made visible is seen after it; with `order` `release` or `acquire` the one alone; with `scope` `workgroup`, among its waves alone.", effects="sync, read global, write global, read shared, write shared")
_row("mma", "a:b32 b:b32 c:any", "third", "D = A B + C on fragments of matrix instruction `atom` (a `Target` MmaAtom); a constant-zero C costs nothing.", uniform="never", attrs="atom")
_row("mma.scaled", "a:b32 b:b32 c:any sa:b32 sb:b32", "third", "As mma, with a scale for every block of K elements of a row of A and of a column of B: byte `a_byte` of sa and `b_byte` of sb in the lane that the atom names, as f8e8m0.", uniform="never", attrs="atom a_byte b_byte")
# Asynchronous matrix instructions: they read registers and shared memory until the wait that covers their group
_row("undefined", "", "attr", "Registers whose contents nobody relies on.", uniform="never")
_row("matrix.tile", "u:addr:i32", "i64", "How an asynchronous matrix instruction sees the operand tile at shared-memory byte addr: the address field of a descriptor whose other fields are the words `low` and `high`.", uniform="args", attrs="low high")
_row("matrix.start", "a:any b:i64 c:any u:keep:p", "third", "Start D = A B + C (D = A B where `keep` is false) of atom `atom` in C's registers. A is a fragment or, like B, an `matrix.tile`; `majors` says for each which of its dimensions is contiguous: `k` or `m`.", effects="read shared", uniform="never", attrs="atom majors")
_row("matrix.fence", "", "none", "Registers written before are what the asynchronous matrix instructions after it read.", effects="sync")
_row("matrix.commit", "", "none", "Close the group of matrix.start since the last commit.", effects="sync")
_row("matrix.wait", "", "none", "Wait until at most `pending` groups of matrix.start of this wave are in flight.", effects="sync", attrs="pending")
_row("signal.init", "u:addr:i32", "none", "Make the 8 bytes of shared memory at addr a barrier whose phases end after `count` arrivals and the bytes expected.", effects="sync", attrs="count")
_row("signal.publish", "", "none", "Make the barriers this thread has made known to bulk copies and to the cluster.", effects="sync")
_row("signal.expect", "u:addr:i32", "none", "Arrive, and let the phase wait for `bytes` more.", effects="sync", attrs="bytes")
_row("signal.arrive", "u:addr:i32 mask:p", "none", "Arrive once per lane whose mask is set.", effects="sync")
_row("signal.copied", "u:addr:i32", "none", "Every lane arrives when the copy.async that it has issued before are done.", effects="sync")
_row("signal.wait", "u:addr:i32 u:parity:i32", "none", "Wait until the phase of this parity has ended.", effects="sync, read shared, write shared")
_row("signal.arrive.at", "u:addr:i32 cta:i32 mask:p", "none", "Arrive once per lane whose mask is set, at this address of workgroup `cta` of the cluster.", effects="sync")
_row("copy.bulk", "u:map:i64 u:saddr:i32 u:bar:i32 u:to:i32 *u:at:i32", "none", "Copy the box of tensor map `map` at coordinates `at` (innermost first) to shared saddr; its bytes complete on the barrier at bar. To the same addresses in every workgroup of the cluster whose bit is set in `to`, `receivers` of them; 0: in this one only.", effects="read global, write shared", attrs="buffer receivers")
_row("copy.bulk.store", "u:map:i64 u:saddr:i32 mask:p *u:at:i32", "none", "One copy per lane whose mask is set, of one lane of a wave: shared saddr to the box of tensor map `map` at coordinates `at` (innermost first). `adds`: is added to it, each element indivisibly.", effects="read shared, write global")
_row("bulk.commit", "", "none", "Close the group of this thread's copy.bulk.store since the last.", effects="sync")
_row("bulk.wait", "", "none", "Wait until at most `pending` of this thread's groups run, or (`reading`) still read shared memory.", effects="sync, read shared, write shared", attrs="pending reading")
_row("wave.barrier", "", "none", "All threads of this wave arrive; what they did to shared memory before is visible after. Warpgroups have barriers of their own, from number `id` on.", effects="sync, read shared, write shared", attrs="id")
_row("warp.fence", "", "none", "All lanes of each warp arrive; what they did to global memory before is visible to each other after.", effects="sync, read global, write global, read shared, write shared")
_row("turn.take", "", "none", "Wait until the wave before, of the first `waves`, gives this one the turn; before the first comes the last.", effects="sync", attrs="id waves")
_row("turn.give", "", "none", "Give the next of the first `waves` the turn. Turns have barriers from number `id` on.", effects="sync", attrs="id waves")
_row("cluster.rank", "", "i32", "Number of this workgroup in its cluster.", uniform="always")
_row("cluster.barrier", "", "none", "All threads of the cluster arrive; shared memory written before is visible after it (`initial`: only barriers that were made and published). With `half` the first half of that alone (`arrive`), or the second (`wait`).", effects="sync, read shared, write shared", attrs="initial")
_row("load.peer", "addr:i32 u:cta:i32", "attr", "Load `bytes` per lane at addr + imm of the shared memory of workgroup `cta` of the cluster.", effects="read shared", uniform="never", attrs="bytes imm buffer")
_row("elect", "", "pred", "True in one thread of the wave: what an `if` on it holds runs in that thread alone.", uniform="always")
_row("registers", "", "none", "Change this wave's registers per thread to `count`, up or down as `more` says.", effects="sync", attrs="count more")
_row("grid.wait", "", "none", "Wait until the launch in front of this one has ended; what it wrote is seen after. Before it global memory is left alone.", effects="sync, read global, write global")
_row("grid.release", "", "none", "Let the launch behind this one begin.", effects="sync")
_row("proxy.fence", "", "none", "Shared memory (`everywhere`: and global memory) that this thread wrote becomes visible to matrix.start and bulk copies after the next barrier.", effects="sync", attrs="everywhere")
_row("trap", "mask:p", "none", "Stop the kernel if any lane's mask is set (assertion failed).", effects="control", attrs="message")
# Control -----------------------------------------------------------------------------------------------------------
_row("for", "u:lo:i32 u:hi:i32 u:step:i32 *init:any", "carries", "for (i = lo; i < hi; i += step): region args are i and the carried values; results are the last carried values (inits if no trip). With `again` the first carried value is a uniform predicate, and the loop ends after a trip that yields false for it; where hi is ENDLESS, nothing else ends it.", effects="control", attrs="label")
_row("if", "u:c:p", "carries", "Two regions, one executed; results are its yields.", effects="control")
_row("yield", "*v:any", "none", "Ends a region: the next carried values or the results.", effects="control")
# fmt: on


NO_STRINGS = frozenset(("null", "true", "false", "nan", "inf", "infinity"))
"""Identifiers, in lower case, that readers of YAML, as AMD's metadata is, take for something else than strings."""


def entry_name(name: str) -> str:
    """A kernel's name as assemblers and drivers take it: with what PTX does not allow written as hexadecimal, and a
    letter in front. Such a name stays as it is."""
    out = "".join(c if c.isascii() and (c.isalnum() or c in "_$") else f"_{ord(c):x}_" for c in name)
    return out if out[:1].isalpha() and out.lower() not in NO_STRINGS else f"k_{out}"


def linear_reach(shared: Value, simm: int) -> int:
    """The largest immediate of a linear copy: it counts for both addresses, and its base is not negative."""
    return max(0, (shared.lo or 0) + simm)


ENDLESS = (1 << 31) - 1
"""The bound of loops that a predicate alone ends."""


def counts(loop: Op) -> bool:
    """Whether a loop needs its induction variable: not where a predicate alone ends it and nothing in it reads it."""
    if not loop.attrs.get("again") or loop.args[1].const != ENDLESS:
        return True
    body = loop.regions[0]
    return any(body.args[0] in op.args for op in body.walk())


def source_steps(loop: Op) -> float:
    """Source iterations in one trip of a loop: more than one where it is unrolled, a part of one where its tiles were cut
    finer (`retile`)."""
    steps, parts = loop.attrs.get("steps", 1), loop.attrs.get("parts", 1)
    return steps // parts if steps % parts == 0 else steps / parts
