"""Drawn kernels with one mistake in each: what a user meets is an error of wavedsl's at his line.

    WAVEDSL_FUZZ_SECONDS=600 WAVEDSL_FUZZ_SEED=3000 pytest tests/fuzz/test_mistakes.py -s

A failure names its seed and the mistake, and is all failures where there are several seconds.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter

import numpy as np
from generator.check import TARGETS
from generator.draw import draw
from generator.mistakes import mistaken, outcome
from generator.planted import planted

SECONDS = float(os.environ.get("WAVEDSL_FUZZ_SECONDS", "1"))
SEED = int(os.environ.get("WAVEDSL_FUZZ_SEED", "0"))


def test_mistakes() -> None:
    until, seed, kinds, wrong = time.monotonic() + SECONDS, SEED, Counter[str](), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while time.monotonic() < until:
            program, target = draw(seed // 4), TARGETS[seed % len(TARGETS)]  # some kernel, four mistakes
            made = mistaken(program, np.random.default_rng([1, seed]), target)
            found = outcome(program, made, target)
            kinds[found.kind] += 1
            if found.wrong:
                wrong.append(f"seed {seed} on {target}, {made.what}: {found.kind}: {found.detail}")
            seed += 1
    assert not wrong, "\n\n".join(wrong)
    assert kinds["refused"] > 0
    print(f"seeds {SEED}:{seed}: {dict(kinds)}")


def test_planted_mistakes() -> None:
    """Statements that are wrong by themselves: the error is at their line, and says what is right."""
    until, seed, refused, wrong = time.monotonic() + SECONDS, SEED, 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while time.monotonic() < until:
            program, target = draw(seed // 8), TARGETS[seed % len(TARGETS)]
            made = planted(program, np.random.default_rng([2, seed]), target)
            if made is not None:
                found = outcome(program, made, target)
                refused += found.kind == "refused"
                if found.kind != "refused":
                    wrong.append(f"seed {seed} on {target}, {made.what}: {found.kind}: {found.detail}")
            seed += 1
    assert not wrong, "\n\n".join(wrong)
    assert refused > 0
    print(f"seeds {SEED}:{seed}: {refused} refused")
