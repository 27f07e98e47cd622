"""Rows of bulk asynchronous copies (TMA): tiles of tensors and plain runs of bytes, between global and shared memory.

A load signals its bytes to an mbarrier; a store or reduction belongs to a group of its thread, which commits and waits
for groups. Both work in the asynchronous proxy: shared memory that ordinary stores wrote needs a proxy fence first.
"""

from __future__ import annotations

from typing import Any

from wavedsl.codegen.ptx.isa import Unit, add_row

_HINT = "{.cache_hint:L2::cache_hint}"
_MULTI = "{.multicast:multicast::cluster}"
_DIM = ".dim:1d|2d|3d|4d|5d"
_MBAR = ".mbarrier::complete_tx::bytes"
_BULK: dict[str, Any] = {
    "unit": Unit.ASYNC,
    "latency": 600,
    "interval": 4,
    "sm": 90,
    "source": "latency unverified",
}

# ---------------------------------------------------------------- tiles

add_row(
    f"cp.async.bulk.tensor{_DIM}.to:shared::cluster.global{{.mode:tile}}{_MBAR}{_MULTI}{_HINT}",
    "dst:addr, map:tensor, mbar:addr, ctas?:b16, policy?:b64",
    effects="bulk load",
    ptx=(8, 0),
    doc="copy the map's box at the coordinates (innermost first) to shared memory; with .multicast to the same offset "
    "in every CTA of the mask, each of which signals its own mbarrier",
    **_BULK,
)
add_row(
    f"cp.async.bulk.tensor{_DIM}.to:shared::cta.global{{.mode:tile}}{_MBAR}{_HINT}",
    "dst:addr, map:tensor, mbar:addr, policy?:b64",
    effects="bulk load",
    ptx=(8, 6),
    doc="copy the map's box at the coordinates (innermost first) to this CTA's shared memory",
    **_BULK,
)
add_row(
    f"cp.async.bulk.tensor{_DIM}.to:global.shared::cta{{.mode:tile}}.bulk_group{_HINT}",
    "map:tensor, src:addr, policy?:b64",
    effects="bulk store",
    ptx=(8, 0),
    doc="copy a box from shared memory to the coordinates; what lies outside the tensor is dropped",
    **_BULK,
)
add_row(
    f"cp.reduce.async.bulk.tensor{_DIM}.to:global.shared::cta.op:add|min|max|inc|dec|and|or|xor{{.mode:tile}}.bulk_group{_HINT}",
    "map:tensor, src:addr, policy?:b64",
    effects="bulk store reduce",
    ptx=(8, 0),
    doc="combine a box from shared memory with the tensor, element by element",
    **_BULK,
)
add_row(
    f"cp.async.bulk.prefetch.tensor{_DIM}.L2.global{{.mode:tile}}{_HINT}",
    "map:tensor, policy?:b64",
    effects="bulk hint",
    ptx=(8, 0),
    doc="bring a box into L2",
    **_BULK,
)
add_row(
    "prefetch{.space:param|const}.tensormap",
    "p:addr",
    Unit.LSU,
    effects="hint",
    sm=90,
    ptx=(8, 0),
    doc="bring a tensor map into the descriptor cache",
)

# ---------------------------------------------------------------- runs of bytes

add_row(
    f"cp.async.bulk.to:shared::cluster.global{_MBAR}{_MULTI}{_HINT}",
    "dst:addr, src:addr, bytes:u32, mbar:addr, ctas?:b16, policy?:b64",
    effects="bulk load",
    ptx=(8, 0),
    doc="copy bytes (a multiple of 16) to shared memory",
    **_BULK,
)
add_row(
    f"cp.async.bulk.to:shared::cta.global{_MBAR}{_HINT}",
    "dst:addr, src:addr, bytes:u32, mbar:addr, policy?:b64",
    effects="bulk load",
    ptx=(8, 6),
    doc="copy bytes (a multiple of 16) to this CTA's shared memory",
    **_BULK,
)
add_row(
    f"cp.async.bulk.to:shared::cluster.shared::cta{_MBAR}",
    "dst:addr, src:addr, bytes:u32, mbar:addr",
    effects="bulk load shared",
    ptx=(8, 0),
    doc="copy bytes from this CTA's shared memory to another's in the cluster",
    **_BULK,
)
add_row(
    f"cp.async.bulk.to:global.shared::cta.bulk_group{_HINT}",
    "dst:addr, src:addr, bytes:u32, policy?:b64",
    effects="bulk store",
    ptx=(8, 0),
    doc="copy bytes (a multiple of 16) from shared to global memory",
    **_BULK,
)
add_row(
    f"cp.async.bulk.prefetch.L2.global{_HINT}",
    "src:addr, bytes:u32, policy?:b64",
    effects="bulk hint",
    ptx=(8, 0),
    doc="bring bytes into L2",
    **_BULK,
)

_REDUCE = {
    "add": "u32 s32 u64 f16 bf16 f32 f64",
    "min": "u32 s32 u64 s64 f16 bf16",
    "max": "u32 s32 u64 s64 f16 bf16",
    "inc": "u32",
    "dec": "u32",
    "and": "b32 b64",
    "or": "b32 b64",
    "xor": "b32 b64",
}


def _legal_reduce(m: dict[str, Any]) -> str:
    allowed = _REDUCE[m["op"]].split()
    if m["type"] not in allowed:
        return f".{m['op']} works on {', '.join(allowed)}, not .{m['type']}"
    half = m["op"] == "add" and m["type"] in ("f16", "bf16")
    if half != ("noftz" in m):
        return f".add.{m['type']} needs .noftz" if half else ".noftz is for sums of 16-bit floats"
    return ""


add_row(
    f"cp.reduce.async.bulk.to:global.shared::cta.bulk_group{_HINT}.op:add|min|max|inc|dec|and|or|xor{{.noftz}}"
    ".type:u32|s32|u64|s64|b32|b64|f16|bf16|f32|f64",
    "dst:addr, src:addr, bytes:u32, policy?:b64",
    effects="bulk store reduce",
    legal=_legal_reduce,
    ptx=(8, 0),
    doc="combine bytes of shared memory with global memory, element by element",
    **_BULK,
)
add_row(
    f"st.async{{.weak}}.to:shared::cluster{_MBAR}{{.vec:v2|v4}}.type:b32|b64|u32|u64|s32|s64|f32|f64",
    "p:addr, a:vec(type), mbar:addr",
    effects="bulk load registers",
    legal=lambda m: ".v4 is for 32-bit elements" if m.get("vec") == "v4" and "64" in m["type"] else "",
    ptx=(8, 1),
    doc="store to shared memory of any CTA of the cluster without waiting, and signal the bytes to its mbarrier",
    **_BULK,
)

# ---------------------------------------------------------------- groups

add_row(
    "cp.async.bulk.commit_group",
    "",
    Unit.ASYNC,
    effects="bulk commit",
    sm=90,
    ptx=(8, 0),
    doc="close a group of this thread's bulk stores",
)
add_row(
    "cp.async.bulk.wait_group{.read}",
    "n:imm",
    Unit.ASYNC,
    effects="bulk wait",
    sm=90,
    ptx=(8, 0),
    doc="wait until at most n of this thread's groups are pending; .read: until their sources have been read",
)

# ---------------------------------------------------------------- tensor maps made on the chip

_REPLACE: dict[str, Any] = {
    "unit": Unit.LSU,
    "latency": 20,
    "effects": "tensormap",
    "sm": 90,
    "ptx": (8, 3),
    "needs_a": True,
    "source": "latency unverified",
}
_MAP_SPACE = "{.space:global|shared::cta}"
add_row(
    f"tensormap.replace.tile.field:global_address{_MAP_SPACE}.b1024.type:b64",
    "p:addr, value:b64",
    doc="change a tensor map's address",
    **_REPLACE,
)
add_row(
    f"tensormap.replace.tile.field:rank{_MAP_SPACE}.b1024.type:b32",
    "p:addr, value:b32",
    doc="change a tensor map's rank; the value is one less",
    **_REPLACE,
)
add_row(
    f"tensormap.replace.tile.field:box_dim|global_dim|element_stride{_MAP_SPACE}.b1024.type:b32",
    "p:addr, dim:imm, value:b32",
    doc="change a size of a tensor map",
    **_REPLACE,
)
add_row(
    f"tensormap.replace.tile.field:global_stride{_MAP_SPACE}.b1024.type:b64",
    "p:addr, dim:imm, value:b64",
    doc="change a tensor map's stride in bytes; number 0 is dimension 1's",
    **_REPLACE,
)
add_row(
    f"tensormap.replace.tile.field:elemtype|interleave_layout|swizzle_mode|fill_mode{_MAP_SPACE}.b1024.type:b32",
    "p:addr, value:imm",
    doc="change a tensor map's type of elements or a mode",
    **_REPLACE,
)
add_row(
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope:cta|cluster|gpu|sys.sync.aligned",
    "dst:addr, src:addr, size:imm",
    Unit.LSU,
    latency=600,
    effects="tensormap copy convergent",
    sm=90,
    ptx=(8, 3),
    source="latency unverified",
    doc="copy a tensor map from shared to global memory, for others to use after an acquiring fence",
)

ELEMENT_TYPES = ("u8", "u16", "u32", "i32", "u64", "i64", "f16", "f32", "f32_ftz", "f64", "bf16", "tf32", "tf32_ftz")
"""Types of elements as `tensormap.replace` numbers them; the driver's enumeration differs from 8 on."""
