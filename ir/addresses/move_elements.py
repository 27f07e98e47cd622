"""Elements between an array and the registers of a value, vector by vector.

In: a `GlobalAccess` and the groups of elements of `vectors`. Out: loads, stores, and registers put together from what
was loaded where a vector is no whole registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wavedsl.ir.addresses.access import GlobalAccess
from wavedsl.ir.addresses.vectors import element_groups, vector_elements
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32, Value
from wavedsl.ir.layouts.fragment import Fragment, from_words, per_register, register_count, register_type
from wavedsl.ir.layouts.layout import Layout


def load_group(
    b: Builder, access: GlobalAccess, group: Sequence[int], width: int, guard: Value | None, cache: str | None = None,
) -> Value:  # fmt: skip
    """One vector load: `width` packed elements as 32-bit words."""
    offsets = access.layout.coords(group[0])
    voff, soff, mask = access.operands(offsets)
    return b.load_global(
        access.buffer, voff, soff, bytes=width * access.info.elsize, mask=mask, guard=guard, split=False, bounded=True,
        cache=cache,
    )  # fmt: skip


def assemble(b: Builder, layout: Layout, dtype: DType, loads: Sequence[tuple[tuple[int, ...], Value]]) -> Fragment:
    """A fragment from loads of groups of elements: words are taken over whole where a group fills them, else put
    together."""
    where = {element: (value, position) for group, value in loads for position, element in enumerate(group)}
    words = [join_register(b, layout, dtype, i, where.__getitem__) for i in range(register_count(layout, dtype))]
    return from_words(b, layout, dtype, words)


def join_register(
    b: Builder, layout: Layout, dtype: DType, index: int, source: Callable[[int], tuple[Value, int]]
) -> Value:
    """One register of a value from its elements, each given as for `join_word` by its number in the value."""
    per, count = per_register(dtype), layout.elements_per_lane
    return join_word(b, dtype, [source(e) for e in range(index * per, min(index * per + per, count))])


def join_word(b: Builder, dtype: DType, elements: Sequence[tuple[Value, int]]) -> Value:
    """One register from its elements, each given as (loaded words, position among the packed elements of that load)."""
    per, t = per_register(dtype), register_type(dtype)
    wide = dtype.bits // 32 if dtype.bits > 32 else 1
    value, position = elements[0]
    if position % per == 0 and all(v is value and p == position + j for j, (v, p) in enumerate(elements)):
        word = b.slice(value, position // per * wide, wide) if value.type.n > 1 else value
        return word if word.type is t else b.bitcast(word, t)
    sources: list[Value] = []
    for value, position in elements:
        source = b.slice(value, position // per) if value.type.n > 1 else value
        if all(source is not x for x in sources):
            sources.append(source)
    if len(elements) == per and len(sources) <= 2 and dtype.bits in (8, 16) and all(x.type is B32 for x in sources):
        size, selector = dtype.bits // 8, 0
        for j, (value, position) in enumerate(elements):
            source = b.slice(value, position // per) if value.type.n > 1 else value
            start = (0 if source is sources[0] else 4) + position % per * size
            for i in range(size):
                selector |= start + i << 8 * (j * size + i)
        return b.bitcast(b.permute_bytes(sources[-1], sources[0], selector), t)
    if len(elements) == per == 4 and dtype.bits == 8 and all(x.type is B32 for x in sources):
        halves = []
        for two in (elements[:2], elements[2:]):
            low, high = (b.slice(v, p // per) if v.type.n > 1 else v for v, p in two)
            at, other = (p for _, p in two)
            halves.append(b.permute_bytes(high, low, at % per | (4 + other % per) << 8))
        return b.bitcast(b.permute_bytes(halves[1], halves[0], 0x05040100), t)
    word = b.const(0, I32)
    for j, (value, position) in enumerate(elements):
        source = b.slice(value, position // per) if value.type.n > 1 else value
        number = b.and_(b.lshr(b.bitcast(source, I32), position % per * dtype.bits), (1 << dtype.bits) - 1)
        word = b.or_(word, b.shl(number, j * dtype.bits))
    return b.bitcast(word, t)


def store_value(
    b: Builder, access: GlobalAccess, value: Fragment, guard: Value | None = None, cache: str | None = None
) -> None:
    """Write every element of a fragment."""
    for group in store_groups(access):
        store_group(b, access, value, group, guard, cache)


def store_group(
    b: Builder, access: GlobalAccess, value: Fragment, group: Sequence[int], guard: Value | None, cache: str | None
) -> None:
    """Write the elements of one store."""
    width, _ = vector_elements(access.info, access.layout, access.plans)
    per = per_register(value.dtype)
    voff, soff, mask = access.operands(access.layout.coords(group[0]))
    size = width * access.info.elsize
    high = False
    if size >= 4:
        data = [value.word(b, e // per) for e in group[::per]]
        if any(group[i] % per != i % per for i in range(len(group))):
            data = gather_words(b, value, group)
        packed = b.vec(*data) if len(data) > 1 else data[0]
    else:
        packed, high = sub_word(b, value, group)
    b.store_global(
        access.buffer, voff, packed, soff, bytes=size, mask=mask, guard=guard, high=high, split=False, bounded=True,
        cache=cache,
    )  # fmt: skip


def store_groups(access: GlobalAccess) -> Sequence[tuple[int, ...]]:
    """Elements of each store of a fragment."""
    return element_groups(access.layout, vector_elements(access.info, access.layout, access.plans)[1])


def gather_words(b: Builder, value: Fragment, group: Sequence[int]) -> list[Value]:
    """Words of packed elements that are not neighbours in the value's own registers."""
    per, bits = per_register(value.dtype), value.dtype.bits
    out = []
    for i in range(0, len(group), per):
        word: Value | None = None
        for j, e in enumerate(group[i : i + per]):
            source = b.bitcast(value.word(b, e // per), I32)
            part = b.shl(b.and_(b.lshr(source, e % per * bits), (1 << bits) - 1), j * bits)
            word = part if word is None else b.or_(word, part)
        assert word is not None
        out.append(b.bitcast(word, B32))
    return out


def sub_word(b: Builder, value: Fragment, group: Sequence[int]) -> tuple[Value, bool]:
    """(word, whether its upper half is meant) for a store narrower than 4 bytes."""
    per, bits = per_register(value.dtype), value.dtype.bits
    word = value.word(b, group[0] // per)
    contiguous = all(e == group[0] + i for i, e in enumerate(group))
    if not contiguous or group[0] % per + len(group) > per:
        return gather_words(b, value, list(group))[0], False
    shift = group[0] % per * bits
    if shift == 16 and len(group) * bits == 16:
        return word, True
    if shift:
        word = b.bitcast(b.lshr(b.bitcast(word, I32), shift), B32)
    return word, False
