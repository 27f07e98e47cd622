"""Kernels to be looked at by a profiler: each is launched twice, between its rivals' launches.

    ncu --clock-control none --set detailed -k regex:KERNEL -s 1 -c 1 python benchmarks/gpu_profile.py gemm 8192
    python benchmarks/gpu_profile.py attention 128 8192 [--causal]         forward, gradients, and cuDNN's
    python benchmarks/gpu_profile.py memory f32 2048 2048 2048 [--cut 1]   a case of `gpu_memory_bound.py`, and torch's

Products have the tiles of the strategies' plan or those of `--way` (`gpu_power.py --list`). `-s 1` leaves out the first
launch, whose instructions come from memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

import gpu_session  # noqa: F401  finds wavedsl where it is not installed

ROUNDS = 2


def products(torch: Any, size: int, chosen: Sequence[str]) -> list[Callable[[], Any]]:
    """Our product in each way (none: the strategy's), and cuBLAS'."""
    import gemm_cases
    import gpu_gemm
    import gpu_power
    from on_gpu import Space

    operands = gemm_cases.Products(Space(torch), gemm_cases.BF16, (size,) * 3, False).sets[0]
    known = gpu_power.ways()
    binds = [gpu_power.kernel_of(known[name]).bind for name in chosen] or [gemm_cases.strategy]
    return [bind(*operands) for bind in (*binds, gpu_gemm.rivals_of(torch, True)["cublas"])]


def attention(torch: Any, d: int, keys: int, causal: bool) -> list[Callable[[], Any]]:
    """Our forward pass and each kernel of our gradients, then cuDNN's passes."""
    import gpu_attention

    work = gpu_attention.Work(gpu_attention.Place(torch), "sm_90a", keys, d, causal)
    q, k, v = (x.detach().clone().requires_grad_() for x in (work.q, work.k, work.v))

    def cudnn() -> None:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.autograd.grad(out, (q, k, v), work.d_o)

    return [work.forward, *work.steps, cudnn]


def memory_bound(torch: Any, name: str, size: Sequence[int], cuts: Sequence[int]) -> list[Callable[[], Any]]:
    """Our call of a memory-bound case in each of its cuts at these places (none: the first), then torch's."""
    import gpu_memory_bound
    import memory_bound_cases
    from on_gpu import Space

    (case,) = (case for case in memory_bound_cases.CASES if case.name == name)
    held = gpu_memory_bound.Held(Space(torch), case, tuple(size))
    known = case.cuts(held.size)
    ours = [held.ours(known[place]) for place in cuts] or [held.ours(None)]
    return [*ours, held.work.calls["torch"]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    gemm = kinds.add_parser("gemm")
    gemm.add_argument("size", type=int)
    gemm.add_argument("--way", action="append", default=[], help="tiles and schedule; may be given several times")
    heads = kinds.add_parser("attention")
    heads.add_argument("d", type=int)
    heads.add_argument("keys", type=int)
    heads.add_argument("--causal", action="store_true")
    case = kinds.add_parser("memory")
    case.add_argument("case")
    case.add_argument("size", type=int, nargs="+")
    case.add_argument("--cut", action="append", type=int, default=[], help="place in the case's list of cuts")
    given = parser.parse_args(arguments)
    import torch

    if given.kind == "gemm":
        calls = products(torch, given.size, given.way)
    elif given.kind == "memory":
        calls = memory_bound(torch, given.case, given.size, given.cut)
    else:
        calls = attention(torch, given.d, given.keys, given.causal)
    for call in calls:
        for _ in range(ROUNDS):
            call()
        torch.cuda.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
