"""About a second of drawn kernels on every chip; longer runs: `python tests/fuzz/run.py` (docs/fuzzing.md)."""

from __future__ import annotations

import copy
import os
import time

import numpy as np
import pytest
import run as fuzz
from generator.check import TARGETS, arguments, copies, kernel_of, verdicts
from generator.draw import FRAMES, draw
from generator.program import Do, Let, Program, statements
from generator.shrink import drop_unused, shrunk

SECONDS = float(os.environ.get("WAVEDSL_FUZZ_SECONDS", "1"))
SEED = int(os.environ.get("WAVEDSL_FUZZ_SEED", "0"))


def test_drawn_kernels() -> None:
    until, seed, right = time.monotonic() + SECONDS, SEED, 0
    while time.monotonic() < until or (not right and seed < SEED + 20):
        program = draw(seed)
        for verdict in verdicts(program, (TARGETS[seed % len(TARGETS)],)):
            assert not verdict.wrong, fuzz.report(program, verdict, seconds=10)
            right += verdict.kind == "right"
        seed += 1
    assert right > 0


def test_a_seed_draws_one_kernel() -> None:
    """What ranges.json counts can be run again."""
    for seed in range(20):
        first, again = draw(seed), draw(seed)
        assert first.source() == again.source()
        assert all(a.tobytes() == b.tobytes() for a, b in zip(arguments(first), arguments(again)))


@pytest.mark.parametrize("frame", sorted({*FRAMES}))
def test_whole_kernels_have_a_meaning(frame: str) -> None:
    """What a frame draws is traced and evaluated; most kernels change something (loops may have no trip)."""
    changed = 0
    for seed in range(12):
        program = draw(seed, frame)
        meant, before = copies(arguments(program)), arguments(program)
        kernel_of(program).evaluate(*meant)
        changed += any(a.tobytes() != b.tobytes() for a, b in zip(meant, before) if isinstance(a, np.ndarray))
    assert changed > 6


def test_a_failure_becomes_short() -> None:
    """Whatever fails: all that is left is the statement that it takes, and what that needs."""
    program = next(p for p in map(draw, range(400)) if "wd.sort(" in _used(p).source())
    small = shrunk(program, lambda p: "wd.sort(" in p.source(), seconds=20)
    left = [s for s in statements(small.body) if isinstance(s, (Let, Do))]
    assert sum("wd.sort(" in s.text for s in left) == 1 and len(left) <= 3, small.source()
    assert not any(v.wrong for v in verdicts(small, ("gfx942",)))


def _used(program: Program) -> Program:
    """What of a kernel reaches an output."""
    made = copy.deepcopy(program)
    drop_unused(made)
    return made


def test_a_wrong_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that leaves out one store disagrees with the evaluator."""
    import wavedsl as wd

    written = (p for p in map(draw, range(100)) if not p.way and any(a.low == a.high == 77 for a in p.arrays))
    program = next(p for p in written if [v.kind for v in verdicts(p, ("gfx942",))] == ["right"])
    original = wd.CompiledKernel.emulate

    def broken(self: wd.CompiledKernel, *args: object, **kwargs: object) -> object:
        report = original(self, *args, **kwargs)
        for array, given in zip(program.arrays, args):
            if array.low == array.high == 77:
                given.flat[0] = 5 if given.flat[0] != 5 else 6  # type: ignore[attr-defined]
        return report

    monkeypatch.setattr(wd.CompiledKernel, "emulate", broken)
    assert [v.kind for v in verdicts(program, ("gfx942",))] == ["numbers"]


def test_the_record_is_whole() -> None:
    """Every range names its generator, seeds, targets and commit; the sum is what --total says."""
    record = fuzz.recorded()
    assert fuzz.total() == sum(r["pairs"] for r in record)
    for r in record:
        assert {"generator", "seeds", "targets", "pairs", "refused", "commit"} <= set(r) and r["pairs"] > 0
