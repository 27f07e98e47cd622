"""Rows of PTX memory: loads, stores, atomics, asynchronous copies of a thread, addresses, fences.

The engine moves the bytes; what an atomic does to a value is here (`ATOMIC`). Latencies are for sm_80, a hit in L1 for
shared and a hit in L2 for global memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa_numerics as num
from wavedsl.codegen.ptx.isa import TYPE_BITS, Unit, add_row

Mods = dict[str, Any]
Array = Any

_SPACES = "const|global|local|param::entry|param::func|param|shared::cta|shared::cluster|shared"
_SCOPE = "{.scope:cta|cluster|gpu|sys}"
_L1 = "{.l1:L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate}"
_HINT = "{.cache_hint:L2::cache_hint}"
_PREFETCH = "{.prefetch:L2::64B|L2::128B|L2::256B}"
_TYPES = "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
GLOBAL_LATENCY, SHARED_LATENCY = 290, 23
_BENCH = "arXiv:2208.11174 (sm_80 microbenchmarks), unverified"


def legal_order(m: Mods) -> str:
    """A memory order stronger than weak names a scope, and only such a one does."""
    ordered = m.get("sem") in ("relaxed", "acquire", "release")
    if ordered and "scope" not in m:
        return f".{m['sem']} needs a scope"
    if "scope" in m and not ordered:
        return f".{m['scope']} needs .relaxed, .acquire or .release"
    return ""


def _legal_vector(m: Mods) -> str:
    if m.get("vec") == "v8":
        return ".v8 needs sm_100"
    n = {"v2": 2, "v4": 4}.get(m.get("vec", ""), 1)
    if n * TYPE_BITS[m["type"]] > 128:
        return f".{m['vec']}.{m['type']} is {n * TYPE_BITS[m['type']]} bits; sm_80 to sm_90a move at most 128"
    if "nc" in m and (m.get("space") != "global" or m.get("sem", "weak") != "weak"):
        return ".nc is for weak loads of .global"
    if "cop" in m and "l1" in m:
        return "a cache operator and an eviction priority exclude each other"
    return legal_order(m)


add_row(
    f"ld{{.sem:weak|volatile|relaxed|acquire}}{_SCOPE}{{.space:{_SPACES}}}{{.cop:ca|cg|cs|lu|cv}}{{.nc}}{_L1}{_HINT}{_PREFETCH}"
    f"{{.vec:v2|v4|v8}}.type:{_TYPES}",
    "d:vec(type) <- p:addr, policy?:b64",
    Unit.LSU,
    latency=GLOBAL_LATENCY,
    interval=2,
    source=_BENCH,
    effects="load",
    legal=_legal_vector,
    doc="d = memory at p; shared and param spaces take about 23 cycles",
)
add_row(
    "ldu{.space:global}{.vec:v2|v4}.type:b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64",
    "d:vec(type) <- p:addr",
    Unit.LSU,
    latency=GLOBAL_LATENCY,
    interval=2,
    effects="load",
    legal=_legal_vector,
    doc="d = read-only memory at p",
)
add_row(
    f"st{{.sem:weak|volatile|relaxed|release}}{_SCOPE}{{.space:{_SPACES}}}{{.cop:wb|cg|cs|wt}}{_L1}{_HINT}{{.vec:v2|v4|v8}}.type:{_TYPES}",
    "p:addr, a:vec(type), policy?:b64",
    Unit.LSU,
    latency=4,
    interval=2,
    source=_BENCH,
    effects="store",
    legal=_legal_vector,
    doc="memory at p = a",
)

_ATOMIC_SPACES = "global|shared::cta|shared::cluster|shared"
_SEM = "{.sem:relaxed|acquire|release|acq_rel}"
_RED_SEM = "{.sem:relaxed|release}"


def _legal_atomic(m: Mods) -> str:
    op, t = m["op"], m["type"]
    allowed = {
        "and": "b32 b64",
        "or": "b32 b64",
        "xor": "b32 b64",
        "exch": "b32 b64 b128",
        "cas": "b16 b32 b64 b128",
        "inc": "u32",
        "dec": "u32",
        "add": "u32 s32 u64 f32 f64 f16 f16x2 bf16 bf16x2",
        "min": "u32 s32 u64 s64 f16 f16x2 bf16 bf16x2",
        "max": "u32 s32 u64 s64 f16 f16x2 bf16 bf16x2",
    }[op].split()
    if t not in allowed:
        return f".{op} works on {', '.join(allowed)}, not .{t}"
    half = t in ("f16", "f16x2", "bf16", "bf16x2")
    if half and "noftz" not in m:
        return f".{op}.{t} needs .noftz"
    if op == "cas" and "cache_hint" in m:
        return ".cas takes no cache policy"
    if half and "vec" not in m and op != "add":
        return f".{op}.{t} needs a vector"
    if "vec" in m and ((t == "f32" and (op != "add" or m["vec"] == "v8")) or (t.endswith("x2") and m["vec"] == "v8")):
        return f".{m['vec']} is too long for .{t}, or .{op} not for it"
    if "vec" in m and t not in ("f32", "f16", "f16x2", "bf16", "bf16x2"):
        return "a vector atomic is on f32, f16(x2) or bf16(x2)"
    return "" if half or "noftz" not in m else ".noftz is for 16-bit floats"


_OPS = "add|min|max|inc|dec|and|or|xor|exch|cas"
_ATOM_TYPES = "b16|b32|b64|u32|s32|u64|s64|f32|f64|f16|f16x2|bf16|bf16x2"
_FLOAT_TYPES = "f32|f16|f16x2|bf16|bf16x2"
add_row(
    f"atom{_SEM}{_SCOPE}{{.space:{_ATOMIC_SPACES}}}.op:{_OPS}{{.noftz}}{_HINT}.type:{_ATOM_TYPES}",
    "d:type <- p:addr, a:type, b?:type, policy?:b64",
    Unit.LSU,
    latency=GLOBAL_LATENCY,
    interval=4,
    effects="atomic load store",
    legal=_legal_atomic,
    source="unverified",
    doc="d = memory at p, which becomes op(memory, a)",
)
add_row(
    f"red{_RED_SEM}{_SCOPE}{{.space:{_ATOMIC_SPACES}}}.op:add|min|max|inc|dec|and|or|xor{{.noftz}}{_HINT}.type:{_ATOM_TYPES}",
    "p:addr, a:type, policy?:b64",
    Unit.LSU,
    latency=4,
    interval=4,
    effects="atomic store",
    legal=_legal_atomic,
    source="unverified",
    doc="memory at p = op(memory, a)",
)
for _tail in (
    f".op:add|min|max{{.noftz}}{_HINT}.vec:v2|v4|v8.type:{_FLOAT_TYPES}",
    f".vec:v2|v4|v8.type:{_FLOAT_TYPES}.op:add|min|max{{.noftz}}",
):
    add_row(
        f"atom{_SEM}{_SCOPE}{{.space:global}}{_tail}",
        "d:vec(type) <- p:addr, a:vec(type), policy?:b64",
        Unit.LSU,
        sm=90,
        ptx=(8, 1),
        latency=GLOBAL_LATENCY,
        interval=4,
        effects="atomic load store",
        legal=_legal_atomic,
        source="unverified",
        doc="element by element, d = memory at p, which becomes op(memory, a)",
    )
    add_row(
        f"red{_RED_SEM}{_SCOPE}{{.space:global}}{_tail}",
        "p:addr, a:vec(type), policy?:b64",
        Unit.LSU,
        sm=90,
        ptx=(8, 1),
        latency=4,
        interval=4,
        effects="atomic store",
        legal=_legal_atomic,
        source="unverified",
        doc="element by element, memory = op(memory, a)",
    )

# old value, operand, (second operand) -> new value, on arrays of the row's type
ATOMIC: dict[str, Any] = {
    "add": lambda old, a: _float_add(old, a) if old.dtype.kind not in "iu" else old + a,
    "min": lambda old, a: np.minimum(old, a) if old.dtype.kind in "iu" else num.float_min(old, a),
    "max": lambda old, a: np.maximum(old, a) if old.dtype.kind in "iu" else num.float_max(old, a),
    "inc": lambda old, a: np.where(old >= a, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, a: np.where((old == 0) | (old > a), a, old - old.dtype.type(1)),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, a: a,
    "cas": lambda old, a, b: np.where(old == a, b, old),
}


def _float_add(old: Array, a: Array) -> Array:
    """Sum in the element type; 16-bit floats are added in float32 and rounded once."""
    if old.dtype.itemsize == 2:
        return (old.astype(np.float32) + a.astype(np.float32)).astype(old.dtype)
    return old + a


# ---------------------------------------------------------------- asynchronous copies

# A policy is part of the row, but the compiler gives none: where the shared address is a sum whose one part is uniform
# (an array's base and an offset with exclusive or), ptxas 13.0, and drivers of that release, leave the uniform register
# out of what they encode (`LDGSTS [R+UR0], desc[UR1]` in SASS of sm_90 and later), and an H200 calls that an illegal
# instruction. ptxas 13.5 encodes it. No other instruction with a policy has that form.
add_row(
    f"cp.async.cop:ca|cg.space:shared::cta|shared.global{_HINT}{_PREFETCH}",
    "dst:addr, src:addr, size:imm, take?:b32, policy?:b64",
    Unit.LSU,
    latency=GLOBAL_LATENCY + SHARED_LATENCY,
    interval=4,
    effects="async",
    source="unverified",
    doc="copy 4, 8 or 16 bytes from global to shared memory without waiting; the bytes past `take` are zero",
)
add_row(
    "cp.async.commit_group", "", Unit.ASYNC, effects="commit", doc="close a group of this thread's asynchronous copies"
)
add_row(
    "cp.async.wait_group",
    "n:imm",
    Unit.ASYNC,
    effects="wait",
    doc="wait until at most n of this thread's groups are pending",
)
add_row("cp.async.wait_all", "", Unit.ASYNC, effects="wait", doc="wait for all asynchronous copies of this thread")
add_row(
    "cp.async.mbarrier.arrive{.noinc}{.space:shared::cta|shared}.b64",
    "p:addr",
    Unit.ASYNC,
    effects="async mbarrier",
    source="unverified",
    doc="arrive on an mbarrier when this thread's asynchronous copies are done",
)

# ---------------------------------------------------------------- addresses and hints

add_row(
    "cvta.space:const|global|local|param::entry|param|shared::cta|shared::cluster|shared.type:u64",
    "d:type <- a:type",
    Unit.ALU,
    effects="address",
    doc="d = generic address of a, an address in a state space",
)
add_row(
    "cvta.to.space:const|global|local|param::entry|param|shared::cta|shared::cluster|shared.type:u64",
    "d:type <- a:type",
    Unit.ALU,
    effects="address to",
    doc="d = address in a state space of a generic address",
)
add_row(
    "isspacep.space:const|global|local|param::entry|param|shared::cta|shared::cluster|shared",
    "p:pred <- a:b64",
    Unit.ALU,
    effects="address is",
    doc="p = whether a generic address lies in a state space",
)
add_row(
    "prefetch{.space:global|local}.level:L1|L2|L2::evict_last|L2::evict_normal",
    "p:addr",
    Unit.LSU,
    legal=lambda m: "an eviction priority is for .global" if m.get("space") == "local" and "::" in m["level"] else "",
    effects="hint",
    doc="bring a line into a cache",
)
add_row("prefetchu.L1", "p:addr", Unit.LSU, effects="hint", doc="bring a line into the uniform cache")
_PRIMARY = "L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged"
add_row(
    f"createpolicy.fractional.primary:{_PRIMARY}{{.secondary:L2::evict_first|L2::evict_unchanged}}.b64",
    "d:b64 <- f?:f32",
    Unit.UNIFORM,
    effects="policy",
    ptx=(7, 4),
    doc="d = a cache policy; it changes no value",
)

# ---------------------------------------------------------------- fences

add_row("membar.scope:cta|gl|sys", "", Unit.LSU, latency=20, effects="fence", doc="order this thread's memory accesses")
add_row(
    "fence{.sem:sc|acq_rel|acquire|release}.scope:cta|cluster|gpu|sys",
    "",
    Unit.LSU,
    latency=20,
    effects="fence",
    doc="order this thread's memory accesses at a scope",
)
add_row(
    "fence.proxy.kind:alias|async", "", Unit.LSU, effects="fence proxy", doc="order accesses through different proxies"
)
add_row(
    "fence.proxy.async.space:global|shared::cta|shared::cluster",
    "",
    Unit.LSU,
    latency=20,
    effects="fence proxy",
    sm=90,
    ptx=(8, 0),
    doc="order generic and asynchronous-proxy accesses of one state space",
)
for _tail, _operands in (
    (".release.scope:cta|cluster|gpu|sys", ""),
    (".acquire.scope:cta|cluster|gpu|sys", "p:addr, size:imm"),
):
    add_row(
        f"fence.proxy.tensormap::generic{_tail}",
        _operands,
        Unit.LSU,
        latency=20,
        effects="fence",
        sm=90,
        ptx=(8, 3),
        doc="order a change of a tensor map by ordinary stores and its use by bulk copies",
    )
add_row(
    "fence.mbarrier_init.release.cluster",
    "",
    Unit.LSU,
    effects="fence initialised",
    sm=90,
    ptx=(8, 0),
    doc="make mbarrier initialisation visible to the cluster",
)
