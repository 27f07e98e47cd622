"""Mutants of sm_90a texts in what orders asynchronous agents: mbarriers, proxies, wgmma, clusters, bulk copies.

    python tests/mutation/warpgroups.py [case …] [--kinds REGEX] [-v]

In: the compiler's texts of some products. Out: what became of each mutant of `broken` (tests/fuzz), and of those that
are made here: waits for mbarriers that are left out or take a fixed parity, other register budgets, and what orders
accesses moved over the next one, or the one before, however far that is. Each is found by a run, or is as good for a
reason in REASONS, or reviewed (warpgroups.json); anything else is open.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).resolve().parent
for _place in (HERE, HERE.parent / "fuzz", HERE.parent / "helpers"):
    if str(_place) not in sys.path:
        sys.path.append(str(_place))

import broken  # noqa: E402
import hopper  # noqa: E402
import mutants  # noqa: E402
import numpy as np  # noqa: E402
import products  # noqa: E402
from mutants import Instruction, Mutant  # noqa: E402
from products import BF16  # noqa: E402
from wavedsl.runtime.emulator.ptx.bulk import BulkCopies  # noqa: E402
from wavedsl.runtime.emulator.ptx.mbarrier import MBarriers  # noqa: E402

import wavedsl as wd  # noqa: E402

REVIEWED: dict[str, dict[str, str]] = json.loads((HERE / "warpgroups.json").read_text())
"""Case → mutant → why it is as good, by a person."""
SECONDS = 20.0
"""Of processor time that a run may take; right texts take half of one."""
REASONS = {
    "ptxas allots registers": "it takes as many as the budget that holds; more budget decides what is spilled",
    "an ordinary launch": "a text without `griddepcontrol.wait` begins when the grid in front has ended",
    "nothing to wait for": "in no run has a thread that comes there a bulk store under way",
    "another barrier": "the same warps meet at one before it, or behind it, and nothing in between needs both",
    "tells nothing": "in no run does the wait fail, or tell a thread of an arrival that it does not know of",
    "nobody waits for it": "in no run does anybody test a phase that the arrival is for",
    "one CTA": "mbarriers that no other CTA uses are known behind the barrier of the CTA, as in Triton's kernels",
}


def product(
    sizes: tuple[int, int, int], tile: tuple[int, ...] = (64, 64, 64, 64, 64), workgroups: int = 0,
    stored: tuple[Any, Any] = (None, None), **schedule: Any,
) -> tuple[Any, list[np.ndarray]]:  # fmt: skip
    """A product's text with its arguments; `workgroups`: how many take its tiles in turn (0: one tile each)."""
    m, n, k = sizes
    sides = ((m, k), stored[0], 1), ((n, k), stored[1], 2)
    a, b = (products.numbers(shape, dtype or BF16.dtype, seed) for shape, dtype, seed in sides)
    c = np.full((m, n), products.SENTINEL).astype(BF16.out.storage)
    kernel = hopper.gemm(BF16, schedule=wd.Schedule(stages=2, **schedule), stored=stored)
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=hopper.tiles(*tile))
    if workgroups:
        compiled.grid = (workgroups, 1, 1)
    return compiled, [a, b, c]


CASES: dict[str, Callable[[], tuple[Any, list[np.ndarray]]]] = {
    "roles": lambda: product((64, 72, 328)),
    "no roles": lambda: product((64, 72, 328), specialize=False),
    "cluster": lambda: product((256, 128, 200), cluster=(2, 2, 1), persistent=True, ping_pong=False, workgroups=4),
    "persistent": lambda: product((128, 136, 200), persistent=True, workgroups=2, dependent=True),
    "two warpgroups": lambda: product((128, 64, 264), (128, 64, 64, 64, 64), registers=(40, 232)),
    "taking turns": lambda: product((128, 136, 200), persistent=True, ping_pong=True, workgroups=1),
    "computed": lambda: product((64, 72, 264), stored=(wd.f32, wd.f32)),
    "parts in a cluster": lambda: product((64, 64, 520), cluster=(1, 1, 2), split_k=2),
    "parts in memory": lambda: product((64, 64, 520), split_k=2),
}


@functools.lru_cache(maxsize=2)
def case(name: str) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
    """A text, its arguments before, and after a run."""
    compiled, given = CASES[name]()
    right = broken.copies(given)
    compiled.emulate(*right)
    return compiled, given, right


# ---- mutants

WAIT = re.compile(r"mbarrier\.(try|test)_wait")
LATE = re.compile(
    r"wgmma\.(fence|wait)|cp\.async\.bulk\.wait|griddepcontrol\.wait|barrier\.cluster\.wait|bar\.(sync|warp)|fence\.|membar"
)
EARLY = re.compile(
    r"wgmma\.(fence|commit)|cp\.async\.bulk\.commit|mbarrier\.arrive|barrier\.cluster\.arrive|bar\.|fence\.|membar|mbarrier\.init"
)
ACCESS = re.compile(
    r"(ld|st|atom|red)\.(?!param)|ldmatrix|stmatrix|wgmma\.mma|cp\.async\.bulk\.(tensor|shared|global)|cp\.reduce|cp\.async\.c"
)
REGISTER = re.compile(r"%[a-z]+\d+")


def name_of(i: Instruction) -> str:
    return i.mnemonic.split()[-1]


def registers(i: Instruction) -> set[str]:
    return set(REGISTER.findall(f"{i.mnemonic} {i.operands}"))


def written(i: Instruction) -> set[str]:
    """Registers that an instruction writes: those of its first operand, where that is no address."""
    parts = mutants.split_operands(i.operands)
    if not parts or (ACCESS.match(name_of(i)) and not name_of(i).startswith(("ld", "atom"))):
        return set()
    return set(REGISTER.findall(parts[0]))


def waits(text: str) -> Iterator[Mutant]:
    """Waits for mbarriers that nobody waits for, and that wait for phases of one parity."""
    found = mutants.instructions(text)
    for i, branch in itertools.pairwise(found):
        if WAIT.match(name_of(i)):
            assert branch.mnemonic.startswith("@!") and name_of(branch) == "bra"
            yield mutants._drop(text, branch, "delete-wait")
            front, _, parity = i.operands.rpartition(", ")
            for fixed in ("0", "1"):
                if parity != fixed:
                    yield mutants._replace(text, i, "fixed-parity", i.mnemonic, f"{front}, {fixed}")


def budgets(text: str) -> Iterator[Mutant]:
    """Register budgets that nobody changes, and that are larger or smaller."""
    for i in mutants.instructions(text):
        if name_of(i).startswith("setmaxnreg"):
            yield mutants._drop(text, i, "delete-budget")
            for by in (-8, 8):
                if 24 <= int(i.operands) + by <= 256:
                    yield mutants._replace(text, i, "other-budget", i.mnemonic, str(int(i.operands) + by))


def displaced(text: str) -> Iterator[Mutant]:
    """What orders accesses, behind the next one of its block or in front of the last one; a wait for an mbarrier moves
    as a whole."""
    sequence = list(mutants._scan(text))
    sums = {r for i in sequence if i is not None and name_of(i).startswith("wgmma.mma") for r in _sums(i)}
    for at, i in enumerate(sequence):
        if i is None:
            continue
        own = name_of(i)
        touches = lambda j: bool(ACCESS.match(name_of(j))) or (own.startswith("wgmma") and bool(registers(j) & sums))  # noqa: E731
        size = 1
        if WAIT.match(own):
            size = 2
        elif not LATE.match(own):
            size = 0
        if size and (j := _next(sequence[at + size :], registers(i), touches)) is not None:
            first = i.line - (size - 1)  # the label
            yield _move(text, f"late-{own.split('.')[0]}", i, (first, i.line + size - 1), j)
        if EARLY.match(own) and (j := _next(sequence[:at][::-1], registers(i), touches)) is not None:
            yield _move(text, f"early-{own.split('.')[0]}", i, (i.line, i.line), j)


def _sums(i: Instruction) -> set[str]:
    return set(REGISTER.findall(mutants.split_operands(i.operands)[0]))


def _next(
    rest: list[Instruction | None], reads: set[str], touches: Callable[[Instruction], bool]
) -> Instruction | None:
    """The first access of a block, if nothing up to it writes what the moved one reads."""
    for j in rest:
        if j is None or re.match(r"bra|ret|exit", name_of(j)) or written(j) & reads:
            return None
        if touches(j):
            return j
    return None


def _move(text: str, kind: str, i: Instruction, lines: tuple[int, int], over: Instruction) -> Mutant:
    """Lines [first, last] of a text behind (or in front of) the line of another instruction."""
    every = text.split("\n")
    first, last = lines
    assert first == last or every[first].strip().endswith(":")
    moved = every[first : last + 1]
    if over.line > last:
        new = every[:first] + every[last + 1 : over.line + 1] + moved + every[over.line + 1 :]
    else:
        new = every[: over.line] + moved + every[over.line : first] + every[last + 1 :]
    return Mutant(kind, f"{i} over {over}", (i.line, over.line), "\n".join(new))


@functools.lru_cache(maxsize=2)
def mutants_of(name: str) -> tuple[Mutant, ...]:
    text = case(name)[0].asm
    made = [*broken.broken(text), *waits(text), *budgets(text), *displaced(text)]
    return tuple({m.text: m for m in reversed(made) if m.text != text}.values())[::-1]


# ---- fates


@functools.lru_cache(maxsize=2)
def awaited(name: str) -> dict[int, bool]:
    """By line (from 0) of an arrival in a run of a text whether anybody tests a phase of it."""
    compiled, given, _ = case(name)
    arrived: dict[int, set[tuple[int, int]]] = {}
    tested: set[tuple[int, int]] = set()
    kept: list[Any] = []  # so that no two have one id
    arrive, test = MBarriers.arrive, MBarriers._test

    def arriving(self: Any, inst: Any, phase: Any, threads: Any, count: int) -> Any:
        arrived.setdefault(inst.line - 1, set()).add((id(phase), phase.completed))
        kept.append(phase)
        return arrive(self, inst, phase, threads, count)

    def testing(self: Any, inst: Any, row: Any, access: Any) -> Any:
        step = test(self, inst, row, access)

        def run(mask: Any) -> None:
            step(mask)
            for key, _ in self.runs(inst, access, mask):
                phase = self.known[key]
                tested.update((id(phase), n) for n in range(phase.completed))

        return run

    with mock.patch.object(MBarriers, "arrive", arriving), mock.patch.object(MBarriers, "_test", testing):
        compiled.emulate(*broken.copies(given))
    return {line: bool(phases & tested) for line, phases in arrived.items()}


@functools.lru_cache(maxsize=2)
def telling(name: str) -> set[int]:
    """Lines (from 0) of tests of mbarriers that fail in some run, or tell a thread something."""
    compiled, given, _ = case(name)
    out: set[int] = set()
    test = MBarriers._test

    def testing(self: Any, inst: Any, row: Any, access: Any) -> Any:
        step = test(self, inst, row, access)

        def run(mask: Any) -> None:
            for key, threads in self.runs(inst, access, mask):
                phase, shadow = self.known[key], self.m.shadow
                for thread in threads.tolist():
                    known = shadow.known_by(thread)
                    mine = shadow.own[thread >> 5]
                    alone = shadow.lane_table[mine, thread & 31]
                    if alone:  # what it has told itself
                        known[alone] = shadow.know[thread >> 5, mine]
                    told = phase.released[: len(known)]
                    if phase.late or (told > known[: len(told)]).any():
                        out.add(inst.line - 1)
            step(mask)
            if self.failed:
                out.add(inst.line - 1)

        return run

    with mock.patch.object(MBarriers, "_test", testing):
        for seed, waves in broken.RUNS[:4]:
            with broken.order(seed, waves):
                compiled.emulate(*broken.copies(given))
    return out


@functools.lru_cache(maxsize=2)
def settling(name: str) -> set[int]:
    """Lines (from 0) of waits for bulk stores that find any in some run."""
    compiled, given, _ = case(name)
    out: set[int] = set()
    step, wait = BulkCopies.step, BulkCopies._wait

    def stepping(self: Any, inst: Any, row: Any, pc: int) -> Any:
        self.line = inst.line - 1
        return step(self, inst, row, pc)

    def waiting(self: Any, keep: int, reading: bool) -> Any:
        line, go = self.line, wait(self, keep, reading)

        def run(mask: Any) -> None:
            if any(mask is None or mask[s.thread] for s in (*self.pending, *self.unwritten)):
                out.add(line)
            go(mask)

        return run

    with mock.patch.object(BulkCopies, "step", stepping), mock.patch.object(BulkCopies, "_wait", waiting):
        for seed, waves in broken.RUNS[:4]:
            with broken.order(seed, waves):
                compiled.emulate(*broken.copies(given))
    return out


BARRIER = re.compile(r"bar\.sync")
IDLE = re.compile(r"(mov|add|sub|mul|mad|and|or|xor|shl|shr|setp|selp|cvt|cvta|mapa|vote|elect|prmt|lop3|min|max)\b")
"""What touches registers alone."""
IDLE_BEHIND = re.compile(r"wgmma\.(mma|commit|fence)|mbarrier\.arrive")
"""What a barrier in front of it orders as well as one behind it would."""


def another_barrier(name: str, line: int) -> bool:
    """Whether the barrier at a line may go since its warps meet at another one."""
    compiled = case(name)[0]
    sequence = list(mutants._scan(compiled.asm))
    at = next(n for n, i in enumerate(sequence) if i is not None and i.line == line)
    count = mutants.split_operands(sequence[at].operands)[1:]
    if not count or compiled.block[0] > 128 + int(count[0]):
        return False  # another group of warps may have a barrier of as many
    for rest, more in ((sequence[at + 1 :], None), (sequence[:at][::-1], IDLE_BEHIND)):
        for i in rest:
            if i is None or name_of(i) == "bra":
                break
            if BARRIER.match(name_of(i)):
                if mutants.split_operands(i.operands)[1:] == count:
                    return True
                break
            waits_for_nothing = name_of(i).startswith("cp.async.bulk.wait") and i.line not in settling(name)
            if not (waits_for_nothing or IDLE.match(name_of(i)) or (more is not None and more.match(name_of(i)))):
                break
    return False


def key(name: str, mutant: Mutant) -> str:
    """What the reviewed list calls a mutant: without registers, which change with everything above, but with the number
    of its instruction among those that read like it.
    """
    bare = lambda text: re.sub(r"%[a-z]+\d+", "%", re.sub(r"\{[^}]*\}", "{}", text))  # noqa: E731
    alike = [(i.line, bare(str(i))) for i in mutants.instructions(case(name)[0].asm)]
    mine = dict(alike).get(mutant.lines[0])
    number = sum(line < mutant.lines[0] and text == mine for line, text in alike) + 1
    return f"{mutant.kind} {number}: {bare(mutant.what)}"


def fate(name: str, mutant: Mutant) -> tuple[str, str]:
    """(found, kind), (as good, a name in REASONS, of a proof of `broken`, or reviewed), or (open, "")."""
    compiled, given, right = case(name)
    how = broken.verdict(replace(compiled, asm=mutant.text), given, right, SECONDS)
    if how is not None:
        return "found", how
    why = reason(name, mutant) or broken.proof(compiled.asm, mutant, compiled, given)
    if why is None and not broken.reached(compiled, given, mutant.lines, SECONDS):
        why = "not reached"
    return ("open", "") if why is None else ("as good", why)


def reason(name: str, mutant: Mutant) -> str | None:
    text = case(name)[0].asm
    lines = {i.line: i for i in mutants.instructions(text)}
    first = mutant.lines[0]
    touched = name_of(lines[first])
    deleted = mutant.kind == "delete-fence"
    if deleted and touched.startswith("mbarrier.arrive") and not awaited(name).get(first, False):
        return "nobody waits for it"
    tests = {line for line in (*mutant.lines, first - 1) if line in lines and WAIT.match(name_of(lines[line]))}
    if mutant.kind in ("delete-wait", "fixed-parity", "late-mbarrier") and tests and not telling(name) & tests:
        return "tells nothing"
    if touched.startswith("cp.async.bulk.wait") and first not in settling(name):
        return "nothing to wait for"
    if BARRIER.match(touched) and mutant.kind in ("delete-barrier", "late-bar") and another_barrier(name, first):
        return "another barrier"
    if key(name, mutant) in REVIEWED.get(name, {}):
        return "reviewed"
    if mutant.kind.endswith("-budget"):
        return "ptxas allots registers"
    if deleted and touched == "griddepcontrol.wait" and text.count(touched) == 1:
        return "an ordinary launch"
    if mutant.kind.split("-")[0] in ("delete", "early", "late") and touched.startswith("fence.mbarrier_init"):
        return "one CTA" if "barrier.cluster" not in text else None
    return None


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    options.add_argument("--kinds", default="", help="a regular expression: of mutants, such as delete-barrier")
    options.add_argument("-v", dest="verbose", action="store_true", help="say what was as good, and why")
    given = options.parse_args()
    loose = 0
    for name in given.cases or CASES:
        fates: Counter[tuple[str, str]] = Counter()
        for mutant in mutants_of(name):
            if not re.search(given.kinds, mutant.kind):
                continue
            how, why = fate(name, mutant)
            fates[how, why] += 1
            if how == "open" or (given.verbose and how == "as good"):
                print(f"{name}: {how} {why}: {mutant}", flush=True)
        loose += fates["open", ""]
        print(f"{name}: {sum(fates.values())} mutants: {dict(fates.most_common())}", flush=True)
    return int(loose > 0)


if __name__ == "__main__":
    sys.exit(main())
