"""Does the emulator notice? Each example is broken in one place at a time; every break must be found or be harmless.

The default run takes a covering sample; `-m exhaustive` takes everything, cut into parts that pytest-xdist can spread.
docs/mutation.md holds the table of a full run.
"""

from __future__ import annotations

import gc
import itertools
import re

import net
import pytest
import trial

PARTS = 4
SAMPLE = 6
"""Mutants per example and target, unless all are taken."""
PLACES = trial.PLACES
SPREAD = [pytest.param(*p, marks=pytest.mark.slow if i % 2 else []) for i, p in enumerate(PLACES)]
"""Every second place by default, all of them in CI."""


def expect_accounted(name: str, target: str, chosen: list[net.Mutant]) -> None:
    """Fails with every mutant that nothing accounts for."""
    loose = [str(m) for m in chosen if net.fate(name, target, m).how == "open"]
    assert not loose, f"{len(loose)} mutants of {name} on {target} survive without a reason:\n" + "\n".join(loose)


@pytest.mark.parametrize(("name", "target"), SPREAD)
def test_the_unbroken_text_is_clean(name: str, target: str):
    case = trial.case(name, target)
    assert trial.verdict(case, case.asm) is None


def test_time_of_the_collector_is_not_the_texts():
    """A collection of all that a test run holds took as long as a text may."""
    assert gc.isenabled()
    with pytest.raises(trial.Endless), trial.limited(0.05):
        while not gc.isenabled():
            pass
    assert gc.isenabled()


@pytest.mark.parametrize(("name", "target"), SPREAD)
def test_a_sample_of_mutants(name: str, target: str):
    everything = net.mutants_of(name, target)
    step = max(1, len(everything) // SAMPLE)
    first = PLACES.index((name, target)) % step
    expect_accounted(name, target, list(everything[first::step]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("name", "target"), PLACES)
def test_every_mutant(name: str, target: str, part: int):
    expect_accounted(name, target, list(net.mutants_of(name, target)[part::PARTS]))


def table() -> dict[tuple[str, str], list[int]]:
    """(example, target) → mutants, found, proven, listed, open, of docs/mutation.md."""
    rows = [[x.strip() for x in line.strip("|").split("|")] for line in net.TABLE.read_text().split("\n")]
    return {(r[0], r[1]): [int(x) for x in r[2:]] for r in rows if len(r) == 7 and r[2].isdigit()}


def test_nothing_is_open_in_the_table():
    rows = table()
    total = rows.pop(("**all**", ""))
    assert sorted(rows) == sorted(PLACES)
    assert total == [sum(column) for column in zip(*rows.values())]
    for everything, *fates in rows.values():
        assert everything == sum(fates) and fates[-1] == 0


def test_the_table_is_made_of_the_rows():
    assert net.TABLE.read_text() == net.table(net.stored())


@pytest.mark.exhaustive
def test_the_table_is_of_these_texts():
    """`python tests/mutation/net.py --changed` makes the rows again whose texts are others by now."""
    assert {(r.name, r.target): r.text for r in net.stored()} == {p: net.digest(*p) for p in PLACES}
    assert {p: row[0] for p, row in table().items() if p in PLACES} == {p: len(net.mutants_of(*p)) for p in PLACES}


def test_no_list_entry_is_stale():
    for where, group in net.listed().items():
        name, _, target = where.partition(" on ")
        for what in group:
            matching = [m for m in net.mutants_of(name, target) if net.key(m) == what]
            assert any(net.fate(name, target, m).how == "listed" for m in matching), f"{where}: {what} needs no entry"


def test_mutants_are_many_and_the_same_every_time():
    text = trial.case("gemm", "gfx942").asm
    first, second = (net.mutants.random_slips(text, 50, 3) for _ in range(2))
    assert [m.text for m in first] == [m.text for m in second]
    assert len({m.text for m in first}) == 50 and text not in {m.text for m in first}
    assert {m.kind for m in first} == set(net.mutants.KINDS)


@pytest.mark.parametrize("target", trial.TARGETS)
def test_each_kind_of_break_is_found_somewhere(target: str):
    """The net would pass if proofs accepted everything: of each kind of break, some must be found by running."""
    kinds: dict[str, list[net.Mutant]] = {}
    for m in net.mutants_of("small", target):
        kinds.setdefault(m.kind, []).append(m)
    case = trial.case("small", target)
    for kind, group in kinds.items():
        assert any(trial.verdict(case, m.text) for m in group[:12]), kind


NO_PROGRAM = ("unsupported", "refused", "endless")
"""Kinds of findings about texts that no proof gets to see."""


def wrongly_proven(name: str, target: str, chosen: list[net.Mutant]) -> list[str]:
    """Mutants that a run has found and a proof accepts nevertheless."""
    case = trial.case(name, target)
    out = []
    for mutant in chosen:
        how = trial.verdict(case, mutant.text)
        if how is not None and how not in NO_PROGRAM and net.proofs.prove(case, mutant) is not None:
            out.append(f"{name}: {how}: {mutant}")
    return out


@pytest.mark.parametrize("target", trial.TARGETS)
def test_proofs_refuse_what_runs_expose(target: str):
    """A proof must not cover a mutant that is wrong: the provers are given mutants that a run has found."""
    for name in ("copy", "mma", "small"):
        assert not (wrong := wrongly_proven(name, target, list(net.mutants_of(name, target)[::31]))), "\n".join(wrong)


@pytest.mark.parametrize("target", [pytest.param("gfx942", marks=pytest.mark.slow), "gfx950"])
def test_waits_for_copies_to_lds_are_not_proven_away(target: str):
    """No register waits for such a copy, only who reads its bytes behind the barrier: nor may it wait there instead."""
    case = trial.case("direct", target)
    waits = [m for m in net.mutants_of("direct", target) if m.kind.endswith("-wait") and "vmcnt" in m.what]
    for wait, barrier in itertools.pairwise(net.mutants.instructions(case.asm)):
        if "vmcnt" in wait.operands and barrier.mnemonic == "s_barrier":
            lines = case.asm.split("\n")
            lines[wait.line], lines[barrier.line] = lines[barrier.line], lines[wait.line]
            late = net.Mutant("swap-instructions", "wait <-> barrier", (wait.line, barrier.line), "\n".join(lines))
            waits.append(late)
    assert len(waits) >= 6
    assert not [str(m) for m in waits if net.proofs.prove(case, m) is not None]


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("name", "target"), PLACES)
def test_proofs_refuse_all_that_runs_expose(name: str, target: str, part: int):
    wrong = wrongly_proven(name, target, list(net.mutants_of(name, target)[part::PARTS]))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("pattern", "lines", "replace"), [
    # a bit of the high word of an array's address
    (r"buffer_load_dwordx4\s+v\[\d+:\d+\], \w+, s\[(\d+):", "s_and_b32 s{1}, s{1}, 0xfffe\n", False),
    # a sum that starts with the smallest denormal
    (r"(v_mfma\S+\s+.*), 0$", "{0}, 1\n", True),
])  # fmt: skip
def test_defects_that_need_the_right_run(pattern: str, lines: str, replace: bool):
    """What a run with one placement of arrays and one set of numbers does not show."""
    case = trial.case("mma", "gfx942")
    found = re.search(rf"^\t{pattern}.*\n" if not replace else rf"^\t{pattern}\n", case.asm, re.MULTILINE)
    assert found is not None
    number = int(found[1]) + 1 if not replace else 0
    new = "\t" + lines.format(found[1], number) + ("" if replace else found[0])
    assert trial.verdict(case, case.asm[: found.start()] + new + case.asm[found.end() :]) is not None
