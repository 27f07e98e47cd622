# ruff: noqa: E501 (PTX text reads better in one line)
"""Hand-written sm_90a kernels for tests: matrices laid out for wgmma, kernels around one wgmma or one bulk copy.

Layouts here are written from the vendor's canonical atoms, apart from the emulator's address function.
"""

import numpy as np
from wavedsl.codegen.ptx.isa_wgmma import Descriptor
from wavedsl.runtime.emulator.ptx.emulator import run_ptx

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""
REGISTERS = (
    ".reg .pred %p<16>; .reg .b16 %h<8>; .reg .b32 %r<64>, %a<8>, %s<256>; .reg .b64 %d<32>; .reg .f32 %f<256>;\n"
)


def module(params, body, threads=128, directives="", registers=""):
    return f"{HEAD}.visible .entry k({params})\n.reqntid {threads}, 1, 1\n{directives}\n{{\n{REGISTERS}{registers}{body}\n}}\n"


def swizzle(offset, span):
    """16-byte chunk number within 8 rows of a span: bits 4… by bits 7…."""
    bits = {128: 3, 64: 2, 32: 1, 0: 0}[span]
    return offset ^ ((offset >> 7 & ((1 << bits) - 1)) << 4)


def laid_out(matrix, span, mn_major):
    """Bytes of `matrix` [rows, k] in shared memory, with leading and stride byte offsets of its descriptor.

    K-major: panels of one span of k, in each 8 rows of a span per atom. MN-major (16-bit elements): panels of one span of
    rows, in each one row of them per k. Without swizzle: cores of 8 rows of 16 bytes.
    """
    if mn_major:
        matrix = np.ascontiguousarray(matrix.T)
    rows, columns = matrix.shape
    item = matrix.dtype.itemsize
    width = columns * item
    data = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, width)
    out = np.zeros(rows * max(width, -(-width // span) * span if span else 0), np.uint8)
    r, c = np.meshgrid(np.arange(rows), np.arange(width), indexing="ij")
    if span:
        at = swizzle(c // span * (rows * span) + r * span + c % span, span)
        leading, stride = rows * span if mn_major else 16, 8 * span
    else:
        # Cores side by side along the contiguous dimension, then along the other.
        at = r // 8 * (8 * width) + c // 16 * 128 + r % 8 * 16 + c % 16
        leading, stride = (8 * width, 128) if mn_major else (128, 8 * width)
    out[at.reshape(-1)] = data.reshape(-1)
    return out, leading, stride


COPY_IN = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; ld.param.u64 %d0, [image]; shl.b32 %r2, %r0, 4;
COPY: setp.ge.u32 %p0, %r2, BYTES; @%p0 bra COPIED; cvt.u64.u32 %d1, %r2; add.s64 %d2, %d0, %d1; ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d2];
add.u32 %r3, %r1, %r2; st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7}; add.u32 %r2, %r2, 2048; bra COPY;
COPIED: fence.proxy.async.shared::cta;
bar.sync 0;
"""
FENCE, COMMIT, WAIT = (
    "wgmma.fence.sync.aligned;\n",
    "wgmma.commit_group.sync.aligned;\n",
    "wgmma.wait_group.sync.aligned 0;\n",
)


def registers_of(what):
    """Names of the accumulators."""
    prefix = "%f" if what.d_dtype.name == "f32" else "%s"
    return [f"{prefix}{i}" for i in range(what.d_regs)]


def multiply(what, a, b, scale_d, signs=(1, 1), orders=(0, 0), saturate=False):
    """One instruction; `a` a descriptor register or a list of registers."""
    in_registers = isinstance(a, (list, tuple))
    tail = ""
    if what.d_dtype.name != "i32":
        tail += f", {signs[0]}, {signs[1]}"
    if what.transposable:
        tail += f", {orders[1]}" if in_registers else f", {orders[0]}, {orders[1]}"
    one = "{" + ", ".join(a) + "}" if in_registers else a
    name = what.mnemonic + (".satfinite" if saturate else "")
    return f"{name} {{{', '.join(registers_of(what))}}}, {one}, {b}, {scale_d}{tail};\n"


def wgmma_text(what, size, steps, scale_d, a_in_registers, **options):
    """A kernel of one warpgroup: image to shared memory, accumulators from `init`, the products, results to `out`.

    `steps`: (descriptor of A or None, descriptor of B) of each product.
    """
    regs = registers_of(what)
    n = len(regs)
    body = COPY_IN.replace("BYTES", str(size))
    body += f"ld.param.u64 %d3, [init]; ld.param.u64 %d4, [out]; mul.wide.u32 %d5, %r0, {4 * n}; add.s64 %d3, %d3, %d5; add.s64 %d4, %d4, %d5;\n"
    body += "\n".join(f"ld.global.b32 {r}, [%d3+{4 * i}];" for i, r in enumerate(regs)) + "\n"
    if a_in_registers:
        body += f"ld.param.u64 %d6, [afrag]; mul.wide.u32 %d7, %r0, {16 * len(steps)}; add.s64 %d6, %d6, %d7;\n"
        body += "".join(
            f"ld.global.b32 %s{128 + 4 * s + i}, [%d6+{16 * s + 4 * i}];\n" for s in range(len(steps)) for i in range(4)
        )
    body += FENCE
    for s, (a, b) in enumerate(steps):
        # Descriptors count from the address of shared memory.
        body += f"cvt.u64.u32 %d10, %r1; shr.u64 %d10, %d10, 4; add.s64 %d12, %d10, {b.encode()};\n"
        if a is not None:
            body += f"add.s64 %d11, %d10, {a.encode()};\n"
        one = [f"%s{128 + 4 * s + i}" for i in range(4)] if a is None else "%d11"
        body += multiply(what, one, "%d12", scale_d if s == 0 else "1", **options)
    body += COMMIT + WAIT
    body += "\n".join(f"st.global.b32 [%d4+{4 * i}], {r};" for i, r in enumerate(regs)) + "\nret;"
    params = ".param .u64 image, .param .u64 init, .param .u64 out, .param .u64 afrag"
    return module(params, body)


def d_index(n):
    """(row, column) of 32-bit accumulator i of each thread: arrays [128, n / 2]."""
    t, i = np.meshgrid(np.arange(128), np.arange(n // 2), indexing="ij")
    w, g, q = t // 32, t % 32 // 4, t % 4
    return 16 * w + g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * q + i % 2


def a_index(bits):
    """(row, k) of element e of register r of each thread, as arrays [128, 4, elements per register]."""
    per = 32 // bits
    t, r, e = np.meshgrid(np.arange(128), np.arange(4), np.arange(per), indexing="ij")
    w, g, q = t // 32, t % 32 // 4, t % 4
    return 16 * w + g + 8 * (r % 2), (q * per + e) + 4 * per * (r // 2)


def launch(text, args, grid=1, block=128, shared=0, checks="report", seed=0, **kwargs):
    return run_ptx(
        text,
        target="sm_90a",
        grid=(grid,) if isinstance(grid, int) else grid,
        block=(block,),
        args=args,
        shared_bytes=shared,
        checks=checks,
        seed=seed,
        **kwargs,
    )


def described(start, leading, stride, span):
    return Descriptor(start, leading, stride, span)
