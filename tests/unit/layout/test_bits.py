"""Linear maps: algebra against evaluation, names, the fragment strings of every matrix instruction."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.bits import Bits, bit, name_of, parse_bit, rank, spec, unify_k

GOLDEN = Path(__file__).parents[2] / "golden" / "layout"


@st.composite
def invertible(draw: st.DrawFn, kind: str = "l", dim: str = "M", width: int | None = None) -> Bits:
    """A random bijection, made of elementary column operations on the identity."""
    n = width if width is not None else draw(st.integers(1, 8))
    cols = [1 << i for i in draw(st.permutations(range(n)))]
    for i, j in draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=12)):
        if i != j:
            cols[i] ^= cols[j]
    return Bits([bit(kind, i) for i in range(n)], [bit(dim, i) for i in range(n)], cols)


@given(invertible())
def test_the_inverse_undoes_the_map(a: Bits) -> None:
    words = np.arange(1 << len(a.ins))
    assert a.bijective()
    assert np.array_equal(a.inverse().apply(a.apply(words)), words)
    assert a.then(a.inverse()).cols == tuple(1 << i for i in range(len(a.ins)))
    assert a.inverse().inverse() is a


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(invertible("l", "M", n), invertible("M", "a", n))))
def test_composition_is_application_in_turn(pair: tuple[Bits, Bits]) -> None:
    first, second = pair
    words = np.arange(1 << len(first.ins))
    assert np.array_equal(first.then(second).apply(words), second.apply(first.apply(words)))
    assert first.then(second).inverse() is second.inverse().then(first.inverse())


@given(st.lists(st.integers(0, 255), max_size=10))
def test_rank_counts_the_image(columns: list[int]) -> None:
    image = {0}
    for c in columns:
        image |= {x ^ c for x in image}
    assert len(image) == 1 << rank(columns)


@given(invertible())
def test_word_by_word_equals_vectorised(a: Bits) -> None:
    words = range(1 << len(a.ins))
    assert [a(w) for w in words] == a.apply(np.arange(len(words))).tolist()


def test_equal_maps_are_one_object_even_after_pickling() -> None:
    a = spec(M="l0 l1 |r0 |w0", K="e0 e1 l2 l3")
    assert spec({"M": "l0 l1 r0 w0", "K": "e0 e1 l2 l3"}) is a
    assert pickle.loads(pickle.dumps(a)) is a
    with pytest.raises(AttributeError):
        a.cols = ()  # type: ignore[misc]


def test_dimensions_whose_names_end_in_digits_stay_apart() -> None:
    assert name_of(bit("N1", 3)) == "N1.3" and parse_bit("N1.3") == bit("N1", 3) != parse_bit("N13")
    both = spec({"N": "l0 " * 1 + "l1", "N1": "e0 e1"})
    assert both.dims == ("N", "N1") and both.at(e=3, l=1) == {"N": 1, "N1": 3}


@pytest.mark.parametrize("text", ["l", "3", "", "l.x"])
def test_a_malformed_bit_name_is_refused(text: str) -> None:
    with pytest.raises(CompileError, match="not a bit name"):
        parse_bit(text)


def test_what_has_no_inverse_says_so() -> None:
    with pytest.raises(CompileError, match="rank is 1 of 2"):
        Bits(("l0", "l1"), ("M0", "M1"), (1, 1)).inverse()
    with pytest.raises(CompileError, match="1 input bits, 2 output bits"):
        spec(M="l0 0").inverse()
    with pytest.raises(CompileError, match="not monomial"):
        spec(M="l0^l1 l1").src()


def test_xor_terms_and_unused_coordinates_in_strings() -> None:
    a = spec(M="l0^l1 0 l1", free="l2")
    assert a.at(l=0b010) == {"M": 0b101} and a.at(l=0b111) == {"M": 0b100}
    assert repr(a) == '<M="l0^l1 0 l1" free=l2>'


# ---- matrix instructions ---------------------------------------------------------------------------------------------

MFMA = json.loads((GOLDEN / "mfma_fragments.json").read_text())


@pytest.mark.parametrize("row", MFMA, ids=lambda r: r["instructions"][0].split("_f32_")[-1])
def test_every_mfma_port_is_a_monomial_bijection_of_its_shape(row: dict) -> None:
    """The strings were read off the tables of AMD's matrix instruction calculator (all rows of three chips)."""
    m, n, k, blocks = row["shape"]
    for port, sizes in (("A", {"M": m, "K": k}), ("B", {"N": n, "K": k}), ("D", {"M": m, "N": n})):
        fragment = spec(row[port])
        assert fragment.bijective() and fragment.monomial()
        covered = {d: 1 << fragment.width(d) for d in (*sizes, "B")}
        assert covered == {**sizes, "B": blocks}


@pytest.mark.parametrize("row", [r for r in MFMA if r["shape"][3] == 1], ids=lambda r: str(r["shape"]))
def test_single_block_mfma_follow_the_written_formulas(row: dict) -> None:
    """A, B: row l % M, k = KL*(l/M) + e; D 16x16 row 4*(l/16) + r (f64: l/16 + 4r), 32x32 8*(r/4) + 4*(l/32) + r%4."""
    m, n, k, _ = row["shape"]
    for port, name, rows in (("A", "M", m), ("B", "N", n)):
        fragment = spec(row[port])
        per_lane = rows * k // 64
        for lane in range(64):
            for e in range(per_lane):
                got = fragment.at(l=lane, e=e)
                assert got[name] == lane % rows
                chunked = per_lane == 32 and "l" in row[port]["K"].split()[4]
                expect = (16 * (64 // rows) * (e // 16) + 16 * (lane // rows) + e % 16) if chunked else (
                    per_lane * (lane // rows) + e
                )
                assert got.get("K", 0) == expect
    d = spec(row["D"])
    for lane in range(64):
        for r in range(m * n // 64):
            got = d.at(l=lane, e=r)
            assert got["N"] == lane % n
            if m == 32:
                assert got["M"] == 8 * (r // 4) + 4 * (lane // 32) + r % 4
            else:
                assert got["M"] in (4 * (lane // 16) + r, lane // 16 + 4 * r)


def a16(l: int, e: int) -> tuple[int, int]:
    return l // 4 + 8 * (e >> 1 & 1), 2 * (l % 4) + e % 2 + 8 * (e >> 2)


def b16(l: int, e: int) -> tuple[int, int]:
    return l // 4, 2 * (l % 4) + e % 2 + 8 * (e >> 1)


def c(l: int, e: int) -> tuple[int, int]:
    return l // 4 + 8 * (e >> 1), 2 * (l % 4) + e % 2


def a_tf32(l: int, e: int) -> tuple[int, int]:
    return l // 4 + 8 * (e & 1), l % 4 + 4 * (e >> 1)


def a8(l: int, e: int) -> tuple[int, int]:
    return l // 4 + 8 * (e >> 2 & 1), 4 * (l % 4) + e % 4 + 16 * (e >> 3)


def b8(l: int, e: int) -> tuple[int, int]:
    return l // 4, 4 * (l % 4) + e % 4 + 16 * (e >> 2)


g = "l2 l3 l4"
MMA = {
    "m16n8k16 f16 A": (spec(M=f"{g} e1", K="e0 l0 l1 e2"), a16),
    "m16n8k16 f16 B": (spec(N=g, K="e0 l0 l1 e1"), b16),
    "m16n8 C": (spec(M=f"{g} e1", N="e0 l0 l1"), c),
    "m16n8k8 tf32 A": (spec(M=f"{g} e0", K="l0 l1 e1"), a_tf32),
    "m16n8k32 i8 A": (spec(M=f"{g} e2", K="e0 e1 l0 l1 e3"), a8),
    "m16n8k32 i8 B": (spec(N=g, K="e0 e1 l0 l1 e2"), b8),
    "m8n8k4 f64 A": (spec(M=g, K="l0 l1"), lambda l, e: (l // 4, l % 4)),
}
"""PTX fragments by lane l and element e, (row, k) or (n, k) or (row, column), as the ISA manual writes them."""


@pytest.mark.parametrize("name", MMA)
def test_mma_sync_fragments_equal_the_written_formulas(name: str) -> None:
    fragment, formula = MMA[name]
    assert fragment.bijective() and fragment.monomial()
    for lane in range(32):
        for e in range(1 << fragment.count("e")):
            assert tuple(fragment.at(l=lane, e=e).values()) == formula(lane, e)


# ---- the free contraction index (attention: registers of S used as operand P) ----------------------------------------

D16 = spec(M="e0 e1 l4 l5", N="l0 l1 l2 l3")
S16, S32 = spec(K="e0 e1 l4 l5", N="l0 l1 l2 l3"), spec(K="e0 e1 l5 e2 e3", N="l0 l1 l2 l3 l4")
WGMMA_S = spec(M="l2 l3 l4 e1 l5 l6", K="e0 l0 l1 e2 e3 e4 e5 e6")


@pytest.mark.parametrize(
    ("producer", "port", "moved"),
    [
        (S16, spec(N="l0 l1 l2 l3", K="e0 e1 l4 l5"), {}),
        (S32, spec(N="l0 l1 l2 l3 l4", K="e0 e1 l5"), {}),
        (S32, spec(N="l0 l1 l2 l3 l4", K="e0 e1 e2 l5"), {"K2": "K3", "K3": "K2"}),
        (WGMMA_S, spec(M="l2 l3 l4 e1 l5 l6", K="e0 l0 l1 e2"), {}),
        (WGMMA_S, spec(M="l2 l3 l4 e2 l5 l6", K="e0 e1 l0 l1 e3"), {"K1": "K3", "K2": "K1", "K3": "K2"}),
    ],
    ids=["gfx942 16x16x16", "gfx942 32x32x8", "gfx950 32x32x16", "sm_90a f16", "sm_90a fp8"],
)
def test_attention_feeds_p_from_registers_under_a_permutation_of_k(producer: Bits, port: Bits, moved: dict) -> None:
    found = unify_k(producer, port, "K")
    assert found is not None
    pi, registers = found
    assert {name_of(a): name_of(b) for a, b in pi.items() if a != b} == moved
    # meaning: port element e of a lane, at K index k, is the producer's register at K index pi(k), same lane, same row
    row = next(d for d in port.dims if d != "K")
    for lane in range(64):
        for e in range(1 << port.count("e")):
            held = 0
            for b, r in registers.items():
                held |= (e >> (b & 63) & 1) << (r & 63)
            want, have = port.at(l=lane, e=e), producer.at(l=lane, e=held)
            assert have[row] == want[row]
            assert have["K"] == sum((want["K"] >> (a & 63) & 1) << (b & 63) for a, b in pi.items())


def test_fp8_p_has_the_published_k_order() -> None:
    pi, _ = unify_k(WGMMA_S, spec(M="l2 l3 l4 e2 l5 l6", K="e0 e1 l0 l1 e3"), "K") or ({}, {})
    order = [sum((k >> (a & 63) & 1) << (b & 63) for a, b in pi.items()) for k in range(16)]
    assert order == [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]


def test_lanes_that_disagree_cannot_be_unified() -> None:
    unswapped = D16.relabel({"N": "K"})
    assert unify_k(unswapped, spec(M="l0 l1 l2 l3", K="e0 e1 l4 l5"), "K") is None


@settings(max_examples=20)
@given(st.permutations(range(5)))
def test_unified_registers_give_the_same_product(order: list[int]) -> None:
    """gfx950: S's registers used unmoved as operand P, V read through pi: the sum over K equals V^T P for any V, P."""
    port_b, port_a = spec(N="l0 l1 l2 l3 l4", K="e0 e1 e2 l5"), spec(M="l0 l1 l2 l3 l4", K="e0 e1 e2 l5")
    rng = np.random.default_rng(order)
    p, v = rng.integers(-9, 9, (32, 32)), rng.integers(-9, 9, (32, 32))
    pi, _ = unify_k(S32, port_b, "K") or ({}, {})
    total = np.zeros((32, 32), int)
    for step in range(2):
        a, b = np.zeros((32, 16), int), np.zeros((16, 32), int)
        for lane in range(64):
            for e in range(8):
                at = port_a.at(l=lane, e=e)
                kv = 16 * step + sum((at["K"] >> (x & 63) & 1) << (y & 63) for x, y in pi.items())
                a[at["M"], at["K"]] = v[kv, at["M"]]
                held, to = S32.at(l=lane, e=8 * step + e), port_b.at(l=lane, e=e)
                b[to["K"], to["N"]] = p[held["K"], held["N"]]
        total += a @ b
    assert np.array_equal(total, v.T @ p)
