"""Drawn kernels whose text lacks one wait, barrier, nop or fence, or has one that waits for less: is it found?

    python tests/fuzz/broken.py --seeds 430000:430040                  every chip, some mutants of each text
    python tests/fuzz/broken.py --seeds 430007 --targets sm_90a --each 200
    python tests/fuzz/broken.py --seeds 430000:430040 --kinds barrier

A mutant is found by a run (a finding, other numbers, no end), or proven to be as good (AMD: `amd_replay.py` of
`tests/mutation` follows waits and hazards on every path; `touched.py` tells who meets whom where), or not reached in
this launch, or printed: then the emulator lacks a check, or the compiler emits what nothing needs.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "helpers"), str(HERE.parent / "mutation")]

import amd_replay  # noqa: E402
import mutants  # noqa: E402
import trial  # noqa: E402
from generator.check import TARGETS, arguments, copies, few_units, hand_out, kernel_of  # noqa: E402
from generator.draw import draw  # noqa: E402
from generator.program import Program  # noqa: E402
from mutants import Mutant, instructions  # noqa: E402
from touched import touched  # noqa: E402
from wavedsl.runtime.emulator.ptx import bulk as ptx_bulk  # noqa: E402
from wavedsl.runtime.emulator.ptx import copies as ptx_copies  # noqa: E402
from wavedsl.runtime.emulator.ptx import program as ptx_program  # noqa: E402

import wavedsl as wd  # noqa: E402

RUNS = (*((seed, "") for seed in range(4)), (0, "apart"))
"""Seeds of the adversarial order (by their remainders late, early and random arrivals), and AMD's waves one after the
other."""
SECONDS = 20.0
"""Of processor time that a run of a mutant may take at most; never less than ten times the right text's."""
PTX = re.compile(
    r"fence\.|membar\.|wgmma\.(fence|commit|wait)|griddepcontrol\.|mbarrier\.(arrive|init)|barrier\.cluster\.|bar\.warp\.|"
    r"cp\.async\.bulk\.(commit|wait)|cp\.async\.mbarrier"
)
AMD = re.compile(r"buffer_(wbl2|inv|wbinvl1)|s_setprio|s_sleep")
ORDERS = re.compile(
    r"s_waitcnt|s_barrier|bar\.|barrier\.|fence\.|membar\.|cp\.async\.(bulk\.)?wait|wgmma\.(fence|wait)|buffer_(wbl2|inv)"
)
ACCESS = re.compile(
    r"ds_|buffer_(load|store|atomic)|global_|v_mfma|(ld|st|atom|red)\.(shared|global)|ldmatrix|stmatrix|wgmma\.mma"
)
BETWEEN = re.compile(r"s_barrier|bar\.|buffer_(wbl2|inv|wbinvl1)|fence\.(acq_rel|release|acquire)|membar\.")
"""What orders accesses of global memory: of a workgroup, or of workgroups."""
WAITS = re.compile(r"cp\.async\.(bulk\.)?wait|wgmma\.wait")
"""What waits for operations that it counts; an access that is none of them changes nothing of that."""
GLOBAL = re.compile(r"buffer_(load|store|atomic)|global_|(ld|st|atom|red)\.global")
SHARED = re.compile(r"ds_|(ld|st|atom|red)\.shared|ldmatrix|stmatrix")
HANDS_ON = re.compile(r"fence\.(acq|rel|sc)|membar|\.(acquire|release|acq_rel)\.|buffer_(wbl2|inv|wbinvl1)")
CACHES = re.compile(r"buffer_(wbl2|inv|wbinvl1)")
USELESS = re.compile(r"s_setprio|s_sleep|griddepcontrol\.launch_dependents")
"""Hints, whose absence changes no result."""


def broken(text: str) -> list[Mutant]:
    """What `mutants.synchronisation` gives, and deletions of fences, of warpgroups' waits, of arrivals at barriers."""
    found = mutants.synchronisation(text)
    lines = {m.lines for m in found}
    for i in instructions(text):
        name = i.mnemonic.split()[-1]
        if (i.line,) in lines or USELESS.match(name) or not (PTX.match(name) or AMD.match(name)):
            continue
        found.append(mutants._drop(text, i, "delete-fence"))
        if name.startswith("wgmma.wait_group"):
            found.append(mutants._replace(text, i, "weaken-wait", i.mnemonic, str(int(i.operands) + 1)))
    return [*found, *late(text), *counted(text)]


def late(text: str) -> list[Mutant]:
    """Waits, barriers and fences that come one memory access too late, or one too early."""
    found = []
    at: mutants.Instruction | None = None
    for i in mutants._scan(text):
        if at is not None and i is not None:
            names = at.mnemonic.split()[-1], i.mnemonic.split()[-1]
            for first, second, kind in ((*names, "late"), (*names[::-1], "early")):
                if ORDERS.match(first) and ACCESS.match(second):
                    swapped: dict[int, str | None] = {at.line: str(i), i.line: str(at)}
                    name = first.removeprefix("s_").split(".")[0]
                    made = mutants._with(text, swapped)
                    found.append(Mutant(f"{kind}-{name}", f"{at} <-> {i}", (at.line, i.line), made))
        at = i
    return found


def counted(text: str) -> list[Mutant]:
    """Barriers that expect one arrival or 16 bytes more or less, and fences and atomics of one workgroup only."""
    found = []
    for i in instructions(text):
        name = i.mnemonic.split()[-1]
        if name.startswith(("mbarrier.init", "mbarrier.arrive.expect_tx", "mbarrier.expect_tx")):
            front, _, last = i.operands.rpartition(", ")
            if front and last.isdecimal():
                by = 1 if ".init" in name else 16
                for n in (int(last) - by, int(last) + by):
                    if n > 0:
                        found.append(mutants._replace(text, i, "other-count", i.mnemonic, f"{front}, {n}"))
        if re.match(r"(fence|atom|red|ld|st)\..*\.gpu", name):
            found.append(mutants._replace(text, i, "narrow-scope", i.mnemonic.replace(".gpu", ".cta"), i.operands))
    return found


def arriving(kind: type, when: str) -> type:
    """An engine of asynchronous copies whose results arrive then."""

    class Made(kind):  # type: ignore[misc]
        def __init__(self, *args: Any):
            super().__init__(*args)
            self.arrival = when

    return Made


@contextmanager
def order(seed: int, waves: str) -> Iterator[None]:
    """Results arrive as ARRIVALS of the seed's remainder says; AMD's emulator has the same three."""
    known = dict(os.environ)
    when = trial.ARRIVALS[seed % 3]
    os.environ["WAVEDSL_SEED"] = str(seed)
    if waves:
        os.environ["WAVEDSL_ORDER"] = waves
    try:
        with (
            mock.patch.object(ptx_program, "AsyncCopies", arriving(ptx_copies.AsyncCopies, when)),
            mock.patch.object(ptx_program, "BulkCopies", arriving(ptx_bulk.BulkCopies, when)),
        ):
            yield
    finally:
        os.environ.clear()
        os.environ.update(known)


def verdict(
    compiled: Any, given: Sequence[Any], right: Sequence[Any], seconds: float, runs: Sequence[tuple[int, str]] = RUNS
) -> str | None:
    """How a run shows that a text is wrong; None: none does."""
    for seed, waves in runs:
        if waves and not compiled.target.startswith("gfx"):
            continue
        got = copies(given)
        try:
            with order(seed, waves), trial.limited(seconds):
                compiled.emulate(*got)
        except trial.Endless:
            return "endless"
        except wd.EmulationError as error:
            found = error.report.findings if error.report is not None else []
            return str(found[0].kind) if found else "assertion"
        except wd.WaveError:
            return "refused"
        for mine, theirs in zip(got, right):
            if isinstance(mine, np.ndarray) and not _same(mine, theirs):
                return "numbers"
    return None


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    a, b = (x.base if isinstance(x.base, np.ndarray) else x for x in (a, b))
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f") or a.tobytes() == b.tobytes()


def reached(compiled: Any, given: Sequence[Any], lines: Sequence[int], seconds: float) -> bool:
    """Whether a run comes to one of these lines of the text."""
    trap = "s_trap 2" if compiled.target.startswith("gfx") else "trap;"
    text = compiled.asm.split("\n")
    for line in lines:
        text[line] = f"{trap}\n{text[line]}"
    return verdict(replace(compiled, asm="\n".join(text)), given, given, seconds, RUNS[:1]) in ("assertion", "trap")


def proof(text: str, mutant: Mutant, compiled: Any, given: Sequence[Any]) -> str | None:
    """Why a mutant that no run exposes is as good, or None."""
    if compiled.target.startswith("gfx"):
        try:
            moved = mutant.lines if mutant.kind.startswith(("late-", "early-")) else ()
            if not amd_replay.as_good(text, mutant.text, compiled.target, moved):
                return None
        except (amd_replay.Unknown, ValueError, KeyError, IndexError):
            return None
        every = instructions(text)
        copied = any(amd_replay.copies_to_lds(i) for i in every)
        # Where caches are written back, a wait for everything may be part of a release of what is before it.
        release = any(CACHES.match(i.mnemonic) for i in every) and "vmcnt(0)" in mutant.what
        release &= bool(re.search(r"buffer_|global_", mutant.what))
        if mutant.kind.endswith("-nop") or (mutant.kind.endswith("-wait") and not copied):
            return "covered"
        if mutant.kind.endswith("-waitcnt") and not copied and not release:
            return "covered"
    return _moved(mutant, compiled, given)


def _moved(mutant: Mutant, compiled: Any, given: Sequence[Any]) -> str | None:
    """Why a barrier or a fence may change places with an access."""
    if not mutant.kind.startswith(("late-", "early-")):
        return None
    lines = {i.line: i for i in instructions(compiled.asm) if i.line in mutant.lines}
    order = [i for i in lines.values() if BETWEEN.match(i.mnemonic.split()[-1]) or WAITS.match(i.mnemonic.split()[-1])]
    access = [i for i in lines.values() if i not in order]
    if len(order) != 1 or len(access) != 1:
        return None
    name = access[0].mnemonic.split()[-1]
    if name.startswith("v_mfma"):
        return "touches no memory"
    if WAITS.match(order[0].mnemonic.split()[-1]):
        counted = name.startswith(("cp.", "wgmma"))
        return "waits sooner" if mutant.kind.startswith("early-") and not counted else None
    if not (GLOBAL.match(name) or SHARED.match(name)) or amd_replay.copies_to_lds(access[0]):
        return None
    seen = touched(compiled, copies(given))
    if seen is None:
        return None
    line, barrier = access[0].line, order[0].mnemonic.split()[-1]
    # A barrier is also part of what hands memory on to other workgroups, where the text does that.
    if GLOBAL.match(name) and HANDS_ON.search(compiled.asm) and not seen.alone(line):
        return None
    if not barrier.startswith(("bar", "s_bar")):
        return "no other workgroup touches it" if GLOBAL.match(name) and seen.alone(line) else None
    by = 1 if mutant.kind.startswith("early-") else -1
    return "nobody who meets there touches it" if seen.may_move(line, by, "warp" not in barrier) else None


def trials(program: Program, target: str, each: int, kinds: str = "") -> tuple[Counter[str], list[str]]:
    """What became of some mutants of a kernel's text; the open ones in words."""
    given = arguments(program)
    counts: Counter[str] = Counter()
    symbols = wd.symbols(" ".join(program.dynamic) + " _") if program.dynamic else ()
    try:
        with few_units(program):
            kernel = kernel_of(program, target)
            compiled = kernel.compile(*copies(given), target=target, dynamic=list(symbols[:-1]) or None)
        hand_out(compiled, program.seed)
        right = copies(given)
        begun = time.process_time()
        compiled.emulate(*right)
        took = time.process_time() - begun
    except wd.WaveError:
        return Counter(["refused"]), []
    if took > 4 or 0 in program.sizes.values():
        return Counter(["left out"]), []
    text = compiled.asm
    every = [m for m in broken(text) if re.search(kinds, m.kind)]
    rng = np.random.default_rng(program.seed)
    open_ones = []
    for at in sorted(rng.permutation(len(every))[:each]):
        mutant = every[at]
        how = verdict(replace(compiled, asm=mutant.text), given, right, max(SECONDS, 10 * took))
        if how is not None:
            counts[f"found: {how}"] += 1
            continue
        why = proof(text, mutant, compiled, given)
        if why is not None:
            counts[f"proven: {why}"] += 1
            continue
        if not reached(compiled, given, mutant.lines, max(SECONDS, 10 * took)):
            counts["not reached"] += 1
            continue
        counts["open"] += 1
        open_ones.append(f"seed {program.seed} on {target}: {mutant}")
    return counts, open_ones


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="430000:430010", help="A:B, or seeds with commas between")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--each", type=int, default=12, help="mutants of a text at most")
    parser.add_argument("--kinds", default="", help="a regular expression: of mutants, such as delete-barrier")
    parser.add_argument("--seconds", type=float, default=1e9, help="when to end")
    options = parser.parse_args()
    from run import seeds_of

    total: Counter[str] = Counter()
    until = time.monotonic() + options.seconds
    for seed in seeds_of(options.seeds):
        for target in options.targets.split(","):
            if time.monotonic() > until:
                break
            counts, open_ones = trials(draw(seed), target, options.each, options.kinds)
            total += counts
            for line in open_ones:
                print(line, flush=True)
    print(dict(total.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
