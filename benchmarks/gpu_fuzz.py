"""Drawn kernels (docs/fuzzing.md) on a GPU: the graph evaluator against the chip.

    python benchmarks/gpu_fuzz.py --out FILE --seeds 330000:340000 --limit 60       as many as fit into a minute
    python benchmarks/gpu_fuzz.py --out FILE --seeds 0:20 --emulate                 the same on the emulator

Every core draws, compiles and launches kernels of its own, in the order of the seeds, for sm_90a and as text of sm_80,
which later chips run too. A process that hangs or loses its context is started again behind the pair that did it, which
alone is blamed. Kernels that take the assembler too long are counted as `slow`.
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
from collections.abc import Callable, Sequence
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


def on_chip(compiled: Any, arguments: Sequence[Any], tell: Callable[[str], None]) -> None:
    """Launch on the GPU: arrays are copied there and back."""
    from wavedsl.runtime.devices import Device, open_driver
    from wavedsl.runtime.launch import launch

    tell("assembles")
    open_driver("cuda", 0).load(compiled.asm, compiled.target, compiled.name, compiled.shared_bytes)
    tell("runs")
    launch(compiled, arguments, Device("cuda", 0, compiled.target))


def on_emulator(compiled: Any, arguments: Sequence[Any], tell: Callable[[str], None]) -> None:
    tell("runs")
    compiled.emulate(*arguments)


class Watched:
    """What executes texts, and remembers them."""

    def __init__(self, run: Callable[..., None], tell: Callable[[str], None]):
        self.run, self.tell = run, tell
        self.texts: list[str] = []

    def __call__(self, compiled: Any, arguments: Sequence[Any]) -> None:
        self.texts.append(compiled.asm)
        self.run(compiled, arguments, self.tell)


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
    """Take pairs of a seed and a target in turn; a line of JSON for each. The file `now` says which one runs, and how
    far it is."""
    from generator.check import verdicts
    from generator.draw import draw
    from witnesses import rows

    now = folder / f"{number}.now"
    with open(folder / f"{number}.jsonl", "a") as out:
        while time.time() < end:
            with following.get_lock():
                place, following.value = following.value, following.value + 1
            if place >= len(seeds) * len(TARGETS):
                return
            seed, target = seeds[place // len(TARGETS)], TARGETS[place % len(TARGETS)]
            since = time.time()

            def tell(doing: str, pair: tuple[int, str, float] = (seed, target, since)) -> None:
                written = now.with_suffix(".new")  # the reader sees the old text or the new one, never a part
                written.write_text(json.dumps(dict(zip(("seed", "target", "since", "doing"), (*pair, doing)))))
                written.replace(now)

            tell("compiles")
            program = near(draw(seed))
            run = Watched(on_emulator if emulate else on_chip, tell)
            dead = False
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
            if dead:  # whatever this process runs next on the chip would fail too
                os._exit(3)


def ended(pair: dict[str, Any], kind: str) -> dict[str, Any]:
    """The row of a pair that a process did not come back from."""
    return {"seed": pair["seed"], "target": pair["target"], "kind": kind, "detail": f"while it {pair['doing']}"}


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
                        hung.append(ended(json.loads(now.read_text()), f"exit {process.exitcode}"))
                        now.unlink()
                    running[number] = started(number)
                continue
            try:
                pair = json.loads(now.read_text())
            except OSError:
                continue
            if time.time() > pair["since"] + STUCK:
                hung.append(ended(pair, "hung" if pair["doing"] == "runs" else "slow"))
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
    return 1 if any(row["kind"] not in ("rounded", "slow") for row in odd) else 0


if __name__ == "__main__":
    sys.exit(main())
