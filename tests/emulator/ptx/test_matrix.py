# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Matrix instructions: layouts against a vendor table and as bijections, results against NumPy through those layouts."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from ptx_harness import run
from ptx_layouts import layout_index
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.isa_wmma import fragment
from wavedsl.codegen.ptx.mma import MATRIX_MOVES, MMAS
from wavedsl.ir import dtypes as dt

TABLE = json.loads((Path(__file__).parents[2] / "data" / "nvidia_layouts.json").read_text())
IDS = [m.name for m in MMAS]


def formula(text, elements):
    lane, e = np.meshgrid(np.arange(32), np.arange(elements), indexing="ij")
    return eval(text, {"g": lane // 4, "t": lane % 4, "e": e}) + 0 * e


@pytest.mark.parametrize("mma", [m for m in MMAS if m.witness != "unverified"], ids=lambda m: m.name)
def test_layouts_equal_the_vendor_table(mma):
    entry = TABLE["mma_sync"][mma.witness]
    for name, layout, elements, rows, cols in (
        ("A", mma.a, mma.a_elements, "M", "K"),
        ("B", mma.b, mma.b_elements, "K", "N"),
        ("C", mma.d, mma.d_elements, "M", "N"),
    ):
        said = entry[name]
        assert said["elements_per_lane"] == elements
        index = layout_index(layout, elements)
        row, col = (v for k, v in said.items() if k != "elements_per_lane")
        if name == "B":
            row, col = said["row_k"], said["col_j"]
        else:
            row = said["row_i"]
            col = said["col_k" if name == "A" else "col_j"]
        assert np.array_equal(index[rows], formula(row, elements))
        assert np.array_equal(index[cols], formula(col, elements))


@pytest.mark.parametrize("mma", MMAS, ids=IDS)
def test_layouts_are_bijections(mma):
    for layout, elements, shape in (
        (mma.a, mma.a_elements, {"M": mma.m, "K": mma.k}),
        (mma.b, mma.b_elements, {"N": mma.n, "K": mma.k}),
        (mma.d, mma.d_elements, {"M": mma.m, "N": mma.n}),
    ):
        index = layout_index(layout, elements)
        first, second = shape
        flat = index[first] * shape[second] + index[second]
        assert np.array_equal(np.sort(flat.reshape(-1)), np.arange(shape[first] * shape[second]))


def test_names_are_unique():
    by_name = {m.name: m for m in MMAS}
    assert len(by_name) == len(MMAS)
    assert by_name["F32_16x8x16_F16"].mnemonic == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def test_ldmatrix_atoms():
    """Register j of a lane holds matrix j: row lane // 4, columns 2 (lane % 4) and the next; transposed, the other way."""
    for mv in MATRIX_MOVES:
        index = layout_index({"L": mv.L, "x": mv.x}, 2 * mv.count)
        lane, e = np.meshgrid(np.arange(32), np.arange(2 * mv.count), indexing="ij")
        row, col = lane // 4, 2 * (lane % 4) + e % 2
        if mv.trans:
            row, col = col, row
        assert np.array_equal(index["L"], 8 * (e // 2) + row)
        assert np.array_equal(index["x"], col)


def random_operand(dtype, shape, rng):
    if dtype.kind in ("int", "uint"):
        low, high = (-(1 << (dtype.bits - 1)), 1 << (dtype.bits - 1)) if dtype.kind == "int" else (0, 1 << dtype.bits)
        return rng.integers(low, high, shape)
    x = rng.standard_normal(shape)
    if dtype == dt.tf32:
        bits = x.astype(np.float32).view(np.uint32)
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return x.astype(dtype.numpy).astype(np.float64)


def pack(matrix, layout, dims, elements, dtype):
    """A matrix to the lanes' registers: uint32 [32, registers] (uint64 for f64)."""
    index = layout_index(layout, elements)
    values = matrix[index[dims[0]], index[dims[1]]]
    if dtype == dt.f64:
        return np.ascontiguousarray(values).view(np.uint64)
    if dtype == dt.tf32:
        return values.astype(np.float32).view(np.uint32)
    if dtype.bits == 4:
        nibbles = (values & 15).astype(np.uint32).reshape(32, -1, 8)
        return (nibbles << np.arange(0, 32, 4, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
    if dtype.kind in ("int", "uint"):
        return np.ascontiguousarray(values.astype(dtype.numpy)).view(np.uint32)
    return np.ascontiguousarray(values.astype(dtype.numpy)).view(np.uint32)


@pytest.mark.parametrize("mma", MMAS, ids=IDS)
@pytest.mark.parametrize("guarded", [False, True])
def test_results(mma, guarded):
    rng = np.random.default_rng(len(mma.name))
    wide = mma.d_dtype == dt.f64
    warps = 3
    word = np.uint64 if wide else np.uint32
    fragments, expected = {"a": [], "b": [], "c": []}, []
    for _ in range(warps):
        a = random_operand(mma.a_dtype, (mma.m, mma.k), rng)
        b = random_operand(mma.b_dtype, (mma.n, mma.k), rng)
        c = random_operand(mma.d_dtype if mma.d_dtype != dt.i32 else dt.i8, (mma.m, mma.n), rng)
        fragments["a"].append(pack(a, mma.a, "MK", mma.a_elements, mma.a_dtype))
        fragments["b"].append(pack(b, mma.b, "NK", mma.b_elements, mma.b_dtype))
        fragments["c"].append(pack(c, mma.d, "MN", mma.d_elements, mma.d_dtype))
        expected.append(a @ b.T + c)
    arrays = [np.ascontiguousarray(np.concatenate(fragments[x])).astype(word) for x in "abc"]
    out = np.zeros((warps * 32, mma.d_regs), word)
    size = 8 if wide else 4
    kind = f"b{8 * size}"
    lines = ["mov.u32 %r0, %tid.x;"]
    counts = {"a": mma.a_regs, "b": mma.b_regs, "c": mma.d_regs, "d": mma.d_regs}
    regs = "".join(f".reg .{kind} %m{x}<{n}>;\n" for x, n in counts.items())
    for i, x in enumerate("abc"):
        lines.append(f"ld.param.u64 %d0, [p{i}]; mul.wide.u32 %d1, %r0, {size * counts[x]}; add.s64 %d0, %d0, %d1;")
        lines += [f"ld.global.{kind} %m{x}{j}, [%d0+{j * size}];" for j in range(counts[x])]
    lines += [f"mov.{kind} %md{j}, 7;" for j in range(counts["d"])]
    braces = {x: "{" + ",".join(f"%m{x}{j}" for j in range(n)) + "}" for x, n in counts.items()}
    lines.append("setp.lt.u32 %p0, %r0, 64;")
    guard = "@%p0 " if guarded else ""
    lines.append(f"{guard}{mma.mnemonic} {braces['d']}, {braces['a']}, {braces['b']}, {braces['c']};")
    lines.append(f"ld.param.u64 %d0, [p3]; mul.wide.u32 %d1, %r0, {size * counts['d']}; add.s64 %d0, %d0, %d1;")
    lines += [f"st.global.{kind} [%d0+{j * size}], %md{j};" for j in range(counts["d"])]
    lines.append("ret;")
    report = run("\n".join(lines), [*arrays, out], block=32 * warps, registers=regs)
    assert report.findings == []
    index = layout_index(mma.d, mma.d_elements)
    for w in range(warps):
        block = out[32 * w : 32 * w + 32]
        if guarded and w == 2:
            assert (block == 7).all()
            continue
        got = np.ascontiguousarray(block).view(mma.d_dtype.numpy).reshape(32, -1).astype(np.float64)
        want = expected[w][index["M"], index["N"]]
        if mma.d_dtype == dt.i32:
            assert np.array_equal(got, want)
        else:
            unit = 2.0 ** -(mma.d_dtype.mantissa + 1)
            magnitude = np.abs(want) + mma.k * 4.0
            assert (np.abs(got - want) <= (mma.k + 8) * 2.0**-24 * magnitude + unit * magnitude * 2).all()


@pytest.mark.parametrize("inputs", ["e4m3.e4m3", "e5m2.e5m2", "e4m3.e5m2", "f16.f16"])
def test_c_of_products_of_bytes_outlives_d(inputs):
    """An H200 lost a C that was one register, which D's first element took: ptxas adds C element by element."""
    shape = "m16n8k16" if inputs == "f16.f16" else "m16n8k32"
    for d, wrong in (("%r11,%r1,%r2,%r3", True), ("%r1,%r2,%r3,%r11", False), ("%r11,%r12,%r13,%r14", False)):
        c = "%r11,%r12,%r13,%r14" if "%r14" in d else "%r11,%r11,%r11,%r11"
        text = f"mma.sync.aligned.{shape}.row.col.f32.{inputs}.f32 {{{d}}}, {{%r10,%r10,%r10,%r10}}, {{%r10,%r10}}, {{{c}}};"
        body = "".join(f"mov.b32 %r{i}, 0;" for i in range(10, 15)) + text + "ret;"
        found = run(body, []).findings
        assert [f.kind for f in found] == ["unsupported"] * (wrong and shape == "m16n8k32"), found


CHOSEN = "selp.f64 {0}, {0}, 0d0000000000000000, %p1;"
OF_C = {
    "all": ([CHOSEN] * 4, True),
    "all, the other way": (["selp.f64 {0}, 0d0000000000000000, {0}, %p1;"] * 4, True),
    "a zero in a register": (["selp.f64 {0}, {0}, %d14, %p1;"] * 4, True),
    "words": (["mov.b64 {{%r1, %r2}}, {0}; selp.b32 %r1, %r1, 0, %p1; selp.b32 %r2, %r2, 0, %p1; mov.b64 {0}, {{%r1, %r2}};"] * 4, True),
    "a guard": (["@!%p1 mov.f64 {0}, 0d0000000000000000;"] * 4, True),
    "of a warp": (["mov.u32 %r1, %tid.x; shfl.sync.idx.b32 %r1, %r1, 0, 31, -1; setp.gt.s32 %p1, %r1, 3;" + CHOSEN] + [CHOSEN] * 3, True),
    "of a lane": (["mov.u32 %r1, %tid.x; add.s32 %r1, %r1, 1; setp.gt.s32 %p1, %r1, 3;" + CHOSEN] + [CHOSEN] * 3, False),
    "-0": ([CHOSEN.replace("0d0", "0d8")] * 4, False),
    "three": ([CHOSEN] * 3 + [""], False),
    "two ways": ([CHOSEN] * 2 + ["selp.f64 {0}, 0d0000000000000000, {0}, %p1;"] * 2, False),
    "two predicates": ([CHOSEN] * 2 + [CHOSEN.replace("p1", "p2")] * 2, False),
    "a mask": (["and.b64 {0}, {0}, %d13;"] * 4, False),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_C)
def test_c_of_f64_chosen_by_one_predicate_is_reported(name):
    """What ptxas 13.0 makes a predicate of DMMA of, where it is the warp's, and what not. An H200 added half of C."""
    choices, reported = OF_C[name]
    body = "setp.ne.s32 %p1, 1, 0; setp.ne.s32 %p2, 1, 0; mov.b64 %d13, -1; mov.f64 %d14, 0d0000000000000000;"
    body += "".join(f"mov.f64 %d{i}, 0d3FF0000000000000;" for i in range(1, 13))
    body += "".join(one.format(f"%d{i}") for i, one in enumerate(choices, 1))
    for shape, a, b in (("m16n8k4", 2, 1), ("m16n8k8", 4, 2), ("m16n8k16", 8, 4)):
        left = ", ".join(f"%d{5 + i}" for i in range(a))
        right = ", ".join(f"%d{5 + i}" for i in range(b))
        c = "{%d1, %d2, %d3, %d4}"
        product = f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 {c}, {{{left}}}, {{{right}}}, {c};"
        found = run(body + product + "ret;", []).findings
        assert [f.kind for f in found] == ["unsupported"] * reported, found


def test_integer_accumulation_saturates_when_asked():
    text = "mma.sync.aligned.m16n8k32.row.col{}.s32.s8.s8.s32 {{%r1,%r2,%r3,%r4}}, {{%r10,%r10,%r10,%r10}}, {{%r10,%r10}}, {{%r11,%r11,%r11,%r11}};"
    for sat, want in (("", np.int32(-(2**31) + 32 * 127 * 127 - 1)), (".satfinite", np.int32(2**31 - 1))):
        out = np.zeros(32, np.int32)
        body = "mov.b32 %r10, 0x7f7f7f7f; mov.b32 %r11, 0x7fffffff;" + text.format(sat)
        body += "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; st.global.b32 [%d0], %r4; ret;"
        assert run(body, [out]).findings == []
        assert (out == want).all()


@pytest.mark.parametrize("mv", MATRIX_MOVES, ids=lambda m: m.name)
def test_ldmatrix_and_stmatrix(mv):
    """ldmatrix fetches what the atom says; stmatrix puts it back where ldmatrix would find it."""
    source = np.arange(32 * 8, dtype=np.uint16).reshape(32, 8) * np.uint16(257)
    out = np.zeros((32, mv.count), np.uint32)
    stride = 48
    inner = ",".join(f"%r{40 + j}" for j in range(mv.count))
    head = f"""mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
        mov.u32 %r1, sm; mad.lo.u32 %r2, %r0, {stride}, %r1; mul.wide.u32 %d2, %r0, 16; add.s64 %d2, %d0, %d2;"""
    index = layout_index({"L": mv.L, "x": mv.x}, 2 * mv.count)
    if mv.store:
        rng = np.random.default_rng(3)
        words = rng.integers(0, 2**32, (32, mv.count), dtype=np.uint32)
        back = np.zeros((32, 8), np.uint16)
        body = head + f"mul.wide.u32 %d3, %r0, {4 * mv.count}; add.s64 %d3, %d1, %d3;"
        body += "".join(f"ld.global.b32 %r{40 + j}, [%d3+{4 * j}];" for j in range(mv.count))
        body += f"{mv.mnemonic} [%r2], {{{inner}}}; setp.ge.u32 %p0, %r0, {8 * mv.count}; @%p0 ret;"
        body += "ld.shared.v4.b32 {%r60,%r61,%r62,%r63}, [%r2]; st.global.v4.b32 [%d2], {%r60,%r61,%r62,%r63}; ret;"
        report = run(body, [back, words], variables=".shared .align 16 .b8 sm[1536];")
        assert report.findings == []
        halves = words.view(np.uint16).reshape(32, -1)
        want = np.zeros((32, 8), np.uint16)
        want[index["L"], index["x"]] = halves
        assert np.array_equal(back, want)
        return
    body = (
        head
        + "ld.global.v4.b32 {%r60,%r61,%r62,%r63}, [%d2]; st.shared.v4.b32 [%r2], {%r60,%r61,%r62,%r63}; bar.sync 0;"
    )
    body += f"{mv.mnemonic} {{{inner}}}, [%r2]; mul.wide.u32 %d3, %r0, {4 * mv.count}; add.s64 %d3, %d1, %d3;"
    body += "".join(f"st.global.b32 [%d3+{4 * j}], %r{40 + j};" for j in range(mv.count)) + "ret;"
    report = run(body, [source, out], variables=".shared .align 16 .b8 sm[1536];")
    assert report.findings == []
    assert np.array_equal(out.view(np.uint16).reshape(32, -1), source[index["L"], index["x"]])


def test_rows_name_the_chip_they_need():
    for mma in MMAS:
        inst = isa.lookup(mma.mnemonic, "sm_90a")
        assert inst.row.data.what is mma
        if mma.min_sm > 80:
            with pytest.raises(isa.CompileError, match=re.escape(f"needs sm_{mma.min_sm}")):
                isa.lookup(mma.mnemonic, "sm_80")


WMMA = [
    ("m16n16k16", "f16", "f16", "f32"), ("m8n32k16", "f16", "f16", "f16"), ("m32n8k16", "bf16", "bf16", "f32"), ("m16n16k16", "s8", "s8", "s32"),
    ("m32n8k16", "u8", "u8", "s32"), ("m16n16k8", "tf32", "tf32", "f32"), ("m8n8k4", "f64", "f64", "f64"),
]  # fmt: skip


@pytest.mark.parametrize("shape, at, bt, ct", WMMA)
@pytest.mark.parametrize("layouts", ["row.col", "col.row"])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_wmma(shape, at, bt, ct, layouts, space):
    """Load, multiply, store through fragments whose layout nobody knows."""
    types = {
        "f16": dt.f16,
        "bf16": dt.bf16,
        "s8": dt.i8,
        "u8": dt.u8,
        "tf32": dt.tf32,
        "f64": dt.f64,
        "f32": dt.f32,
        "s32": dt.i32,
    }
    fa, fb, fc, fd = (fragment(x, shape, t) for x, t in zip("abcd", (at, bt, ct, ct)))
    rng = np.random.default_rng(5)
    a = rng.integers(0, 5, (fa.rows, fa.cols)).astype(types[at].storage)
    b = rng.integers(0, 5, (fb.rows, fb.cols)).astype(types[bt].storage)
    c = rng.integers(0, 50, (fc.rows, fc.cols)).astype(types[ct].storage)
    al, bl = layouts.split(".")
    arrays = [np.ascontiguousarray(x if l == "row" else x.T) for x, l in ((a, al), (b, bl), (c, "row"))]
    out = np.zeros((fd.rows, fd.cols), c.dtype)
    reg = {"f32": "f32", "f64": "f64", "s32": "s32"}
    regs = "".join(
        f".reg .{reg.get(t, 'b32')} %w{x}<{f.registers}>;\n"
        for x, f, t in zip("abcd", (fa, fb, fc, fd), (at, bt, ct, ct))
    )
    brace = {x: "{" + ",".join(f"%w{x}{i}" for i in range(f.registers)) + "}" for x, f in zip("abcd", (fa, fb, fc, fd))}
    lines = ["mov.u32 %r0, %tid.x;"]
    base = {}
    for i, (x, arr) in enumerate(zip("abc", arrays)):
        lines.append(f"ld.param.u64 %d{i}, [p{i}];")
        base[x] = f"%d{i}"
        if space == "shared":
            lines.append(
                f"mov.u32 %r{10 + i}, sm{x}; mov.u32 %r1, %r0; mad.wide.u32 %d9, %r0, 4, %d{i}; mad.lo.u32 %r2, %r0, 4, %r{10 + i};"
            )
            for k in range(arr.nbytes // 128):
                lines.append(f"ld.global.b32 %r3, [%d9+{128 * k}]; st.shared.b32 [%r2+{128 * k}], %r3;")
            base[x] = f"%r{10 + i}"
    lines.append("bar.warp.sync -1;")
    variables = "".join(f".shared .align 16 .b8 sm{x}[{arr.nbytes}];\n" for x, arr in zip("abc", arrays))
    for x, l, t, arr in (("a", al, at, arrays[0]), ("b", bl, bt, arrays[1]), ("c", "row", ct, arrays[2])):
        lines.append(f"wmma.load.{x}.sync.aligned.{l}.{shape}.{space}.{t} {brace[x]}, [{base[x]}], {arr.shape[1]};")
    names = f"{ct}.{ct}" if at == "f16" else f"{ct}.{at}.{bt}.{ct}"
    names = ("rn." if at == "f64" else "") + names
    lines.append(
        f"wmma.mma.sync.aligned.{al}.{bl}.{shape}.{names} {brace['d']}, {brace['a']}, {brace['b']}, {brace['c']};"
    )
    lines.append(
        f"ld.param.u64 %d3, [p3]; wmma.store.d.sync.aligned.row.{shape}.global.{ct} [%d3], {brace['d']}, {fd.cols};"
    )
    report = run("\n".join([*lines, "ret;"]), [*arrays, out], registers=regs, variables=variables)
    assert report.findings == []
    assert np.array_equal(out.astype(float), a.astype(float) @ b.astype(float) + c.astype(float))
