"""Attention of a few blocks of keys: for each block of queries, lists of the blocks that count, in part or as a whole.

    python examples/block_sparse_attention.py --target sm_90a --mask documents --tokens 500

A mask that hides most of the keys (documents packed in a row, a window, a pattern of blocks) hides whole blocks of
them. `lists` makes of any mask what the kernel wants: for each block of queries, which blocks of keys some of its
queries see, and which ones all of them see. The kernel's loops go over these lists, so what is hidden costs nothing,
and only blocks that are seen in part compute the mask. Tiles that begin where a list says are copied ahead like others.
Where one mask serves many launches its lists are made once.
"""

from __future__ import annotations

import math
import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last: it has a copy.py, and so has the standard library

import common
import numpy as np

import wavedsl as wd

B, H, G, M, N, D, L = wd.symbols("B H G M N D L")
"""Batch, heads of queries and of keys, queries, keys, size of a head, keys of a block."""
Q, P, W = wd.symbols("Q P W")
"""Blocks of queries; the longest list of blocks that are seen in part, and as a whole."""
LOW = -1e30


def block_sparse_kernel(dtype: wd.DType, group: int, *, block: tuple[int, int] = (128, 64)):
    """`group` heads of queries have one head of keys. `block`: queries and keys of a block."""
    rows, keys = block

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, rows, 0), wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(B, 1, 2),
            wd.TilingConstraint(P, 1), wd.TilingConstraint(W, 1),
        ],
        subs={L: keys},
    )  # fmt: skip
    def attention(
        q: wd.Memory[B, H, M, D, dtype], k: wd.Memory[B, G, N, D, dtype], v: wd.Memory[B, G, N, D, dtype],
        document: wd.Memory[N, wd.i32], part: wd.Memory[Q, P, wd.i32], parts: wd.Memory[Q, wd.i32],
        whole: wd.Memory[Q, W, wd.i32], wholes: wd.Memory[Q, wd.i32], scale: wd.Scalar[wd.f32],
        o: wd.Memory[B, H, M, D, dtype],
    ):  # fmt: skip
        mine, at_query = wd.tile_start(M) // rows, wd.index(M)
        queries, own, unit = wd.read(q), wd.read(document[wd.index(M)]), scale * math.log2(math.e)

        def attend(number, top, total, acc, masked):
            """The next maxima, sums and O after a block of keys."""
            first = number * keys
            x = wd.read(k[B, H // group, first : first + L, :])
            y = wd.read(v[B, H // group, first : first + L, :])
            scores = wd.mma(queries, x, wd.Register[M, L, wd.f32](0.0))
            if masked:
                seen = (own == wd.read(document[first : first + L])) & (first + wd.index(L) <= at_query)
                scores = wd.where(seen, scores, LOW)
            highest = wd.maximum(top, wd.max(scores, dim=L))
            p, keep = wd.exp2((scores - highest) * unit), wd.exp2((top - highest) * unit)
            return highest, total * keep + wd.sum(p, dim=L), wd.mma(wd.cast(p, dtype), y, acc * keep)

        start = [wd.Register[M, wd.f32](LOW), wd.Register[M, wd.f32](0.0), wd.Register[M, D, wd.f32](0.0)]

        @wd.iterate(W, init_args=start, stop=wd.read(wholes[mine]))
        def all_seen(top, total, acc):
            return attend(wd.read(whole[mine, wd.tile_start(W)]), top, total, acc, False)

        @wd.iterate(P, init_args=all_seen, stop=wd.read(parts[mine]))
        def some_seen(top, total, acc):
            return attend(wd.read(part[mine, wd.tile_start(P)]), top, total, acc, True)

        _, total, acc = some_seen
        wd.write(wd.cast(acc / total, dtype), o)

    return attention


def lists(mask: np.ndarray, block: tuple[int, int]) -> list[np.ndarray]:
    """Of mask[M, N]: for each block of queries the numbers of blocks of keys that are seen in part, and how many these
    are; the same of those that are seen as a whole. The last blocks may be shorter."""
    rows, keys = block
    beyond = (0, -len(mask) % rows), (0, -mask.shape[1] % keys)
    padded = [np.pad(mask, beyond, constant_values=fill) for fill in (False, True)]
    tiles = [x.reshape(x.shape[0] // rows, rows, -1, keys) for x in padded]
    some, every = tiles[0].any((1, 3)), tiles[1].all((1, 3))
    every[:, -1] &= mask.shape[1] % keys == 0  # what lies beyond the end is seen by nobody
    found = []
    for chosen in (some & ~every, every):
        count = chosen.sum(1).astype(np.int32)
        first = np.argsort(~chosen, axis=1, kind="stable").astype(np.int32)
        found += [np.ascontiguousarray(first[:, : max(1, count.max())]), count]
    return found


def mask_of(name: str, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """(mask[M, N], the document of each token): a token sees those of its document up to itself."""
    lengths = {"causal": (tokens,), "documents": (tokens // 2, tokens // 7, tokens // 5, tokens)}[name]
    document = np.repeat(np.arange(len(lengths)), lengths)[:tokens].astype(np.int32)
    place = np.arange(tokens)
    return (document[:, None] == document) & (place[:, None] >= place), document


def main(arguments: list[str] | None = None) -> int:
    parser = common.options(__doc__, ("bf16", "f16"), batch=1, heads=2, kv_heads=1, tokens=320, d=64)
    parser.add_argument("--mask", choices=("documents", "causal"), default="documents")
    given = parser.parse_args(arguments)
    dtype, n, d = common.dtype_called(given.dtype), given.tokens, given.d
    block = (64, 32) if given.target in ("gfx90a", "sm_80") else (128, 64)
    group = given.heads // given.kv_heads
    q, k, v = (
        common.data((given.batch, heads, n, d), dtype, given.seed + i)
        for i, heads in enumerate((given.heads, given.kv_heads, given.kv_heads))
    )
    mask, document = mask_of(given.mask, n)
    part, parts, whole, wholes = lists(mask, block)
    o, scale = np.zeros_like(q), d**-0.5
    kernel = block_sparse_kernel(dtype, group, block=block)
    common.run(kernel, [q, k, v, document, part, parts, whole, wholes, scale, o], given)

    wide = [x.astype(np.float64) for x in (q, np.repeat(k, group, 1), np.repeat(v, group, 1))]
    scores = np.where(mask, np.einsum("bhmd,bhnd->bhmn", wide[0], wide[1]) * scale, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    large = np.einsum("bhmn,bhnd->bhmd", p, np.abs(wide[2]))  # weights are rounded to the dtype, and so is the result
    return common.verdict("o", o, p @ wide[2], common.bound(p @ wide[2], dtype, 1.01, 3 * large))


if __name__ == "__main__":
    sys.exit(main())
