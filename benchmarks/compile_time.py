"""How long importing and compiling take: each number in a process of its own, nothing cached but Python's bytecode.

Bytecode is written to a folder of the benchmark's own, whatever PYTHONDONTWRITEBYTECODE says: parsing the sources again
would add 0.17 s to a first compile.

    python benchmarks/compile_time.py [--repeat 5]

* import: `import wavedsl` after its four dependencies, and those dependencies.
* cold: the first compile of a GEMM of 64 x 64 x 64 tiles (f16), Python to text, verifiers on, with and without the
  imports of the compiler's own modules. Warm: the next compile of it, for another size.
* tuned GEMM: the first compile of 128 x 256 x 64 tiles (bf16, 4096^3) for sm_90a: warpgroups, rings, roles, bulk
  stores.
* attention: the same of `examples/attention.py` forward, 4 heads of 512 queries and keys, head size 128, bf16, tiles as
  the example chooses them. Cold only.
* cached: from process start to the result of a kernel that the disk cache holds, on the emulator.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import record
from wavedsl.codegen import TARGETS

from wavedsl.reports import table

IMPORTS_TOO = ", compiler's imports included"
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

IMPORT = """
import time
def now(): return time.perf_counter(), time.process_time()
start = now()
import numpy, sympy, ml_dtypes  # networkx is only for those who ask a graph for its `nx`
middle = now()
import wavedsl
done = now()
def between(a, b): return {"seconds": b[0] - a[0], "cpu": b[1] - a[1]}
import json; print(json.dumps({"dependencies": between(start, middle), "wavedsl": between(middle, done)}))
"""

KERNEL = """
import numpy as np
import wavedsl as wd
M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")

@wd.wave(
    [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
     wd.WaveConstraint(M, BM / 2), wd.WaveConstraint(N, BN / 2)],
    subs={BM: 64, BN: 64, BK: 64},
)
def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)
"""

TUNED = (
    KERNEL.replace("wd.f16", "wd.bf16")
    .replace("wd.WaveConstraint(N, BN / 2)", "wd.WaveConstraint(N, BN)")
    .replace("BM: 64, BN: 64, BK: 64", "BM: 128, BN: 256, BK: 64")
    .replace("c: wd.Memory[M, N, wd.f32]", "c: wd.Memory[M, N, wd.bf16]")
    .replace("wd.write(loop, c)", "wd.write(wd.cast(loop, wd.bf16), c)")
)
"""The largest tile that `gpu_gemm.py` tries first: two computing warpgroups and a copying one."""

COMPILE = """
import json, sys, time
from kernel import *
target, preload = sys.argv[1], sys.argv[2] == "1"
size = int(sys.argv[3]) if len(sys.argv) > 3 else 1024
if preload:  # what `import` costs is a number of its own
    import wavedsl.compiler, wavedsl.ir.pipeline, wavedsl.tracer.trace, wavedsl.ir.dataflow.graph_verify
    from wavedsl.codegen import is_amd
    if is_amd(target):
        import wavedsl.codegen.amdgcn.emit
    else:
        import wavedsl.codegen.ptx.emit

def compiled(k):
    start, cpu = time.perf_counter(), time.process_time()
    result = gemm.compile(subs={M: size, N: size, K: k}, target=target)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "phases": result.times, "lines": result.asm.count(chr(10))}

print(json.dumps({"cold": compiled(size), "warm": compiled(size // 2)}))
"""

ATTENTION = """
import json, sys, time
target, preload, examples = sys.argv[1], sys.argv[2] == "1", sys.argv[3]
sys.path.append(examples)
import attention
import wavedsl as wd
from attention import B, D, E, G, H, M, N
if preload:
    import wavedsl.compiler, wavedsl.ir.pipeline, wavedsl.tracer.trace, wavedsl.ir.dataflow.graph_verify
    from wavedsl.codegen import is_amd
    if is_amd(target):
        import wavedsl.codegen.amdgcn.emit
    else:
        import wavedsl.codegen.ptx.emit

start, cpu = time.perf_counter(), time.process_time()
tile, waves = attention.tile_of(target, 128)
kernel = attention.attention_kernel(attention.Variant(wd.bf16), tile=tile, waves=waves)
result = kernel.compile(subs={B: 1, H: 4, G: 4, M: 512, N: 512, D: 128, E: 128}, target=target)
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
print(json.dumps({"seconds": seconds, "cpu": cpu, "phases": result.times, "lines": result.asm.count(chr(10))}))
"""

CACHED = """
from kernel import *
a, b, c = np.ones((64, 64), np.float16), np.ones((64, 64), np.float16), np.zeros((64, 64), np.float32)
gemm(a, b, c)
assert (c == 64).all()
"""


def run(code: str, folder: str, *arguments: str, device: str = "") -> tuple[Any, dict[str, float]]:
    """What a script printed as JSON (None for nothing), and the seconds from its process's start to its end, by the
    clock and of a processor."""
    environment = {
        **os.environ,
        "PYTHONPATH": folder,
        "PYTHONPYCACHEPREFIX": os.path.join(folder, "bytecode"),
        "WAVEDSL_CACHE_DIR": os.path.join(folder, "cache"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if not device:
        environment["WAVEDSL_CACHE_BYTES"] = "0"
    else:
        environment["WAVEDSL_DEVICE"] = device
    start, cpu = time.perf_counter(), _children()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, cwd=folder
    )
    seconds, cpu = time.perf_counter() - start, _children() - cpu
    if done.returncode:
        raise SystemExit(done.stderr)
    return (json.loads(done.stdout) if done.stdout.strip() else None), {"seconds": seconds, "cpu": cpu}


def _children() -> float:
    """Seconds that processes started here have used of a processor."""
    used = os.times()
    return used.children_user + used.children_system


def measure(repeat: int, targets: tuple[str, ...] = TARGETS) -> list[dict[str, Any]]:
    """One row per number of `targets`: what, target, milliseconds, what is asked for.

    On a machine that does other work as well, the best time of a processor says more than the clock."""
    rows: list[dict[str, Any]] = []

    def row(what: str, target: str, runs: list[dict[str, Any]], limit_ms: float | None) -> None:
        seconds = [r["seconds"] for r in runs]
        best = min(runs, key=lambda r: r["seconds"])
        numbers = {
            "median_ms": 1e3 * statistics.median(seconds),
            "best_ms": 1e3 * min(seconds),
            "cpu_ms": 1e3 * min(r["cpu"] for r in runs),
            "limit_ms": limit_ms,
        }
        if "phases" in best:
            numbers["phases_ms"] = {k: 1e3 * v for k, v in best["phases"].items()}
            numbers["lines"] = best["lines"]
        rows.append({"what": what, "target": target, **numbers})

    with tempfile.TemporaryDirectory() as folder:
        imports = [run(IMPORT, folder)[0] for _ in range(repeat + 1)][1:]
        row("import the dependencies", "", [i["dependencies"] for i in imports], None)
        row("import wavedsl on top", "", [i["wavedsl"] for i in imports], 100)
        for target in targets:
            tuned = target == "sm_90a"
            size, product, limit_ms = ("4096", "tuned GEMM", 250) if tuned else ("1024", "GEMM", 150)
            Path(folder, "kernel.py").write_text(TUNED if tuned else KERNEL)
            run(COMPILE, folder, target, "0", size)  # writes the bytecode
            within, before = ([run(COMPILE, folder, target, p, size)[0] for _ in range(repeat)] for p in ("0", "1"))
            row(f"cold {product} to text{IMPORTS_TOO}", target, [r["cold"] for r in within], limit_ms)
            row(f"cold {product} to text", target, [r["cold"] for r in before], limit_ms)
            if not tuned:
                row(f"warm {product} to text", target, [r["warm"] for r in before], limit_ms)
            run(ATTENTION, folder, target, "0", str(EXAMPLES))
            for preload, more in (("0", IMPORTS_TOO), ("1", "")):
                results = [run(ATTENTION, folder, target, preload, str(EXAMPLES))[0] for _ in range(repeat)]
                row(f"cold attention to text{more}", target, results, 500)
            if not tuned:
                device = f"emulator:{target}"
                run(CACHED, folder, device=device)
                starts = [run(CACHED, folder, device=device)[1] for _ in range(repeat)]
                row("process start to result, cached", target, starts, 1000)
    return rows


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeat", type=int, default=5)
    rows = measure(options.parse_args().repeat)
    head = ("what", "target", "median_ms", "best_ms", "cpu_ms", "limit_ms")
    phases = ("trace", "middle", "backend")
    body = [[row[key] for key in head] + [row.get("phases_ms", {}).get(phase, "") for phase in phases] for row in rows]
    print(table((*head, *phases), body))
    print(record.write("compile_time", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
