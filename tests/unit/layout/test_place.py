"""Placements: addresses, conflicts against enumeration and against published numbers, load plans, address code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.bank_cycles import bank_cycles
from wavedsl.ir.layouts.bits import Bits, kind_of, name_of, number_of, spec, xor_all
from wavedsl.ir.layouts.layout import Digit, make_layout
from wavedsl.ir.layouts.place import Piece, Place, row_major
from wavedsl.ir.layouts.plan_addresses import lane_fields, plan_addresses
from wavedsl.ir.layouts.plan_load import atom_bits, plan_load

EIGHT, SIXTEEN, GFX942_B128, GFX950_B128 = (1, 2, 4), (1, 2, 4, 8), (1, 2, 20), (1, 2, 12, 20)
XOR128 = ((3, 4, 3),)
NATURAL = spec(M="l0 l1 l2 l3 r0 w0", K="e0 e1 l4 l5 r1 r2")
WIDE = spec(M="l0 l1 l2 l3 r0 w0", K="e0 e1 e2 l4 l5 r1")
COPY = spec(K="e0 e1 e2 l0 l1 l2", M="l3 l4 l5 w0 w1 r0")


def rows(pitch: int, xor: tuple = (), dims: str = "MK", elsize: int = 2, n: int = 64) -> Place:
    return row_major({dims[0]: n, dims[1]: 128 // elsize if pitch >= 128 else pitch // elsize}, elsize, pitch, xor)


def tile(m: int, k: int, pitch: int | None = None, xor: tuple = ()) -> Place:
    return row_major({"M": m, "K": k}, 2, pitch, xor)


WAVES3 = Digit("wave", 3, "M", 1)


# ---- addresses -------------------------------------------------------------------------------------------------------


@given(
    st.permutations(["e0", "e1", "e2", "l0", "l1", "l2", "l3", "l4", "w0", "w1"]),
    st.sampled_from([((3, 4, 3),), ((2, 4, 3),), ((3, 4, 3), (3, 4, 6)), ((1, 3, 4),), ()]),
)
def test_columns_add_up_to_the_address(order: list[str], xor: tuple) -> None:
    access, place = spec(M=" ".join(order[:5]), K=" ".join(order[5:])), row_major({"M": 32, "K": 32}, 2, xor=xor)
    columns = place.cols(access)
    layout = make_layout(access)
    expected = place.address(layout.table())
    kinds = {"w": 0, "l": 1, "e": 2}
    for index in np.ndindex(*expected.shape):
        total = 0
        for b, c in zip(access.ins, columns):
            total ^= c if index[kinds[kind_of(b)]] >> number_of(b) & 1 else 0
        assert total == expected[index]
    assert place.injective()


def test_pieces_express_panels_permuted_orders_and_digits() -> None:
    panels = Place((Piece("K", 64, 2, 96 * 128), Piece("M", 1, 96, 128), Piece("K", 1, 64, 2)), XOR128)
    assert panels.injective() and panels.extents == {"K": 128, "M": 96}
    assert panels.address({"M": 0, "K": 64}) == 96 * 128 and panels.address({"M": 1, "K": 0}) == 128 ^ 16
    permuted = Place((Piece("M", 1, 16, 64), Piece("K", 4, 2, 16), Piece("K", 8, 2, 8), Piece("K", 1, 4, 2)))
    assert permuted.injective() and permuted.address({"M": 0, "K": 8}) == 8
    assert not Place((Piece("M", 1, 4, 8), Piece("K", 1, 8, 2))).injective()
    assert Place((Piece("M", 1, 16, 136), Piece("K", 1, 64, 2))).bytes == 16 * 136 - 8 + 8


def test_slots_follow_whole_swizzle_windows() -> None:
    place = rows(128, XOR128, n=12).varied(slots=3)
    assert place.window == 1024 and place.bytes == 2048 and place.total_bytes == 6144
    assert rows(128, n=12).bytes == 1536


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(CompileError, match="disjoint powers of two"):
        rows(136, XOR128).cols(WIDE)
    with pytest.raises(CompileError, match="no dimension N"):
        rows(128).cols(spec(N="l0"))
    with pytest.raises(CompileError, match="straddles a cut"):
        Place((Piece("K", 48, 2, 96), Piece("K", 1, 48, 2))).cols(spec(K="l0 l1 l2 l3 l4 l5"))
    with pytest.raises(CompileError, match="less than the row"):
        row_major({"M": 4, "K": 64}, 2, 64)


# ---- bank conflicts --------------------------------------------------------------------------------------------------


def enumerated_cycles(place: Place, access: Bits, nbytes: int, phase: Sequence[int], banks: int) -> int:
    """What `bank_cycles` counts, by visiting every lane and word: per group of lanes that are served together, the
    most words that lie in one bank."""
    lanes = access.only("l")
    width = max((*(number_of(b) + 1 for b in lanes.ins), *(p.bit_length() for p in phase)), default=0)
    position = {number_of(b): i for i, b in enumerate(lanes.ins)}
    groups: dict[frozenset[int], set[int]] = {}
    for lane in range(1 << width):
        word = lanes(sum(1 << i for n, i in position.items() if lane >> n & 1))
        coords = dict.fromkeys(place.dims, 0)
        for j, o in enumerate(lanes.outs):
            coords[kind_of(o)] |= (word >> j & 1) << number_of(o)
        first = int(place.address(coords)) // 4
        together = frozenset(lane ^ xor_all(chosen) for n in range(len(phase) + 1) for chosen in combinations(phase, n))
        groups.setdefault(together, set()).update(range(first, first + max(1, nbytes // 4)))
    return sum(max(Counter(word % banks for word in words).values()) for words in groups.values())


@given(
    st.permutations(["l0", "l1", "l2", "l3", "l4", "l5", "e0", "e1", "e2"]),
    st.integers(2, 7),
    st.sampled_from([128, 136, 144, 160]),
    st.sampled_from([(), ((3, 4, 3),), ((3, 4, 3), (3, 4, 6)), ((3, 3, 4),)]),
    st.sampled_from([4, 8, 16]),
    st.sampled_from([EIGHT, SIXTEEN, GFX942_B128, GFX950_B128, (1, 2, 4, 8, 16)]),
    st.sampled_from([32, 64]),
)
def test_closed_form_of_conflicts_equals_enumeration(order, cut, pitch, xor, nbytes, phase, banks) -> None:  # type: ignore[no-untyped-def]
    access = spec(M=" ".join(order[:cut]), K=" ".join(order[cut:]))
    place = rows(pitch, xor if pitch == 128 else ())
    arguments = (place, access, nbytes, phase, banks)
    assert bank_cycles(*arguments) == enumerated_cycles(*arguments)


@pytest.mark.parametrize(
    ("pitch", "xor", "b64", "b128", "write"),
    [(128, (), 64, 32, 8), (136, (), 4, None, None), (144, (), 8, 16, 8), (128, XOR128, 8, 8, 8)],
    ids=["linear", "pitch 136", "pitch 144", "xor (3,4,3)"],
)
def test_cycles_of_the_gfx942_gemm_tile(pitch: int, xor: tuple, b64: int, b128: int | None, write: int | None) -> None:
    """f16 64x64, 4 waves of 32x32, mfma 16x16x16: the ideal is 4 for b64, 8 for b128 reads and writes."""
    place = rows(pitch, xor)
    assert bank_cycles(place, NATURAL, 8, SIXTEEN, 32) == b64
    if b128 is not None:
        assert bank_cycles(place, WIDE, 16, GFX942_B128, 32) == b128
        assert bank_cycles(place, COPY, 16, EIGHT, 32) == write


def test_the_128_byte_swizzle_is_free_of_conflicts_under_every_phase_hypothesis() -> None:
    swizzled = rows(128, XOR128)
    assert [bank_cycles(swizzled, WIDE, 16, phase, 32) for phase in (EIGHT, GFX942_B128)] == [8, 8]
    assert bank_cycles(swizzled, WIDE, 16, GFX950_B128, 64) == 4
    for pitch in (144, 160):
        seen = [bank_cycles(rows(pitch), WIDE, 16, p, 32) for p in (EIGHT, GFX942_B128)]
        assert max(seen) > 8


GFX950 = {  # operand: (fragment of lanes, bytes, element bytes), cycles at pitch 128, 136, 144, 160, and with XOR
    "fp8 32x32 b64": (spec(M="l0 l1 l2 l3 l4", K="0 0 0 l5"), 8, 1, (32, 2, 4, 8, 8)),
    "bf16 16x16x32 b128": (spec(M="l0 l1 l2 l3", K="0 0 0 l4 l5"), 16, 2, (16, None, 8, 4, 4)),
    "tr_b8 32x32x16": (spec(K="l1 l2 l3 l5", M="0 0 0 l0 l4"), 8, 1, (8, 4, 4, 2, 2)),
    "tr_b16 16x16x32": (spec(K="l2 l3 0 l4 l5", M="0 0 l0 l1"), 8, 2, (8, 4, 4, 4, 4)),
}


@pytest.mark.parametrize("name", GFX950)
def test_cycles_measured_on_gfx950_phases(name: str) -> None:
    """The table of measured-phase costs: rows of 128 B, XOR on 16-byte granules with row % 8."""
    access, nbytes, elsize, expected = GFX950[name]
    dims = "KM" if name.startswith("tr") else "MK"
    phase = GFX950_B128 if nbytes == 16 else (1, 2, 4, 8, 16)
    for pitch, cycles in zip((128, 136, 144, 160, None), expected):
        if cycles is not None:
            place = rows(pitch or 128, () if pitch else XOR128, dims, elsize)
            assert bank_cycles(place, access, nbytes, phase, 64) == cycles, pitch


def test_replica_lanes_share_words_and_narrow_reads_share_banks() -> None:
    one_row = spec(K="l0 l1 l2", free="l3 l4")
    assert bank_cycles(rows(128), one_row, 2, (1, 2, 4, 8, 16), 32) == 1
    assert bank_cycles(rows(128), spec(M="l0 l1 l2 l3 l4"), 4, (1, 2, 4, 8, 16), 32) == 32
    assert bank_cycles(rows(128), spec(K="l0 l1 l2 l3 l4"), 4, (1, 2, 4, 8, 16), 32) == 1


# ---- load plans ------------------------------------------------------------------------------------------------------


def check_plan(plan, fragment: Bits, place: Place) -> None:  # type: ignore[no-untyped-def]
    """Simulates one instance on a tile of element numbers and compares with the fragment, every lane and element."""
    per_word = bytes_to_coords(place)
    layout = make_layout(fragment)
    group = plan.groups(layout)
    pattern = None if not plan.atom.lane else atom_bits(plan.atom, place.elsize)
    table = layout.table()
    offsets = [layout.coords(g[0]) for g in group]
    for wave in range(layout.waves):
        for instance, elements in enumerate(group):
            for lane in range(layout.lanes):
                for position, e in enumerate(elements):
                    supplier, x = lane, position
                    if pattern is not None:
                        at = pattern.at(l=lane, e=position)
                        supplier, x = at["L"], at["x"]
                    base = plan.address.at(L=supplier, w=wave)
                    coords = {d: base.get(d, 0) + offsets[instance][d] for d in layout.dims}
                    got = per_word[int(place.address(coords)) + x * place.elsize]
                    assert got == tuple(int(table[d][wave, lane, e]) for d in place.dims)


def bytes_to_coords(place: Place) -> dict[int, tuple[int, ...]]:
    sizes = place.extents
    return {
        int(place.address(dict(zip(sizes, index)))): index for index in np.ndindex(*(sizes[d] for d in place.dims))
    }


A16816, B16816 = spec(M="l2 l3 l4 e1", K="e0 l0 l1 e2"), spec(N="l2 l3 l4 r0", K="e0 l0 l1 e1")


@pytest.mark.parametrize(
    ("fragment", "dims", "atom", "fills"),
    [
        (A16816, "MK", "ldmatrix.x4", "e0 e1 e2"),
        (B16816, "NK", "ldmatrix.x4", "e0 e1 r0"),
        (B16816, "KN", "ldmatrix.x4.trans", "e0 e1 r0"),
        (spec(N="l2 l3 l4", K="e0 l0 l1 e1"), "NK", "ldmatrix.x2", "e0 e1"),
    ],
    ids=["A[m][k]", "B[n][k]", "B[k][n]", "one B tile"],
)
def test_ldmatrix_plans(chip: SimpleNamespace, fragment: Bits, dims: str, atom: str, fills: str) -> None:
    for xor, cycles in (((), 32), (XOR128, 4)):
        place = rows(128, xor, dims, n=16)
        plan = plan_load(fragment, place, chip.ldmatrix)[0]
        assert plan.atom.name == atom and " ".join(map(name_of, plan.fills)) == fills and plan.instances == 1
        expected = cycles // 2 if atom == "ldmatrix.x2" else cycles
        assert bank_cycles(place, plan.address, 16, EIGHT, 32) == expected
        check_plan(plan, fragment, place)


def test_ldmatrix_addresses_are_the_written_ones(chip: SimpleNamespace) -> None:
    for fragment, dims, formula in (
        (A16816, "MK", lambda l: (l % 16, 8 * (l // 16))),
        (B16816, "NK", lambda l: ((l & 7) + 8 * (l >> 4), 8 * (l >> 3 & 1))),
        (B16816, "KN", lambda l: ((l & 7) + 8 * (l >> 3 & 1), 8 * (l >> 4))),
    ):
        plan = plan_load(fragment, rows(128, XOR128, dims), chip.ldmatrix)[0]
        for lane in range(32):
            at = plan.address.at(L=lane)
            assert (at[dims[0]], at[dims[1]]) == formula(lane)


def test_stmatrix_is_ldmatrix_backwards(chip: SimpleNamespace) -> None:
    d = spec(M="l2 l3 l4 e1", N="e0 l0 l1 e2")
    place = rows(128, XOR128, "MN")
    plan = plan_load(d, place, chip.ldmatrix)[0]
    assert [tuple(plan.address.at(L=l).values()) for l in range(32)] == [(l & 15, 8 * (l >> 4)) for l in range(32)]
    assert bank_cycles(place, plan.address, 16, EIGHT, 32) == 4


def test_ldmatrix_carries_8_and_32_bit_elements_but_does_not_tear_them(chip: SimpleNamespace) -> None:
    tf32_a = spec(M="l2 l3 l4 e0", K="l0 l1 e1")
    i8_a = spec(M="l2 l3 l4 e2", K="e0 e1 l0 l1 e3")
    for fragment, elsize in ((tf32_a, 4), (i8_a, 1)):
        place = rows(128, XOR128, elsize=elsize, n=16)
        plan = plan_load(fragment, place, chip.ldmatrix)[0]
        assert plan.atom.name == "ldmatrix.x4"
        check_plan(plan, fragment, place)
    with pytest.raises(CompileError, match="apart"):
        atom_bits(chip.ldmatrix[3], 4)


@pytest.mark.parametrize(
    ("fragment", "elsize", "atom", "address"),
    [
        (spec(M="l0 l1 l2 l3", K="e0 e1 l4 l5"), 2, "tr_b16", lambda l: (4 * (l // 16) + l % 16 // 4, 4 * (l % 4))),
        (
            spec(M="l0 l1 l2 l3 l4", K="e0 e1 e2 l5"),
            1,
            "tr_b8",
            lambda l: (8 * (l // 32) + l % 16 // 2, 16 * (l // 16 % 2) + 8 * (l % 2)),
        ),
    ],
    ids=["f16 16x16x16", "fp8 32x32x16"],
)
def test_transposing_reads_of_gfx950(chip: SimpleNamespace, fragment: Bits, elsize: int, atom: str, address) -> None:  # type: ignore[no-untyped-def]
    place = row_major({"K": 16, "M": 64}, elsize, 160)
    plan = plan_load(fragment, place, chip.tr)[0]
    assert plan.atom.name == atom
    assert [(a["K"], a["M"]) for a in (plan.address.at(L=l) for l in range(64))] == [address(l) for l in range(64)]
    check_plan(plan, fragment, place)


def test_v_under_the_k_order_of_s_takes_two_transposing_reads(chip: SimpleNamespace) -> None:
    v = spec(M="l0 l1 l2 l3 l4", K="e0 e1 l5 e2")
    place = row_major({"K": 16, "M": 32}, 2, 272)
    plan = plan_load(v, place, chip.tr)[0]
    assert plan.atom.name == "tr_b16" and plan.instances == 2
    assert [plan.address.at(L=l)["K"] for l in range(64)] == [l % 16 // 4 + 4 * (l // 32) for l in range(64)]
    assert [make_layout(v).coords(g[0])["K"] for g in plan.groups(make_layout(v))] == [0, 8]
    check_plan(plan, v, place)


def test_vectors_are_as_wide_as_place_alignment_and_swizzle_allow(chip: SimpleNamespace) -> None:
    def widest(fragment: Bits, place: Place) -> int:
        return plan_load(fragment, place, chip.vectors)[0].bytes

    assert widest(WIDE, rows(128)) == widest(WIDE, rows(128, XOR128)) == widest(WIDE, rows(144)) == 16
    assert widest(NATURAL, rows(128)) == 8
    assert widest(WIDE, rows(136)) == 8, "rows 136 bytes apart are not 16-byte aligned"
    assert widest(WIDE, rows(128, ((3, 3, 4),))) == 8, "the swizzle moves 8-byte granules"
    assert widest(spec(M="e0 e1 l0", K="l1 l2"), rows(128)) == 2
    assert widest(spec(M="l0 l1", K="e1 e0 e2"), rows(128)) == 2, "halves of a word would be swapped"
    check_plan(plan_load(WIDE, rows(128, XOR128), chip.vectors)[0], WIDE, rows(128, XOR128))


def test_digits_repeat_a_plan_and_their_alignment_counts(chip: SimpleNamespace) -> None:
    inner = spec(M="l0 l1 l2 l3", K="e0 e1 e2 l4 l5")
    layout = make_layout(inner, (Digit("reg", 3, "K", 1), Digit("wave", 3, "M", 1)))
    place = row_major({"M": 48, "K": 96}, 2)
    plan = plan_load(layout, place, chip.vectors)[0]
    assert plan.bytes == 16 and plan.instances == 3
    assert plan.groups(layout) == tuple(tuple(range(8 * i, 8 * i + 8)) for i in range(3))


# ---- address code ----------------------------------------------------------------------------------------------------


def check_addresses(place: Place, fragment: Bits, digits: tuple[Digit, ...], atoms) -> int:  # type: ignore[no-untyped-def]
    """Evaluates the plan as emitted code would, compares with the definition; returns how many address registers."""
    layout = make_layout(fragment, digits)
    load = plan_load(layout, place, atoms)[0]
    groups = load.groups(layout)
    plan = plan_addresses(place, load.address, [layout.coords(g[0]) for g in groups], layout)
    truth = place.address(layout.table())
    wave_bits = 1 << fragment.count("w")
    shape = [g.extent for g in layout.wave_digits]
    for w in range(layout.waves):
        counts = np.unravel_index(w // wave_bits, shape) if shape else ()
        for lane in range(layout.lanes):
            for i, g in enumerate(groups):
                assert plan.evaluate(lane, w % wave_bits, [int(c) for c in counts], i) == truth[w, lane, g[0]]
    return len(plan.registers)


def test_the_gfx942_fragment_takes_two_address_registers(chip: SimpleNamespace) -> None:
    """rows + 2048 is an immediate; the second 32-k block flips bit 6 under the swizzle."""
    place = rows(128, XOR128)
    assert check_addresses(place, WIDE, (), chip.vectors) == 2
    load = plan_load(WIDE, place, chip.vectors)[0]
    plan = plan_addresses(place, load.address, [{"M": m, "K": k} for k in (0, 32) for m in (0, 16)])
    assert plan.registers == (0, 64) and plan.items == ((0, 0), (0, 2048), (1, 0), (1, 2048))
    assert [(f.mask, f.shift) for f in plan.lane] == [(15, 7), (7, 4), (48, 0)]


@pytest.mark.parametrize(
    ("place", "fragment", "digits", "registers"),
    [
        (rows(128), WIDE, (), 1),
        (rows(144), WIDE, (), 1),
        (rows(136), NATURAL, (), 1),
        (tile(96, 64, xor=XOR128), spec(M="l0 l1 l2 l3 r0", K="e0 e1 e2 l4 l5 r1"), (WAVES3,), 2),
        (tile(24, 64, xor=XOR128), spec(M="l0 l1", K="e0 e1 e2 l2 l3 l4"), (Digit("wave", 6, "M", 1),), 1),
        (tile(48, 96, 200), spec(M="l0 l1 l2 l3", K="e0 e1 l4 l5 r0"), (Digit("reg", 3, "K", 1), WAVES3), 1),
    ],
    ids=["linear", "pitch 144", "pitch 136", "3 wave rows", "waves inside the window", "96 of 3 digits"],
)
def test_address_code_computes_the_place(chip: SimpleNamespace, place, fragment, digits, registers) -> None:  # type: ignore[no-untyped-def]
    assert check_addresses(place, fragment, digits, chip.vectors) == registers


def test_carries_into_the_swizzle_are_refused() -> None:
    place = row_major({"M": 24, "K": 64}, 2, xor=XOR128)
    inner = spec(M="l0 l1", K="e0 e1 e2 l2 l3 l4")
    with pytest.raises(CompileError, match="carries into bits"):
        plan_addresses(place, inner, [{"M": 3}])
    layout = make_layout(inner, (Digit("wave", 2, "M", 3),), {"M": 24, "K": 64})
    with pytest.raises(CompileError, match="carries into bits"):
        plan_addresses(place, inner, [{}], layout)


def test_offsets_that_carry_across_a_panel_are_refused() -> None:
    panels = Place((Piece("K", 64, 3, 64 * 128), Piece("M", 1, 64, 128), Piece("K", 1, 64, 2)))
    lanes = spec(M="l4 l5", K="l0 l1 l2 l3")
    assert plan_addresses(panels, lanes, [{"K": 128}, {"K": 48}]).items == ((0, 2 * 64 * 128), (0, 96))
    with pytest.raises(CompileError, match="across the cut at 64"):
        plan_addresses(panels, lanes, [{"K": 56}])
    layout = make_layout(lanes, (Digit("wave", 3, "K", 3), Digit("reg", 3, "K", 1)))
    with pytest.raises(CompileError, match="across the cut at 64"):
        plan_addresses(panels, lanes, [{"K": 32}], layout)


@given(st.lists(st.integers(0, 4095), min_size=1, max_size=6), st.booleans())
def test_fields_reproduce_their_columns(columns: list[int], xor: bool) -> None:
    fields = lane_fields(columns, xor)
    for source in range(1 << len(columns)):
        parts = [c for i, c in enumerate(columns) if source >> i & 1]
        expected = 0
        for c in parts:
            expected = expected ^ c if xor else expected + c
        got = 0
        for f in fields:
            got = got ^ f(source) if xor else got + f(source)
        assert got == expected
