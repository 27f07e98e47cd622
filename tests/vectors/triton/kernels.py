"""Source of the PTX beside it: small Hopper kernels for Triton 3.9, compiled for sm_90 without debug information.

`python kernels.py` writes the files anew where Triton is installed; the tests only read them.
"""

import re
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def gemm_tma(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tensor maps from the host."""
    pm, pn = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([pm, k]), b.load([pn, k]).T, acc)
    c.store([pm, pn], acc.to(tl.float16))


@triton.jit
def gemm_persistent(a, b, c, M, N, K, GRID: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """CTAs that loop over tiles, loads and stores through tensor maps."""
    columns = tl.cdiv(N, BN)
    for t in tl.range(tl.program_id(0), tl.cdiv(M, BM) * columns, GRID, flatten=True):
        pm, pn = (t // columns) * BM, (t % columns) * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            acc = tl.dot(a.load([pm, k * BK]), b.load([pn, k * BK]).T, acc)
        c.store([pm, pn], acc.to(tl.float16))


@triton.jit
def gemm_device_maps(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tensor maps that the kernel makes."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    pm, pn = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([pm, k]), b.load([pn, k]).T, acc)
    c.store([pm, pn], acc.to(tl.bfloat16))


@triton.jit
def gemm_pointers(a_ptr, b_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr):
    """B is [K, N]: 16-bit types multiply it as it lies, others transpose it in shared memory."""
    pm, pn = tl.program_id(0) * BM, tl.program_id(1) * BN
    rm, rn, rk = pm + tl.arange(0, BM), pn + tl.arange(0, BN), tl.arange(0, BK)
    a = a_ptr + rm[:, None] * K + rk[None, :]
    b = b_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), OUT)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(a), tl.load(b), acc, out_dtype=OUT)
        a += BK
        b += BK * N
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc)


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, o_ptr, S, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Probabilities stay in registers as operand A of the second product."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd, rn = tl.arange(0, D), tl.arange(0, BN)
    q = tl.load(q_ptr + rm[:, None] * D + rd[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for n in range(0, S, BN):
        k = tl.load(k_ptr + (n + rn)[:, None] * D + rd[None, :])
        v = tl.load(v_ptr + (n + rn)[:, None] * D + rd[None, :])
        s = tl.dot(q, k.T) * scale
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        keep = tl.exp2(top - new)
        total = total * keep + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), v, acc * keep[:, None])
        top = new
    tl.store(o_ptr + rm[:, None] * D + rd[None, :], acc / total[:, None])


@triton.jit
def gemm_roles(a_ptr, b_ptr, c_ptr, M, N, K, GRID: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Specialised warps: some load, two warpgroups share a tile; results leave in two pieces."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN // 2])
    columns = tl.cdiv(N, BN)
    for t in tl.range(tl.program_id(0), tl.cdiv(M, BM) * columns, GRID, warp_specialize=True):
        pm, pn = (t // columns) * BM, (t % columns) * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            acc = tl.dot(a.load([pm, k * BK]), b.load([pn, k * BK]).T, acc)
        left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
        c.store([pm, pn], left.to(tl.bfloat16))
        c.store([pm, pn + BN // 2], right.to(tl.bfloat16))


@triton.jit
def attention_causal(
    q, k, v, o, lse, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Tensor maps from the host; blocks without a mask first, then those with one."""
    start = tl.program_id(0) * BM
    head = tl.program_id(1) * N
    rows = start + tl.arange(0, BM)
    columns = tl.arange(0, BN)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    x = q.load([head + start, 0])
    for at in tl.range(0, start, BN):
        s = tl.dot(x, k.load([head + at, 0]).T)
        new = tl.maximum(top, tl.max(s, 1) * scale)
        p = tl.math.exp2(s * scale - new[:, None])
        keep = tl.math.exp2(top - new)
        total = total * keep + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), v.load([head + at, 0]), acc * keep[:, None])
        top = new
    for at in tl.range(start, start + BM, BN):
        s = tl.dot(x, k.load([head + at, 0]).T)
        s = s * scale + tl.where(rows[:, None] >= (at + columns)[None, :], 0, -1.0e6)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        keep = tl.math.exp2(top - new)
        total = total * keep + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), v.load([head + at, 0]), acc * keep[:, None])
        top = new
    tl.store(lse + head + rows, top + tl.math.log2(total))
    o.store([head + start, 0], (acc / total[:, None]).to(tl.bfloat16))


@triton.jit
def row_sum(x_ptr, y_ptr, N, B: tl.constexpr):
    """One row per cluster: its CTAs add their parts through each other's shared memory."""
    row = tl.program_id(0)
    tl.store(y_ptr + row, tl.sum(tl.load(x_ptr + row * N + tl.arange(0, B)), 0))


def bare(text):
    """Without debug information, comments and empty lines."""
    text = text.split("\t.section")[0]
    text = re.sub(r"^\s*(\.loc|\.file|//).*\n|^\$L__(tmp|func)\w*:\n|^\s*\n", "", text, flags=re.M)
    return re.sub(r"[ \t]*//[^\n]*", "", text).replace(", debug", "")


def write(name, fn, types, constants, warps, ctas=1):
    signature = {n: types.get(n, "constexpr") for n in fn.arg_names}
    wide = [i for i, t in enumerate(signature.values()) if t.startswith("*") or t == "i32"]
    source = ASTSource(fn, signature, constants, attrs={(i,): [["tt.divisibility", 16]] for i in wide})
    options = {"num_warps": warps, "num_stages": 3, "num_ctas": ctas}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    warps = made.metadata.num_warps  # those of all roles
    head = f"// {fn.__name__}: {warps} warps, {made.metadata.shared} bytes of dynamic shared memory\n"
    Path(__file__).with_name(f"{name}.ptx").write_text(head + bare(made.asm["ptx"]))


def main():
    boxes = {"a": "tensordesc<fp16[128,64]>", "b": "tensordesc<fp16[128,64]>", "c": "tensordesc<fp16[128,128]>"}
    size = {"BM": 128, "BN": 128, "BK": 64}
    write("gemm_tma", gemm_tma, {**boxes, "K": "i32"}, size, 8)
    write("gemm_persistent", gemm_persistent, {**boxes, "M": "i32", "N": "i32", "K": "i32"}, {**size, "GRID": 3}, 8)
    pointers = {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*bf16", "M": "i32", "N": "i32", "K": "i32"}
    write("gemm_device_maps", gemm_device_maps, pointers, size, 8)
    write("gemm_roles", gemm_roles, pointers, {**size, "GRID": 3}, 4)
    small = {"BM": 64, "BN": 32, "BK": 32}
    for name, of, to, out in (
        ("bf16", "*bf16", "*fp32", tl.float32),
        ("tf32", "*fp32", "*fp32", tl.float32),
        ("e4m3", "*fp8e4nv", "*fp32", tl.float32),
        ("e5m2", "*fp8e5", "*fp32", tl.float32),
        ("s8", "*i8", "*i32", tl.int32),
    ):
        types = {"a_ptr": of, "b_ptr": of, "c_ptr": to, "N": "i32", "K": "i32"}
        write(f"gemm_{name}", gemm_pointers, types, {**small, "OUT": out}, 4)
    write("gemm_cluster", gemm_tma, {**boxes, "K": "i32"}, size, 4, ctas=2)
    write("row_sum", row_sum, {"x_ptr": "*fp32", "y_ptr": "*fp32", "N": "i32"}, {"B": 2048}, 4, ctas=4)
    types = {"q_ptr": "*fp16", "k_ptr": "*fp16", "v_ptr": "*fp16", "o_ptr": "*fp32", "S": "i32", "scale": "fp32"}
    boxes = dict.fromkeys("qkvo", "tensordesc<bf16[64,64]>")
    types_of = {**boxes, "lse": "*fp32", "scale": "fp32", "N": "i32"}
    write("attention_causal", attention_causal, types_of, {"D": 64, "BM": 64, "BN": 64}, 4)
    write("attention", attention, types, {"BM": 64, "BN": 32, "D": 32}, 4)


if __name__ == "__main__":
    main()
