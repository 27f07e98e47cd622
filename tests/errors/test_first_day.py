"""What somebody writes on the first day who knows another language of this kind: every message says what is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source import assert_points_at, run
from wavedsl.tracer import advice

import wavedsl as wd

HEAD = """
@wd.wave(
    [wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1), wd.TilingConstraint(K, 16)],
)
def kernel(
    a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32], v: wd.Memory[N, wd.f32],
    one: wd.Memory[1, wd.f32],
):
"""

# (name, body of the kernel, start of the message, what is underlined, part of the hint)
CASES = [
    ("own-index", "wd.write(v[wd.index(N)] * 2, v)", "v[…] is a part of an array argument ([N] f32), not a value",
     "v[wd.index(N)] * 2", "wd.read(v[…])"),
    ("ends-for-each-element", "wd.write(wd.read(v[wd.index(N) : wd.index(N) + N]), v)",
     "v[…]: the end of a slice has dimensions N", "v[wd.index(N) : wd.index(N) + N]", "wd.read(v[…, index, …])"),
    ("rolled-as-numpy-does", "wd.write(wd.roll(wd.read(v), 1), v)", "module 'wavedsl' has no attribute 'roll'",
     "wd.roll", "wd.shuffle(x, (wd.index(N) - 1) % N, dim=N)"),
    ("fraction-as-an-index", "wd.write(wd.read(a[wd.read(v), :]), a)", "read: an index has dtype f32",
     "wd.read(a[wd.read(v), :])", "wd.cast(index, wd.i32)"),
    ("mask-as-an-index", "wd.write(wd.read(v[wd.read(v) > 0]), v)", "read: an index has dtype i1",
     "wd.read(v[wd.read(v) > 0])", "wd.where(mask, x, 0)"),
    ("assigned-part", "v[:] = wd.read(v) * 2", "v[…] = … assigns to an array argument ([N] f32)", "v[:]",
     "wd.write(value, v) stores"),
    ("assigned-array", "v = wd.sum(wd.read(c), dim=M)\n    wd.write(wd.read(c), c)",
     "kernel kernel neither reads nor writes v: an assignment to it names a value", "v: wd.Memory[N, wd.f32]",
     "wd.write(value, v) stores"),
    ("start-of-a-loop", """pass
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def total(acc):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(acc * 2, c)""", "mul: the value that the loop over K starts from, and nothing uses what the loop gives",
     "acc * 2", "its result is total"),
    ("augmented-in-a-loop", """pass
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K)
    def total():
        acc += wd.mma(wd.read(a), wd.read(b))
        return acc
""", "", "~acc += wd.mma(wd.read(a), wd.read(b))", "init_args=[x]) above def loop(x), and go out by return"),
    ("atomic-order", "wd.atomic_add(v, wd.read(v))", "atomic_add: the value comes first, then the array",
     "wd.atomic_add(v, wd.read(v))", "wd.atomic_add(value, v)"),
    ("single-number", "wd.write(wd.sum(wd.sum(wd.read(c), dim=N), dim=M), one)",
     "write: the value has dimensions [], but one takes [1]",
     "wd.write(wd.sum(wd.sum(wd.read(c), dim=N), dim=M), one)", "into one element: wd.write(x, one[0])"),
    ("array-of-one", "wd.write(wd.read(v) * wd.read(one), v)", "write: the value has dimensions [N, 1], but v takes",
     "wd.write(wd.read(v) * wd.read(one), v)", "wd.read(a[0])"),
    ("softmax-without-dim", "x = wd.softmax(wd.read(c))", "softmax: which dimension?", "wd.softmax(wd.read(c))",
     "name one of M, N: wd.softmax(x, dim=…)"),
    ("softmax-of-an-axis", "x = wd.softmax(wd.read(c), 1)", "softmax: the value has no dimension 1; it has [M, N]",
     "wd.softmax(wd.read(c), 1)", "name one of M, N"),
    ("transposed", "x = wd.read(c).T", "a traced value has no attribute T", "wd.read(c).T",
     "nothing to do: dimensions have names"),
    ("operators-method", "x = wd.read(c).mul(2)", "a traced value has no attribute mul", "wd.read(c).mul", "x * y"),
    ("shape-of-a-value", "x = wd.read(c).shape", "a traced value has no attribute shape", "wd.read(c).shape",
     "a symbol is the extent along it: x / N"),
    ("shape-of-an-array", "n = c.shape[1]", "the array argument c has no attribute shape", "c.shape", "x / N"),
    ("transposed-array", "x = wd.read(c.T)", "the array argument c has no attribute T", "c.T", "nothing to do"),
    ("stride", "n = c.stride(0)", "the array argument c has no attribute stride", "c.stride", "read off the arrays"),
    ("length-of-an-array", "n = len(c)", "the array argument c has no len()", "len(c)", "the extent along it: x / N"),
    ("rows-of-an-array", "for row in c:\n        pass", "the array argument c cannot be iterated over", "~c",
     "wd.read(c[i, :])"),
    ("precedence", "x = wd.read(c)\n    y = x > 0 & x < 1", "bitand: needs integers, not f32", "0 & x",
     "put each into brackets: (x > 0) & (x < 1)"),
    ("python-sum", "x = sum(wd.read(c))", "a traced value cannot be iterated over", "sum(wd.read(c))",
     "wd.sum(x, dim=N)"),
    ("numpy-where", "x = np.where(wd.read(c) > 0, 1.0, 0.0)", "a traced value is not a NumPy array",
     "np.where(wd.read(c) > 0, 1.0, 0.0)", "wd.where("),
    ("numpy-clip", "x = np.clip(wd.read(c), 0, 1)", "a traced value has no attribute clip",
     "~np.clip(wd.read(c), 0, 1)", "wd.clamp(x, low, high)"),
    ("numpy-ufunc", "x = np.maximum(wd.read(c), 0)", "a traced value is no array of NumPy's",
     "np.maximum(wd.read(c), 0)", "wd.maximum(x, y)"),
    ("table", "x = np.arange(4)[wd.index(N)]", "a traced value is not a NumPy array", "np.arange(4)[wd.index(N)]",
     "wd.read(a[index]) gathers"),
    ("whole-division", "x = wd.index(N) / 2", "div: needs floating point, not i32", "wd.index(N) / 2",
     "x // y rounds down"),
    ("flag-times-number", "x = (wd.read(c) > 0) * 1.0", "mul: does not compute on i1", "(wd.read(c) > 0) * 1.0",
     "wd.where(x, 1.0, 0.0)"),
    ("cast-order", "x = wd.cast(wd.f16, wd.read(c))", "cast: the value comes first", "wd.cast(wd.f16, wd.read(c))",
     "wd.cast(x, wd.f16)"),
    ("max-of-two", "x = wd.max(wd.read(c), 0.0)", "max: the dimension is the number 0.0", "wd.max(wd.read(c), 0.0)",
     "wd.maximum(x, y)"),
    ("index-of-an-axis", "x = wd.index(0)", "index: the dimension is the number 0", "wd.index(0)", "wd.index(N)"),
    ("start-of-an-axis", "x = wd.tile_start(0)", "tile_start: the dimension is the number 0", "wd.tile_start(0)",
     "wd.tile_start(N)"),
    ("python-min-of-a-symbol", "x = wd.read(c) * min(N, 3)", "cannot determine truth value", "min(N, 3)",
     "wd.minimum(N, 3)"),
    ("int-of-a-symbol", "x = wd.read(c) + int(N)", "Cannot convert symbols to int", "int(N)", "x + N"),
    ("called-number", "x = wd.read(c) * wd.Scalar(2.0)", "Scalar takes brackets, not a call", "wd.Scalar(2.0)",
     "x * 2.0"),
    ("printed-value", "wd.device_print(f'{wd.read(c)}')", "device_print: the text has a traced value in it",
     "wd.device_print(f'{wd.read(c)}')", 'wd.device_print("x", x)'),
    ("tile-in-an-if", "if M > 32:\n        pass", "cannot determine truth value of Relational", "M > 32",
     "make the kernel in a function that takes a Python number"),
    ("next-power-of-two", "x = wd.next_power_of_2(3)", "module 'wavedsl' has no attribute 'next_power_of_2'",
     "wd.next_power_of_2", "tiles are what they are"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message", "underlined", "hint"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_in_a_kernel(body: str, message: str, underlined: str, hint: str) -> None:
    space = run(HEAD + "    " + body)
    with pytest.raises(wd.TraceError) as caught:
        space["kernel"].trace({"M": 64, "N": 64, "K": 32})
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint
    assert_points_at(caught.value, underlined)


# (name, source, start of the message, what is underlined, part of the hint)
DECLARATIONS = [
    ("method", "class C:\n    @wd.wave([])\n    def k(self, c: wd.Memory[M, wd.f32]):\n        pass",
     "kernel k: parameter self has no annotation", "self", "write @staticmethod above @wd.wave(…)"),
    ("inside", "class C:\n    @wd.wave([])\n    @staticmethod\n    def k(c: wd.Memory[M, wd.f32]):\n        pass",
     "@wd.wave decorates a function, not a staticmethod", "wd.wave([])", "put @staticmethod above @wd.wave(…)"),
    ("flag", "@wd.wave([])\ndef k(c: wd.Memory[M, wd.f32], relu=True):\n    pass",
     "kernel k: parameter relu has no annotation", "relu=True", "def make(relu):"),
    ("any-number", "@wd.wave([])\ndef k(*cs: wd.Memory[M, wd.f32]):\n    pass",
     "kernel k: parameter *cs takes any number of arguments", "cs: wd.Memory[M, wd.f32]", "name every parameter"),
    ("bare-annotation", "@wd.wave([])\ndef k(c: wd.Memory):\n    pass",
     "annotation of c is wd.Memory without brackets", "c: wd.Memory", "annotate with wd.Memory[...]"),
    ("dtype-alone", "@wd.wave([])\ndef k(c: wd.Memory[M, wd.f32], s: wd.f32):\n    pass",
     "annotation of s is f32", "s: wd.f32", "a number: s: wd.Scalar[wd.f32]; an array: s: wd.Memory[N, wd.f32]"),
    ("called-memory", "@wd.wave([])\ndef k(c: wd.Memory(M, wd.f32)):\n    pass", "Memory takes brackets, not a call",
     "wd.Memory(M, wd.f32)", "wd.Memory[M, N, wd.f32]"),
    ("called-scalar", "@wd.wave([])\ndef k(c: wd.Memory[M, wd.f32], s: wd.Scalar(wd.f32)):\n    pass",
     "Scalar takes brackets, not a call", "wd.Scalar(wd.f32)", "wd.Scalar[wd.f32]"),
    ("memory-of-a-number", "@wd.wave([])\ndef k(c: wd.Memory[wd.f32]):\n    pass", "Memory[…] has no dimension",
     "wd.Memory[wd.f32]", "out: wd.Memory[1, wd.f32], wd.write(x, out[0])"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "message", "underlined", "hint"), [c[1:] for c in DECLARATIONS], ids=[c[0] for c in DECLARATIONS]
)
def test_declaration(source: str, message: str, underlined: str, hint: str) -> None:
    with pytest.raises(wd.TraceError) as caught:
        run(source)
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint
    assert_points_at(caught.value, underlined)


def test_recursion_without_an_end() -> None:
    """It took 17 seconds and ended in a RecursionError."""
    space = run("""
        def power(x, n):
            return wd.where(n == 0, x, x * power(x, n - 1))

        @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
        def kernel(x: wd.Memory[N, wd.f32]):
            wd.write(power(wd.read(x), wd.index(N)), x)
    """)
    with pytest.raises(wd.TraceError, match="call each other without an end") as caught:
        space["kernel"].trace()
    assert "wd.while_loop" in caught.value.hint
    assert_points_at(caught.value, "~x * power(x, n - 1)")
    shown = str(caught.value)
    assert shown.count("called from") == 1 and "power(wd.read(x), wd.index(N))" in shown


def test_a_loop_that_is_meant_to_give_nothing() -> None:
    """What a loop starts from may be used behind it if the loop writes, or its result is used as well."""
    space = run("""
        @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(K, 16)])
        def kernel(a: wd.Memory[M, K, wd.f32], b: wd.Memory[M, K, wd.f32], c: wd.Memory[M, wd.f32]):
            start = wd.Register[M, wd.f32](1.0)

            @wd.iterate(K, init_args=[start])
            def sums(s):
                wd.write(wd.read(a) + s, b)
                return s + wd.sum(wd.read(a), dim=K)

            wd.write(start, c)

        @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(K, 16)])
        def other(a: wd.Memory[M, K, wd.f32], c: wd.Memory[M, wd.f32]):
            start = wd.Register[M, wd.f32](1.0)

            @wd.iterate(K, init_args=[start])
            def sums(s):
                return s + wd.sum(wd.read(a), dim=K)

            wd.write(sums - start, c)
    """)
    a, b, c = np.ones((4, 32), np.float32), np.zeros((4, 32), np.float32), np.zeros(4, np.float32)
    space["kernel"].evaluate(a, b, c)
    assert (c == 1).all() and (b[:, :16] == 2).all() and (b[:, 16:] == 18).all()
    space["other"].evaluate(a, c)
    assert (c == 32).all()


PRODUCT = """
@wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, 32)])
def kernel(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
    @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
    def total(acc):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(total, c)

x, y, z = np.ones((128, 64), np.float16), np.ones((64, 96), np.float16), np.ones((128, 96), np.float32)
"""


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        ("kernel(x, y, z)", "kernel: arguments disagree about K", "declare b: wd.Memory[K, N, wd.f16]"),
        ("kernel(x, y.T, z, num_warps=4)", "kernel has no parameter num_warps", "wd.WaveConstraint(M, BM / 4)"),
        ("kernel(x, y.T, z, num_stages=4)", "kernel has no parameter num_stages", "wd.Schedule(stages=3)"),
        ("kernel(x, y.T, z, BN=64)", "kernel has no parameter BN", "subs={BN: …}"),
        ("kernel(x, y.T, z, stream=0)", "kernel has no parameter stream", "current stream"),
    ],
)
def test_calls(call: str, message: str, hint: str) -> None:
    with pytest.raises(wd.LaunchError) as caught:
        run(PRODUCT + call)
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint and caught.value.location is not None
    if "parameter" in message:
        assert_points_at(caught.value, call)


def test_arrays_that_disagree_either_way_round() -> None:
    """No declaration makes them agree."""
    with pytest.raises(wd.LaunchError) as caught:
        run(PRODUCT + "kernel(x, y[:48], z)")
    assert "declare" not in caught.value.hint


def test_a_dimension_that_no_constraint_cuts() -> None:
    """Its tile was only said to be too large."""
    source = PRODUCT.replace("wd.WorkgroupConstraint(N, BN, 1), ", "")
    with pytest.raises(wd.ConstraintError) as caught:
        run(source)["kernel"].compile(target="gfx942", subs={"M": 128, "N": 4096, "K": 64})
    assert caught.value.message.startswith("argument b: a shared tile of N=4096")
    assert "no constraint cuts N" in caught.value.hint and "wd.WorkgroupConstraint(N, 64, <axis>)" in caught.value.hint
    with pytest.raises(wd.ConstraintError) as caught:
        run(PRODUCT)["kernel"].compile(target="gfx942", subs={"M": 128, "N": 4096, "K": 64, "BN": 4096})
    assert "no constraint" not in caught.value.hint


def test_what_a_compiled_kernel_has() -> None:
    kernel = run(PRODUCT)["kernel"]
    for name in ("asm", "emulate", "resources"):
        with pytest.raises(AttributeError, match=rf"kernel\.compile\(…\)\.{name}"):
            getattr(kernel, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        kernel.nothing  # noqa: B018
    assert not hasattr(kernel, "__array_interface__")


def test_names_of_other_languages_outside_of_a_kernel() -> None:
    for name, instead in (("cdiv", "(x + y - 1) // y"), ("jit", "@wd.wave(["), ("constexpr", "subs={BM: 64}")):
        with pytest.raises(AttributeError) as caught:
            getattr(wd, name)
        assert instead in str(caught.value)
    with pytest.raises(AttributeError, match=r"numpy\.testing\.assert_allclose"):
        wd.testing.assert_close  # noqa: B018
    assert not hasattr(wd.testing, "nothing")
    assert not hasattr(wd, "nothing") and wd.testing.do_bench and wd.strategies.matmul


@pytest.mark.parametrize("text", [None, "hello", "[1]", "{}"])
def test_files_that_are_no_kernels(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(wd.LaunchError) as caught:
        wd.load(path)
    said = {None: "No such file", "{}": "not a compiled kernel", "[1]": "not a compiled kernel"}
    assert said.get(text, "is no compiled kernel") in caught.value.message and caught.value.hint


@pytest.mark.parametrize("damage", [{"params": 3}, {"grid": None}, {"resources": {}}, {"shapes": []}, {"target": 1}])
def test_files_of_which_a_part_is_damaged(damage: dict[str, object], tmp_path: Path) -> None:
    @wd.wave([wd.WorkgroupConstraint(wd.sym.N, 64, 0)])
    def kernel(x: wd.Memory[wd.sym.N, wd.f32], y: wd.Memory[wd.sym.N, wd.f32]):
        wd.write(wd.read(x), y)

    whole = kernel.compile(target="gfx942", subs={wd.sym.N: 64}).to_json()
    path = tmp_path / "kernel.json"
    for text in (whole | damage, {k: v for k, v in whole.items() if k not in damage}):
        path.write_text(json.dumps(text))
        with pytest.raises(wd.LaunchError, match=r"kernel\.json lacks a part of a compiled kernel") as caught:
            wd.load(path)
        assert_points_at(caught.value, "wd.load(path)")


def test_a_race_says_what_orders_workgroups() -> None:
    kernel = run("""
        @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
        def kernel(x: wd.Memory[N, wd.f32], y: wd.Memory[M, wd.f32]):
            wd.write(wd.read(x), y, mapping=wd.IndexMapping((N,), {M: 0}))
    """)["kernel"]
    x, y = np.arange(200, dtype=np.float32), np.zeros(1, np.float32)
    with pytest.raises(wd.EmulationError) as caught:
        kernel.compile(x, y, target="gfx942").emulate(x, y)
    assert "workgroups run in no order" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "kind", "message", "hint"),
    [
        ("wd.autotune(on_mis='raise')(kernel)", wd.ConstraintError, "autotune: on_mis is no option", "mean on_miss?"),
        ("wd.autotune(configs=[], key=['N'])(kernel)", wd.ConstraintError, "autotune: configs is no option",
         "@wd.autotune({BM: (64, 128)})"),
        ("wd.autotune(colour=3)(kernel)", wd.ConstraintError, "autotune: colour is no option", "there are at_least"),
        ("wd.autotune([{BN: 64}])(kernel)", wd.ConstraintError, "space is [{BN: 64}]", "a dict from symbols to values"),
        ("wd.autotune({BM: (64,)})(kernel)", wd.ConstraintError, "space has BM, which sizes no tile of kernel", "BN"),
        ("wd.analyze(3)", wd.TraceError, "analyze takes a kernel, not 3", "@wd.wave(…)"),
        ("wd.testing.do_bench(3)", wd.ConstraintError, "do_bench: 3 cannot be called", "lambda: kernel(a, b, c)"),
        ("wd.strategies.matmul(x, x, z)", wd.LaunchError, "matmul: a is (128, 64), b (128, 64)", "transpose_b=True"),
        ("wd.strategies.matmul(x, y.astype(np.float32), z)", wd.LaunchError, "matmul: a is f16 and b f32", "convert"),
        ("wd.strategies.matmul(x, y[0], z)", wd.LaunchError, "matmul: b has shape (96,)", "pass matrices"),
        ("kernel.compile(x, y.T, z, target='sm_80', subs={BN: 32}).emulate(x, y.T, z, check=True)", wd.LaunchError,
         "kernel: unexpected argument check", "emulate checks="),
    ],
)  # fmt: skip
def test_around_kernels(source: str, kind: type[wd.WaveError], message: str, hint: str) -> None:
    with pytest.raises(kind) as caught:
        run(PRODUCT + source)
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint and caught.value.location is not None


def test_a_bound_call_takes_no_arguments() -> None:
    space = run(PRODUCT.replace("BN, 1", "32, 1") + "again = kernel.bind(x, y.T, z)\n")
    with pytest.raises(TypeError, match=r"bound\(\) takes 0 positional arguments"):
        space["again"](space["x"])
    space["again"]()
    np.testing.assert_array_equal(space["z"], 64)


TRITON = """
abs add advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_max atomic_min
atomic_or atomic_xchg atomic_xor autotune bfloat16 block_type broadcast broadcast_to cast cat cdiv ceil clamp constexpr
cos cumprod cumsum debug_barrier device_assert device_print div_rn dot dot_scaled erf exp exp2 expand_dims fdiv flip
float16 float32 float64 float8e4b15 float8e4b8 float8e4nv float8e5 float8e5b16 floor fma full gather heuristics
histogram inline_asm_elementwise int1 int16 int32 int64 int8 interleave jit join load load_tensor_descriptor log log2
make_block_ptr make_tensor_descriptor map_elementwise max max_constancy max_contiguous maximum min minimum multiple_of
next_power_of_2 num_programs permute pointer_type program_id rand rand4x randint randint4x randn randn4x range ravel
reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn squeeze static_assert static_print
static_range store store_tensor_descriptor sum swizzle2d tensor topk trans uint16 uint32 uint64 uint8 umulhi unsqueeze
view where xor_sum zeros zeros_like
"""
"""Names of triton and triton.language."""


def test_names_of_tritons_are_answered() -> None:
    """The guide says so: each is there, or ends in an error that says what it is here."""
    assert not [n for n in TRITON.split() if not hasattr(wd, n) and not advice.for_missing(n, "wavedsl")]


X, Y, Z = np.linspace(0.1, 0.9, 8, dtype=np.float32), np.linspace(0.8, 0.2, 8, dtype=np.float32), np.float32(0.5)
WHOLE, OTHER = np.arange(-4, 4, dtype=np.int32) * 7, np.arange(8, dtype=np.int32) * 5 - 11
MEANT = [
    ("acosh", X + 1, lambda x, y: np.arccosh(x)), ("asinh", X, lambda x, y: np.arcsinh(x)),
    ("atanh", X, lambda x, y: np.arctanh(x)), ("fdim", X, lambda x, y: np.maximum(x - y, 0)),
    ("sinpi", X, lambda x, y: np.sin(np.pi * x)), ("cospi", X, lambda x, y: np.cos(np.pi * x)),
    ("hadd", WHOLE, lambda x, y: (x.astype(np.int64) + y) >> 1), ("rhypot", X, lambda x, y: 1 / np.hypot(x, y)),
    ("rcbrt", X, lambda x, y: 1 / np.cbrt(x)), ("saturatef", 4 * X - 2, lambda x, y: np.clip(x, 0, 1)),
    ("norm3d", X, lambda x, y: np.sqrt(x * x + y * y + Z * Z)), ("sad", WHOLE, lambda x, y: np.abs(x - y) + 3),
    ("cbrt", X, lambda x, y: np.cbrt(x)), ("hypot", X, lambda x, y: np.hypot(x, y)),
    ("sinh", X, lambda x, y: np.sinh(x)), ("cosh", X, lambda x, y: np.cosh(x)), ("tan", X, lambda x, y: np.tan(x)),
    ("softplus", X, lambda x, y: np.log1p(np.exp(x))), ("silu", X, lambda x, y: x / (1 + np.exp(-x))),
    ("copysign", X, lambda x, y: np.copysign(x, y)), ("sign", X - 0.5, lambda x, y: np.sign(x)),
    ("fmod", X - 0.5, lambda x, y: np.fmod(x, y)), ("exp10", X, lambda x, y: 10**x),
    ("logaddexp", 9 * X, lambda x, y: np.logaddexp(x, y)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "x", "meant"), MEANT, ids=[m[0] for m in MEANT])
def test_formulas_are_what_they_stand_for(name: str, x: np.ndarray, meant: Any) -> None:
    whole = x.dtype == np.int32
    formula = advice._ELSEWHERE[name].partition(", of")[0]
    kind, z = ("i32", "3") if whole else ("f32", "0.5")
    space = run(f"""
        @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
        def kernel(a: wd.Memory[N, wd.{kind}], b: wd.Memory[N, wd.{kind}], c: wd.Memory[N, wd.{kind}]):
            x, y, z = wd.read(a), wd.read(b), {z}
            wd.write({formula}, c)
    """)
    y, c = (OTHER, np.zeros(8, np.int32)) if whole else (Y, np.zeros(8, np.float32))
    space["kernel"].evaluate(x, y, c)
    np.testing.assert_allclose(c, meant(x, y), rtol=2e-6, atol=1e-6)
