"""Products C = alpha A B + beta C for shapes that are bound by memory, as kernels of the language.

    from wavedsl.strategies import matmul
    matmul(a, b, c, alpha=2.0, beta=0.5)                       # the strategy follows from the roofline
    matmul(x, w, y, transpose_b=True, strategy="split_k")

    tuned_matmul(x, w, y, transpose_b=True)                    # the fastest of several ways, tried once per shape
    grouped_matmul(tokens, weights, out, sizes=[70, 0, 130])   # one launch for many products

`kernels` holds the kernels, `plan` cuts a shape into a launch for a strategy, `matmul` runs it; `choices` lists what
else is worth trying, `tuned` tries it; `grouped` plans and runs groups of rows.
"""

from __future__ import annotations

from wavedsl.strategies.choices import gemm_choices
from wavedsl.strategies.chosen import Choice
from wavedsl.strategies.grouped import grouped_matmul, plan_grouped
from wavedsl.strategies.plan import GEMM_STRATEGIES, Launch, Plan, matmul, plan_gemm
from wavedsl.strategies.tuned import Tuned, tune_gemm, tuned_matmul

__all__ = [
    "GEMM_STRATEGIES", "Choice", "Launch", "Plan", "Tuned", "gemm_choices", "grouped_matmul", "matmul", "plan_gemm",
    "plan_grouped", "tune_gemm", "tuned_matmul",
]  # fmt: skip
