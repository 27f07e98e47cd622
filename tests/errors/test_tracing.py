"""Mistakes in a kernel's source: each is a TraceError that shows the line, marks the place and says what is right."""

from __future__ import annotations

import re
import sys
import textwrap

import pytest
from source import assert_points_at, run
from wavedsl.tracer import advice

import wavedsl as wd

HEAD = """
@wd.wave(
    [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
     wd.WorkgroupConstraint(H, 1, 2)],
    subs={BM: 16, BN: 16, BK: 16},
)
def kernel(
    a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32], s: wd.Scalar[wd.f32],
    h: wd.Memory[H, K, wd.f16] = None, i: wd.Memory[M, N, wd.i32] = None,
):
"""

# (name, body of the kernel, start of the message, what is underlined, part of the hint)
CASES = [
    ("unknown-symbol", "x = wd.sum(wd.read(a), dim=wd.sym.KK)",
     "sum: unknown symbol KK", "wd.sum(wd.read(a), dim=wd.sym.KK)", "did you mean"),
    ("length-without-a-value", "x = wd.read(a, mapping=wd.IndexMapping((wd.sym.J, K), {M: wd.sym.J}))",
     "read: unknown symbol J", "wd.read(a, mapping=wd.IndexMapping((wd.sym.J, K), {M: wd.sym.J}))",
     "bound by subs={J: …}"),
    ("length-that-follows", "x = wd.reshape(wd.read(a), (M, 4, wd.sym.J))", "reshape: unknown symbol J",
     "wd.reshape(wd.read(a), (M, 4, wd.sym.J))", "may stand for a name as it is: N / 4"),
    ("lambda-of-a-loop", "wd.iterate(K, init_args=[wd.index(M)])(lambda: None)\n    def later(x):\n        return x",
     "iterate: the loop over K carries 1 value, but its function takes 0 parameters", "lambda: None",
     "one parameter per entry"),
    ("order-of-a-sort", "x = wd.sort(wd.read(a), dim=K, descending='no')", "sort: descending='no'",
     "wd.sort(wd.read(a), dim=K, descending='no')", "descending=True or descending=False"),
    ("direction-of-a-sum", "x = wd.cumsum(wd.read(a), K, M)", "cumsum: reverse=M", "wd.cumsum(wd.read(a), K, M)",
     "reverse=True or reverse=False"),
    ("bytes-that-are-not-there", "x = wd.permute_bytes(wd.index(M), wd.index(K), 0x3219)",
     "permute_bytes: the selector 0x3219 names bytes", "wd.permute_bytes(wd.index(M), wd.index(K), 0x3219)",
     "four hex digits from 0 to 7"),
    ("waves-of-a-loop", "wd.iterate(K, stop=wd.tile_stop(M), per_wave='no')(lambda: None)", "iterate: per_wave='no'",
     "wd.iterate(K, stop=wd.tile_stop(M), per_wave='no')", "per_wave=True or per_wave=False"),
    ("mapping-of-nothing", "x = wd.IndexMapping()", "wd.IndexMapping lacks dims", "wd.IndexMapping()",
     "wd.IndexMapping((T, D),"),
    ("register-of-nothing", "x = wd.Register[M, wd.f32]()", "RegisterType.__call__() missing 1",
     "wd.Register[M, wd.f32]()", "wd.Register[M, N, wd.f32](0.0)"),
    ("memory-as-a-value", "x = wd.Memory[M, wd.f32](0.0)", "'MemoryType' object is not callable",
     "wd.Memory[M, wd.f32](0.0)", "wd.Register[M, N, wd.f32](0.0)"),
    ("range-of-a-value", "for i in range(wd.tile_start(M)):\n        pass", "a traced value is not a Python number",
     "range(wd.tile_start(M))", "wd.iterate(K, stop=x)"),
    ("list-at-a-value", "x = [1, 2][wd.tile_start(M)]", "a traced value is not a Python number",
     "[1, 2][wd.tile_start(M)]", "wd.where(x == i, this, that)"),
    ("fourth-part", "x = wd.read(a[:, 1::4])", "a[…]: a step of 4 along K", "a[:, 1::4]", "{K: 4 * P}"),
    ("backwards", "x = wd.read(a[::-1, :])", "a[…]: a step of -1 along M", "a[::-1, :]",
     "mapping=wd.IndexMapping((M, K), {M: M - 1 - wd.index(M)})"),
    ("number-that-does-not-fit", "x = wd.read(c) + wd.cast(300, wd.u8)", "cast: 300 does not fit u8",
     "wd.cast(300, wd.u8)", "u8 holds 0 to 255"),
    ("infinity-as-a-whole-number", "x = wd.cast(float('inf'), wd.i32)", "cast: inf has no i32",
     "wd.cast(float('inf'), wd.i32)", "a whole number"),
    ("number-in-no-dtype", "x = wd.cast(3, 'f32')", "cast: 'f32' is not a dtype", "wd.cast(3, 'f32')",
     "wd.cast(x, wd.f32)"),
    ("register-of-one", "x = wd.Register[1](0)", "Register[…] ends in 1, which is no dtype", "wd.Register[1]",
     "a number alone is wd.Register[wd.i32](0)"),
    ("element-by-a-number", "x = wd.shuffle(wd.read(a), 3, dim=K)", "shuffle: the number 3, not a value",
     "wd.shuffle(wd.read(a), 3, dim=K)", "wd.Register[M, N, wd.i32](3)"),
    ("extract-by-elements", "x = wd.extract(wd.read(a), {K: wd.index(M)})", "extract: the start is [M] i32",
     "wd.extract(wd.read(a), {K: wd.index(M)})", "wd.shuffle(x, index, dim=K)"),
    ("exit-by-elements", "wd.exit_if(wd.read(a) > 0)", "exit_if: the condition has dimensions [M, K]",
     "wd.exit_if(wd.read(a) > 0)", "wd.any(x, dim)"),
    ("mask-of-a-read", "x = wd.read(a, mask=wd.index(M) < 3, other=0.0)",
     "read() got an unexpected keyword argument 'mask'", "wd.read(a, mask=wd.index(M) < 3, other=0.0)",
     "wd.where(condition, wd.read(a), 0.0)"),
    ("mask-of-a-write", "wd.write(wd.read(c), c, mask=wd.index(M) < 3)",
     "write() got an unexpected keyword argument 'mask'", "wd.write(wd.read(c), c, mask=wd.index(M) < 3)",
     "wd.where(condition, wd.index(N), -1)"),
    ("tan", "x = wd.tan(wd.read(c))", "module 'wavedsl' has no attribute 'tan'", "wd.tan", "wd.sin(x) / wd.cos(x)"),
    ("lacks-a-dimension", "wd.write(wd.sum(wd.read(c), dim=N), c)",
     "write: the value has dimensions [M], but c takes [M, N]", "wd.write(wd.sum(wd.read(c), dim=N), c)",
     "of a batch, one at a time: wd.WorkgroupConstraint(N, 1, <axis>)"),
    ("unknown-name", "x = wd.raed(a)",
     "module 'wavedsl' has no attribute 'raed'", "wd.raed", "did you mean read?"),
    ("misspelt-variable", "total = wd.read(a)\n    wd.write(totl, c)",
     "name 'totl' is not defined", "totl", "did you mean total?"),
    ("reshape-of-a-dimension-that-moves", "x = wd.reshape(wd.read(a) + wd.read(h), K, N)",
     "reshape of [M, K] to [K, N]: K would not be the same elements",
     "wd.reshape(wd.read(a) + wd.read(h), K, N)", "wd.permute(x, K, M)"),
    ("reshape-in-an-order-that-nobody-said",
     "x = wd.where(wd.index(N) == 0, wd.cast(wd.index(M), wd.f32), 0.0)\n"
     "    x = wd.reshape(wd.cumsum(-x + wd.read(c), dim=M), M * N)",
     "reshape of [N, M] to [M*N]: which of N and M comes first is an accident: an operand of add (",
     "wd.reshape(wd.cumsum(-x + wd.read(c), dim=M), M * N)", "wd.permute(x, M, N)"),
    ("subscript-without-the-index-dimension", "wd.write(wd.cast(wd.index(N), wd.f16), h[wd.index(N)])",
     "write: the value has dimensions [N], but h takes [N, K]",
     "wd.write(wd.cast(wd.index(N), wd.f16), h[wd.index(N)])",
     "the subscript is for H: index dimensions count, and h[H, …] is this workgroup's"),
    ("missing-reduction-dim", "x = wd.sum(wd.read(a), dim=N)",
     "sum: the value has no dimension N; it has [M, K]", "wd.sum(wd.read(a), dim=N)", "name one of its dimensions"),
    ("reduction-without-dim", "x = wd.max(wd.read(a))",
     "max: which dimension?", "wd.max(wd.read(a))", "name one of M, K"),
    ("dtype-mismatch", "x = wd.read(a) + wd.read(c)",
     "add: operands have dtypes f16 and f32", "wd.read(a) + wd.read(c)", "wd.cast(x, wd.f32)"),
    ("scalar-dtype-mismatch", "x = wd.read(a) * s",
     "mul: operands have dtypes f16 and f32", "wd.read(a) * s", "wd.cast"),
    ("python-if", "x = wd.read(c)\n    if x > 0:\n        x = -x",
     "a traced value has no truth value while tracing", "x > 0", "wd.where(condition, x, y)"),
    ("python-and", "x = wd.read(c)\n    y = x > 0 and x < 1",
     "a traced value has no truth value while tracing", "~x > 0", "(x > 0) & (x < 1)"),
    ("single-if", "if s > 0.0:\n        pass", "a traced value has no truth value", "~s > 0.0",
     "wd.cond(condition, then"),
    ("python-not", "y = not wd.read(c)", "a traced value has no truth value", "not wd.read(c)", "~: (x > 0) & (x < 1)"),
    ("between", "x = wd.read(c)\n    y = wd.where(0 < x < 1, x, 0.0)", "a traced value has no truth value",
     "0 < x < 1", "(low < x) & (x < high)"),
    ("chained-of-a-read", "x = wd.where(0 <= wd.read(c) < 1, 1.0, 0.0)", "a traced value has no truth value",
     "~0 <= wd.read(c)", "(low < x) & (x < high)"),
    ("python-while", "x = wd.read(c)\n    while x > 0:\n        x = x - 1", "a traced value has no truth value",
     "~x > 0", "wd.while_loop(condition, body, init_args)"),
    ("python-assert", "x = wd.read(c)\n    assert x == x", "a traced value has no truth value", "~x == x",
     "wd.device_assert(condition, message)"),
    ("python-max", "x = max(wd.read(c), 0)", "a traced value has no truth value", "max(wd.read(c), 0)",
     "wd.maximum(x, y)"),
    ("python-divmod", "x = divmod(wd.read(c), 3.0)", "unsupported operand type(s) for divmod()",
     "divmod(wd.read(c), 3.0)",
     "x // y and x % y"),
    ("called-dtype", "x = wd.read(c) + wd.f32(1)", "'DType' object is not callable", "wd.f32(1)", "wd.cast(x, wd.f32)"),
    ("unknown-keyword", "wd.write(wd.read(c), c, where=True)", "write() got an unexpected keyword argument 'where'",
     "wd.write(wd.read(c), c, where=True)", "wd.write(value, mem, *, mapping=None"),
    ("axis", "x = wd.sum(wd.read(c), axis=0)", "sum() got an unexpected keyword argument 'axis'",
     "wd.sum(wd.read(c), axis=0)", "a dimension has a name: wd.sum(x, dim=N)"),
    ("keep-dims", "x = wd.max(wd.read(c), dim=N, keep_dims=True)",
     "max() got an unexpected keyword argument 'keep_dims'",
     "wd.max(wd.read(c), dim=N, keep_dims=True)", "leave keep_dims out: what lacks a dimension broadcasts along it"),
    ("new-axis", "x = wd.read(c)[:, None]", "a traced value cannot be indexed", "wd.read(c)[:, None]",
     "dimensions have names, and x + y broadcasts by them"),
    ("element", "x = wd.read(c)[:, 3]", "a traced value cannot be indexed", "wd.read(c)[:, 3]",
     "wd.extract(x, {N: 3}) is one element along N"),
    ("part", "x = wd.read(c)[:4, :]", "a traced value cannot be indexed", "wd.read(c)[:4, :]",
     "index the array, not what is read of it"),
    ("numpy-dtype", "x = wd.cast(wd.read(c), np.float16)", "cast: <class 'numpy.float16'> is not a dtype",
     "wd.cast(wd.read(c), np.float16)", "wd.cast(x, wd.f16)"),
    ("known-condition", "wd.cond(True, lambda: None)", "cond: the number True", "wd.cond(True, lambda: None)",
     "Python's if"),
    ("bool", "x = bool(wd.read(c))", "a traced value has no truth value", "bool(wd.read(c))", "wd.where"),
    ("iteration", "for row in wd.read(c):\n        pass",
     "a traced value cannot be iterated over", "~wd.read(c)", "@wd.iterate"),
    ("len", "n = len(wd.read(c))", "a traced value has no len()", "len(wd.read(c))", "the symbol M"),
    ("float", "x = float(wd.read(c))", "a traced value is not a Python number", "float(wd.read(c))", "wd.cast"),
    ("math-function", "x = math.exp(wd.read(c))", "a traced value is not a Python number", "math.exp(wd.read(c))",
     "wd.exp(x)"),
    ("numpy-function", "x = np.exp(wd.read(c))", "a traced value is no array of NumPy's", "np.exp(wd.read(c))",
     "wd.exp(x)"),
    ("subscript", "x = wd.read(c)[0]", "a traced value cannot be indexed", "wd.read(c)[0]", "wd.read(a[index, :])"),
    ("attribute", "x = wd.read(c).sum(dim=M)", "a traced value has no attribute sum", "wd.read(c).sum",
     "wd.sum(x, …) is a function"),
    ("matmul", "x = wd.read(a) @ wd.read(b)", "a traced value has no @", "wd.read(a) @ wd.read(b)", "wd.mma(x, y)"),
    ("unread-array", "x = a * 2", "a is an array argument ([M, K] f16), not a value", "a * 2", "wd.read(a)"),
    ("unread-mma", "x = wd.mma(a, b)", "mma: a is an array argument, not a value", "wd.mma(a, b)", "wd.read(a)"),
    ("forgotten-call", "x = wd.exp(wd.read)", "exp: the function read itself, not a value", "wd.exp(wd.read)",
     "call it: read(…)"),
    ("uncalled-register", "x = wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32])",
     "mma: the type Register[M, N, f32], not a value", "wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32])",
     "call it with a number"),
    ("write-order", "wd.write(c, wd.read(c))", "write: the value comes first, then the array",
     "wd.write(c, wd.read(c))", "wd.write(value, c)"),
    ("write-dims", "wd.write(wd.sum(wd.read(c), dim=N), c)",
     "write: the value has dimensions [M], but c takes [M, N]: the value lacks N",
     "wd.write(wd.sum(wd.read(c), dim=N), c)", "wd.broadcast(x, M, N)"),
    ("write-extra-dims", "wd.write(wd.cast(wd.read(a), wd.f32), c)",
     "write: the value has dimensions [M, K], but c takes [M, N]: the value lacks N and has K besides",
     "wd.write(wd.cast(wd.read(a), wd.f32), c)",
     "if K and N are the same, give them one name; else reduce over K first"),
    ("write-part-without-end", "wd.write(wd.cast(wd.read(a), wd.f32), c[:, 8:])",
     "write: the value has dimensions [M, K], but c takes [M, N]: the value lacks N and has K besides",
     "wd.write(wd.cast(wd.read(a), wd.f32), c[:, 8:])",
     "a part of N that is K long says where it ends: c[:, s : s + K]"),
    ("product-with-itself", "x = wd.mma(wd.read(a), wd.read(a), wd.Register[M, N, wd.f32](0.0))",
     "mma: the accumulator [M, N] has N, which neither operand has; the product of [M, K] and [M, K] over K is [M]",
     "wd.mma(wd.read(a), wd.read(a), wd.Register[M, N, wd.f32](0.0))", "wd.IndexMapping((N, K), {M: N})"),
    ("write-dtype", "wd.write(wd.cast(wd.read(c), wd.f16), c)", "write: the value is f16, but c holds f32",
     "wd.write(wd.cast(wd.read(c), wd.f16), c)", "wd.cast(x, wd.f32)"),
    ("number-of-a-loop", "x = wd.while_loop(lambda i: i < 3, lambda i: i + 1, [0])",
     "while_loop: the number 0, not a value", "wd.while_loop(lambda i: i < 3, lambda i: i + 1, [0])",
     "wd.Register[wd.i32](0), or of a tile wd.Register[M, N, wd.i32](0)"),
    ("read-a-value", "x = wd.read(wd.read(a))", "read: expected an array argument, got a value ([M, K] f16)",
     "wd.read(wd.read(a))", "array arguments are a, b, c"),
    ("mma-contracts-nothing", "x = wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, K, wd.f32](0.0))",
     "mma: contracts nothing: [M, K] and [N, K] share K, which the accumulator keeps",
     "wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, K, wd.f32](0.0))", "the dimension to sum over"),
    ("mma-wrong-accumulator", "x = wd.mma(wd.read(a), wd.read(b), wd.Register[M, wd.f32](0.0))",
     "mma: the accumulator [M] lacks N", "wd.mma(wd.read(a), wd.read(b), wd.Register[M, wd.f32](0.0))",
     "wd.Register[M, N, wd.f32](0)"),
    ("mma-accumulator-dtype", "x = wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.i32](0))",
     "mma: the accumulator is i32, but f16 operands accumulate in f32, f16",
     "wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.i32](0))", "wd.Register[M, N, wd.f32](0)"),
    ("mma-operand-dtypes", "x = wd.mma(wd.read(a), wd.cast(wd.read(b), wd.f32))",
     "mma: operands have dtypes f16 and f32", "wd.mma(wd.read(a), wd.cast(wd.read(b), wd.f32))", "cast one of them"),
    ("shuffle-by-a-float", "x = wd.shuffle(wd.read(c), wd.read(c), N)", "shuffle: the index is f32",
     "wd.shuffle(wd.read(c), wd.read(c), N)", "wd.cast(index, wd.i32)"),
    ("integer-division", "x = wd.cast(wd.read(c), wd.i32) / 2", "div: needs floating point, not i32",
     "wd.cast(wd.read(c), wd.i32) / 2", "wd.cast(x, wd.f32)"),
    ("float-with-int", "x = wd.index(M) * 0.5", "mul: the number 0.5 with i32 values", "wd.index(M) * 0.5", "wd.cast"),
    ("fraction-into-integers", "wd.write(0.5, i)", "write: the number 0.5 with i32 values", "wd.write(0.5, i)",
     "whole"),
    ("integer-too-large", "x = wd.index(M) + 2**31", "add: 2147483648 does not fit i32", "wd.index(M) + 2**31",
     "-2147483648 to 2147483647"),
    ("narrow-arithmetic", "x = wd.cast(wd.read(c), wd.f8e4m3) * 2",
     "mul: f8e4m3 is for storage and matrix instructions only", "wd.cast(wd.read(c), wd.f8e4m3) * 2",
     "wd.cast(x, wd.f32)"),
    ("bitcast-width", "x = wd.bitcast(wd.read(c), wd.i16)", "bitcast: f32 has 32 bits, i16 has 16",
     "wd.bitcast(wd.read(c), wd.i16)", "f32"),
    ("cast-to-a-name", "x = wd.cast(wd.read(c), 'f16')", "cast: 'f16' is not a dtype", "wd.cast(wd.read(c), 'f16')",
     "wd.cast(x, wd.f16)"),
    ("cast-to-a-class", "x = wd.cast(wd.read(c), int)", "cast: <class 'int'> is not a dtype",
     "wd.cast(wd.read(c), int)", "wd.cast(x, wd.i32)"),
    ("reshape-to-the-rest", "x = wd.reshape(wd.read(c), -1)", "reshape: the dimension is the number -1",
     "wd.reshape(wd.read(c), -1)", "an expression: M * N"),
    ("random-of-a-shape", "x = wd.random(0, (M, N))", "random: the dimension is a tuple of 2", "wd.random(0, (M, N))",
     "wd.random(seed, M, N)"),
    ("bits-as-another-number", "x = wd.index(M) | 0x80000000", "bitor: 2147483648 does not fit i32",
     "wd.index(M) | 0x80000000", "the number of the same bits is -2147483648"),
    ("python-while", "x = wd.read(c)\n    while x > 0:\n        x = x - 1", "a traced value has no truth value",
     "x > 0", "wd.while_loop(condition, body, init_args) repeats until no element wants more"),
    ("one-result-as-two", "top, at = wd.max(wd.read(c), dim=N)", "a traced value cannot be iterated over", "top, at",
     "wd.max, whose indices wd.argmax gives"),
    ("exclusive-sum", "x = wd.cumsum(wd.read(c), dim=N, exclusive=True)", "cumsum() got an unexpected keyword",
     "wd.cumsum(wd.read(c), dim=N, exclusive=True)", "wd.cumsum(x, dim=N) - x"),
    ("where-condition", "x = wd.where(wd.read(c), 1.0, wd.read(c))", "where: the condition is f32, not i1",
     "wd.where(wd.read(c), 1.0, wd.read(c))", "x > 0"),
    ("broadcast-drops", "x = wd.broadcast(wd.read(c), M)", "broadcast: [M, N] to [M] would drop N",
     "wd.broadcast(wd.read(c), M)", "every dimension"),
    ("permute", "x = wd.permute(wd.read(c), N, K)", "permute: [N, K] is no reordering of [M, N]",
     "wd.permute(wd.read(c), N, K)", "list M, N"),
    ("index-dim-in-register", "x = wd.Register[H, M, wd.f32](0.0)", "Register[…]: H is an index dimension",
     "wd.Register[H, M, wd.f32](0.0)", "leave H out"),
    ("register-value", "x = wd.Register[M, wd.f32]('0')", "Register[…]: the initial value is '0'",
     "wd.Register[M, wd.f32]('0')", "give a number"),
    ("topk-number", "x = wd.topk(wd.read(c), 4, dim=N)", "topk: k is 4", "wd.topk(wd.read(c), 4, dim=N)", "TOP"),
    ("returned-value", "return wd.read(c)", "kernel kernel returns a value ([M, N] f32)",
     "def kernel(", "wd.write(value, c)"),
    ("missing-argument", "wd.write(wd.read(c))", "write() missing 1 required positional argument: 'mem'",
     "wd.write(wd.read(c))", ""),
    ("elementwise-arity", "x = wd.maximum(wd.read(c))", "maximum: missing a required argument: 'y'",
     "wd.maximum(wd.read(c))", "wd.maximum(x, y)"),
    ("no-traced-operand", "x = wd.exp(2.0)", "exp: no operand is a traced value", "wd.exp(2.0)", "Python's math"),
    ("where-of-large-numbers", "x = wd.where(wd.read(c) > 0, 1 << 31, 0)",
     "where: 2147483648 does not fit i32", "wd.where(wd.read(c) > 0, 1 << 31, 0)", "i32 holds"),
    ("where-of-none", "x = wd.where(wd.read(c) > 0, None, 0)", "where: None, not a value",
     "wd.where(wd.read(c) > 0, None, 0)", ""),
    ("store", "wd.store(wd.read(c), c)", "module 'wavedsl' has no attribute 'store'", "wd.store", "wd.write(value, c)"),
    ("zeros", "x = wd.zeros((M, N), wd.f32)", "module 'wavedsl' has no attribute 'zeros'", "wd.zeros",
     "wd.Register[M, N, wd.f32](0.0)"),
    ("log-softmax", "x = wd.log_softmax(wd.read(c))", "module 'wavedsl' has no attribute 'log_softmax'",
     "wd.log_softmax", "y - wd.log(wd.sum(wd.exp(y), dim=N))"),
    ("array-constant", "x = wd.read(c) + np.ones(4)", "add: a NumPy array, not a value", "wd.read(c) + np.ones(4)",
     "pass arrays as arguments"),
    ("mapping-without-dims", "x = wd.read(a, mapping=wd.IndexMapping({M: N}))", "IndexMapping: the dict alone",
     "wd.IndexMapping({M: N})", "wd.IndexMapping((N,…), {M: N})"),
    ("mapping-without-dict", "x = wd.read(a, mapping=wd.IndexMapping((N, K)))", "IndexMapping: the dimensions alone",
     "wd.IndexMapping((N, K))", "wd.IndexMapping((N, K), {M: N})"),
    ("mapping-turned-round", "x = wd.read(a, mapping=wd.IndexMapping({M: N}, (N, K)))", "IndexMapping: the dict alone",
     "wd.IndexMapping({M: N}, (N, K))", "wd.IndexMapping((N,…), {M: N})"),
    ("mapping-of-text", "x = wd.read(a, mapping=wd.IndexMapping('N', {M: N}))", "IndexMapping: dims is 'N'",
     "wd.IndexMapping('N', {M: N})", "(N, K)"),
    ("mapping-foreign-dim", "x = wd.read(a, mapping=wd.IndexMapping((M, N), {N: M}))",
     "read: the IndexMapping has an index for N, but a has [M, K]",
     "wd.read(a, mapping=wd.IndexMapping((M, N), {N: M}))", "dimensions of the array"),
    ("mapping-to-nowhere", "x = wd.read(a, mapping=wd.IndexMapping((M, K), {M: M - float('nan')}))",
     "read: the index nan of a is not whole", "wd.read(a, mapping=wd.IndexMapping((M, K), {M: M - float('nan')}))",
     "// rounds down"),
    ("mapping-by-halves", "x = wd.read(a, mapping=wd.IndexMapping((M, K), {M: M - 0.5}))",
     "read: the index M - 0.5 of a is not whole", "wd.read(a, mapping=wd.IndexMapping((M, K), {M: M - 0.5}))",
     "// rounds down"),
    ("mapping-missing-dim", "x = wd.read(a, mapping=wd.IndexMapping((M,), {}))",
     "read: the index for K of a is K, but the value has no dimension K",
     "wd.read(a, mapping=wd.IndexMapping((M,), {}))", "list K"),
    ("slice-of-an-index-dimension", "x = wd.read(h[wd.tile_start(K) :, :])",
     "read: H is an index dimension of h, of which a value has one element", "wd.read(h[wd.tile_start(K) :, :])",
     "index dimensions count among those of h ([H, K]): h[:, K slice]"),
    ("part-by-another-symbol", "x = wd.repeat_interleave(wd.read(c), K)",
     "repeat_interleave: no dimension of [M, N] is a part of K", "wd.repeat_interleave(wd.read(c), K)",
     "Memory[…, K / 32, …], no other symbol"),
    ("elements-per-thread", "x = wd.read(a, elements_per_thread=0)", "read: elements_per_thread=0",
     "wd.read(a, elements_per_thread=0)", "8"),
    ("reduce-not-elementwise", "x = wd.reduce(wd.read(c), lambda p, q: wd.sum(p, dim=M), 0.0, dim=N)",
     "sum cannot be used in the function of reduce", "wd.sum(p, dim=M)", "elementwise"),
    ("reduce-from-outside", "y = wd.read(c); m = wd.max(y, dim=N); x = wd.reduce(y, lambda p, q: p + q * m, 0.0, N)",
     "reduce: its function uses a value from outside ([M] f32) that no launch gives", "q * m",
     "one more of the values that are combined"),
    ("reduce-dtype", "x = wd.reduce(wd.read(c), lambda p, q: p < q, 0.0, dim=N)",
     "reduce: the combining function returns [] i1, not a single f32",
     "wd.reduce(wd.read(c), lambda p, q: p < q, 0.0, dim=N)", "elementwise"),
    ("scan-one-identity-for-two", "x = wd.scan((wd.read(c), wd.read(c)), lambda p, q: p, 0.0, dim=N)",
     "scan: 2 values, but 1 number as the identity", "wd.scan((wd.read(c), wd.read(c)), lambda p, q: p, 0.0, dim=N)",
     "one number per value"),
    ("scan-returns-one", "x = wd.scan((wd.read(c), wd.read(c)), lambda p, q: p[0], (0.0, 1.0), dim=N)",
     "scan: the combining function returns 1 value, not 2",
     "wd.scan((wd.read(c), wd.read(c)), lambda p, q: p[0], (0.0, 1.0), dim=N)", "a tuple"),
    ("scan-swaps", "x = wd.scan((wd.read(c), wd.index(N)), lambda p, q: (q[1], q[0]), (0.0, 1), dim=N)",
     "scan: the combining function returns [] i32 as value 0, not a single f32",
     "wd.scan((wd.read(c), wd.index(N)), lambda p, q: (q[1], q[0]), (0.0, 1), dim=N)", "elementwise"),
    ("scan-of-four", "x = wd.scan((wd.read(c), wd.read(c)), lambda p, q, r, s: (p, q), (0.0, 1.0), dim=N)",
     "scan: the combining function takes 4 parameters",
     "wd.scan((wd.read(c), wd.read(c)), lambda p, q, r, s: (p, q), (0.0, 1.0), dim=N)", "two tuples"),
    ("dim-is-a-string", "x = wd.sum(wd.read(a), dim='K')", "sum: the dimension is 'K'", "wd.sum(wd.read(a), dim='K')",
     "a dimension is a symbol"),
    ("argmax-along-two", "x = wd.argmax(wd.read(a), dim=(M, K))", "argmax: the dimension is a tuple of 2",
     "wd.argmax(wd.read(a), dim=(M, K))", "one dimension: argmax along several is along one that wd.reshape makes"),
    ("sum-along-none", "x = wd.sum(wd.read(a), dim=())", "sum: no dimensions", "wd.sum(wd.read(a), dim=())",
     "dim=(M, N)"),
    ("max-of-two", "x = wd.max(wd.read(a), wd.read(a))", "max: the dimension is a value ([M, K] f16)",
     "wd.max(wd.read(a), wd.read(a))", "a dimension is a symbol"),
    ("range-of-a-symbol", "for i in range(K):\n        pass", "'Symbol' object cannot be interpreted as an integer",
     "range(K)", "@wd.iterate(K, init_args=[…])"),
    ("branch-on-a-symbol", "if K > 3:\n        pass", "cannot determine truth value", "~K > 3",
     "wd.where(wd.index(M) < K"),
    ("math-of-a-symbol", "x = wd.read(c) / math.sqrt(N)", "Cannot convert expression to float", "math.sqrt(N)",
     "x * N**-0.5"),
    ("numpy-of-a-symbol", "x = wd.read(c) / np.sqrt(N)", "loop of ufunc does not support argument 0 of type Symbol",
     "np.sqrt(N)", "x * N**-0.5"),
    ("function-of-a-symbol", "x = wd.read(c) / wd.sqrt(N)", "sqrt: no operand is a traced value", "wd.sqrt(N)",
     "wd.Register[wd.f32](N)"),
    ("sympy-function-of-a-symbol", "x = wd.read(c) * __import__('sympy').log(N)", "mul: log(N) is no number that",
     "wd.read(c) * __import__('sympy').log(N)", "wd.log(wd.Register[wd.f32](N))"),
    ("fraction-beside-integers", "x = wd.index(N) * (0.5 * N)", "mul: 0.5*N with i32 values", "wd.index(N) * (0.5 * N)",
     "wd.cast(x, wd.f32)"),
    ("half-an-index", "x = wd.read(c, mapping=wd.IndexMapping((M, N), {N: N / 2}))",
     "read: the index N/2 of c is not whole for every element",
     "wd.read(c, mapping=wd.IndexMapping((M, N), {N: N / 2}))", "N // 2"),
    ("around-an-index", "x = wd.read(c, mapping=wd.IndexMapping((M, N), {N: (N + 1) % N}))",
     "read: the index Mod(1, N) of c is divided by 0 where the index N is 0",
     "wd.read(c, mapping=wd.IndexMapping((M, N), {N: (N + 1) % N}))", "{N: (wd.index(N) + 1) % N}"),
    ("by-an-index", "x = wd.read(c, mapping=wd.IndexMapping((M, N), {N: M // N}))",
     "read: the index floor(M/N) of c is divided by 0 where the index N is 0",
     "wd.read(c, mapping=wd.IndexMapping((M, N), {N: M // N}))", "its extent is in traced values"),
    ("extent-for-an-index", "x = wd.read(c, mapping=wd.IndexMapping((M, N), {N: wd.tile_start(M) + N}))",
     "read: the index N of c is the same for all of N: beside a traced value N is its extent",
     "wd.read(c, mapping=wd.IndexMapping((M, N), {N: wd.tile_start(M) + N}))",
     "wd.index(N) is each element's own index"),
    ("range-of-a-quotient", "for i in range(K // 4):\n        pass",
     "'floor' object cannot be interpreted as an integer", "range(K // 4)", "@wd.iterate(K, init_args=[…])"),
    ("stop-is-a-float", "@wd.iterate(K, stop=10.0)\n    def loop():\n        pass",
     "iterate: stop: the number 10.0 with i32 values", "~wd.iterate(K, stop=10.0)", "write 10"),
    ("iterate-without-dim", "@wd.iterate\n    def loop():\n        pass", "iterate needs the dimension to loop over",
     "~wd.iterate", "@wd.iterate(K, init_args=[acc])"),
    ("iterate-over-a-number", "wd.iterate(K)(5)", "iterate decorates a function, not the number 5", "wd.iterate(K)",
     "@wd.iterate"),
    ("kernel-in-kernel", "kernel(a, b, c, s)", "kernel kernel is used inside of a kernel", "kernel(a, b, c, s)",
     "plain function"),
    ("none", "x = wd.exp(wd.write(wd.read(c), c))", "exp: None, not a value", "wd.exp(wd.write(wd.read(c), c))",
     "give no value"),
    ("assert-number", "wd.device_assert(True, 'x')", "device_assert: the condition is the number True",
     "wd.device_assert(True, 'x')", "use assert"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message", "underlined", "hint"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_mistake(body: str, message: str, underlined: str, hint: str) -> None:
    kernel = run(HEAD + "    " + body + "\n")["kernel"]
    with pytest.raises(wd.TraceError) as raised:
        kernel.trace()
    assert raised.value.message.startswith(message), raised.value.message
    assert hint in raised.value.hint
    assert_points_at(raised.value, underlined)


EQUALITIES = [
    ("number", "if N == 16:\n        pass", "N is a symbol while tracing and equals no number: the answer is False",
     "N == 16"),
    ("other-way-round", "x = 1 if 0 != K % 32 else 2", "Mod(K, 32) is a symbol while tracing", "0 != K % 32"),
    ("quotient", "while N // BN == 2:\n        pass", "floor(N/BN) is a symbol", "N // BN == 2"),
    ("by-attribute", "if wd.sym.N == 16:\n        pass", "N is a symbol", "wd.sym.N == 16"),
    ("in-a-loop", """
    @wd.iterate(K)
    def loop():
        if K == 16:
            pass
     """, "K is a symbol", "K == 16"),
    ("in-a-helper", "helper()", "K is a symbol", "K == 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message", "underlined"), [c[1:] for c in EQUALITIES], ids=[c[0] for c in EQUALITIES]
)
def test_a_symbol_equals_no_number(body: str, message: str, underlined: str) -> None:
    """It was False without a word, whatever the extent."""
    helper = "\ndef helper():\n    return K == 1\n"
    kernel = run(helper + HEAD + "    " + body.strip() + "\n    wd.write(wd.read(c), c)\n")["kernel"]
    with pytest.raises(wd.TraceError) as raised:
        kernel.trace()
    assert raised.value.message.startswith(message), raised.value.message
    assert "takes a Python number" in raised.value.hint
    assert_points_at(raised.value, underlined)


def test_equalities_that_may_be() -> None:
    """Of two names, of numbers, of variables, of values."""
    source = HEAD + """
    n = K
    assert (M == N, tile == 4) == (False, True)
    x = wd.where(wd.index(N) == 0, wd.read(c), 1.0)
    wd.write(x if n == K else 2 * x, c)
    """
    run("tile = 4\n" + source)["kernel"].trace()


LOOPS = [
    ("missing-return", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc):
            wd.mma(wd.read(a), wd.read(b), acc)
     """, wd.TraceError, "iterate: the function of the loop over K returns nothing, but carries 1 value",
     "def loop(acc):", "return"),
    ("too-many-returned", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc):
            return acc, acc
     """, wd.TraceError, "iterate: the function of the loop over K returns 2 values, but carries 1", "def loop(acc):",
     "one value per entry"),
    ("wrong-type-returned", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc):
            return wd.sum(acc, dim=N)
     """, wd.TraceError, "iterate: the loop over K carries acc as [M, N] f32, but returns [M] f32 for it",
     "wd.sum(acc, dim=N)", "wd.broadcast(x, M, N)"),
    ("wrong-dtype-returned", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc):
            return wd.cast(acc, wd.f16)
     """, wd.TraceError, "iterate: the loop over K carries acc as [M, N] f32, but returns [M, N] f16 for it",
     "wd.cast(acc, wd.f16)", "wd.cast(x, wd.f32)"),
    ("number-returned", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc):
            return 0.0
     """, wd.TraceError, "iterate: the new value of acc: the number 0.0, not a value", "def loop(acc):", "Register"),
    ("parameters", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc, more):
            return acc
     """, wd.TraceError, "iterate: the loop over K carries 1 value, but its function takes 2 parameters",
     "def loop(acc, more):", "one parameter per entry"),
    ("annotation", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, wd.f32]):
            return acc
     """, wd.TraceError, "iterate: acc is annotated Register[M, f32], but its initial value is [M, N] f32",
     "acc: wd.Register[M, wd.f32]", "agree"),
    ("escaped-value", """
        kept = []
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc):
            kept.append(wd.mma(wd.read(a), wd.read(b)))
            return acc + kept[0]
        wd.write(kept[0], c)
     """, wd.TraceError, "a value of the loop over K is used outside of it", "wd.write(kept[0], c)", "return it from"),
    ("whole-value-in-loop", """
        x = wd.read(a)
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc):
            return wd.mma(x, wd.read(b), acc)
     """, wd.TraceError, "a value made outside the loop over K spans all of K", "wd.mma(x, wd.read(b), acc)",
     "make the value inside"),
    ("no-tiling", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(N, init_args=[acc])
        def loop(acc):
            return acc
     """, wd.ConstraintError, "iterate: N has no TilingConstraint", "wd.iterate(N, init_args=[acc])",
     "wd.TilingConstraint(N, <elements per trip>)"),
    ("nested-same-dim", """
        @wd.iterate(K)
        def outer():
            @wd.iterate(K)
            def inner():
                pass
     """, wd.TraceError, "iterate: already inside a loop over K", "wd.iterate(K)", "another dimension"),
    ("number-carried", """
        @wd.iterate(K, init_args=[0.0])
        def loop(acc):
            return acc
     """, wd.TraceError, "iterate: the number 0.0, not a value", "wd.iterate(K, init_args=[0.0])", "wd.Register"),
    ("init-not-a-list", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=acc)
        def loop(acc):
            return acc
     """, wd.TraceError, "iterate: init_args is not a list", "wd.iterate(K, init_args=acc)", "[acc]"),
    ("called-loop", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc):
            return acc
        wd.write(loop(), c)
     """, wd.TraceError, "a traced value is not a function", "loop()", "its name is its result"),
    ("tuple-as-value", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc, acc])
        def loop(p, q):
            return q, p
        wd.write(loop, c)
     """, wd.TraceError, "write: a tuple of 2, not a value", "wd.write(loop, c)", "unpack it"),
    ("unknown-name-in-loop", """
        acc = wd.Register[M, N, wd.f32](0.0)
        @wd.iterate(K, init_args=[acc])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(bb), acc)
     """, wd.TraceError, "name 'bb' is not defined", "bb", "define bb"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "kind", "message", "underlined", "hint"), [c[1:] for c in LOOPS], ids=[c[0] for c in LOOPS]
)
def test_loop_mistake(body: str, kind: type[wd.WaveError], message: str, underlined: str, hint: str) -> None:
    kernel = run(HEAD + textwrap.indent(textwrap.dedent(body), "    "))["kernel"]
    with pytest.raises(kind) as raised:
        kernel.trace()
    assert raised.value.message.startswith(message), raised.value.message
    assert hint in raised.value.hint
    assert_points_at(raised.value, underlined)


def test_a_helper_shows_where_it_was_called_from() -> None:
    kernel = run(
        """
        def scaled(x):
            return x * wd.read(a_global)

        @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
        def kernel(a: wd.Memory[M, wd.f32]):
            wd.write(scaled(wd.read(a)), a)
        """
    )["kernel"]
    with pytest.raises(wd.TraceError) as raised:
        kernel.trace()
    assert raised.value.message == "name 'a_global' is not defined"
    text = str(raised.value)
    assert "in scaled\n    return x * wd.read(a_global)\n" in text
    assert "called from" in text and "    wd.write(scaled(wd.read(a)), a)\n" in text
    assert text.index("in scaled") < text.index("called from")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="columns need Python 3.11")
def test_the_whole_text_of_an_error() -> None:
    kernel = run(
        """
        @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
        def kernel(a: wd.Memory[M, wd.f32]):
            wd.write(wd.read(a) + wd.cast(wd.read(a), wd.f16), a)
        """,
        file="<cell of an example>",
    )["kernel"]
    with pytest.raises(wd.TraceError) as raised:
        kernel.trace()
    assert str(raised.value) == (
        "add: operands have dtypes f32 and f16\n"
        "  <cell of an example>:8 in kernel\n"
        "    wd.write(wd.read(a) + wd.cast(wd.read(a), wd.f16), a)\n"
        "             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  help: cast one of them, for example wd.cast(x, wd.f32)"
    )


def test_wide_characters_before_the_mark() -> None:
    kernel = run(
        """
        @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
        def kernel(a: wd.Memory[M, wd.f32]):
            größe = "漢字"; wd.write(wd.read(a) / "x", a)
        """
    )["kernel"]
    with pytest.raises(wd.TraceError) as raised:
        kernel.trace()
    loc = raised.value.location
    assert loc is not None
    if sys.version_info >= (3, 11):
        assert loc.text()[loc.col : loc.end_col] == 'wd.read(a) / "x"'


def test_outside_of_a_kernel() -> None:
    with pytest.raises(wd.TraceError) as raised:
        wd.index(wd.sym.M)
    assert raised.value.message == "index was used outside of a kernel"
    with pytest.raises(wd.TraceError, match="Register was used outside of a kernel"):
        wd.Register[wd.sym.M, wd.f32](0.0)


def test_a_value_of_an_earlier_trace() -> None:
    space = run(
        """
        kept = []

        @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
        def kernel(a: wd.Memory[M, wd.f32]):
            kept.append(wd.read(a))
            wd.write(kept[0], a)
        """
    )
    space["kernel"].trace()
    with pytest.raises(wd.TraceError, match="a value of another kernel"):
        space["kernel"].trace_afresh({})


DECLARATIONS = [
    ("no-annotation", "def kernel(a):\n    pass\n", "kernel kernel: parameter a has no annotation", "a"),
    ("not-ours", "def kernel(a: int):\n    pass\n", "annotation of a is <class 'int'>", "a: int"),
    ("register", "def kernel(a: wd.Register[M, wd.f32]):\n    pass\n",
     "kernel kernel: parameter a is annotated Register[M, f32]", "a: wd.Register[M, wd.f32]"),
    ("varargs", "def kernel(*a: wd.Memory[M, wd.f32]):\n    pass\n", "kernel kernel: parameter *a",
     "a: wd.Memory[M, wd.f32]"),
    ("no-parameters", "def kernel():\n    pass\n", "kernel kernel has no parameters", "def kernel():"),
    ("string-unknown", "def kernel(a: 'wd.Memory[MM, wd.f32]'):\n    pass\n", "annotation of a: unknown name MM",
     "a: 'wd.Memory[MM, wd.f32]'"),
    ("string-wrong", "def kernel(a: 'wd.Memory[M, M, wd.f32]'):\n    pass\n",
     "Memory[…]: M stands for two dimensions", "a: 'wd.Memory[M, M, wd.f32]'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "message", "underlined"), [c[1:] for c in DECLARATIONS], ids=[c[0] for c in DECLARATIONS]
)
def test_declaration(source: str, message: str, underlined: str) -> None:
    with pytest.raises(wd.TraceError) as raised:
        run("@wd.wave([wd.WorkgroupConstraint(M, 16, 0)])\n" + source)
    assert raised.value.message.startswith(message), raised.value.message
    loc = raised.value.location
    assert loc is not None and loc.text()[loc.col : loc.end_col] == underlined


def test_a_number_is_a_scalar() -> None:
    with pytest.raises(wd.TraceError) as raised:
        run("@wd.wave([wd.WorkgroupConstraint(M, 16, 0)])\ndef kernel(a: wd.Memory[M, wd.f32], n: float):\n    pass\n")
    assert "wd.Scalar[wd.f32]" in raised.value.hint


BRACKETS = [
    ("wd.Memory[M, N]", "Memory[…] ends in N, which is no dtype"),
    ("wd.Memory[M, np.float32]", "Memory[…] ends in <class 'numpy.float32'>, which is no dtype"),
    ("wd.Memory[wd.f32]", "Memory[…] has no dimension"),
    ("wd.Memory['M', wd.f32]", "Memory[…]: 'M' is not a dimension"),
    ("wd.Memory[M, M, wd.f32]", "Memory[…]: M stands for two dimensions"),
    ("wd.Memory[M, wd.symbols('N'), wd.f32]", "Memory[…]: (N,) is not a dimension"),
    ("wd.Memory[wd.SHARED, M, wd.f32]", "Memory[…]: SHARED is not a dimension"),
    ("wd.Scalar[M, wd.f32]", "Scalar[…] takes a dtype only, not M"),
]


@pytest.mark.parametrize(("source", "message"), BRACKETS)
def test_brackets(source: str, message: str) -> None:
    with pytest.raises(wd.TraceError) as raised:
        run(f"x = {source}\n")
    assert raised.value.message.startswith(message)
    assert_points_at(raised.value, source)


@pytest.mark.parametrize(
    "source",
    [
        "x = wd.Memory[M, T, wd.f32]\n",
        "x = wd.WorkgroupConstraint(T, 16, 0)\n",
        "x = wd.TilingConstraint(K, T)\n",
        HEAD + "    x = wd.index(T)\n\nkernel.trace()\n",
    ],
    ids=["argument", "dimension", "tile", "operation"],
)
def test_symbols_are_a_tuple(source: str) -> None:
    with pytest.raises((wd.TraceError, wd.ConstraintError)) as raised:
        run("T = wd.symbols('N')\n" + source)
    assert raised.value.hint == "wd.symbols gives a tuple; a single symbol is N = wd.sym.N"


def test_a_batch_is_in_no_shape() -> None:
    """With a named tile that happens to be 1, the same body is right."""
    source = """
@wd.wave([wd.WorkgroupConstraint(M, TILE, 0)], subs={BM: 1})
def kernel(a: wd.Memory[M, N, wd.f32], c: wd.Memory[N, wd.f32]):
    wd.atomic_add(wd.sum(wd.read(a), dim=M), c)
"""
    with pytest.raises(wd.TraceError) as raised:
        run("BM = wd.sym.BM\n" + source.replace("TILE", "1"))["kernel"].trace()
    assert raised.value.message == "sum: the value has no dimension M; it has [N]"
    assert "wd.WorkgroupConstraint(M, BM, <axis>), subs={BM: 1}" in str(raised.value.hint)
    run("BM = wd.sym.BM\n" + source.replace("TILE", "BM"))["kernel"].trace()


def test_a_grid_in_brackets() -> None:
    kernel = run(HEAD + "    wd.write(wd.read(c), c)\n")["kernel"]
    with pytest.raises(wd.LaunchError) as caught:
        kernel[(4,)](1, 2)
    assert caught.value.message == "kernel: a kernel takes no grid"
    assert "the grid follows from its constraints" in str(caught.value) and __file__ in str(caught.value)


def test_names_from_elsewhere_lead_to_names_that_there_are() -> None:
    """Nothing that wavedsl has is said to be missing, and every name in the advice exists."""
    assert not set(advice._ELSEWHERE) & set(wd.__all__) - {"load"}  # wd.load reads a file
    for words in advice._ELSEWHERE.values():
        for name in re.findall(r"wd\.(\w+)", words):
            assert hasattr(wd, name), words


def test_load_is_not_read() -> None:
    """Those who know Triton write `load`; here it takes a file's name."""
    kernel = run(HEAD + "    wd.write(wd.load(c), c)\n")["kernel"]
    with pytest.raises(wd.LaunchError) as caught:
        kernel.trace()
    assert caught.value.message == "load: <array argument c> is no path" and "wd.read(a)" in str(caught.value.hint)
    assert_points_at(caught.value, "wd.load(c)")


def test_a_loop_with_one_element_per_trip_that_carries_it_along() -> None:
    kernel = run("""
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(K, 1)])
    def kernel(a: wd.Memory[K, M, wd.f32], b: wd.Memory[M, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, wd.f32](0.0)])
        def last(before):
            return before * 0.5 + wd.read(a)

        wd.write(last, b)
    """)["kernel"]
    with pytest.raises(wd.TraceError) as caught:
        kernel.trace()
    assert caught.value.message == "iterate: the loop over K carries before as [M] f32, but returns [K, M] f32 for it"
    assert "a[wd.tile_start(K), :]" in str(caught.value.hint)


def test_one_element_per_trip_beside_an_index_dimension() -> None:
    """`k[t]` fixes the index dimension: the help spells the subscript of the array that is read."""
    kernel = run("""
    @wd.wave([wd.WorkgroupConstraint(N, 1, 1), wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(K, 1)])
    def kernel(k: wd.Memory[N, K, M, wd.f32], b: wd.Memory[N, M, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, wd.f32](0.0)])
        def last(before):
            return before * 0.5 + wd.read(k[wd.tile_start(K), :])

        wd.write(last, b)
    """)["kernel"]
    with pytest.raises(wd.TraceError) as caught:
        kernel.trace()
    assert "without K: k[:, wd.tile_start(K), :]" in str(caught.value.hint)
