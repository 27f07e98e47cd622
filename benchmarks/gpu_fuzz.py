"""Drawn kernels (docs/fuzzing.md) on a GPU: the graph evaluator against the chip.

    python benchmarks/gpu_fuzz.py --out FILE --seeds 330000:340000 --limit 60       as many as fit into a minute
    python benchmarks/gpu_fuzz.py --out FILE --seeds 0:20 --emulate                 the same on the emulator

Every core draws, compiles and launches kernels of its own, in the order of the seeds, for sm_90a and as text of sm_80,
which later chips run too. A process that hangs or loses its context is started again behind the kernel that did it.
FILE has the counts, what was not right, and the rows of the instruction table that right kernels executed. Results are
whole numbers: exact, but where a function is approximated; what is off by rounding alone is counted as `rounded`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))

import gpu_session  # noqa: E402, F401  finds wavedsl where it is not installed

sys.path += [str(HERE.parent / "tests" / "fuzz"), str(HERE.parent / "tests" / "helpers")]

TARGETS = ("sm_90a", "sm_80")
STUCK = 25.0
"""Seconds after which a kernel is taken to hang."""
CLOSE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 1e-5, "f64": 1e-12}
"""Relative differences that approximated functions may make."""


def on_chip(compiled: Any, arguments: Sequence[Any]) -> None:
    """Launch on the GPU: arrays are copied there and back."""
    from wavedsl.runtime.devices import Device
    from wavedsl.runtime.launch import launch

    launch(compiled, arguments, Device("cuda", 0, compiled.target))


class Watched:
    """What executes texts, and remembers rows of the instruction table and results' differences."""

    def __init__(self, run: Any):
        self.run, self.texts = run, []

    def __call__(self, compiled: Any, arguments: Sequence[Any]) -> None:
        self.texts.append(compiled.asm)
        self.run(compiled, arguments)


def near(program: Any) -> Any:
    """The kernel without gigabytes between the rows of its arrays: they would be copied."""
    return replace(
        program, arrays=[replace(a, spread="rows" if a.spread == "far" else a.spread) for a in program.arrays]
    )


def rounded(program: Any, verdict: Any) -> bool:
    """Whether a number that differs does so by rounding: `x[…] is A, not B; …`."""
    if verdict.kind != "numbers" or " is " not in verdict.detail:
        return False
    name, said = verdict.detail.split("[")[0], verdict.detail.split(" is ", 1)[1].split(";")[0]
    dtype = next((a.dtype for a in program.arrays if a.name == name), "")
    try:
        mine, theirs = (float(x) for x in said.split(", not "))
    except ValueError:
        return False
    return abs(mine - theirs) <= CLOSE.get(dtype, 0.0) * abs(theirs)


def worker(number: int, seeds: Sequence[int], following: Any, folder: Path, emulate: bool, end: float) -> None:
    """Take seeds in turn; a line of JSON per pair. The file `now` says which kernel runs."""
    from generator.check import emulated, verdicts
    from generator.draw import draw
    from witnesses import rows

    now = folder / f"{number}.now"
    with open(folder / f"{number}.jsonl", "a") as out:
        while time.time() < end:
            with following.get_lock():
                place, following.value = following.value, following.value + 1
            if place >= len(seeds):
                return
            seed = seeds[place]
            now.write_text(json.dumps({"seed": seed, "since": time.time()}))
            program = near(draw(seed))
            dead = False
            for target in TARGETS:
                run = Watched(emulated if emulate else on_chip)
                for verdict in verdicts(program, (target,), None, run):
                    row: dict[str, Any] = {"seed": seed, "target": verdict.target, "kind": verdict.kind}
                    if verdict.wrong:
                        row["kind"] = "rounded" if rounded(program, verdict) else verdict.kind
                        row["detail"] = verdict.detail[:600]
                        dead |= "CUDA_ERROR" in verdict.detail
                    elif verdict.kind == "right":
                        row["rows"] = sorted(set().union(*(rows(text, target) for text in run.texts)))
                    out.write(json.dumps(row) + "\n")
                    out.flush()
            now.unlink()
            if dead:
                os._exit(3)


def supervise(seeds: Sequence[int], folder: Path, emulate: bool, end: float, count: int) -> list[dict[str, Any]]:
    """Run the workers until the seeds or the time are used up; rows of those that hung."""
    following, hung = multiprocessing.Value("i", 0), []

    def started(number: int) -> Any:
        made = multiprocessing.Process(target=worker, args=(number, seeds, following, folder, emulate, end))
        made.start()
        return made

    running = {number: started(number) for number in range(count)}
    while running and time.time() < end + STUCK:
        time.sleep(0.1)
        for number, process in list(running.items()):
            now = folder / f"{number}.now"
            if not process.is_alive():
                del running[number]
                if process.exitcode and time.time() < end:
                    if now.exists():  # it ended the process
                        hung.append({"seed": json.loads(now.read_text())["seed"], "kind": f"exit {process.exitcode}"})
                        now.unlink()
                    running[number] = started(number)
                continue
            try:
                kernel = json.loads(now.read_text())
            except (OSError, ValueError):
                continue
            if time.time() > kernel["since"] + STUCK:
                hung.append({"seed": kernel["seed"], "kind": "hung"})
                now.unlink(missing_ok=True)
                process.kill()
    for process in running.values():
        process.kill()
    return hung


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seeds", default="330000:340000", help="A:B, or seeds with commas between")
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--workers", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--commit", default="", metavar="HASH")
    given = parser.parse_args(arguments)
    import record
    import run as fuzz

    began = time.time()
    with tempfile.TemporaryDirectory(prefix="wavedsl-") as folder:
        seeds, end = fuzz.seeds_of(given.seeds), began + given.limit
        hung = supervise(seeds, Path(folder), given.emulate, end, given.workers)
        lines = [line for file in Path(folder).glob("*.jsonl") for line in file.read_text().splitlines()]
    found = [json.loads(line) for line in lines] + hung
    counts = Counter(row["kind"] for row in found)
    executed = sorted(set().union(*(row.pop("rows") for row in found if "rows" in row)))
    odd = sorted((row for row in found if row["kind"] not in ("right", "refused")), key=lambda row: row["seed"])
    result = {
        **record.surroundings(given.commit), "generator": fuzz.VERSION, "seeds": given.seeds, "pairs": len(found),
        "counts": dict(counts), "seconds": round(time.time() - began, 1), "odd": odd, "rows": executed,
    }  # fmt: skip
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    for row in odd[:40]:
        print(f"seed {row['seed']} {row.get('target', '')} {row['kind']}: {row.get('detail', '')[:200]}")
    print(f"{len(found)} pairs: {dict(counts)}; {len(executed)} rows of the table")
    return 1 if any(row["kind"] != "rounded" for row in odd) else 0


if __name__ == "__main__":
    sys.exit(main())
