"""Rules of rows that types alone do not tell: how many bytes an op moves, which widths fit together.

In: an op whose operands have been counted and typed. Out: a sentence, empty where the rule holds.
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import F32, I32, I64, PRED, Op, Type
from wavedsl.ir.kernel.kernel_meaning import ANY_ORDER, ATOMIC
from wavedsl.ir.target import MmaAtom

FIXED = {"i32": I32, "i64": I64, "f32": F32, "pred": PRED}


def _holds(t: Type, bytes: int) -> bool:
    return t.words * 4 == bytes or (bytes < 4 and t.words == 1)


def _load(op: Op) -> str:
    t, bytes = op.results[0].type, op.attrs["bytes"]
    if bytes not in (1, 2, 4, 8, 12, 16) or not _holds(t, bytes):
        return f"loads {bytes} B into {t}"
    return ""


def _load_shared(op: Op) -> str:
    t, bytes = op.results[0].type, op.attrs["bytes"]
    return "" if _holds(t, bytes) else f"loads {bytes} B into {t}"


def _store(op: Op) -> str:
    t, bytes = op.args[-1].type, op.attrs["bytes"]
    if bytes not in (1, 2, 4, 8, 12, 16) or not _holds(t, bytes):
        return f"stores {bytes} B of {t}"
    if op.attrs.get("high") and bytes != 2:
        return f"stores the upper half of a word, and {bytes} B of it"
    return ""


def _atomic(op: Op) -> str:
    bytes, how, values = op.attrs["bytes"], op.attrs["how"], op.args[2 if op.name == "atomic.far" else 5 :]
    if how not in ATOMIC or len(values) != (2 if how == "cas" else 1):
        return f"{how} of {len(values)} values"
    if bytes not in (4, 8, 16) or any(v.type is not op.results[0].type or v.type.words * 4 != bytes for v in values):
        return f"changes {bytes} B of {op.results[0].type} by {', '.join(str(v.type) for v in values)}"
    return ""


def _atomic_shared(op: Op) -> str:
    bytes, how, t = op.attrs["bytes"], op.attrs["how"], op.args[2].type
    if how not in ANY_ORDER:
        return f"{how}: legal are {' '.join(ANY_ORDER)}"
    fits = t.is_float if how == "fadd" else t.is_int
    return "" if bytes in (4, 8) and fits and t.words * 4 == bytes else f"changes {bytes} B by {t}"


def _mma(op: Op) -> str:
    atom: MmaAtom = op.attrs["atom"]
    words = tuple(a.type.words for a in op.args)
    want = (atom.a_words, atom.b_words, atom.d_words) + (1, 1) * bool(atom.scale_block)
    return "" if words == want else f"{atom.name} takes fragments of {want} words, not {words}"


def _mma_async(op: Op) -> str:
    atom: MmaAtom = op.attrs["atom"]
    a, b, c, _ = op.args
    if not atom.asynchronous or b.type is not I64 or not (a.type is I64 or a.type.words == atom.a_words):
        return f"{atom.name} takes a tile or {atom.a_words} words, and a tile, not {a.type} and {b.type}"
    if c.type.words != atom.d_words:
        return f"{atom.name} adds to {atom.d_words} words, not {c.type}"
    if set(op.attrs["majors"]) - {"k"} and not atom.transposes:
        return f"{atom.name} takes operands with K contiguous only"
    return ""


def _vec(op: Op) -> str:
    t = op.results[0].type
    if any(a.type.kind != t.kind for a in op.args) or sum(a.type.n for a in op.args) != t.n:
        return f"makes {t} of {', '.join(str(a.type) for a in op.args)}"
    return ""


def _slice(op: Op) -> str:
    t, v, start, count = op.results[0].type, op.args[0].type, op.attrs["start"], op.attrs["count"]
    if start < 0 or count < 1 or start + count > v.n or t.kind != v.kind or t.n != count:
        return f"takes [{start}, {start + count}) of {v} as {t}"
    return ""


def _bitcast(op: Op) -> str:
    t, v = op.results[0].type, op.args[0].type
    return "" if t.words == v.words and t.words else f"from {v} to {t}: widths differ"


def _pack(op: Op) -> str:
    want = "f32" if op.attrs["dtype"].is_float else "i32"
    if len(op.args) * op.attrs["dtype"].slot != 32 or any(str(a.type) != want for a in op.args):
        return f"a word of {op.attrs['dtype']} takes {32 // op.attrs['dtype'].slot} {want}"
    return ""


def _unpack(op: Op) -> str:
    dtype, t = op.attrs["dtype"], str(op.results[0].type)
    if not 0 <= op.attrs["index"] < 32 // dtype.slot or t != ("f32" if dtype.is_float else "i32"):
        return f"element {op.attrs['index']} of {dtype} as {t}"
    return ""


def _cmp(op: Op) -> str:
    legal = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
    return "" if op.attrs["how"] in legal else f"how={op.attrs['how']}: legal are {' '.join(legal)}"


def _fcmp(op: Op) -> str:
    legal = ("eq", "ne", "lt", "le", "gt", "ge")
    return "" if op.attrs["how"] in legal else f"how={op.attrs['how']}: legal are {' '.join(legal)}"


def _bfe(op: Op) -> str:
    start, width = op.attrs["start"], op.attrs["width"]
    return "" if 0 <= start and 0 < width and start + width <= 32 else f"bits [{start}, {start + width}) of 32"


def _shift(op: Op) -> str:
    count = op.args[1].const
    bits = 64 if op.args[0].type is I64 else 32
    return "" if count is None or 0 <= count < bits else f"shifts {bits} bits by {count}"


def _select(op: Op) -> str:
    return "" if op.args[1].type is op.args[2].type else f"chooses between {op.args[1].type} and {op.args[2].type}"


RULES = {
    "atomic.global": _atomic, "atomic.far": _atomic, "atomic.shared": _atomic_shared,
    "load.far": _load, "store.far": _store,
    "load.global": _load, "load.shared": _load_shared, "load.peer": _load_shared,
    "store.global": _store, "store.shared": _store, "mma": _mma,
    "mma.scaled": _mma,
    "matrix.start": _mma_async,
    "vec": _vec, "slice": _slice, "bitcast": _bitcast, "pack": _pack, "unpack": _unpack, "cmp": _cmp, "fcmp": _fcmp,
    "bfe": _bfe, "shl": _shift, "lshr": _shift, "ashr": _shift, "select": _select,
}  # fmt: skip
