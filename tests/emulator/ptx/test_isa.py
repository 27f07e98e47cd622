# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Rows as data: names to rows, rows to names, operands, and what is said when something does not fit."""

import pytest
from ptx_layouts import layout_index
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.isa import Arg, Unit, lookup, spell
from wavedsl.codegen.ptx.isa_wgmma import Descriptor, wgmma
from wavedsl.codegen.ptx.operand_rules import check_operands
from wavedsl.ir import dtypes as dt
from wavedsl.ir.errors import CompileError
from wavedsl.runtime.emulator.ptx import parse as ptx_parse
from wavedsl.runtime.emulator.ptx.module import as_arg


def reg(type_):
    return Arg("reg", type_, text=f"%{type_}")


ADDRESS, IMM = Arg("addr"), Arg("imm", text="4")


def test_lookup_gives_modifiers_and_typed_operands():
    inst = lookup("ld.global.nc.L1::no_allocate.L2::256B.v4.b32", "sm_80")
    assert inst.mods == {
        "space": "global",
        "nc": True,
        "l1": "L1::no_allocate",
        "prefetch": "L2::256B",
        "vec": "v4",
        "type": "b32",
    }
    assert inst.unit is Unit.LSU and "load" in inst.effects
    wide = lookup("mad.wide.s32", "sm_80")
    assert [(o.name, o.type, o.write) for o in wide.operands] == [
        ("d", "s64", True),
        ("a", "s32", False),
        ("b", "s32", False),
        ("c", "s64", False),
    ]


@pytest.mark.parametrize("name, message", [
    ("frob.b32", "no row for PTX instruction 'frob.b32'"),
    ("add.f16x3", "no row for PTX instruction"),
    ("ld.global.v4.b64", "256 bits"),
    ("ld.relaxed.global.b32", "needs a scope"),
    ("cvt.f16.f32", "needs a rounding"),
    ("cvt.rn.f32.f16", "exact"),
    ("setp.lo.f32", "compares unsigned"),
    ("atom.global.add.b32", "works on"),
    ("wgmma.fence.sync", "no row"),
])  # fmt: skip
def test_names_that_are_not_legal(name, message):
    with pytest.raises(CompileError, match=message):
        lookup(name, "sm_90a")


@pytest.mark.parametrize("name, target, need", [
    ("elect.sync", "sm_80", "sm_90"), ("setmaxnreg.inc.sync.aligned.u32", "sm_90", "sm_90a"), ("add.rn.bf16x2", "sm_80", "sm_90"),
    ("min.xorsign.abs.f32", "sm_80", "sm_86"), ("ld.shared::cluster.b32", "sm_89", "sm_90"),
])  # fmt: skip
def test_chips_that_lack_a_form(name, target, need):
    with pytest.raises(CompileError, match=f"needs {need}"):
        lookup(name, target)
    assert lookup(name, "sm_90a")


def test_versions():
    assert lookup("elect.sync", "sm_90", (8, 0))
    with pytest.raises(CompileError, match=r"needs .version 8.0, the text says 7.8"):
        lookup("elect.sync", "sm_90", (7, 8))


def test_unknown_target():
    with pytest.raises(CompileError, match="unknown target 'gfx942'"):
        lookup("ret", "gfx942")


def test_spell_is_the_inverse_of_lookup():
    for name in ("fma.rn.ftz.sat.f32", "ld.global.v4.b32", "cvt.rn.bf16x2.f32", "setp.lt.and.s32", "cp.async.cg.shared.global.L2::128B", "shfl.sync.bfly.b32",
                 "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "bar.sync", "bra.uni"):  # fmt: skip
        inst = lookup(name, "sm_80")
        assert spell(inst.row, **inst.mods) == name


def test_spell_finds_the_row_of_an_opcode():
    assert spell("add", type="s32") == "add.s32"
    assert spell("add", rnd="rn", ftz=True, type=None) == "add.rn.ftz.f32"
    assert spell("ld", space="shared", vec="v2", type="f32") == "ld.shared.v2.f32"


@pytest.mark.parametrize("args, message", [
    (("nosuch", {}), "not in the tables"),
    (("add", {"type": "s32", "colour": "red"}), "no modifier colour"),
    (("ld", {"space": "moon", "type": "b32"}), "cannot be 'moon'"),
    (("ld", {"space": "global"}), "needs type"),
    (("ld", {"space": "global", "vec": "v4", "type": "b64"}), "256 bits"),
])  # fmt: skip
def test_names_that_cannot_be_spelled(args, message):
    with pytest.raises(CompileError) as caught:
        spell(args[0], **args[1])
    assert message in str(caught.value)


def test_operands_that_fit():
    check_operands(lookup("add.s32", "sm_80"), [reg("b32"), reg("u32"), IMM])
    check_operands(lookup("setp.lt.s32", "sm_80"), [reg("pred"), reg("b32"), IMM], reg("pred"))
    check_operands(lookup("ld.global.v2.f32", "sm_80"), [Arg("vec", parts=(reg("f32"), Arg("none"))), ADDRESS])
    check_operands(lookup("ld.global.u8", "sm_80"), [reg("b32"), ADDRESS])
    check_operands(lookup("cp.async.cg.shared.global", "sm_80"), [ADDRESS, ADDRESS, Arg("imm", text="16"), reg("b32")])
    check_operands(lookup("bar.red.popc.u32", "sm_80"), [reg("b32"), IMM, reg("pred")])
    check_operands(lookup("mov.b64", "sm_80"), [reg("b64"), Arg("vec", parts=(reg("b32"), reg("f32")))])


@pytest.mark.parametrize("name, args, pair, message", [
    ("add.s32", [reg("b32"), reg("b32")], None, "takes 3 operands, got 2"),
    ("add.s32", [reg("b32"), reg("b64"), IMM], None, r"operand a wants .s32, register %b64 is .b64"),
    ("add.s32", [reg("b32"), reg("f32"), IMM], None, r"wants .s32"),
    ("add.f32", [reg("f32"), reg("u32"), reg("f32")], None, r"wants .f32"),
    ("add.s32", [IMM, reg("b32"), IMM], None, "is written, so it must be a register"),
    ("add.s32", [reg("b32"), Arg("none"), IMM], None, "cannot be '_'"),
    ("add.s32", [reg("b32"), reg("b32"), IMM], reg("pred"), "one destination"),
    ("setp.lt.s32", [reg("pred"), reg("b32"), IMM], reg("b32"), "wants .pred"),
    ("ld.global.b32", [reg("b32"), reg("b64")], None, "address in brackets"),
    ("ld.global.v4.b32", [reg("b32"), ADDRESS], None, "vector of 4"),
    ("ld.global.v4.b32", [Arg("vec", parts=(reg("b32"),) * 2), ADDRESS], None, "2 members, 4 are needed"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", [Arg("vec", parts=(reg("f32"),) * 4), Arg("vec", parts=(reg("b32"),) * 4),
     Arg("vec", parts=(reg("b32"),) * 4), Arg("vec", parts=(reg("f32"),) * 4)], None, "operand b has 4 members, 2 are needed"),
    ("mov.b64", [reg("b64"), Arg("vec", parts=(reg("b32"),) * 3)], None, "64 bits, the vector has 96"),
    ("bra", [IMM], None, "is a label"),
    ("lop3.b32", [reg("b32"), reg("b32"), reg("b32"), reg("b32"), reg("b32")], None, "is an immediate"),
])  # fmt: skip
def test_operands_that_do_not_fit(name, args, pair, message):
    with pytest.raises(CompileError, match=message):
        check_operands(lookup(name, "sm_80"), args, pair)


def test_operands_are_looked_at_again_where_anything_differs():
    """What fitted once is remembered; operands of other kinds, types or members are not that."""
    add, set_, load = (lookup(n, "sm_80") for n in ("add.s32", "setp.lt.s32", "ld.global.v2.f32"))
    check_operands(add, [reg("b32"), reg("u32"), IMM])
    check_operands(set_, [reg("pred"), reg("b32"), IMM], reg("pred"))
    check_operands(load, [Arg("vec", parts=(reg("f32"),) * 2), ADDRESS])
    for inst, args, pair in (
        (add, [reg("b32"), reg("u64"), IMM], None),
        (add, [reg("b32"), reg("u32"), IMM], reg("pred")),
        (set_, [reg("pred"), reg("b32"), IMM, reg("b64")], None),
        (set_, [reg("pred"), reg("b32"), IMM], reg("b32")),
        (load, [Arg("vec", parts=(reg("f32"), reg("pred"))), ADDRESS], None),
        (load, [Arg("vec", parts=(reg("f32"),) * 3), ADDRESS], None),
    ):
        for _ in range(2):
            with pytest.raises(CompileError):
                check_operands(inst, args, pair)


def test_every_row_is_documented_and_priced():
    for row in isa.all_rows():
        assert row.doc and row.latency > 0 and row.interval > 0, row
        assert row.doc[0].islower() or row.doc.startswith("D ="), row


def test_targets_differ_by_rows():
    names = {t: {r.pattern for r in isa.all_rows(t)} for t in ("sm_80", "sm_90", "sm_90a")}
    assert names["sm_80"] < names["sm_90"] < names["sm_90a"]


def test_a_pattern_cannot_be_registered_twice():
    row = next(isa.all_rows())
    with pytest.raises(ValueError, match="registered twice"):
        isa.add_row(row.pattern, "d:b32 <- a:b32", Unit.ALU, doc="again")


def test_no_name_is_accepted_by_two_rows():
    """Spell each row with its first words: lookup must come back to the very row."""
    for row in isa.all_rows():
        mods = {s.name: s.words[0] for s in row.slots if s.name and not s.optional}
        if row.legal and row.legal(mods):
            continue
        assert lookup(spell(row, **mods), "sm_90a").row is row


F64, R4 = ", ".join(f"%f{i}" for i in range(64)), "%r0, %r1, %r2, %r3"
HOPPER = """.version VERSION
.target TARGET
.address_size 64
.visible .entry k(.param .align 64 .b8 tm[128]) {
.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<64>; .reg .b64 %d<4>; .reg .f32 %f<300>;
LINE;
ret;
}
"""


def complaint(line, target="sm_90a", version="8.6"):
    """What the tables say of one instruction; empty where they take it."""
    function = ptx_parse.parse(
        HOPPER.replace("LINE", line).replace("TARGET", target).replace("VERSION", version)
    ).functions["k"]
    inst = function.insts[0]
    major, minor = map(int, version.split("."))
    try:
        row = isa.lookup(inst.name, target, (major, minor))
        check_operands(row, [as_arg(a) for a in inst.args], as_arg(inst.pair) if inst.pair is not None else None)
    except CompileError as e:
        return e.message
    return ""


# What ptxas 13.0 refuses, and its neighbour that it takes.
@pytest.mark.parametrize("line, why, right", [
    (f"wgmma.mma_async.sync.aligned.m64n128k32.f32.bf16.bf16 {{{F64}}}, %d0, %d1, %p0, 1, 1, 0, 0", "no row", ("k32", "k16")),
    (f"wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {{{F64}}}, %d0, %d1, %p0, 1, 1, 0, 0", "no row", ("n12k", "n128k")),
    (f"wgmma.mma_async.sync.aligned.m64n264k16.f32.bf16.bf16 {{{F64}}}, %d0, %d1, %p0, 1, 1, 0, 0", "no row", ("n264", "n128")),
    (f"wgmma.mma_async.sync.aligned.m64n128k16.f16.bf16.bf16 {{{F64}}}, %d0, %d1, %p0, 1, 1, 0, 0", "no row", ("f16.bf16.bf16", "f32.bf16.bf16")),
    (f"wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {{{', '.join(f'%r{i}' for i in range(24))}}}, %d0, %d1, %p0", "no row", ("n40", "n48")),
    (f"wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {{{F64}}}, %d0, %d1, %p0, 1, 1, 0, 0", "64 members, 128", ("n256", "n128")),
    (f"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{F64}}}, %d0, %d1, %p0, 0, 1, 0, 0", "imm-a is 1 or -1", ("%p0, 0, 1", "%p0, -1, 1")),
    (f"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{F64}}}, {{{R4}}}, %d1, %p0, 1, 1, 0, 0", "takes 7", ("1, 1, 0, 0", "1, 1, 0")),
    (f"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{F64}}}, %d0, %d1, 2, 1, 1, 0, 0", "scale-d is a predicate", ("%d1, 2", "%d1, 1")),
    (f"wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {{{F64}}}, %d0, %d1, %p0, 1, 1, 0, 0", "6 operands, got 8", ("1, 1, 0, 0", "1, 1")),
    (f"wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {{{F64}}}, %d0, %d1, %p0, 1, 1, 0, 0", "6 operands, got 8", ("1, 1, 0, 0", "1, 1")),
    (f"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{F64}}}, tm, %d1, %p0, 1, 1, 0, 0", "64-bit matrix descriptor", ("tm", "%d0")),
    ("setmaxnreg.inc.sync.aligned.u32 250", "multiple of 8", ("250", "248")),
    ("setmaxnreg.dec.sync.aligned.u32 16", "from 24 to 256", ("16", "24")),
    ("mbarrier.arrive.shared::cluster.b64 %d0, [%r1]", "its destination is '_'", ("%d0", "_")),
    ("mbarrier.wait.shared.b64 [%r1]", "no row", ("wait.shared.b64 [%r1]", "test_wait.parity.shared.b64 %p0, [%r1], 0")),
    ("mbarrier.arrive.relaxed.shared::cta.b64 _, [%r1]", "no row", (".relaxed", "")),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [tm, {%r2, %r3}], [%r4]", "generic address", ("[tm,", "[%d0,")),
    ("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0, {%r2, %r3}], [%r4]", "2 coordinates, 3", ("3d", "2d")),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%d0, {%r2, %r3}], [%r4]", "takes 4 operands, got 3", ("[%r4]", "[%r4], %h0")),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0, {%r2, %r3}], [%r4], 16", "3 operands, got 4", (", 16", "")),
])  # fmt: skip
def test_forms_of_hopper(line, why, right):
    assert why in complaint(line)
    assert complaint(line.replace(*right)) == ""


@pytest.mark.parametrize("line, target, version, why", [
    (f"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{F64}}}, %d0, %d1, %p0, 1, 1, 0, 0", "sm_90", "8.6", "needs sm_90a"),
    ("setmaxnreg.inc.sync.aligned.u32 240", "sm_90", "8.6", "needs sm_90a"),
    ("mbarrier.try_wait.parity.shared.b64 %p0, [%r1], 0", "sm_80", "8.6", "needs sm_90"),
    ("cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d0, {%r2}], [%r4]", "sm_90a", "8.0", "needs .version 8.6"),
    ("cp.async.bulk.commit_group", "sm_80", "8.6", "needs sm_90"),
])  # fmt: skip
def test_chips_of_hopper_forms(line, target, version, why):
    assert why in complaint(line, target, version)
    assert complaint(line) == ""


def test_unknown_directive_is_refused():
    with pytest.raises(CompileError, match=r"directive \.cluster_dim"):
        ptx_parse.parse(".version 8.0\n.target sm_90a\n.visible .entry k()\n.cluster_dim 2, 1, 1\n{ ret; }")


def test_descriptor():
    d = Descriptor(0x10000, 16, 1024, 128)
    assert d.encode() == 0x4000004000011000
    for d in (Descriptor(0x38BF0, 0x3FFF0, 4096, 32, 5), Descriptor(0, 128, 256, 0), Descriptor(1024, 16, 512, 64)):
        assert Descriptor.decode(d.encode()) == d


def test_fragments_of_a_warpgroup():
    """Register i of lane l of warp w: the rows and columns that the vendor's tables give."""
    for n in (8, 64, 256):
        index = layout_index(wgmma(dt.f16, dt.f16, dt.f32, n).d, n // 2, 128)
        for lane in (0, 5, 31, 32, 77, 127):
            for i in (0, 1, 2, 3, n // 2 - 1):
                w, g, t = lane // 32, lane % 32 // 4, lane % 4
                assert (index["M"][lane, i], index["N"][lane, i]) == (
                    16 * w + g + 8 * (i >> 1 & 1),
                    8 * (i >> 2) + 2 * t + (i & 1),
                )
    for dtype, columns in (
        (dt.bf16, lambda t, r, h: 2 * t + h + 8 * (r >> 1)),
        (dt.i8, lambda t, r, b: 4 * t + b + 16 * (r >> 1)),
        (dt.tf32, lambda t, r, _: t + 4 * (r >> 1)),
    ):
        out = dt.i32 if dtype == dt.i8 else dt.f32
        per = 32 // max(8, dtype.bits if dtype != dt.tf32 else 32)
        index = layout_index(wgmma(dtype, dtype, out, 64).a, 4 * per, 128)
        for lane in (0, 9, 64, 127):
            for e in range(4 * per):
                w, g, t, r = lane // 32, lane % 32 // 4, lane % 4, e // per
                assert (index["M"][lane, e], index["K"][lane, e]) == (16 * w + g + 8 * (r & 1), columns(t, r, e % per))
