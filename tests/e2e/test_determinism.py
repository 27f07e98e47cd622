"""The same kernel gives the same text, byte by byte, whatever the hash seed and whatever was compiled before it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HELPERS = Path(__file__).parents[1] / "helpers"

SCRIPT = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import products
from products import BM, BN, K, M, N, TILE
import wavedsl as wd

@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1)])
def copy(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
    wd.write(wd.read(a), b)

jobs = []
for target in products.TARGETS:
    jobs.append((f"copy {target}", copy, target, {M: 100, N: 63}, ()))
    for kind in (products.F16, products.F16_OUT, products.I8, products.kinds(target)[-1]):
        tile = dict(zip(TILE, (64, 64, 32, 32, 32)))
        jobs.append((f"{kind} {target}", products.gemm(kind), target, {**tile, M: 128, N: 100, K: 65}, ()))
    jobs.append((f"dynamic {target}", products.gemm(products.F16), target, tile, (M, N, K)))
if sys.argv[2] == "backwards":
    jobs.reverse()
for name, kernel, target, subs, dynamic in jobs:
    text = kernel.compile(target=target, subs=subs, dynamic=dynamic).asm
    print(name, hashlib.sha256(text.encode()).hexdigest())
"""


def texts(seed: int, order: str) -> set[str]:
    """Names and digests of the texts that a process of its own makes."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", SCRIPT, str(HELPERS), order]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


def test_hash_seed_and_order_do_not_matter() -> None:
    first = texts(0, "forwards")
    assert len(first) == len({line.rsplit(" ", 1)[1] for line in first}) >= 20
    assert texts(4242, "backwards") == first
