"""Does the emulator notice? Each example is broken in one place at a time; every break must be found or be harmless.

The default run takes a covering sample; `-m exhaustive` takes everything, cut into parts that pytest-xdist can spread.
docs/mutation.md holds the table of a full run.
"""

from __future__ import annotations

from unittest import mock

import net
import pytest
import trial

PARTS = 4
SAMPLE = 10
"""Mutants per example and target in the default run."""
PLACES = [(name, target) for target in trial.TARGETS for name in trial.CASES]


def expect_accounted(name: str, target: str, chosen: list[net.Mutant]) -> None:
    """Fails with every mutant that nothing accounts for."""
    loose = [str(m) for m in chosen if net.fate(name, target, m).how == "open"]
    assert not loose, f"{len(loose)} mutants of {name} on {target} survive without a reason:\n" + "\n".join(loose)


@pytest.mark.parametrize(("name", "target"), PLACES)
def test_the_unbroken_text_is_clean(name: str, target: str):
    case = trial.case(name, target)
    assert trial.verdict(case, case.asm) is None


@pytest.mark.parametrize(("name", "target"), PLACES)
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("name", "target"), PLACES)
def test_proofs_refuse_all_that_runs_expose(name: str, target: str, part: int):
    wrong = wrongly_proven(name, target, list(net.mutants_of(name, target)[part::PARTS]))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "target", "before", "after"), [
    # what a run with one placement of arrays, or one set of numbers, did not show
    ("gemm", "gfx942", "s_mov_b32               s4, 0\n", "\n"),
    ("small", "gfx950", "s_and_b32               s5, s5, 0xffff", "s_and_b32 s5, s5, 0xfffe"),
    ("gemm", "gfx90a", "v_mov_b32               v9, 0\n", "v_mov_b32 v9, 2\n"),
    ("ragged", "gfx90a", "v_mov_b32               v4, 0\n", "\n"),
    ("ragged", "sm_80", "mov.b32                    %r123, 0;", ""),
    # what chips leave undefined
    ("waves16", "gfx942", "s_mov_b32               s14, 0x8000", "s_mov_b32 s14, 0x7fff"),
    ("gemm", "gfx950", "s_mov_b32               s3, s7", "s_mov_b32 s3, s6"),
    ("small", "sm_80", "[%rd7+256], 16, %r135", "[%rd7+257], 16, %r135"),
])  # fmt: skip
def test_defects_that_were_missed_once(name: str, target: str, before: str, after: str):
    case = trial.case(name, target)
    assert before in case.asm
    at = case.asm.rindex(before) if "\n" in before else case.asm.index(before)
    text = case.asm[:at] + after + case.asm[at + len(before) :]
    with mock.patch.object(trial, "CPU_LIMIT", 1.0):
        assert trial.verdict(case, text) is not None
