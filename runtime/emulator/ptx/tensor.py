"""Tensor maps of the PTX emulator: the boxes that they name in global memory, and maps made on the chip.

In: the address of a map, the coordinates of boxes. Out: their elements as 16-byte chunks, or global memory with chunks
put there; `tensormap` instructions as closures `step(mask)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.isa_bulk import ELEMENT_TYPES
from wavedsl.codegen.ptx.isa_memory import ATOMIC
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime.emulator.ptx.machine import PARAM_BASE, PARAM_WINDOW, Array, Machine, Mask
from wavedsl.runtime.emulator.ptx.memory import Access, address_of, space_of
from wavedsl.runtime.emulator.ptx.module import Inst
from wavedsl.runtime.emulator.ptx.operands import source
from wavedsl.runtime.tensor_map import ALIGNMENT, BYTES, DATA_TYPES, TensorMapSpec, decode, patch

Step = Callable[[Mask], None]

CHUNK = np.dtype(np.complex128)
"""16 bytes that are moved without being looked at."""
_DTYPES = {
    "u8": "u8",
    "u16": "u16",
    "u32": "u32",
    "i32": "s32",
    "u64": "u64",
    "i64": "s64",
    "f16": "f16",
    "bf16": "bf16",
    "f32": "f32",
    "f32_ftz": "f32",
    "tf32": "f32",
    "tf32_ftz": "f32",
    "f64": "f64",
}
"""Tensor map types as PTX types."""


class TensorBoxes:
    """Boxes of tensors in global memory; maps are decoded once."""

    def __init__(self, m: Machine):
        self.m = m
        self.maps: dict[int, tuple[TensorMapSpec, int]] = {}

    def find(self, inst: Inst, address: int, rank: int, thread: int) -> tuple[TensorMapSpec, int] | None:
        """The tensor map at a generic address, or None and a finding."""
        m = self.m
        found = self.maps.get(address)
        if found is None:
            inside = address - PARAM_WINDOW - PARAM_BASE
            if 0 <= inside <= len(m.params) - BYTES:
                if inside % ALIGNMENT:
                    m.tell("misaligned", inst, f"the tensor map is not at a multiple of {ALIGNMENT} bytes", thread)
                    return None
                found = decode(m.params[inside : inside + BYTES].tobytes())
            else:
                allocation = m.memory.find(address)
                if allocation is None or address + BYTES > allocation.end:
                    text = f"the tensor map's address is no generic address: {m.memory.describe(address, BYTES)}"
                    m.tell("out-of-bounds", inst, text, thread)
                    return None
                start = address - allocation.base
                try:
                    found = decode(allocation.data[start : start + BYTES].tobytes())
                except LaunchError as e:
                    m.tell("hazard", inst, e.message, thread)
                    return None
            if found is None:
                m.tell("uninitialised-read", inst, "what lies at the address is no tensor map", thread)
                return None
            if address >= PARAM_WINDOW:
                self.maps[address] = found
        if found[0].rank != rank:
            m.tell("hazard", inst, f"a {rank}d copy through a tensor map of rank {found[0].rank}", thread)
            return None
        if found[0].interleave:
            m.tell("unsupported", inst, "copies through interleaved tensor maps are not emulated", thread)
            return None
        return found

    def _elements(
        self, inst: Inst, spec: TensorMapSpec, base: int, coords: Array, lanes: Array, writes: bool
    ) -> tuple[Array, int, Array, Array] | None:
        """The tensor as a flat array of elements and its address, and of every element of the lanes' boxes [lanes, n]
        its index there and whether it lies in the tensor. `coords` [rank, lanes]."""
        m = self.m
        size = spec.item_size
        index = np.zeros((len(lanes),) + (1,) * spec.rank, np.int64)
        inside = np.ones_like(index, dtype=bool)
        strides = (size, *spec.strides)
        steps = (1, *spec.element_strides[1:])
        for d in range(spec.rank):
            place = coords[d][:, None] + np.arange(spec.counts[d]) * steps[d]
            shape = [len(lanes)] + [1] * spec.rank
            shape[spec.rank - d] = spec.counts[d]
            index = index + (place * (strides[d] // size)).reshape(shape)
            inside = inside & ((place >= 0) & (place < spec.dims[d])).reshape(shape)
        n = len(lanes)
        index, inside = index.reshape(n, -1), np.broadcast_to(inside, index.shape).reshape(n, -1)
        if not inside.any():
            return np.zeros(1, f"u{size}"), 0, np.zeros_like(index), inside
        # Coordinates 0 may lie in front of the array: what counts is where the first element inside the tensor lies.
        first = int(index.min(where=inside, initial=np.iinfo(np.int64).max))
        allocation = m.memory.find(base + first * size)
        if allocation is None:
            text = f"the tensor lies at {m.memory.describe(base + first * size, 1)}"
            m.tell("out-of-bounds", inst, text, int(lanes[0]))
            return None
        if writes and not allocation.writeable:
            m.tell("out-of-bounds", inst, f"argument `{allocation.name}` is read-only", int(lanes[0]))
            return None
        before = (base - allocation.base) // size
        skew = (base - allocation.base) % size
        data = allocation.data[skew:]
        data = data[: len(data) // size * size].view(f"u{size}")
        index = index + before
        top = int(index.max(where=inside, initial=0))
        if top >= len(data):
            over = (top + 1 - len(data)) * size
            lane = int(lanes[int(np.argmax((index * inside).max(axis=1)))])
            text = f"the tensor map reaches {over} bytes past the end of argument `{allocation.name}`"
            m.tell("out-of-bounds", inst, text, lane)
            inside = inside & (index < len(data))
        return data, allocation.base + skew, index, inside

    def gather(
        self, inst: Inst, spec: TensorMapSpec, base: int, coords: Array, lanes: Array
    ) -> tuple[Array, list[Run]] | None:
        """The lanes' boxes as chunks [lanes, n], outside elements filled, and what is read for them, by position of the
        lane (only where something is checked)."""
        found = self._elements(inst, spec, base, coords, lanes, False)
        if found is None:
            return None
        data, origin, index, inside = found
        places = [] if self.m.globals is None else list(_runs(origin, index, inside, spec))
        if inside.all():
            values = data.take(index)
        else:
            values = data.take(np.where(inside, index, 0))
            values[~inside] = fill_bits(spec)
        return np.ascontiguousarray(values).view(CHUNK), places

    def ask(self, inst: Inst, spec: TensorMapSpec, base: int, coords: Array, lanes: Array) -> None:
        """The lanes' boxes are only to come to L2: what copies would be told of them is told here."""
        self._elements(inst, spec, base, coords, lanes, False)

    def scatter(
        self,
        inst: Inst,
        row: isa.Inst,
        pc: int,
        spec: TensorMapSpec,
        base: int,
        coords: Array,
        lanes: Array,
        chunks: Array,
        ticks: Array,
    ) -> None:
        """Put boxes [lanes, chunks] into the tensor, or combine them with it; what lies outside is dropped."""
        found = self._elements(inst, spec, base, coords, lanes, True)
        if found is None:
            return
        data, origin, index, inside = found
        values = np.ascontiguousarray(chunks).view(data.dtype)
        reduces = "reduce" in row.effects
        if self.m.globals is not None:
            for address, size, position, where in _runs(origin, index, inside, spec):
                part = np.ascontiguousarray(values[where]).view(np.uint8).reshape(len(address), size)
                words = np.zeros((len(address), (size + 3) // 4 * 4), np.uint8)
                words[:, :size] = part
                put = None if reduces else np.ascontiguousarray(words.view(np.uint32).T)
                self.m.globals.bulk_write(inst, pc, address, size, lanes[position], ticks[position], put, reduces)
        if not reduces:
            data[index[inside]] = values[inside]
            return
        kind = _DTYPES[spec.data_type]
        combine(self.m, data, index, values, inside, row.mods["op"], kind)


Run = tuple[Array, int, Array, Array]
"""Addresses of pieces of global memory, their size in bytes, the position of the lane of each, and which elements of
the boxes they are (mask [lanes, n])."""


def _runs(origin: int, index: Array, inside: Array, spec: TensorMapSpec) -> Iterator[Run]:
    """The elements of boxes [lanes, n] that lie in the tensor: by 16 bytes where all of these do, else one by one."""
    size = spec.item_size
    per = 16 // size
    whole = inside.reshape(len(inside), -1, per).all(axis=2)
    address = origin + index * size
    first = address[:, ::per]
    whole &= first % 16 == 0
    if whole.any():
        yield first[whole], 16, np.nonzero(whole)[0], np.repeat(whole, per, axis=1)
    rest = inside & ~np.repeat(whole, per, axis=1)
    if rest.any():
        yield address[rest], size, np.nonzero(rest)[0], rest


def combine(m: Machine, data: Array, index: Array, values: Array, inside: Array, op: str, kind: str) -> None:
    """Reductions: lanes one after the other, in an adversarial order."""
    integer = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}[data.dtype.itemsize]
    dtype = np.dtype(isa.NUMPY[integer if op in ("and", "or", "xor", "inc", "dec") else kind])
    typed = data.view(dtype)
    order = m.rng.permutation(len(index)) if m.checks else range(len(index))
    for i in order:
        at = index[i][inside[i]]
        typed[at] = ATOMIC[op](typed[at], values[i].view(dtype)[inside[i]])


def fill_bits(spec: TensorMapSpec) -> int:
    """Bits of an element outside the tensor: zero, or a quiet NaN of its type."""
    if spec.fill == "zero":
        return 0
    return {"f16": 0x7FFF, "bf16": 0x7FFF, "f64": 0x7FFFFFFFFFFFFFFF}.get(spec.data_type, 0x7FFFFFFF)


def replace(m: Machine, inst: Inst, row: isa.Inst, pc: int) -> Step:
    """`tensormap.replace`: write a field of the emulator's form of a map."""
    args = dict(zip([op.name for op in row.operands], inst.args))
    field = row.mods["field"]
    dim = args["dim"].value if "dim" in args else 0
    value = source(m, args["value"], row.mods["type"])
    space = space_of(m, row, args["p"])
    at = address_of(m, args["p"])
    widths = {n: Access(m, inst, pc, space, args["p"], n, True, counted=False) for n in (1, 2, 4, 8)}

    def step(mask: Mask) -> None:
        lanes = np.arange(m.T) if mask is None else m.lanes(mask)
        where = at(lanes)
        values = np.broadcast_to(value() if callable(value) else value, (m.T,))
        for lane, address in zip(lanes.tolist(), where.tolist()):
            number = int(values[lane])
            if field == "elemtype" and number < len(ELEMENT_TYPES):
                number = DATA_TYPES[ELEMENT_TYPES[number]]
            for offset, data in patch(field, dim, number):
                words = np.frombuffer(data.ljust(max(4, len(data)), b"\0"), np.uint32).copy()[:, None]
                widths[len(data)].store_at(np.array([address + offset]), np.array([lane]), words)

    return step


def publish(m: Machine, inst: Inst, row: isa.Inst, pc: int) -> Step:
    """`tensormap.cp_fenceproxy`: each warp copies a map from shared to global memory."""
    to = Access(m, inst, pc, "generic", inst.args[0], 16, True)
    frm = Access(m, inst, pc, "shared", inst.args[1], 16, False)

    def step(mask: Mask) -> None:
        lanes = np.arange(m.T) if mask is None else m.lanes(mask)
        warps = m.global_warp[lanes]
        leaders = lanes[np.concatenate(([True], warps[1:] != warps[:-1]))]
        for i in range(0, BYTES, 16):
            for words, kept in frm.load_at(frm.address(leaders) + i, leaders):
                to.store_at(to.address(kept) + i, kept, words)

    return step
