"""Triton's form of `model_kernels.py`, and of the examples beside them, for `triton_hip.py`."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def gated(x, y, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    a = tl.load(x + row * 2 * N + at).to(tl.float32)
    b = tl.load(x + row * 2 * N + N + at).to(tl.float32)
    tl.store(y + row * N + at, (a * tl.sigmoid(a) * b).to(y.dtype.element_ty))


@triton.jit
def rotated(x, cosine, sine, y, H: tl.constexpr, D: tl.constexpr, BT: tl.constexpr, BH: tl.constexpr):
    tokens = tl.program_id(0) * BT + tl.arange(0, BT)
    heads = tl.program_id(1) * BH + tl.arange(0, BH)
    deep = tl.arange(0, D)
    angle = tokens[:, None] * D + deep[None, :]
    c = tl.load(cosine + angle).to(tl.float32)[:, None, :]
    s = tl.load(sine + angle).to(tl.float32)[:, None, :]
    at = (tokens[:, None, None] * H + heads[None, :, None]) * (2 * D) + deep[None, None, :]
    a, b = tl.load(x + at).to(tl.float32), tl.load(x + at + D).to(tl.float32)
    tl.store(y + at, (a * c - b * s).to(y.dtype.element_ty))
    tl.store(y + at + D, (b * c + a * s).to(y.dtype.element_ty))


@triton.jit
def layer_norm_backward(x, w, dy, mean, rstd, dx, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    scale = tl.load(rstd + row)
    normal = (tl.load(x + row * N + at).to(tl.float32) - tl.load(mean + row)) * scale
    slope = tl.load(dy + row * N + at).to(tl.float32) * tl.load(w + at).to(tl.float32)
    along = tl.sum(slope * normal, 0) / N
    across = tl.sum(slope, 0) / N
    tl.store(dx + row * N + at, ((slope - normal * along - across) * scale).to(dx.dtype.element_ty))


@triton.jit
def norm_quantised(x, residual, w, h, q, scale, eps, N: tl.constexpr, MOST: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    total = tl.load(x + row * N + at).to(tl.float32) + tl.load(residual + row * N + at).to(tl.float32)
    tl.store(h + row * N + at, total.to(h.dtype.element_ty))
    y = total * tl.rsqrt(tl.sum(total * total, 0) / N + eps) * tl.load(w + at).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(y), 0), 1e-12)
    tl.store(scale + row, largest * (1.0 / MOST))
    rounded = tl.clamp(y * (MOST / largest), -MOST, MOST)
    tl.store(q + row * N + at, rounded.to(q.dtype.element_ty))


@triton.jit
def gathered(table, ids, y, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    tl.store(y + row * N + at, tl.load(table + tl.load(ids + row).to(tl.int64) * N + at))


@triton.jit
def scanned(x, y, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    tl.store(y + row * N + at, tl.cumsum(tl.load(x + row * N + at).to(tl.float32), 0))


@triton.jit
def column_sums(x, dy, dw, db, M: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    to_w, to_b = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for start in range(0, M, BM):
        at = (start + tl.arange(0, BM))[:, None] * N + columns[None, :]
        slope = tl.load(dy + at).to(tl.float32)
        to_w += slope * tl.load(x + at).to(tl.float32)
        to_b += slope
    tl.store(dw + columns, tl.sum(to_w, 0))
    tl.store(db + columns, tl.sum(to_b, 0))


@triton.jit
def cross_entropy(x, label, loss, dx, N: tl.constexpr, BN: tl.constexpr):
    """Twice through a row: for its largest number and its sum, then for the gradient. Label -100: it does not count."""
    row = tl.program_id(0)
    mine = tl.load(label + row)
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    chosen = tl.full((), 0.0, tl.float32)
    for start in range(0, N, BN):
        at = start + tl.arange(0, BN)
        value = tl.load(x + row * N + at).to(tl.float32)
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher), 0)
        chosen += tl.sum(tl.where(at == mine, value, 0.0), 0)
        top = higher
    counts = mine != -100
    tl.store(loss + row, tl.where(counts, tl.log(total) + top - chosen, 0.0))
    share = tl.where(counts, 1.0 / total, 0.0)
    for start in range(0, N, BN):
        at = start + tl.arange(0, BN)
        part = tl.exp(tl.load(x + row * N + at).to(tl.float32) - top) * share
        tl.store(dx + row * N + at, tl.where(at == mine, part - 1.0, part).to(dx.dtype.element_ty))


@triton.jit
def scaled_gemm(
    a, b, row_scale, column_scale, c, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Operands of 8 bits, `WHOLE` numbers or floats; a factor for each row of a [.., K] and of b [N, K]."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * K + inner[None, :]
    right = b + columns[None, :] * K + inner[:, None]
    acc = tl.zeros((BM, BN), tl.int32 if WHOLE else tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(left), tl.load(right), acc, out_dtype=acc.dtype)
        left += BK
        right += BK
    out = acc.to(tl.float32) * tl.load(row_scale + rows)[:, None] * tl.load(column_scale + columns)[None, :]
    tl.store(c + rows[:, None] * N + columns[None, :], out.to(c.dtype.element_ty))


@triton.jit
def blocks_scaled(
    a, b, sa, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """A factor for each row of a and block of K, and for each 128 rows of b and block of K."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * K + inner[None, :]
    right = b + columns[None, :] * K + inner[:, None]
    scales = sb + tl.program_id(1) * BN // 128 * (K // BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K // BK):
        part = tl.dot(tl.load(left), tl.load(right))
        acc += part * (tl.load(sa + k * M + rows) * tl.load(scales + k))[:, None]
        left += BK
        right += BK
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def eight_bits(
    a, q, scale, c, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Weights q [N, K] of i8 with a factor per row."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * K + inner[None, :]
    right = q + columns[None, :] * K + inner[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(left)
        acc = tl.dot(x, tl.load(right).to(x.dtype), acc)
        left += BK
        right += BK
    acc = acc * tl.load(scale + columns).to(tl.float32)[None, :]
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def groups_of_four_bits(
    a, q, zero, scale, c, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Weights q [N, K / 2], two to a byte, the even one in the low half; a zero and a factor, [K / BK, N]."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * K + inner[None, :]
    right = q + columns[None, :] * (K // 2) + (inner // 2)[:, None]
    shift = ((inner % 2) * 4)[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K // BK):
        weights = ((tl.load(right) >> shift) & 15).to(tl.float16) - tl.load(zero + k * N + columns)[None, :]
        acc = tl.dot(tl.load(left), weights * tl.load(scale + k * N + columns)[None, :], acc)
        left += BK
        right += BK // 2
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def microscaled(
    a, sa, b, sb, c, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PER: tl.constexpr,
):  # fmt: skip
    """Operands [M, K] and [N, K], `PER` elements to a byte, with a power of two for every 32 of K."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK // PER)
    blocks = tl.arange(0, BK // 32)
    left = a + rows[:, None] * (K // PER) + inner[None, :]
    right = b + columns[None, :] * (K // PER) + inner[:, None]
    powers = sa + rows[:, None] * (K // 32) + blocks[None, :]
    others = sb + columns[:, None] * (K // 32) + blocks[None, :]
    kind: tl.constexpr = "e2m1" if PER == 2 else "e4m3"
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot_scaled(tl.load(left), tl.load(powers), kind, tl.load(right), tl.load(others), kind, acc)
        left += BK // PER
        right += BK // PER
        powers += BK // 32
        others += BK // 32
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def gate_and_up(
    x, gate, up, h, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = x + rows[:, None] * K + inner[None, :]
    right = columns[None, :] * K + inner[:, None]
    a, b = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        tile = tl.load(left)
        a = tl.dot(tile, tl.load(gate + right), a)
        b = tl.dot(tile, tl.load(up + right), b)
        left += BK
        right += BK
    tl.store(h + rows[:, None] * N + columns[None, :], (a * tl.sigmoid(a) * b).to(h.dtype.element_ty))


@triton.jit
def routed(
    x, w, ids, expert, y, T: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """Rows of x by number, the weights of one expert per block; rows whose number is T or more are none."""
    tokens = tl.load(ids + tl.program_id(0) * BM + tl.arange(0, BM))
    mine = tl.load(expert + tl.program_id(0)).to(tl.int64)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    there = (tokens < T)[:, None]
    left = x + tokens[:, None] * K + inner[None, :]
    right = w + mine * N * K + columns[None, :] * K + inner[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(left, mask=there, other=0.0), tl.load(right), acc)
        left += BK
        right += BK
    tl.store(y + tokens[:, None] * N + columns[None, :], acc.to(y.dtype.element_ty), mask=there)


@triton.jit
def decode(
    q, k, v, table, lengths, scale, partial, level, G: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, PAGES: tl.constexpr, SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The query heads of one head of keys of one sequence, on one part of the keys, which lie in pages of a pool."""
    part, g, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    keys = tl.load(lengths + z)
    share = (keys + SPLITS - 1) // SPLITS
    start = part * share
    stop = tl.minimum(start + share, keys)
    rows, deep = tl.arange(0, BM), tl.arange(0, D)
    own = ((z * G + g) * ROWS + rows)[:, None] * D + deep[None, :]
    x = tl.load(q + own, mask=(rows < ROWS)[:, None], other=0.0)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    unit = scale * 1.4426950408889634
    for at in range(start // BN * BN, stop, BN):
        page = tl.load(table + z * PAGES + at // PAGE).to(tl.int64)
        columns = at + tl.arange(0, BN)
        places = (page * PAGE + columns % PAGE) * (G * D) + g * D
        scores = tl.dot(x, tl.load(k + places[None, :] + deep[:, None])) * unit
        scores = tl.where(((columns >= start) & (columns < stop))[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.math.exp2(scores - base[:, None])
        less = tl.math.exp2(top - base)
        total = total * less + tl.sum(weights, 1)
        values = tl.load(v + places[:, None] + deep[None, :])
        acc = tl.dot(weights.to(v.dtype.element_ty), values, acc * less[:, None])
        top = higher
    out = ((z * SPLITS + part) * G + g) * ROWS + rows
    share_of = tl.where(total == 0.0, 0.0, 1.0 / total)
    tl.store(partial + out[:, None] * D + deep[None, :], acc * share_of[:, None], mask=(rows < ROWS)[:, None])
    tl.store(level + out, top * 0.6931471805599453 + tl.log(total), mask=rows < ROWS)


@triton.jit
def attention_window(
    q, k, v, o, scale, N: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, WINDOW: tl.constexpr
):
    """A tile of queries of one head; each sees its own key and the `WINDOW` - 1 before. `scale` has log2(e) in it."""
    start = tl.program_id(0) * BM
    head = tl.program_id(1) * N * D
    rows = start + tl.arange(0, BM)
    deep = tl.arange(0, D)
    x = tl.load(q + head + rows[:, None] * D + deep[None, :])
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for at in range(tl.maximum(start - WINDOW + 1, 0) // BN * BN, start + BM, BN):
        columns = at + tl.arange(0, BN)
        scores = tl.dot(x, tl.load(k + head + columns[None, :] * D + deep[:, None])) * scale
        away = rows[:, None] - columns[None, :]
        scores = tl.where((away >= 0) & (away < WINDOW), scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.math.exp2(scores - base[:, None])
        less = tl.math.exp2(top - base)
        total = total * less + tl.sum(weights, 1)
        values = tl.load(v + head + columns[:, None] * D + deep[None, :])
        acc = tl.dot(weights.to(v.dtype.element_ty), values, acc * less[:, None])
        top = higher
    tl.store(o + head + rows[:, None] * D + deep[None, :], (acc / total[:, None]).to(o.dtype.element_ty))


@triton.jit
def attention_bias(
    q, k, v, o, scale, bias, N: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Attention with a bias [N, N] on the scaled scores; `scale` without log2(e)."""
    start = tl.program_id(0) * BM
    head = tl.program_id(1) * N * D
    rows = start + tl.arange(0, BM)
    deep = tl.arange(0, D)
    x = tl.load(q + head + rows[:, None] * D + deep[None, :])
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for at in range(0, N, BN):
        columns = at + tl.arange(0, BN)
        scores = tl.dot(x, tl.load(k + head + columns[None, :] * D + deep[:, None])) * scale
        scores += tl.load(bias + rows[:, None] * N + columns[None, :]).to(tl.float32)
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.math.exp2((scores - higher[:, None]) * 1.4426950408889634)
        less = tl.math.exp2((top - higher) * 1.4426950408889634)
        total = total * less + tl.sum(weights, 1)
        values = tl.load(v + head + columns[:, None] * D + deep[None, :])
        acc = tl.dot(weights.to(v.dtype.element_ty), values, acc * less[:, None])
        top = higher
    tl.store(o + head + rows[:, None] * D + deep[None, :], (acc / total[:, None]).to(o.dtype.element_ty))


@triton.jit
def attention_queries(
    q, k, v, d_o, lse, delta, scale, d_q, N: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """dQ of a tile of queries of one head. `lse` is the natural one."""
    head = tl.program_id(1) * N * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    deep = tl.arange(0, D)
    own = head + rows[:, None] * D + deep[None, :]
    x, slope = tl.load(q + own), tl.load(d_o + own)
    level = tl.load(lse + tl.program_id(1) * N + rows) * 1.4426950408889634
    away = tl.load(delta + tl.program_id(1) * N + rows)
    acc = tl.zeros((BM, D), tl.float32)
    unit = scale * 1.4426950408889634
    for at in range(0, N, BN):
        columns = at + tl.arange(0, BN)
        keys = tl.load(k + head + columns[None, :] * D + deep[:, None])
        values = tl.load(v + head + columns[None, :] * D + deep[:, None])
        weights = tl.math.exp2(tl.dot(x, keys) * unit - level[:, None])
        change = weights * (tl.dot(slope, values) - away[:, None])
        acc = tl.dot(change.to(keys.dtype), tl.trans(keys), acc)
    tl.store(d_q + own, (acc * scale).to(d_q.dtype.element_ty))


# ---------------------------------------------------------------------------------------------------------------- rows

PLAIN = ({"num_warps": 4}, {"num_warps": 8})
PRODUCT = tuple({"num_warps": w, "num_stages": 2, "matrix_instr_nonkdim": n} for w in (4, 8) for n in (16, 32))
ATTENTION = tuple({"num_warps": 4, "num_stages": s, "matrix_instr_nonkdim": n} for s in (1, 2) for n in (16, 32))
DECODE = tuple({"num_warps": w, "num_stages": s, "matrix_instr_nonkdim": 16} for w in (1, 4) for s in (1, 2))


def pointers(names: str, dtype: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), f"*{dtype}")


Row = tuple[str, Any, dict[str, str], dict[str, Any], tuple[dict[str, int], ...]]


def kernels(target: str, fp8: str, columns: int) -> list[Row]:
    """As `triton_hip.kernels` has them; `columns` of a product's result."""
    most = 448.0 if target == "gfx950" else 240.0
    floats = pointers("mean rstd", "fp32")
    tile = {"N": columns, "K": 1024, "BM": 128, "BN": 128, "BK": 64}
    deep = {**tile, "K": 2048, "BK": 128}
    scaled = {**pointers("row_scale column_scale", "fp32"), **pointers("c", "bf16")}
    heads = {**pointers("q k v o", "bf16"), "scale": "fp32"}
    square = {"N": 512, "BM": 128, "BN": 64}
    pool = {"G": 2, "ROWS": 8, "D": 128, "PAGE": 64, "PAGES": 8, "SPLITS": 1, "BM": 16, "BN": 32}
    return [
        ("swiglu", gated, pointers("x y", "bf16"), {"N": 2048}, PLAIN),
        ("rotary", rotated, pointers("x cosine sine y", "bf16"), {"H": 32, "D": 64, "BT": 2, "BH": 16}, PLAIN),
        ("layer norm backward", layer_norm_backward,
         {**pointers("x w dy", "bf16"), **floats, **pointers("dx", "bf16")}, {"N": 4096}, PLAIN),
        ("add norm quantise", norm_quantised,
         {**pointers("x residual w h", "bf16"), **pointers("q", fp8), **pointers("scale", "fp32"), "eps": "fp32"},
         {"N": 4096, "MOST": most}, PLAIN),
        ("embedding", gathered, {**pointers("table", "bf16"), **pointers("ids", "i32"), **pointers("y", "bf16")},
         {"N": 4096}, PLAIN),
        ("running sum", scanned, {**pointers("x", "bf16"), **pointers("y", "fp32")}, {"N": 4096}, PLAIN),
        *(("column sums", column_sums, {**pointers("x dy", "bf16"), **pointers("dw db", "fp32")},
           {"M": 512, "N": 4096, "BM": m, "BN": 64}, PLAIN) for m in (32, 64)),
        *(("cross entropy", cross_entropy,
           {**pointers("x", "bf16"), **pointers("label", "i32"), **pointers("loss", "fp32"), **pointers("dx", "bf16")},
           {"N": 32768, "BN": n}, PLAIN) for n in (2048, 4096)),
        ("gemm fp8 scaled", scaled_gemm, {**pointers("a b", fp8), **scaled}, {**deep, "WHOLE": False}, PRODUCT),
        ("gemm i8 scaled", scaled_gemm, {**pointers("a b", "i8"), **scaled}, {**deep, "WHOLE": True}, PRODUCT),
        ("gemm fp8 block scaled", blocks_scaled,
         {**pointers("a b", fp8), **pointers("sa sb", "fp32"), **pointers("c", "bf16")}, {**deep, "M": 2048}, PRODUCT),
        *((f"gemm mxfp{bits}", microscaled,
           {**pointers("a", kind), **pointers("sa", "u8"), **pointers("b", kind), **pointers("sb", "u8"),
            **pointers("c", "bf16")},
           {**deep, "K": 2048 * 8 // bits, "BK": 128 * 8 // bits, "PER": 8 // bits}, PRODUCT)
          for bits, kind in ((8, fp8), (4, "u8")) if target == "gfx950"),
        ("gemm bf16 i8 weights", eight_bits,
         {**pointers("a", "bf16"), **pointers("q", "i8"), **pointers("scale c", "bf16")}, tile, PRODUCT),
        ("gemm int4 groups", groups_of_four_bits,
         {**pointers("a", "fp16"), **pointers("q", "u8"), **pointers("zero scale c", "fp16")}, tile, PRODUCT),
        ("gemm gate and up", gate_and_up, pointers("x gate up h", "bf16"), {**tile, "BN": 64}, PRODUCT),
        ("gemm routed", routed, {**pointers("x w", "bf16"), **pointers("ids expert", "i32"), **pointers("y", "bf16")},
         {**tile, "T": 2048, "BM": 64, "N": 2432}, PRODUCT),
        ("decode", decode,
         {**pointers("q k v", "bf16"), **pointers("table lengths", "i32"), "scale": "fp32",
          **pointers("partial level", "fp32")}, pool, DECODE),
        ("attention 128 window", attention_window, heads, {**square, "D": 128, "WINDOW": 200}, ATTENTION),
        ("attention 64 bias", attention_bias, {**heads, **pointers("bias", "bf16")}, {**square, "D": 64}, ATTENTION),
        *((f"attention {d} backward dQ", attention_queries,
           {**pointers("q k v d_o", "bf16"), **pointers("lse delta", "fp32"), "scale": "fp32",
            **pointers("d_q", "bf16")},
           {"N": 512, "D": d, "BM": 64, "BN": 32}, ATTENTION) for d in (64, 128)),
    ]  # fmt: skip
