"""Products C = alpha A B + beta C for shapes that are bound by memory, as kernels of the language.

    from wavedsl.strategies import matmul
    matmul(a, b, c, alpha=2.0, beta=0.5)                       # the strategy follows from the roofline
    matmul(x, w, y, transpose_b=True, strategy="split_k")

`kernels` holds the kernels, `plan` cuts a shape into launches for a strategy, `matmul` runs them.
"""

from __future__ import annotations

from wavedsl.strategies.plan import GEMM_STRATEGIES, Launch, Plan, matmul, plan_gemm

__all__ = ["GEMM_STRATEGIES", "Launch", "Plan", "matmul", "plan_gemm"]
