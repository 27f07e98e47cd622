"""Runs ranges of drawn kernels and keeps the record of what was run.

    python tests/fuzz/run.py --seeds 0:1000                       every chip; failures are shrunk and printed as source
    python tests/fuzz/run.py --seeds 17 --targets sm_90a          one kernel; --show prints its source as drawn
    python tests/fuzz/run.py --seeds 0:1000 --record              adds the range to ranges.json if nothing was wrong
    python tests/fuzz/run.py --seeds 0:9000 --only cluster        kernels whose source has a word (a regular expression)
    python tests/fuzz/run.py --total                              what ranges.json adds up to

Each line of a failure begins with its seed, so that `--seeds N` runs it again. `--assemble N` also asks the assemblers
about every N-th kernel. See docs/fuzzing.md.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "helpers")]

import oracles  # noqa: E402
import products  # noqa: E402
from generator.check import TARGETS, Verdict, verdicts  # noqa: E402
from generator.draw import FRAMES, VERSION, draw  # noqa: E402
from generator.program import Program  # noqa: E402
from generator.shrink import shrunk  # noqa: E402

RECORD = HERE / "ranges.json"


def same(found: Verdict, verdict: Verdict) -> bool:
    """Whether a simpler kernel fails as the drawn one did: with the same kind of error, whatever its numbers."""
    return found.kind == verdict.kind and _first(found.detail) == _first(verdict.detail)


def _first(detail: str) -> str:
    """What an error says, without what differs from kernel to kernel."""
    lines = detail.splitlines()
    if len(lines) > 1 and lines[0].startswith("the emulator found"):
        return lines[1].strip().split(":")[0]
    return "" if " is " in detail else "".join(c for c in (lines or [""])[0] if not c.isdigit())[:24]


def minimal(program: Program, verdict: Verdict, seconds: float, assemble: Any = None) -> Program:
    """The shortest kernel that fails like this, in an assembler if that was asked."""
    targets = TARGETS if verdict.target == "evaluator" else (verdict.target,)

    def fails(candidate: Program) -> bool:
        try:
            return any(same(v, verdict) for v in verdicts(candidate, targets, assemble))
        except Exception:
            return False

    return shrunk(program, fails, seconds)


def report(program: Program, verdict: Verdict, seconds: float, assemble: Any = None) -> str:
    small = minimal(program, verdict, seconds, assemble)
    targets = (verdict.target,) if verdict.target in TARGETS else TARGETS
    again = [v for v in verdicts(small, targets, assemble) if v.wrong]
    said = "\n".join(f"# {line}" for line in (again or [verdict])[0].detail.splitlines()[:14])
    return f"# seed {program.seed} on {verdict.target}: {verdict.kind}\n{said}\n{small.source(verdict.target)}"


def assembled(compiled: Any) -> None:
    products.assemble(compiled, oracles.require)


def recorded() -> list[dict[str, Any]]:
    """The ranges that were run, oldest first."""
    found: list[dict[str, Any]] = json.loads(RECORD.read_text())["ranges"] if RECORD.exists() else []
    return found


def total() -> int:
    """Pairs that ran without a disagreement, over all recorded ranges."""
    return sum(r["pairs"] for r in recorded())


def seeds_of(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, stop = part.partition(":")
        found += range(int(first), int(stop) if stop else int(first) + 1)
    return found


def commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:100", help="A:B, or seeds with commas between")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds to shrink a failure")
    parser.add_argument("--assemble", type=int, default=0, help="ask the assemblers about every N-th kernel")
    parser.add_argument("--only", help="a regular expression: only kernels whose source has it; not recorded")
    parser.add_argument("--frame", default="", choices=("", *sorted({*FRAMES})), help="only whole kernels of a kind")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--show", action="store_true", help="print each kernel's source")
    parser.add_argument("--refusals", action="store_true", help="count why chips refuse")
    parser.add_argument("--total", action="store_true")
    options = parser.parse_args()
    if options.total:
        print(f"{total()} pairs")
        return 0
    targets, seeds = tuple(options.targets.split(",")), seeds_of(options.seeds)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    wrong: set[int] = set()
    started, cpu = time.monotonic(), time.process_time()
    for number, seed in enumerate(seeds):
        program = draw(seed, options.frame)
        if options.only and not re.search(options.only, program.source(targets[-1]), re.DOTALL):
            continue
        if options.show:
            print(program.source(targets[0]))
        ask = assembled if options.assemble and number % options.assemble == 0 else None
        shown: set[str] = set()
        for verdict in verdicts(program, targets, ask):
            counts["wrong" if verdict.wrong else verdict.kind] += 1
            if verdict.kind == "refused":
                reasons[verdict.detail.splitlines()[0][:100]] += 1
            if verdict.wrong:
                wrong.add(seed)
                text = verdict.kind + _first(verdict.detail)
                if text in shown:
                    print(f"# seed {seed} on {verdict.target}: {verdict.kind} too", flush=True)
                else:
                    shown.add(text)
                    print(report(program, verdict, options.shrink, ask), flush=True)
        if number % 100 == 99:
            print(f"# {number + 1} kernels, {dict(counts)}, {time.process_time() - cpu:.0f} s CPU", flush=True)
    print(
        f"# seeds {options.seeds}: {counts['right']} pairs right, {counts['refused']} refused, {counts['wrong']} wrong "
        f"(seeds {sorted(wrong)}); {time.process_time() - cpu:.0f} s CPU, {time.monotonic() - started:.0f} s"
    )
    if options.refusals:
        for reason, times in reasons.most_common():
            print(f"#   {times} {reason}")
    if options.record and not options.only and not options.frame:
        if wrong:
            print("# not recorded: something was wrong")
            return 1
        entry = {
            "generator": VERSION, "seeds": options.seeds, "targets": list(targets), "pairs": counts["right"],
            "refused": counts["refused"], "commit": commit(),
        }  # fmt: skip
        RECORD.write_text(json.dumps({"ranges": [*recorded(), entry]}, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
