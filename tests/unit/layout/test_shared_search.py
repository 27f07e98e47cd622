"""The search for shared-memory placements: known best placements, legality, budget, and the source of linear copies."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
from wavedsl.ir.addresses.fragment_loads import VECTOR_ATOMS
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.layouts import shared_search
from wavedsl.ir.layouts.bank_cycles import bank_cycles
from wavedsl.ir.layouts.bits import kind_of, name_of, number_of, spec
from wavedsl.ir.layouts.column_pairs import rows_apart
from wavedsl.ir.layouts.layout import Digit, Layout, make_layout
from wavedsl.ir.layouts.place import row_major
from wavedsl.ir.layouts.shared_search import MECHANISMS, SharedAccess, candidates, choose_place, dma_source
from wavedsl.ir.staging.staging import _plain_place

from wavedsl.targets import get_target

NATURAL = spec(M="l0 l1 l2 l3 r0 w0", K="e0 e1 l4 l5 r1 r2")
WIDE = spec(M="l0 l1 l2 l3 r0 w0", K="e0 e1 e2 l4 l5 r1")
COPY = spec(K="e0 e1 e2 l0 l1 l2", M="l3 l4 l5 w0 w1 r0")
TILE = {"M": 64, "K": 64}


def gemm(chip: SimpleNamespace, fragment=WIDE, mechanism: str = "registers") -> list[SharedAccess]:  # type: ignore[no-untyped-def]
    return [
        SharedAccess("fragments", "read", fragment, waves=4, atoms=chip.vectors),
        SharedAccess("copy", "write", COPY, waves=4, atoms=chip.vectors, mechanism=mechanism),
    ]


def test_gfx942_gemm_takes_the_128_byte_swizzle_with_wide_reads(chip: SimpleNamespace) -> None:
    """A and B each: 4 b128 reads of 8 cycles, 2 b128 writes of 8: 64 + 32 per wave for both, in 12 instructions."""
    choice = choose_place(TILE, 2, gemm(chip), **chip.gfx942)
    read, write = choice.accesses
    assert choice.place.xor == ((3, 4, 3),) and choice.place.bytes == 8192 and choice.conflict_free
    assert (read.plan.bytes, read.instructions, read.worst, read.registers) == (16, 4, 32, 2)  # type: ignore[union-attr]
    assert (write.plan.bytes, write.instructions, write.worst) == (16, 2, 16)  # type: ignore[union-attr]
    assert read.cycles == (8, 8), "free of conflicts under both phase hypotheses"


def test_natural_k_order_is_widened_by_the_order_of_pieces(chip: SimpleNamespace) -> None:
    """8 bytes per lane and k-step: storing k4 before k2 lets one b128 serve two steps, at the price of b64 writes."""
    choice = choose_place(TILE, 2, gemm(chip, NATURAL), **chip.gfx942)
    read, write = choice.accesses
    assert choice.conflict_free and choice.place.injective()
    assert (read.plan.bytes, write.plan.bytes) == (16, 8)  # type: ignore[union-attr]


def test_gfx942_v_prefers_8_lanes_along_d_and_two_xor_terms(chip: SimpleNamespace) -> None:
    """V is written transposed, 4 kv x 8 d per lane. With 16 lanes along d a b64 write takes 64 cycles; with 8 lanes
    and pieces in the order kv0 kv1 kv3 kv2, both are ideal: 4 cycles per write, 8 per read of two k-steps."""
    read = spec(D="l0 l1 l2 l3 l4 r0 r1", K="e0 e1 l5 r2 r3 r4")
    sixteen = spec(D="r0 r1 r2 l0 l1 l2 l3", K="e0 e1 l4 l5 w0 w1")
    eight = spec(D="r0 r1 r2 l0 l1 l2 w0", K="e0 e1 l4 l3 l5 w1")
    assert bank_cycles(row_major({"D": 128, "K": 64}, 2, xor=((3, 4, 3),)), sixteen, 8, (1, 2, 4, 8), 32) == 64

    def uses(copy):  # type: ignore[no-untyped-def]
        return [
            SharedAccess("V", "read", read, waves=4, atoms=chip.vectors),
            SharedAccess("copy", "write", copy, waves=4, atoms=chip.vectors),
        ]

    first, choice = (choose_place({"D": 128, "K": 64}, 2, uses(copy), **chip.gfx942) for copy in (sixteen, eight))
    assert first.total > choice.total and choice.conflict_free and choice.place.xor == ((3, 4, 3), (3, 4, 6))
    reads, writes = choice.accesses
    assert (reads.plan.bytes, reads.cycles) == (16, (8, 8)) and (writes.plan.bytes, writes.cycles) == (8, (4,))  # type: ignore[union-attr]
    assert [(p.low, p.extent) for p in choice.place.pieces if p.dim == "K"] == [(16, 4), (4, 2), (8, 2), (1, 4)]


@pytest.mark.parametrize("rows", [64, 128])
def test_rows_of_sixteen_lanes_and_single_elements_are_free_of_conflicts(chip: SimpleNamespace, rows: int) -> None:
    """V stored an element at a time, 8 along D per lane, and read 4 along K by lanes that have a row each: a row of 128
    bytes has sixteen places for what sixteen lanes read, so four bits of the row's number choose among them."""
    above = {64: "r3", 128: "r3 r4"}[rows]
    read = spec(D="l0 l1 l2 l3 l4", K="e0 e1 l5")
    copy = spec(D=f"r0 r1 r2 l0 l1 {above}", K="l2 l3 l4 l5 w0 w1")
    uses = [
        SharedAccess("V", "read", read, waves=4, trips=rows // 2, atoms=chip.vectors),
        SharedAccess("copy", "write", copy, waves=4, atoms=chip.vectors),
    ]
    choice = choose_place({"D": rows, "K": 64}, 2, uses, **chip.gfx942)
    reads, writes = choice.accesses
    assert choice.conflict_free and choice.place.injective() and choice.place.bytes == rows * 128
    assert (reads.plan.bytes, reads.cycles) == (8, (4,)) and (writes.plan.bytes, writes.cycles) == (2, (2,))  # type: ignore[union-attr]
    assert writes.registers == 8, "what further bits choose is the same for a lane's own rows"


def test_sm_80_operands_are_free_of_conflicts_with_ldmatrix(chip: SimpleNamespace) -> None:
    a = spec(M="l2 l3 l4 e1 r0 w0", K="e0 l0 l1 e2 r1 r2")
    b = spec(N="l2 l3 l4 r0 r1 w0", K="e0 l0 l1 e1 r2 r3")
    copy = spec(K="e0 e1 e2 l0 l1 l2", M="l3 l4 w0 w1 r0 r1")
    for dims, fragment, atom in (("MK", a, "ldmatrix.x4"), ("NK", b, "ldmatrix.x4"), ("KN", b, "ldmatrix.x4.trans")):
        write = copy.relabel({"M": dims[0], "K": dims[1]})
        accesses = [
            SharedAccess("operand", "read", fragment, waves=4, atoms=chip.ldmatrix + chip.vectors),
            SharedAccess("copy", "write", write, waves=4, atoms=chip.vectors, mechanism="cp_async16"),
        ]
        choice = choose_place({dims[0]: 64, dims[1]: 64}, 2, accesses, slots=4, **chip.sm_80)
        assert choice.place.xor == ((3, 4, 3),) and choice.place.total_bytes == 4 * 8192
        assert choice.accesses[0].plan.atom.name == atom and choice.accesses[0].instructions == 8  # type: ignore[union-attr]
        assert choice.accesses[0].cycles == (4,) and choice.accesses[1].cycles == (4,)


def test_tma_and_wgmma_accept_only_their_swizzles(chip: SimpleNamespace) -> None:
    both = [SharedAccess("a", "read", None, mechanism="wgmma"), SharedAccess("a", "write", None, mechanism="tma")]
    narrow = choose_place({"M": 128, "K": 64}, 2, both, **chip.sm_80)
    assert narrow.place.xor == ((3, 4, 3),) and len(narrow.place.pieces) == 2 and narrow.place.bytes == 128 * 128
    wide = choose_place({"K": 64, "N": 128}, 2, both, **chip.sm_80)
    assert [(p.dim, p.low, p.stride) for p in wide.place.pieces] == [("N", 64, 8192), ("K", 1, 128), ("N", 1, 2)]
    for place in chain(*candidates({"M": 128, "K": 48}, 2, both)):
        assert place.xor in ((), ((1, 4, 3),)) and place.injective()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("extents", [{"M": 64, "K": 64}, {"M": 96, "K": 96}, {"M": 48, "K": 80}, {"K": 176, "M": 16}])
def test_candidates_are_injective_and_legal(chip: SimpleNamespace, mechanism: str, extents: dict[str, int]) -> None:
    rule = MECHANISMS[mechanism]
    accesses = [SharedAccess("copy", "write", None, mechanism=mechanism)]
    groups = candidates(extents, 2, accesses)
    assert any(groups)
    for place in chain(*groups):
        assert place.injective() and place.extents == extents, place
        assert all(1 << m >= rule.granule for _, m, _ in place.xor)
        assert rule.xors is None or all(x in rule.xors for x in place.xor)
        if not rule.padded:
            assert place.bytes - extents["M"] * extents["K"] * 2 < place.window + 16


def test_sizes_that_are_no_powers_of_two_get_panels(chip: SimpleNamespace) -> None:
    """96 x 96: 192-byte rows cannot be swizzled, three panels of 64-byte rows can."""
    fragment = make_layout(
        spec(M="l0 l1 l2 l3 r0", K="e0 e1 e2 l4 l5"), (Digit("reg", 3, "K", 1), Digit("wave", 3, "M", 1))
    )
    accesses = [SharedAccess("A", "read", fragment, waves=3, atoms=chip.vectors)]
    choice = choose_place({"M": 96, "K": 96}, 2, accesses, **chip.gfx942)
    assert choice.conflict_free and choice.place.bytes == 96 * 192 and choice.accesses[0].plan.bytes == 16  # type: ignore[union-attr]


def test_the_choice_does_not_depend_on_what_was_asked_before(chip: SimpleNamespace) -> None:
    first = choose_place(TILE, 2, gemm(chip), **chip.gfx942)
    other = SharedAccess("x", "read", spec(M="l0 l1", K="e0"), atoms=chip.vectors)
    choose_place({"M": 32, "K": 32}, 4, [other], **chip.gfx942)
    again = choose_place(TILE, 2, gemm(chip), **chip.gfx942)
    assert first == again and first.explain() == again.explain()
    assert "4 x b128, 8 cycles each (ideal 8), 2 address registers" in first.explain()


def test_costs_kept_from_another_search_change_no_choice(chip: SimpleNamespace) -> None:
    first, second = gemm(chip)
    assert choose_place(TILE, 2, [first], **chip.gfx942) and first.costs
    assert choose_place(TILE, 2, [first, second], **chip.gfx942) == choose_place(TILE, 2, gemm(chip), **chip.gfx942)


def test_a_limit_changes_no_choice_below_it(chip: SimpleNamespace) -> None:
    free = choose_place(TILE, 2, gemm(chip), **chip.gfx942)
    assert free is not None
    for limit in (free.total, 2 * free.total):
        assert choose_place(TILE, 2, gemm(chip), limit=limit, **chip.gfx942) == free
    for limit in (0.99 * free.total, 0.0, -1.0):
        assert choose_place(TILE, 2, gemm(chip), limit=limit, **chip.gfx942) is None
    with pytest.raises(ConstraintError, match="exceeds the 65536 bytes"):
        choose_place(TILE, 2, gemm(chip), slots=9, limit=1.0, **chip.gfx942)


TRANSPOSED = [
    SharedAccess("fragments", "read", spec(D="l0 l1 l2 l3 l4 r0 r1", K="e0 e1 l5 r2 r3 r4"), 16, 4),
    SharedAccess("copy", "write", spec(D="r0 r1 r2 l0 l1 l2 w0", K="e0 e1 l4 l3 l5 w1"), 16, 4),
    SharedAccess("singles", "write", spec(D="r0 r1 r2 l0 l1 l2 l3", K="e0 e1 l4 l5 w0 w1"), 3, 2),
]


@pytest.mark.parametrize("tile", ["gemm", "natural", "transposed"])
def test_what_no_place_goes_below_changes_no_choice(
    chip: SimpleNamespace, tile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what accesses cost at least, places are given up earlier where dear accesses come last; the choice stays."""

    def accesses() -> list[SharedAccess]:
        if tile == "transposed":
            return [replace(a, atoms=chip.vectors) for a in reversed(TRANSPOSED)]
        return gemm(chip, NATURAL if tile == "natural" else WIDE)

    def asked(given: list[SharedAccess]) -> int:
        return sum(len(a.costs) for a in given)

    extents = {"D": 128, "K": 64} if tile == "transposed" else TILE
    with_bounds = accesses()
    best = choose_place(extents, 2, accesses(), issue=4.0, **chip.gfx942)
    assert best is not None
    found = choose_place(extents, 2, with_bounds, issue=4.0, limit=best.total, **chip.gfx942)
    phases = chip.gfx942["phases"]
    for access in with_bounds:
        least = shared_search._least(access, 2, phases, 4.0)
        for cost in filter(None, access.costs.values()):
            assert least <= access.trips * (access.waves * cost.worst + 4.0 * cost.instructions)
    monkeypatch.setattr(shared_search, "_least", lambda *_: 0.0)
    without = accesses()
    assert choose_place(extents, 2, without, issue=4.0, limit=best.total, **chip.gfx942) == found
    assert asked(with_bounds) < asked(without) if tile == "transposed" else asked(with_bounds) == asked(without)


def test_what_does_not_fit_is_said(chip: SimpleNamespace) -> None:
    with pytest.raises(ConstraintError, match="M=64 x K=64 elements of 2 bytes, 9 times, exceeds the 65536 bytes"):
        choose_place(TILE, 2, gemm(chip), slots=9, **chip.gfx942)
    with pytest.raises(CompileError, match="serves all of: A"):
        choose_place(TILE, 2, [SharedAccess("A", "read", WIDE, atoms=())], **chip.gfx942)
    with pytest.raises(CompileError, match="unknown mechanism"):
        SharedAccess("A", "read", WIDE, mechanism="pigeon")
    with pytest.raises(CompileError, match="serves all of: A") as error:
        choose_place(TILE, 2, [SharedAccess("A", "read", spec(N="l0 e0"), atoms=chip.vectors)], **chip.gfx942)
    assert "no dimension N" in error.value.hint


# ---- direct-to-LDS copies --------------------------------------------------------------------------------------------


def test_source_of_a_linear_copy_is_the_swizzle_inverted() -> None:
    """buffer_load_dword lds: lane l lands at 4*l; two 128-byte rows per instruction, 4 waves."""
    place = row_major(TILE, 2, xor=((3, 4, 3),))
    chunk = spec(a="u0 u1 l0 l1 l2 l3 l4 l5 w0 w1 r0 r1 r2")
    source = dma_source(place, chunk)
    drives = {
        name_of(b): sorted(name_of(o) for j, o in enumerate(source.outs) if c >> j & 1)
        for b, c in zip(source.ins, source.cols)
        if kind_of(b) in "lw"
    }
    assert drives == {
        "l0": ["K1"], "l1": ["K2"], "l2": ["K3"], "l3": ["K4"], "l4": ["K5"],
        "l5": ["K3", "M0"], "w0": ["K4", "M1"], "w1": ["K5", "M2"],
    }  # fmt: skip
    words = np.arange(1 << len(source.ins))
    image = source.apply(words)
    coords = {"M": np.zeros_like(words), "K": np.zeros_like(words), "z": np.zeros_like(words)}
    for j, o in enumerate(source.outs):
        coords[kind_of(o)] |= (image >> j & 1) << number_of(o)
    assert np.array_equal(place.address(coords) + coords["z"], chunk.apply(words))


def test_a_padded_place_cannot_be_filled_linearly() -> None:
    chunk = spec(a="u0 u1 l0 l1 l2 l3 l4 l5")
    with pytest.raises(CompileError, match="linear copy cannot fill it"):
        dma_source(row_major(TILE, 2, 144), chunk)
    with pytest.raises(CompileError, match="without gaps"):
        dma_source(row_major(TILE, 2, 256), chunk)


# ---- rows of column pairs


def pairs_of(rows: int, columns: int, lanes: int) -> Layout:
    """What a lane reads of a tile [K, N] for products of column pairs `lanes` words wide: two columns of 8 rows."""
    low = lanes.bit_length() - 1
    inner = spec(
        N="e0 " + " ".join(f"l{i}" for i in range(low)), K="e1 e2 e3 " + " ".join(f"l{i}" for i in range(low, 6))
    )
    k, n = 1 << inner.width("K"), 2 * lanes
    digits = [Digit("reg", c, d, 1) for d, c in (("N", columns // n), ("K", rows // k)) if c > 1]
    return make_layout(inner, digits)


@pytest.mark.parametrize(("rows", "columns", "lanes"), [(64, 32, 16), (32, 64, 32), (32, 256, 32), (64, 192, 32)])
def test_a_lanes_own_rows_lie_whole_steps_apart(rows: int, columns: int, lanes: int) -> None:
    """So two reads of one word each are one instruction wherever the tile lies; and a lane's columns beside the first
    two do too, 64 columns further."""
    layout = pairs_of(rows, columns, lanes)
    found = rows_apart({"K": rows, "N": columns}, 2, layout)
    assert found and all(p.injective() and p.bytes == rows * columns * 2 for p in found)
    for place in found:
        for element in range(0, layout.elements_per_lane, 2):
            at = place.linear_address(layout.coords(element))
            assert at % 256 == 0 and place.swizzle(at) == at


def test_rows_that_are_no_power_of_two_have_no_such_place() -> None:
    layout = pairs_of(64, 64, 16)
    assert rows_apart({"K": 48, "N": 64}, 2, layout) == []
    assert rows_apart({"K": 64, "N": 24}, 2, layout) == []


def test_padding_keeps_what_copies_store_whole() -> None:
    """Rows of 48 half-precision numbers that lanes read two apart: 8 bytes of padding would be free of conflicts, but
    asynchronous copies store 16 bytes at an address that must be a multiple of 16."""
    chip = get_target("sm_80")
    fragment = spec(N="e1 l2 l3 l4", K="e0 l0 l1 r0 r1")
    read = SharedAccess("fragments", "read", fragment, atoms=tuple(a for a in VECTOR_ATOMS if a.bytes == 4))
    plans = {"N": SimpleNamespace(waves=1, wave=16), "K": SimpleNamespace(waves=1, wave=48)}

    def pitch(mechanism: str) -> int:
        copy = SharedAccess("copy", "write", None, mechanism=mechanism)
        found = _plain_place({"N": 16, "K": 48}, 2, [read, copy], chip, 1 << 16, 1, plans)  # type: ignore[arg-type]
        return next(p.stride for p in found.place.pieces if p.dim == "N")

    assert pitch("registers") == 104 and pitch("cp_async16") % 16 == 0
