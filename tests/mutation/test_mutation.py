"""Does the emulator notice? Each example is broken in one place at a time; every break must be found or be harmless.

The default run takes a covering sample; `-m slow` takes everything, cut into parts that pytest-xdist can spread.
docs/mutation.md holds the table of a full run.
"""

from __future__ import annotations

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


@pytest.mark.parametrize("target", trial.TARGETS)
def test_proofs_refuse_what_runs_expose(target: str):
    """A proof must not cover a mutant that is wrong: the provers are given mutants that a run has found."""
    accepted = []
    for name in ("copy", "mma", "small"):
        case = trial.case(name, target)
        for mutant in net.mutants_of(name, target)[::9]:
            how = trial.verdict(case, mutant.text)
            if how not in (None, "unsupported", "refused", "endless") and net.proofs.prove(case, mutant) is not None:
                accepted.append(f"{name}: {how}: {mutant}")
    assert not accepted, "\n".join(accepted)
