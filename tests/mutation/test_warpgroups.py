"""Texts of sm_90a with one slip in what orders asynchronous agents: each is found, or shown to be as good.

The default run takes a covering sample; `-m exhaustive` takes all mutants of all cases.
"""

from __future__ import annotations

from dataclasses import replace

import broken
import mutants
import pytest
import warpgroups
from warpgroups import CASES

SAMPLE = 5
SPREAD = [pytest.param(name, marks=pytest.mark.slow if i % 3 else []) for i, name in enumerate(CASES)]


def open_ones(name: str, chosen: list[mutants.Mutant]) -> list[str]:
    return [str(m) for m in chosen if warpgroups.fate(name, m)[0] == "open"]


@pytest.mark.parametrize("name", SPREAD)
def test_a_sample_of_mutants(name: str) -> None:
    """Every so many of them, others for each case."""
    every = warpgroups.mutants_of(name)
    step = len(every) // SAMPLE
    assert not (loose := open_ones(name, list(every[list(CASES).index(name) % step :: step]))), "\n".join(loose)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_every_mutant(name: str) -> None:
    assert not (loose := open_ones(name, list(warpgroups.mutants_of(name)))), "\n".join(loose)


@pytest.mark.parametrize("name", SPREAD)
def test_the_unbroken_text_is_clean(name: str) -> None:
    compiled, given, right = warpgroups.case(name)
    assert broken.verdict(compiled, given, right, warpgroups.SECONDS) is None


def test_of_each_kind_some_are_found() -> None:
    """The net would pass if reasons accepted everything."""
    of: dict[str, list[mutants.Mutant]] = {}
    for m in warpgroups.mutants_of("persistent"):
        of.setdefault(m.kind, []).append(m)
    assert {"delete-wait", "fixed-parity", "delete-budget", "late-mbarrier", "late-bar", "early-wgmma"} <= set(of)
    compiled, given, right = warpgroups.case("persistent")
    for kind, group in of.items():
        tried = (broken.verdict(replace(compiled, asm=m.text), given, right, warpgroups.SECONDS) for m in group)
        assert any(tried), kind


def test_a_test_whose_answer_nobody_looks_at() -> None:
    """`try_wait` may say no, although the copy is on its way and nothing else is missing."""
    compiled, given, right = warpgroups.case("no roles")
    waits = [m for m in warpgroups.waits(compiled.asm) if m.kind == "delete-wait"]
    assert len(waits) == 1
    assert broken.verdict(replace(compiled, asm=waits[0].text), given, right, warpgroups.SECONDS) == "missing-wait"


@pytest.mark.parametrize("name", [*warpgroups.REVIEWED])
def test_no_reviewed_mutant_is_gone(name: str) -> None:
    assert set(warpgroups.REVIEWED[name]) <= {warpgroups.key(name, m) for m in warpgroups.mutants_of(name)}


TEXT = """{
$wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;
    @!%p1 bra $wait;
    add.s32 %r3, %r1, 8;
    ld.shared.b32 %r4, [%r3];
    fence.proxy.async.shared::cta;
    mov.b32 %r5, 0;
    mbarrier.arrive.shared::cta.b64 _, [%r5];
    wgmma.wait_group.sync.aligned 0;
    cvt.f32.u32 %f1, %r4;
    st.shared.b32 [%r3], %r4;
    setmaxnreg.inc.sync.aligned.u32 240;
}"""


def test_what_is_moved() -> None:
    """A wait as a whole, over what does not touch memory, but not over what writes its operands, nor a label."""
    moved = {m.kind: [line.split()[0] for line in m.text.split("\n")[1:-1]] for m in warpgroups.displaced(TEXT)}
    before = [line.split()[0] for line in TEXT.split("\n")[1:-1]]
    assert sorted(moved) == ["early-fence", "late-fence", "late-mbarrier", "late-wgmma"]
    assert moved["late-mbarrier"] == [*before[3:5], *before[:3], *before[5:]]
    assert moved["late-fence"] == [*before[:5], *before[6:11], before[5], before[11]]
    assert moved["early-fence"] == [*before[:4], before[5], before[4], *before[6:]]
    assert {m.what.split(" -> ")[-1].split()[-1] for m in warpgroups.budgets(TEXT)} == {"240", "232", "248"}
    kinds = [m.kind for m in warpgroups.waits(TEXT)]
    assert kinds == ["delete-wait", "fixed-parity", "fixed-parity"]
