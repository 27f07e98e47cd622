"""Vector memory rows: LDS, buffer, global, flat, scratch, their atomics, and copies from global memory straight to LDS.

A row says how many bytes a lane moves and how they land in registers (`Mem`); the emulator does addresses, EXEC,
bounds and counters for all of them. Atomics name a function of (memory, data) from `ATOMICS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.codegen.amdgcn.isa import CDNA2_UP, CDNA3_UP, CDNA4, Mem, Unit, inst

A = Any
GFX90A = frozenset(("gfx90a",))
F16, BF16 = np.float16, ml_dtypes.bfloat16


def _packed(dtype: Any) -> Callable[[A, A], A]:
    def add(m: A, d: A) -> A:
        x = np.ascontiguousarray(m).view(dtype).astype(np.float32) + np.ascontiguousarray(d).view(dtype).astype(
            np.float32
        )
        return x.astype(dtype).view(np.uint32)

    return add


def _inc(m: A, d: A) -> A:
    return np.where(m >= d, m.dtype.type(0), m + m.dtype.type(1))


def _dec(m: A, d: A) -> A:
    return np.where((m == 0) | (m > d), d, m - m.dtype.type(1))


ATOMICS: dict[str, Callable[[A, A], A]] = {
    "swap": lambda m, d: d,
    "add": lambda m, d: m + d,
    "sub": lambda m, d: m - d,
    "rsub": lambda m, d: d - m,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": _inc,
    "dec": _dec,
    # The CDNA3 ISA guide (12.15, opcodes 80 and 81) compares and no more: NaN in memory stays, and so does either zero.
    "fmin": lambda m, d: np.where(d < m, d, m),
    "fmax": lambda m, d: np.where(d > m, d, m),
    "pk_add_f16": _packed(F16),
    "pk_add_bf16": _packed(BF16),
    "cmpswap": lambda m, d: d,
}
"""New memory value from (old, data). `cmpswap` is special: it also has a compare value."""

# ------------------------------------------------------------------------------------------------------------------ LDS

_LGKM: dict[str, Any] = {"counters": ("lgkmcnt",)}
DS_MODS = ("offset",)
DS2_MODS = ("offset0", "offset1")
READ_LATENCY = {4: 64, 8: 64, 12: 72, 16: 80}
LDS_SOURCE = "typical LDS latency 64 clocks; 128 bytes per clock per compute unit (CDNA3 ISA guide)"


def _lds_issue(size: int) -> int:
    """Clocks one wave occupies the LDS pipe without conflicts: 64 lanes at 128 bytes per clock."""
    return max(2, 64 * size // 128)


for _n, _bits in ((1, 32), (2, 64), (3, 96), (4, 128)):
    _size = 4 * _n
    inst(f"ds_read_b{_bits}", f"d:va*{_n}.b32 <- addr:v.u32", Unit.DS, "DS", special="ds", mem=Mem("load", _size),
         modifiers=DS_MODS, latency=READ_LATENCY[_size], issue=_lds_issue(_size), source=LDS_SOURCE,
         doc=f"{_size} bytes per lane from LDS", **_LGKM)  # fmt: skip
    inst(
        f"ds_write_b{_bits}",
        f"addr:v.u32, data:va*{_n}.b32",
        Unit.DS,
        "DS",
        special="ds",
        mem=Mem("store", _size),
        modifiers=DS_MODS,
        issue=_lds_issue(_size),
        source=LDS_SOURCE,
        doc=f"{_size} bytes per lane to LDS",
        **_LGKM,
    )
for _n, _bits in ((1, 32), (2, 64)):
    for _name, _unit in (("", 1), ("st64", 64)):
        _mem: dict[str, Any] = {"pieces": 2, "stride": 4 * _n * _unit}
        inst(f"ds_read2{_name}_b{_bits}", f"d:va*{2 * _n}.b32 <- addr:v.u32", Unit.DS, "DS", special="ds",
             mem=Mem("load", 4 * _n, **_mem), modifiers=DS2_MODS, issue=2 * _lds_issue(4 * _n), source=LDS_SOURCE,
             doc="two elements per lane from LDS", **_LGKM)  # fmt: skip
        inst(
            f"ds_write2{_name}_b{_bits}",
            f"addr:v.u32, data:va*{_n}.b32, data1:va*{_n}.b32",
            Unit.DS,
            "DS",
            special="ds",
            mem=Mem("store", 4 * _n, **_mem),
            modifiers=DS2_MODS,
            issue=2 * _lds_issue(4 * _n),
            source=LDS_SOURCE,
            doc="two elements per lane to LDS",
            **_LGKM,
        )
for _name, _size in (("u8", 1), ("i8", 1), ("u16", 2), ("i16", 2)):
    inst(f"ds_read_{_name}", "d:va.b32 <- addr:v.u32", Unit.DS, "DS", special="ds", mem=Mem("load", _size, _name),
         modifiers=DS_MODS, doc=f"{_size} byte(s), extended", **_LGKM)  # fmt: skip
for _name, _size in (("u8_d16", 1), ("i8_d16", 1), ("u16_d16", 2)):
    for _hi in ("", "_hi"):
        inst(
            f"ds_read_{_name}{_hi}",
            "d=:va.b32 <- addr:v.u32",
            Unit.DS,
            "DS",
            special="ds",
            mem=Mem("load", _size, _name + _hi),
            modifiers=DS_MODS,
            doc="into one half of the register",
            **_LGKM,
        )
for _name, _size, _conv in (
    ("b8", 1, "u8"),
    ("b16", 2, "u16"),
    ("b8_d16_hi", 1, "u8_d16_hi"),
    ("b16_d16_hi", 2, "u16_d16_hi"),
):
    inst(f"ds_write_{_name}", "addr:v.u32, data:va.b32", Unit.DS, "DS", special="ds", mem=Mem("store", _size, _conv),
         modifiers=DS_MODS, doc=f"{_size} byte(s) to LDS", **_LGKM)  # fmt: skip
for _bits in (16, 8, 4):
    inst(
        f"ds_read_b64_tr_b{_bits}",
        "d:va*2.b32 <- addr:v.u32",
        Unit.DS,
        "DS",
        special="ds_transpose",
        mem=Mem("load", 8),
        modifiers=("offset",),
        targets=CDNA4,
        extra=_bits,
        issue=_lds_issue(8),
        source=LDS_SOURCE,
        doc=f"8 bytes per lane, transposed in groups of 16 lanes as {_bits}-bit elements",
        **_LGKM,
    )
inst("ds_read_b96_tr_b6", "d:va*3.b32 <- addr:v.u32", Unit.DS, "DS", special="ds_transpose", mem=Mem("load", 12),
     modifiers=("offset",), targets=CDNA4, extra=6, issue=_lds_issue(12), source=LDS_SOURCE, hazard=("unaligned_dst",),
     doc="12 bytes per lane, transposed in groups of 16 lanes as 6-bit elements", **_LGKM)  # fmt: skip
inst("ds_swizzle_b32", "d:v.b32 <- a:v.b32", Unit.DS, "DS", special="ds_swizzle", modifiers=("offset",),
     doc="exchange between lanes by a fixed pattern", **_LGKM)  # fmt: skip
inst("ds_bpermute_b32", "d:v.b32 <- addr:v.u32, a:v.b32", Unit.DS, "DS", special="ds_bpermute", modifiers=("offset",),
     doc="each lane reads lane addr / 4", **_LGKM)  # fmt: skip
inst("ds_permute_b32", "d:v.b32 <- addr:v.u32, a:v.b32", Unit.DS, "DS", special="ds_permute", modifiers=("offset",),
     doc="each lane writes to lane addr / 4", **_LGKM)  # fmt: skip
inst("ds_nop", "", Unit.DS, "DS", special="nothing", doc="nothing")


def _ds_atomic(name: str, function: str, dtype: str, targets: frozenset[str] = CDNA2_UP) -> None:
    n = 2 if dtype.endswith("64") else 1
    for rtn in (False, True):
        spec = (f"d:va*{n}.b32 <- " if rtn else "") + f"addr:v.u32, data:va*{n}.b32"
        if function == "cmpswap":
            spec += f", data1:va*{n}.b32"
        full = f"ds_{name.replace('_', '_rtn_', 1) if rtn and not name.startswith('pk') else name}"
        if rtn and name.startswith("pk"):
            full = f"ds_{name.replace('pk_add', 'pk_add_rtn')}"
        inst(
            full,
            spec,
            Unit.DS,
            "DS",
            special="ds",
            mem=Mem("atomic", 4 * n, function=function, dtype=dtype, returns=rtn),
            modifiers=DS_MODS,
            issue=_lds_issue(4 * n),
            source=LDS_SOURCE,
            targets=targets,
            doc="atomic in LDS" + (", old value returned" if rtn else ""),
            **_LGKM,
        )


for _d, _ty in (("u32", "u32"), ("u64", "u64")):
    for _op in ("add", "sub", "rsub", "inc", "dec", "min", "max"):
        _ds_atomic(f"{_op}_{_d}", _op, _ty)
for _d, _ty in (("i32", "i32"), ("i64", "i64")):
    for _op in ("min", "max"):
        _ds_atomic(f"{_op}_{_d}", _op, _ty)
for _d, _ty in (("b32", "u32"), ("b64", "u64")):
    for _op in ("and", "or", "xor"):
        _ds_atomic(f"{_op}_{_d}", _op, _ty)
    _ds_atomic(f"cmpst_{_d}", "cmpswap", _ty)
    _n = 2 if _ty == "u64" else 1
    inst(
        f"ds_wrxchg_rtn_{_d}",
        f"d:va*{_n}.b32 <- addr:v.u32, data:va*{_n}.b32",
        Unit.DS,
        "DS",
        special="ds",
        mem=Mem("atomic", 4 * _n, function="swap", dtype=_ty, returns=True),
        modifiers=DS_MODS,
        doc="exchange",
        **_LGKM,
    )
for _d in ("f32", "f64"):
    for _op, _fn in (("add", "add"), ("min", "fmin"), ("max", "fmax")):
        _ds_atomic(f"{_op}_{_d}", _fn, _d)
_ds_atomic("pk_add_f16", "pk_add_f16", "u32", CDNA3_UP)
_ds_atomic("pk_add_bf16", "pk_add_bf16", "u32", CDNA3_UP)

# ---------------------------------------------------------------------------------------- buffer, global, flat, scratch

_VM: dict[str, Any] = {"counters": ("vmcnt",)}
_CACHE = {GFX90A: ("glc", "slc"), CDNA3_UP: ("sc0", "sc1", "nt")}
_SPACES = ("buffer", "global", "flat", "scratch")
VMEM_SOURCE = "typical latencies of L2 hits; 64 bytes per clock per compute unit"


def _address(space: str) -> str:
    return {"buffer": "addr:vo*0.u32, srd:s*4.b32, soffset:sn.u32", "global": "addr:v*0.u32, saddr:so.b64",
            "flat": "addr:v.u64", "scratch": "addr:vo.u32, saddr:so.u32"}[space]  # fmt: skip


def vmem(
    space: str, name: str, data: str, mem: Mem, *, targets: frozenset[str] = CDNA2_UP, hazard: tuple[str, ...] = (),
    doc: str = "", modifiers: tuple[str, ...] = (), lds: bool = False,
) -> None:  # fmt: skip
    """One memory row in one address space, once per spelling of the cache bits. `data`: the register operand."""
    loads = mem.op == "load" or mem.returns
    where = _address(space)
    if lds:
        spec = where
    elif mem.op == "load":
        spec = f"d{'=' if 'd16' in mem.convert else ''}:{data} <- {where}"
    elif space in ("buffer",):
        # buffer atomics return in the data register itself
        spec = f"data=:{data} <- {where}" if mem.returns else f"data:{data}, {where}"
    elif mem.op == "store":
        head, _, tail = where.partition(", ")
        spec = f"{head}, data:{data}" + (f", {tail}" if tail else "")
        if space == "scratch":
            spec = f"addr:vo.u32, data:{data}, saddr:so.u32"
    else:
        head, _, tail = where.partition(", ")
        out = data
        if mem.function == "cmpswap":
            kinds, _, rest = data.partition("*")
            out = f"{kinds}*{int(rest.split('.')[0]) // 2}.b32"
        spec = (f"d:{out} <- " if mem.returns else "") + f"{head}, data:{data}" + (f", {tail}" if tail else "")
    unit = Unit.SCRATCH if space == "scratch" else Unit.VMEM
    counters = ("vmcnt", "lgkmcnt") if space == "flat" else ("vmcnt",)
    sent = mem.bytes * (2 if mem.function == "cmpswap" else 1)
    wide = mem.op in ("store", "atomic") and sent > 8
    classes = ("vmem", *hazard, *(("wide_store",) if wide else ()))
    encoding = {"buffer": "MUBUF", "global": "GLOBAL", "flat": "FLAT", "scratch": "SCRATCH"}[space]
    base = ("offen", "idxen", "offset") if space == "buffer" else ("offset",)
    for on, cache in _CACHE.items():
        if on & targets:
            inst(
                f"{space}_{name}",
                spec,
                unit,
                encoding,
                special="vmem_lds" if lds else "vmem",
                mem=mem,
                targets=on & targets,
                counters=counters,
                hazard=classes,
                modifiers=(*base, *cache, *modifiers),
                doc=doc,
                extra=space,
                latency=500 if loads else 4,
                issue=max(4, mem.bytes),
                source=VMEM_SOURCE,
            )


for _space in _SPACES:
    _lds_flag = ("lds",) if _space == "buffer" else ()
    for _n in (1, 2, 3, 4):
        _x = f"x{_n}" if _n > 1 else ""
        vmem(_space, f"load_dword{_x}", f"va*{_n}.b32", Mem("load", 4 * _n), doc=f"{4 * _n} bytes per lane")
        vmem(_space, f"store_dword{_x}", f"va*{_n}.b32", Mem("store", 4 * _n), doc=f"{4 * _n} bytes per lane")
    for _name, _size, _conv in (("ubyte", 1, "u8"), ("sbyte", 1, "i8"), ("ushort", 2, "u16"), ("sshort", 2, "i16")):
        vmem(_space, f"load_{_name}", "va.b32", Mem("load", _size, _conv), doc=f"{_size} byte(s), extended")
    for _name, _size, _conv in (("ubyte_d16", 1, "u8_d16"), ("sbyte_d16", 1, "i8_d16"), ("short_d16", 2, "u16_d16")):
        for _hi in ("", "_hi"):
            vmem(_space, f"load_{_name}{_hi}", "va.b32", Mem("load", _size, _conv + _hi), doc="into one half")
    for _name, _size, _conv in (("byte", 1, "u8"), ("short", 2, "u16")):
        for _hi in ("", "_d16_hi"):
            vmem(_space, f"store_{_name}{_hi}", "va.b32", Mem("store", _size, _conv + _hi), doc="from one half")

# direct to LDS: `buffer_load_dword ... lds` is a different instruction with the same name; the parser asks for it by
# the flag
LDS_SUFFIX = " lds"
for _name, _size, _on in (
    ("dword", 4, CDNA2_UP),
    ("dwordx3", 12, CDNA4),
    ("dwordx4", 16, CDNA4),
    ("ushort", 2, CDNA2_UP),
    ("sshort", 2, CDNA2_UP),
    ("ubyte", 1, CDNA2_UP),
    ("sbyte", 1, CDNA2_UP),
):
    _conv = {"ushort": "u16", "sshort": "i16", "ubyte": "u8", "sbyte": "i8"}.get(_name, "")
    vmem("buffer", f"load_{_name}{LDS_SUFFIX}", "", Mem("dma", _size, _conv), lds=True, modifiers=("lds",), targets=_on,
         hazard=("reads_m0", "dma"), doc="global memory straight to LDS at M0")  # fmt: skip
    vmem("global", f"load_lds_{_name}", "", Mem("dma", _size, _conv), lds=True, targets=_on & CDNA3_UP,
         hazard=("reads_m0", "dma"), doc="global memory straight to LDS at M0")  # fmt: skip

_INT_ATOMICS = (
    ("swap", "swap", "u"),
    ("add", "add", "u"),
    ("sub", "sub", "u"),
    ("smin", "min", "i"),
    ("umin", "min", "u"),
    ("smax", "max", "i"),
    ("umax", "max", "u"),
    ("and", "and", "u"),
    ("or", "or", "u"),
    ("xor", "xor", "u"),
    ("inc", "inc", "u"),
    ("dec", "dec", "u"),
    ("cmpswap", "cmpswap", "u"),
)


def _atomic(
    space: str, name: str, function: str, dtype: str, n: int, targets: frozenset[str], both: bool = True
) -> None:
    """Atomics return the old value when glc (gfx90a) or sc0 is set: `RETURN_SUFFIX` rows, which the parser picks by
    flag.
    """
    regs = 2 * n if function == "cmpswap" else n
    for rtn in (False, True) if both else (False,):
        vmem(space, f"atomic_{name}{RETURN_SUFFIX if rtn else ''}", f"va*{regs}.b32",
             Mem("atomic", 4 * n, function=function, dtype=dtype, returns=rtn), targets=targets, hazard=("atomic",),
             doc="atomic" + (", old value returned" if rtn else ""))  # fmt: skip


RETURN_SUFFIX = " rtn"
for _space in ("buffer", "global", "flat"):
    for _name, _fn, _sign in _INT_ATOMICS:
        _atomic(_space, _name, _fn, f"{_sign}32", 1, CDNA2_UP)
        _atomic(_space, f"{_name}_x2", _fn, f"{_sign}64", 2, CDNA2_UP)
    _atomic(_space, "add_f32", "add", "f32", 1, CDNA2_UP if _space != "flat" else CDNA3_UP)
    _atomic(_space, "add_f64", "add", "f64", 2, CDNA2_UP)
    _atomic(_space, "min_f64", "fmin", "f64", 2, CDNA2_UP)
    _atomic(_space, "max_f64", "fmax", "f64", 2, CDNA2_UP)
    _atomic(_space, "pk_add_f16", "pk_add_f16", "u32", 1, CDNA2_UP if _space != "flat" else CDNA3_UP)
    _atomic(_space, "pk_add_bf16", "pk_add_bf16", "u32", 1, CDNA4 if _space == "buffer" else CDNA3_UP)

for _name, _on, _does in (
    ("buffer_wbinvl1", GFX90A, "invalidate"),
    ("buffer_wbinvl1_vol", GFX90A, "invalidate"),
    ("buffer_wbl2", CDNA2_UP, "writeback"),
    ("buffer_inv", CDNA3_UP, "invalidate"),
    ("buffer_invl2", GFX90A, ""),
):
    for _targets, _scopes in _CACHE.items():
        if _targets & _on:
            inst(_name, "", Unit.VMEM, "MUBUF", special="nothing", targets=_targets & _on, modifiers=_scopes,
                 counters=("vmcnt",), extra=_does, doc="cache maintenance; caches are not modelled")  # fmt: skip
