"""Analysis before anything runs: how much a kernel computes and moves, what bounds it, and how to cut it.

    record = wd.analyze(gemm, target="sm_80", subs={M: 4096, N: 4096, K: 64})
    print(record)

`flops` counts the graph, `issued` the kernel IR, `strategy` chooses for contractions, `roofline` puts them together.
"""

from __future__ import annotations

from wavedsl.analysis.roofline import Roofline, Traffic, analyze, analyze_gemm, product_named
from wavedsl.analysis.strategy import STRATEGIES, GemmShape, TileChoice, choose_tiles

__all__ = [
    "STRATEGIES",
    "GemmShape",
    "Roofline",
    "TileChoice",
    "Traffic",
    "analyze",
    "analyze_gemm",
    "choose_tiles",
    "product_named",
]
