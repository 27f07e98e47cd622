"""Names of bytes: are equal names equal bytes for all data, and do names depend on all that bytes depend on?"""

from __future__ import annotations

import re

import names
import numpy as np
import order
import pytest
import sums
import terms
import trial

SHORT = ("copy", "mma")


def marks(place: int, name: str) -> list[pytest.MarkDecorator]:
    """The default run takes the short examples, CI every third of the others too."""
    if name in SHORT:
        return []
    return [pytest.mark.slow, pytest.mark.exhaustive] if place % 3 else [pytest.mark.slow]


PLACES = [pytest.param(name, target, marks=marks(i, name)) for i, (name, target) in enumerate(trial.PLACES)]


def recorded(case: trial.Case, text: str, data: int = 0, marked: frozenset[int] = frozenset()) -> terms.Recorder:
    r = terms.Recorder(writes=[], marked=marked)
    terms.record(case, text, r, data)
    return r


def stores(r: terms.Recorder) -> dict[int, tuple[int, int]]:
    """Address → names of place and byte."""
    place, address, what = (np.concatenate([s[i] for s in r.stores]) for i in range(3))
    return dict(zip(address.tolist(), zip(place.tolist(), what.tolist())))


# ---- whole runs


@pytest.mark.parametrize(("name", "target"), PLACES)
def test_equal_names_are_equal_bytes(name: str, target: str):
    """In every run, whatever the data: a name has one value, and a known byte (`Recorder.wrote`) the one it says."""
    case = trial.case(name, target)
    seen = []
    for data in range(len(case.data) if name in (*SHORT, "small") else 1):
        r = recorded(case, case.asm, data)
        assert r.writes
        pairs = np.stack([np.concatenate([w[i] for w in r.writes]) for i in range(2)], axis=1)
        pairs = np.unique(pairs, axis=0)
        assert (pairs[1:, 0] != pairs[:-1, 0]).all()
        seen.append(stores(r))
    assert all(s == seen[0] for s in seen), "names depend on data"


@pytest.mark.parametrize(("name", "target"), PLACES)
def test_a_text_is_the_same_as_itself(name: str, target: str):
    case = trial.case(name, target)
    first, again = terms.outcome(case, case.asm), terms.outcome(case, case.asm)
    assert first.same(again) and first.conflicts == 0
    assert len(first.stores) == case.data[0].outputs[-1].nbytes


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *(("mma", target) for target in trial.TARGETS),
        *(
            pytest.param("small", target, marks=pytest.mark.slow if target == "gfx942" else pytest.mark.exhaustive)
            for target in trial.TARGETS
        ),
        ("pairs", "gfx942"),
    ],
)
def test_names_depend_on_what_numbers_depend_on(name: str, target: str):
    """Change one element of an input: the bytes of the output that change are in the row or column whose names do."""
    case = trial.case(name, target)
    a, b, c = case.data[0].inputs
    rng = np.random.default_rng(5)
    plain = recorded(case, case.asm)
    names_before = stores(plain)
    bases = [low for low, _ in sorted(plain.arrays)]
    rows, columns = c.shape
    for which, array in enumerate((a, b)):
        i, k = int(rng.integers(array.shape[0])), int(rng.integers(array.shape[1]))
        offset = i * array.strides[0] + k * array.strides[1]
        marked = frozenset(bases[which] + offset + x for x in range(array.itemsize))
        after = stores(recorded(case, case.asm, marked=marked))
        renamed = np.array([after[bases[2] + x] != names_before[bases[2] + x] for x in range(c.nbytes)])
        want = np.zeros(c.shape, bool)
        want[(i, slice(None)) if which == 0 else (slice(None), i)] = True
        assert (renamed.reshape(rows, columns, 4).all(axis=2) == want).all()
        assert (renamed.reshape(rows, columns, 4).any(axis=2) == want).all()


@pytest.mark.parametrize("target", trial.TARGETS)
def test_the_recorded_run_is_the_real_one(target: str):
    """The rows and columns of the test above are those of the product that the emulator computes."""
    case = trial.case("mma", target)
    assert trial.equal(case.data[0], trial.execute(case, case.asm, 0, checks=False))


def before_first(case: trial.Case, pattern: str, lines: str) -> str:
    """The text with lines put before the first instruction that a pattern matches; `\\1` … in them are its groups."""
    found = re.search(rf"^[ \t]*{pattern}", case.asm, re.MULTILINE)
    assert found is not None
    return case.asm[: found.start()] + found.expand(lines) + case.asm[found.start() :]


def test_a_lost_wait_in_ptx_is_refused():
    case = trial.case("small", "sm_80")
    last = case.asm.index("cp.async.wait_group")
    text = case.asm[:last] + case.asm[last:].replace("cp.async.wait_group", "// cp.async.wait_group", 1)
    with pytest.raises(names.Unknown, match="before it is waited for"):
        terms.outcome(case, text)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_a_lost_barrier_is_a_conflict(target: str):
    case = trial.case("small", target)
    barrier = "s_barrier" if target == "gfx942" else "bar.sync                   0;"
    assert barrier in case.asm
    assert terms.outcome(case, case.asm.replace(barrier, "", 1)).conflicts > 0


def test_a_smaller_buffer_is_another_program():
    case = trial.case("mma", "gfx942")
    whole = terms.outcome(case, case.asm)
    first = case.asm.index("0x200")
    larger = case.asm[:first] + "0x202" + case.asm[first + 5 :]
    smaller = case.asm[:first] + "0x1f0" + case.asm[first + 5 :]
    across = case.asm[:first] + "0x1fe" + case.asm[first + 5 :]
    assert whole.same(terms.outcome(case, larger)), "nobody asks for what is added"
    assert not whole.same(terms.outcome(case, smaller))
    with pytest.raises(names.Unknown, match="across the end"):
        terms.outcome(case, across)


def test_what_the_scalar_unit_loads_is_what_a_lane_would():
    """A word of A stored instead of a result: by either unit, from the same place and from another."""
    case = trial.case("mma", "gfx942")
    found = re.search(r"buffer_load_\w+\s+v\[?[\d:]+\]?, v\d+, (s\[\d+:\d+\])", case.asm)
    assert found is not None
    store = r"buffer_store_dwordx4\s+v\[(\d+):\d+\], v(\d+),"

    def outcome(lines: str) -> terms.Outcome:
        return terms.outcome(case, before_first(case, store, lines))

    scalar = outcome(f"\ts_buffer_load_dword s30, {found[1]}, 0x8\n\ts_waitcnt lgkmcnt(0)\n\tv_mov_b32 v\\1, s30\n")
    same, other = (
        outcome(f"\tbuffer_load_dword v\\1, off, {found[1]}, 0 offset:{at}\n\ts_waitcnt vmcnt(0)\n") for at in (8, 4)
    )
    assert scalar.same(same) and not scalar.same(other)


@pytest.mark.parametrize(("lines", "what"), [
    (r"\tv_mov_b32 v\2, v\1\n", "an address"),
    (r"\tv_cmp_lt_i32 vcc, v\1, v\2\n\ts_and_saveexec_b64 s[0:1], vcc\n", "EXEC"),
    (r"\tv_readfirstlane_b32 s0, v\1\n\ts_cmp_lt_i32 s0, 1\n\ts_cbranch_scc1 .Lx\n.Lx:\n", "a branch"),
])  # fmt: skip
def test_data_decides_nothing(lines: str, what: str):
    """A text that branches, masks or addresses by what it loads is refused."""
    case = trial.case("mma", "gfx942")
    text = before_first(case, r"buffer_store_dwordx4\s+v\[(\d+):\d+\], v(\d+),", lines)
    with pytest.raises(names.Unknown, match=f"{what} depends on data"):
        terms.outcome(case, text)


def test_a_write_that_may_happen_or_not():
    """EXEC made of an address: harmless around a write that nobody reads, refused around one that is read."""
    case = trial.case("mma", "gfx942")
    whole = terms.outcome(case, case.asm)
    write = r"(ds_write_b64)\s+(v\d+), (v\[\d+:\d+\]).*"
    around = "\ts_mov_b64 s[30:31], exec\n\ts_and_b64 exec, exec, s[4:5]\n\t{}\ts_mov_b64 exec, s[30:31]\n"
    found = re.search(rf"^\t{write}\n", case.asm, re.MULTILINE)
    assert found is not None
    line = found[0].strip() + "\n"
    text = case.asm.replace(found[0], around.format(line))
    assert not whole.same(terms.outcome(case, text))
    end = re.search(r"^\tbuffer_store_dwordx4.*\n", case.asm, re.MULTILINE)
    assert end is not None
    text = case.asm[: end.start()] + around.format(line) + case.asm[end.start() :]
    assert whole.same(terms.outcome(case, text))


def test_data_decides_no_guard_of_ptx():
    case = trial.case("mma", "sm_80")
    text = before_first(case, r"st\.global\S*\s+\[(%rd\d+)\], \{(%r\d+)", "    setp.lt.s32 %q, \\2, 3;\n    @%q ")
    with pytest.raises(names.Unknown, match="a guard depends on data"):
        terms.outcome(case, text.replace(".reg .b32", ".reg .pred %q;\n    .reg .b32", 1))


# ---- sums


def halves(*values: float) -> np.ndarray:
    return np.moveaxis(np.array(values, np.float16).view(np.uint8).reshape(-1, 2), -1, 0).astype(np.uint64)


def word(value: float) -> np.ndarray:
    return np.array(list(np.float32(value).tobytes()), np.uint64)


ZERO, MINUS_ZERO, OP = word(0.0), word(-0.0), names.label("op")
LOADED = names.spread(names.label("x"), 2)[:, None]
OTHER = names.spread(names.label("sum"), 4)


def element(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> list[int]:
    return sums.element(OP, c, a, b, word(7.0)).tolist()


def test_products_that_are_zero_are_left_out_of_a_sum_that_is_not_minus_zero():
    a, b = np.concatenate((LOADED, halves(0.0)), axis=1), np.concatenate((LOADED, halves(0.0)), axis=1)
    small = np.concatenate((LOADED, halves(2.0**-24)), axis=1)
    assert element(ZERO, a, b) == element(ZERO, small, b), "0 times anything finite"
    one = np.concatenate((LOADED, halves(1.0)), axis=1)
    assert element(ZERO, a, b) != element(ZERO, one, one)
    infinite = np.concatenate((LOADED, halves(np.inf)), axis=1)
    assert element(ZERO, a, b) != element(ZERO, infinite, b), "0 times infinity"
    unknown = np.concatenate((LOADED, LOADED), axis=1)
    assert element(ZERO, a, b) != element(ZERO, unknown, b), "0 times what may be infinite"


def test_a_sum_is_kept_by_zeros_only_if_it_is_not_minus_zero():
    nothing = halves(0.0, 0.0)
    total = np.array(element(ZERO, LOADED, LOADED), np.uint64)
    assert element(total, nothing, nothing) == total.tolist()
    assert element(OTHER, nothing, nothing) != OTHER.tolist(), "it may be -0, and -0 + 0 = 0"
    minus = np.array(element(MINUS_ZERO, LOADED, LOADED), np.uint64)
    assert element(minus, nothing, nothing) != minus.tolist()
    patched = np.concatenate((total[:3], np.array(element(ZERO, LOADED, halves(1.0)), np.uint64)[3:]))
    assert element(patched, nothing, nothing) != patched.tolist(), "bytes of two sums"
    assert element(ZERO, nothing, nothing) == word(7.0).tolist(), "all known: what the run holds"


def test_places_in_a_sum_matter():
    a, b = (np.concatenate(x, axis=1) for x in ((LOADED, halves(0.0)), (halves(0.0), LOADED)))
    assert element(ZERO, a, a) != element(ZERO, b, b), "the chip adds in an order of its own"


# ---- order


def access(writes: bool, actor: int, first: int, last: int, address: int, name: int = 1) -> order.Access:
    one = np.ones(1, np.int64)
    return order.Access(writes, 0 * one, actor * one, first * one, last * one, address * one, 2,
                        np.full((2, 1), name, np.uint64) if writes else None)  # fmt: skip


@pytest.mark.parametrize(("second", "conflict"), [
    (access(False, 1, 0, 0, 8), True),
    (access(False, 1, 0, 0, 9), True),
    (access(False, 1, 0, 0, 10), False),
    (access(False, 0, 0, 0, 8), False),
    (access(False, 1, 1, 1, 8), True),
    (access(False, 1, 2, 2, 8), False),
    (access(True, 1, 1, 1, 8), False),
    (access(True, 1, 1, 1, 8, 2), True),
    (access(True, 0, 1, 1, 8, 2), False),
    (access(True, 1, 2, 2, 8, 2), False),
])  # fmt: skip
def test_conflicts(second: order.Access, conflict: bool):
    """With a write by actor 0 of bytes 8 and 9 that is in flight in epochs 0 and 1."""
    assert (order.conflicts([access(True, 0, 0, 1, 8), second]) > 0) == conflict
    assert (order.conflicts([second, access(True, 0, 0, 1, 8)]) > 0) == conflict


def test_lanes_that_write_one_byte_differently_conflict():
    two = np.array([0, 0])
    for what, found in (([[1, 1]], 0), ([[1, 2]], 1)):
        a = order.Access(True, two, two, two, two, two + 4, 1, np.array(what, np.uint64))
        assert bool(order.conflicts([a])) == bool(found)
