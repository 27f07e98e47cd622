# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Small PTX kernels for tests: one instruction over arrays, or a body between loads and stores."""

import numpy as np
from wavedsl.runtime.emulator.ptx.emulator import run_ptx


def module(body, params="", registers="", target="sm_90a", variables=""):
    return f""".version 8.7
.target {target}
.address_size 64
{variables}
.visible .entry k({params}) {{
.reg .pred %p<20>;
.reg .b16 %h<40>;
.reg .b32 %r<100>;
.reg .b64 %d<60>;
.reg .f32 %f<60>;
.reg .f64 %e<40>;
{registers}
{body}
}}
"""


def raw(x):
    """The array's bits as unsigned integers."""
    x = np.ascontiguousarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def elementwise(code, inputs, out_bits, *, out="out", target="sm_90a", checks=True):
    """Run `code` once per element. Inputs are registers %in0, %in1, … of their width; `code` sets %out of `out_bits` bits.

    Returns the output's bits.
    """
    arrays = [raw(x) for x in inputs]
    n = len(arrays[0])
    regs = [f".reg .b{max(16, a.dtype.itemsize * 8)} %in{i};" for i, a in enumerate(arrays)]
    regs.append(f".reg .b{max(16, out_bits)} %out;")
    lines = ["mov.u32 %r90, %tid.x; mov.u32 %r91, %ctaid.x; mov.u32 %r92, %ntid.x; mad.lo.s32 %r93, %r91, %r92, %r90;"]
    lines.append(f"setp.ge.u32 %p19, %r93, {n}; @%p19 bra END;")
    for i, a in enumerate(arrays):
        size = a.dtype.itemsize
        kind = f"b{size * 8}"
        lines.append(
            f"ld.param.u64 %d50, [p{i}]; mul.wide.u32 %d51, %r93, {size}; add.s64 %d50, %d50, %d51; ld.global.{kind} %in{i}, [%d50];"
        )
    lines.append(code)
    size = out_bits // 8
    lines.append(
        f"ld.param.u64 %d50, [po]; mul.wide.u32 %d51, %r93, {size}; add.s64 %d50, %d50, %d51; st.global.b{out_bits} [%d50], %out;"
    )
    lines.append("END: ret;")
    params = ", ".join(f".param .u64 p{i}" for i in range(len(arrays))) + ", .param .u64 po"
    result = np.zeros(n, f"u{size}")
    text = module("\n".join(lines), params, "\n".join(regs), target)
    run_ptx(text, target=target, grid=(-(-n // 128),), block=(128,), args=[*arrays, result], checks=checks)
    return result


def run(
    body,
    args,
    *,
    block=32,
    grid=1,
    params=None,
    checks="report",
    target="sm_90a",
    shared=0,
    registers="",
    variables="",
    seed=0,
):
    """Run a body whose parameters are pointers p0, p1, …; returns the report."""
    params = params if params is not None else ", ".join(f".param .u64 p{i}" for i in range(len(args)))
    text = module(body, params, registers, target, variables)
    grid = (grid,) if isinstance(grid, int) else grid
    block = (block,) if isinstance(block, int) else block
    return run_ptx(
        text, target=target, grid=grid, block=block, args=args, shared_bytes=shared, checks=checks, seed=seed
    )
