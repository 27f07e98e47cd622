"""What products draw, and how fast they are, when a GPU multiplies without a pause: seconds, watts, clocks of each way.

    python benchmarks/gpu_power.py --out FILE                            4096^3 and 8192^3 in bf16; needs torch and NVML
    python benchmarks/gpu_power.py --out FILE --sizes 8192 --seconds 0.5
    python benchmarks/gpu_power.py --list                                the ways, without a GPU

A chip of 700 W does not keep its clock through products of random numbers: what a burst of a few milliseconds shows is
not what a training step sees. Every way runs for so many seconds, once in one order and once in the other, so that what
the chip's temperature does to one it does to all. A row: seconds per call of each turn, the energy counter's joules per
call and watts, the SM clock half way. Ways are tiles with choices of the schedule, cuBLAS, and Triton's GEMMs. Their
kernels are compiled first, by as many processes as there are cores. Every result is compared once, as `gpu_gemm` does.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

import gpu_session  # noqa: F401  finds wavedsl where it is not installed
from gemm_kernels import Config

WIDE, TALL = Config(128, 256, 64, 64, 256), Config(256, 128, 64, 128, 128)
SCHEDULES: Sequence[dict[str, Any]] = (
    {}, {"cluster": (2, 1, 1)}, {"cluster": (1, 2, 1)}, {"persistent": False}, {"cluster": (2, 1, 1), "stages": 3},
)  # fmt: skip
"""What the tiles of two warpgroups are tried with."""
OTHERS = (
    replace(WIDE, k=128), Config(128, 192, 64, 64, 192), Config(192, 256, 64, 64, 256), Config(256, 192, 64, 128, 192),
    Config(128, 320, 64, 64, 320),
    Config(256, 128, 64, 64, 128), Config(128, 128, 64, 64, 128),
    Config(64, 256, 64, 64, 256, (("persistent", True), ("ping_pong", True))),
    Config(128, 128, 64, 128, 128, (("persistent", True), ("ping_pong", True))),
)  # fmt: skip


def ways() -> dict[str, tuple[str, Config]]:
    """Tiles and schedules by name, each with the operand that is to stay in the L2 cache."""
    found = [replace(tile, schedule=tuple(chosen.items())) for tile in (WIDE, TALL) for chosen in SCHEDULES]
    plain = {str(config): ("", config) for config in (*found, *OTHERS)}
    return plain | {f"{config}, {stays} stays": (stays, config) for config in (WIDE, TALL) for stays in "ab"}


def kernel_of(way: tuple[str, Config]) -> Any:
    """The kernel of one of `ways`."""
    import gemm_cases
    import gemm_kernels

    hints, config = way
    return gemm_kernels.product(replace(gemm_cases.BF16, hints=hints), config)


def compiled(name: str, size: int) -> None:
    """Compile one way into the cache. What cannot be compiled says so where it is measured."""
    import ahead
    import gemm_cases
    from on_gpu import Space
    from wavedsl.ir.errors import WaveError
    from wavedsl.runtime import binaries
    from wavedsl.runtime.launch import compile_ahead

    operands = gemm_cases.Products(Space(empty_arrays=True), gemm_cases.BF16, (size,) * 3, False).sets[0]
    with contextlib.suppress(WaveError):
        made = compile_ahead(kernel_of(ways()[name]), dict(zip("abc", operands)), ahead.TARGET)
        binaries.ptx(made.asm, made.target, made.name)


class Meter:
    """The energy counter and the clock of GPU 0, as NVML tells them; None where it does not."""

    def __init__(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._gpu = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
            self.joules()
        except Exception:
            self._nvml = None

    def joules(self) -> float | None:
        return None if self._nvml is None else self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu) / 1e3

    def megahertz(self) -> int | None:
        if self._nvml is None:
            return None
        return int(self._nvml.nvmlDeviceGetClockInfo(self._gpu, self._nvml.NVML_CLOCK_SM))


def turn(torch: Any, graph: Any, calls: int, seconds: float, meter: Meter) -> dict[str, Any]:
    """Replay a graph of so many calls for about so long."""
    clocks: list[int | None] = []
    watch = threading.Timer(seconds / 2, lambda: clocks.append(meter.megahertz()))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    torch.cuda.synchronize()
    before, watch_started = meter.joules(), time.perf_counter()
    watch.start()
    start.record()
    replays = 0
    while time.perf_counter() - watch_started < seconds:
        graph.replay()
        replays += 1
        torch.cuda.current_stream().synchronize() if replays % 4 == 0 else None
    end.record()
    torch.cuda.synchronize()
    after = meter.joules()
    watch.join()
    each = start.elapsed_time(end) / 1e3 / (replays * calls)
    found: dict[str, Any] = {"seconds": each, "megahertz": clocks[0] if clocks else None}
    if before is not None and after is not None:
        found["watts"] = (after - before) / (each * replays * calls)
    return found


def captured(torch: Any, calls: Sequence[Callable[[], Any]], seconds: float) -> tuple[Any, int]:
    """A graph that takes about so long, and the calls in it."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for call in calls:
        call()
    torch.cuda.synchronize()
    rounds = max(1, int(seconds / (time.perf_counter() - start)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    return graph, rounds * len(calls)


def measure(size: int, seconds: float, said: Callable[[dict[str, Any]], None]) -> None:
    """A row for each way of size^3, given to `said` when all have had both turns."""
    import gemm_cases
    import gpu_gemm
    import torch
    from on_gpu import Space

    import wavedsl as wd

    products = gemm_cases.Products(Space(torch), gemm_cases.BF16, (size,) * 3, True)
    binds: dict[str, Any] = {name: kernel_of(way).bind for name, way in ways().items()}
    binds |= {"strategy": gemm_cases.strategy, **gpu_gemm.rivals_of(torch, True)}
    graphs: dict[str, tuple[Any, int]] = {}
    rows: dict[str, dict[str, Any]] = {}
    for name, bind in binds.items():
        rows[name] = {"size": size, "way": name}
        try:
            products.poison()
            graphs[name] = captured(torch, products.calls(bind), 0.02)
            rows[name]["error"] = products.error()
        except wd.WaveError as error:
            rows[name]["unfit"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        except Exception as error:  # a rival's failure is its own
            rows[name]["failed"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    meter, order = Meter(), list(graphs)
    for names in (order, order[::-1]):
        for name in names:
            rows[name].setdefault("turns", []).append(turn(torch, *graphs[name], seconds, meter))
    for row in rows.values():
        if "turns" in row:
            row["seconds"] = math.sqrt(math.prod(t["seconds"] for t in row["turns"]))
            if all("watts" in t for t in row["turns"]):
                row["joules"] = sum(t["watts"] * t["seconds"] for t in row["turns"]) / 2
        said(row)


def table(rows: Sequence[dict[str, Any]]) -> str:
    from wavedsl.reports import table

    body = []
    for row in sorted(rows, key=lambda r: (r["size"], r.get("seconds", math.inf))):
        turns = row.get("turns", ())
        body.append((
            row["size"], row["way"], row["seconds"] * 1e6 if turns else None, row.get("joules"),
            "/".join(f"{t.get('watts', 0):.0f}" for t in turns), "/".join(str(t["megahertz"]) for t in turns),
            row.get("error"), row.get("unfit") or row.get("failed") or "",
        ))  # fmt: skip
    return table(("size", "way", "us", "J", "W", "MHz", "error of allowed", "why not"), body)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON of the rows")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--seconds", type=float, default=0.3, help="of one turn of one way (0.3)")
    parser.add_argument("--list", action="store_true", help="print the ways, run nothing")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(ways()))
        return 0
    import record

    with concurrent.futures.ProcessPoolExecutor(max(1, len(os.sched_getaffinity(0)) - 1)) as pool:
        made = [pool.submit(compiled, name, size) for size in given.sizes for name in ways()]
        import torch

        torch.cuda.synchronize()
        concurrent.futures.wait(made)
    rows: list[dict[str, Any]] = []
    for size in given.sizes:
        measure(size, given.seconds, rows.append)
        if given.out:
            given.out.write_text(
                json.dumps({**record.surroundings(), "gpu": record.gpu(torch), "rows": rows}, indent=1)
            )
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
