"""Where ops go, what merges, what carries: the builder's promises beyond single rules."""

import numpy as np
import pytest
from wavedsl.ir import dtypes
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_eval import evaluate
from wavedsl.ir.kernel.kernel_ir import B32, F32, I32, I64, PRED, ROWS, Param, vector
from wavedsl.ir.kernel.kernel_passes import rebuild, remove_dead_code
from wavedsl.ir.kernel.kernel_verify import verify
from wavedsl.ir.loc import Loc


def builder(**kw):
    kw.setdefault("waves", 4)
    params = kw.pop(
        "params", [Param("x", "pointer", dtypes.f32, 0, 8), Param("n", "scalar", dtypes.i32, 8, 4, "extent n")]
    )
    return Builder(new_kernel(params=params, **kw))


def names(region):
    return [op.name for op in region.ops if op.name != "const"]


def test_same_op_is_the_same_value():
    b = builder()
    x, y = b.lane(), b.wgid(0)
    assert b.add(x, y) is b.add(y, x)
    assert b.const(3) is b.const(3 + (1 << 32)) and b.const(3) is not b.const(3, I64)
    assert b.const(0.0, F32) is not b.const(-0.0, F32)
    assert b.cmp("eq", x, y) is b.cmp("eq", y, x)
    assert b.add(b.add(x, 5), 7) is b.add(x, 12)


def test_constants_of_16_bits_are_unpacked_at_once():
    b = builder()
    for dtype, word, numbers in ((dtypes.f16, 0xC0003C00, (1.0, -2.0)), (dtypes.bf16, 0x3F80C040, (-3.0, 1.0))):
        assert [b.unpack(b.const(word), dtype, i).const for i in (0, 1)] == list(numbers)
    assert b.unpack(b.const(0x7E00), dtypes.f16, 0).const is None  # which NaN it is, the chip says


def test_invariant_ops_land_before_the_loop_and_merge_with_those_outside():
    b = builder()
    n = b.param(1)
    outside = b.mul(b.lane(), 12)
    with b.for_(0, n, 1) as outer:
        with b.for_(0, n, 1) as inner:
            assert b.mul(b.lane(), 12) is outside
            invariant = b.mul(b.add(b.lane(), n), 3)
            per_outer = b.mul(outer.iv, 3)
            both = b.add(b.add(inner.iv, invariant), per_outer)
            b.trap(b.cmp("slt", both, -5), "x")
    verify(b.finish())
    assert b.depth(invariant) == 0 and b.depth(per_outer) == 1 and b.depth(both) == 2
    remove_dead_code(b.kernel)
    body = b.kernel.body
    assert body.ops.index(invariant.op) < body.ops.index(outer.op)
    assert names(inner.region) == ["add", "cmp", "trap", "yield"]
    assert names(outer.region)[-2:] == ["for", "yield"]


def test_nothing_is_reused_out_of_its_region():
    b = builder()
    n = b.param(1)
    with b.for_(0, n, 1) as first:
        v = b.add(first.iv, b.lane())
        b.trap(b.cmp("slt", v, -5), "x")
    with b.for_(0, n, 1) as second:
        w = b.add(second.iv, b.lane())
        assert w is not v
        q = b.udiv(second.iv, 7)
        b.trap(b.cmp("slt", b.add(w, q), -5), "x")
    with b.for_(0, n, 1) as third:
        b.trap(b.cmp("slt", b.add(b.udiv(third.iv, 7), b.lane()), -5), "x")
    verify(b.finish())


def test_loop_counts_and_carries():
    b = builder()
    with b.for_(3, 20, 4, [0, b.f32(1.0)], label="k") as loop:
        i, f = loop.carried
        loop.yield_(b.add(i, loop.iv), b.fmul(f, b.cvt(loop.iv, F32)))
    i, f = loop.results
    out = evaluate(b.finish(), {})
    assert (out[i] == 3 + 7 + 11 + 15 + 19).all() and (out[f] == 3 * 7 * 11 * 15 * 19).all()
    assert (loop.iv.lo, loop.iv.hi, loop.iv.zeros & 3) == (3, 19, 0) and loop.op.attrs["min_trips"] == 1
    assert i.uniform and not f.uniform


def test_a_carry_that_turns_out_per_lane_is_re_marked():
    b = builder()
    with b.for_(0, 4, 1, [b.const(0)]) as loop:
        twice = b.mul(loop.carried[0], 6)
        assert twice.uniform
        loop.yield_(b.add(loop.carried[0], b.lane()))
    assert not loop.carried[0].uniform and not twice.uniform and not loop.results[0].uniform
    verify(b.finish())


def test_a_carry_that_steers_a_scalar_operand_must_stay_uniform():
    b = builder()
    buf = b.buffer(b.param(0), 64)
    with pytest.raises(CompileError, match=r"operand 2 of load\.global must be uniform"):
        with b.for_(0, 4, 1, [b.const(0)]) as loop:
            b.load_global(buf, b.lane(), loop.carried[0], split=False)
            loop.yield_(b.add(loop.carried[0], b.lane()))
    with pytest.raises(CompileError, match="declared uniform"):
        with b.for_(0, 4, 1, [b.const(0)], uniform=[True]) as loop:
            loop.yield_(b.add(loop.carried[0], b.lane()))


def test_branches():
    b = builder()
    with b.if_(b.cmp("slt", b.wave(), 2)) as br:
        br.yield_(b.add(b.lane(), 1), b.f32(2.0))
    with br.orelse():
        br.yield_(b.mul(b.lane(), 3), b.f32(3.0))
    x, y = br.results
    with b.if_(b.cmp("eq", b.wave(), 0)):
        b.trap(b.cmp("slt", x, 0), "never")
    out = evaluate(b.finish(), {})
    verify(b.kernel)
    lane = np.arange(256) % 64
    assert np.array_equal(out[x], np.where(np.arange(256) < 128, lane + 1, lane * 3))
    assert (x.lo, x.hi) == (0, 189) and not x.uniform and y.type is F32


def test_branch_errors():
    b = builder()
    with pytest.raises(CompileError, match="uniform over the wave"):
        b.if_(b.cmp("slt", b.lane(), 2))
    with b.if_(b.cmp("slt", b.wave(), 2)) as br:
        br.yield_(b.lane())
    with pytest.raises(CompileError, match="carries"):
        with br.orelse():
            br.yield_(b.f32(1.0))


def test_loop_errors_name_the_users_line():
    b = builder()
    b.set_loc(Loc("user.py", 7))
    with pytest.raises(CompileError, match="must be uniform") as info:
        b.for_(0, b.lane(), 1)
    assert info.value.location == Loc("user.py", 7)
    with pytest.raises(CompileError, match="positive"):
        b.for_(0, 4, 0)
    with pytest.raises(CompileError, match="must end with yield_"):
        with b.for_(0, 4, 1, [b.lane()]):
            pass
    b = builder()
    with pytest.raises(CompileError, match="both operands must have one type"):
        b.add(b.lane(), b.i64(1))
    b.for_(0, 4, 1).__enter__()
    with pytest.raises(CompileError, match="still open"):
        b.finish()


def test_vec_and_slice_cancel():
    b = builder()
    v = b.load_shared(b.lane(), bytes=16)
    parts = b.elements(v)
    assert b.vec(parts) is v
    assert b.vec(parts[1:3]) is b.slice(v, 1, 2) and b.vec(parts[1:3]).type is vector(2)
    mixed = b.vec(parts[2], parts[0])
    assert b.slice(mixed, 0) is parts[2] and b.slice(b.slice(v, 1, 3), 1) is parts[2]
    assert b.vec(b.zero(B32), b.zero(vector(3))) is b.zero(vector(4))
    assert b.bitcast(b.bitcast(v, vector(4, "f32")), v.type) is v


def test_addresses_split_into_lane_uniform_and_immediate_parts():
    b = builder(grid=(64, 1, 1))
    v = b.add(b.shl(b.add(b.add(b.mul(b.wgid(0), 64), b.lane()), 3), 2), 100)
    base, c = b.split_constant(v)
    assert c == 112
    lane, uniform = b.split_uniform(base)
    assert lane is b.shl(b.lane(), 2) and uniform is b.shl(b.wgid(0), 8)
    negative = b.add(b.lane(), b.sub(0, b.wgid(0)))
    assert b.split_uniform(negative) == (negative, b.const(0)), "parts below zero cannot be zero-extended"
    assert b.split_address(b.add(b.lane(), -3), 0, 4095)[1] == 0
    assert b.split_address(b.add(b.lane(), 5000), 0, 4095) == (b.add(b.lane(), 4096), 904)
    assert b.split_address(7, 0, 4095) == (b.const(0), 7)


def test_memory_ops_take_immediates():
    b = builder()
    buf = b.buffer(b.param(0), 1 << 20)
    loads = [b.load_global(buf, b.add(b.shl(b.tid(), 4), 1024 * i), bytes=16) for i in range(4)]
    assert [v.op.attrs["imm"] for v in loads] == [0, 1024, 2048, 3072]
    assert len({v.op.args[1] for v in loads}) == 1
    shared = b.load_shared(b.add(b.shl(b.lane(), 2), 40000))
    assert shared.op.attrs["imm"] == 40000


@pytest.mark.parametrize("a, c", [(64, 64), (16, 1), (4096, 4095)])
def test_disjoint_bits(a, c):
    b = builder(grid=(1000, 1, 1))
    x = b.mul(b.wgid(0), a)
    y = b.and_(b.lane(), c - 1) if c > 1 else b.const(0)
    assert b.disjoint(x, y) and b.multiple_of(x) >= a
    assert not b.disjoint(b.wgid(0), b.lane())


def test_index_arithmetic_of_tiles_cancels():
    """What inference produces all the time: digits taken apart again after they were put together."""
    b = builder(grid=("M", 1, 1))
    tile = b.add(b.mul(b.wgid(0), 64), b.lane())
    assert b.udiv(tile, 64).op.name == "and", "wraps: the high bits of wgid * 64 are lost"
    b = builder(grid=(1000, 1, 1))
    tile = b.add(b.mul(b.wgid(0), 64), b.lane())
    assert b.udiv(tile, 64) is b.wgid(0) and b.urem(tile, 64) is b.lane()
    assert b.cmp("slt", tile, 64000).const is True and b.cmp("ult", tile, 63999).const is None


def test_emit_covers_every_row_it_is_meant_for():
    b = builder()
    skip = {"for", "if", "yield", "const", "mma", "mma.scaled", "matrix.start", "grid.wait"}
    example = {
        "i": b.wave(), "i32": b.wave(), "i64": b.param(0), "f": b.cvt(b.lane(), F32), "f32": b.cvt(b.lane(), F32),
        "p": b.cmp("slt", b.lane(), 3), "b32": b.bitcast(b.lane(), B32), "any": b.bitcast(b.lane(), B32),
    }  # fmt: skip
    attrs = {
        "everywhere": False,
        "how": "eq", "index": 1, "axis": 2, "dtype": dtypes.f16, "start": 0, "count": 1, "width": 3, "signed": False,
        "unsigned": False, "selector": 0x07010203, "mask": 1, "bytes": 4, "imm": 0, "high": False, "simm": 0,
        "buffer": "", "pending": 0, "level": 1, "atom": "vector", "message": "m", "low": 0,
        "more": True, "receivers": 1, "reading": True, "id": 2, "source": dtypes.i8, "operation": "fmul",
        "initial": False, "register": 0, "lane": 5, "waves": 3,
    }  # fmt: skip
    types = {"param": I32, "cvt": I64, "unpack": F32, "bitcast": F32, "vec": vector(2), "slice": B32}
    for name, row in ROWS.items():
        if name in skip:
            continue
        args = []
        for arg in row.args.split():
            kind = arg.rpartition(":")[2]
            if arg == "u:map:i64":
                args.append(b.param(0))
            elif kind == "buffer":
                args.append(b.buffer(example["i64"], 64))
            else:
                value = b.cmp("eq", b.wave(), 1) if arg.startswith("u:") and kind == "p" else example[kind]
                args.extend([value] * (2 if arg.startswith("*") else 1))
        if name == "pack":
            args = [example["f"]] * 2
        if name == "cvt":
            args = [example["f"]]
        own = {a: attrs[a] for a in row.attrs}
        if name in ("atomic.global", "atomic.far"):
            own["how"] = "cas"
        if name == "atomic.shared":
            own["how"], args[2] = "xor", example["i32"]
        if name == "widen":
            own["index"] = 2
        out = b.emit(name, args, own, types.get(name, B32 if row.result == "attr" else None))
        assert (out.type if row.result != "none" else out.name) is not None, name
    verify(b.finish())


def test_predicates_fold():
    b = builder()
    p = b.cmp("slt", b.lane(), 7)
    assert p.type is PRED and b.pand(p, b.true) is p and b.por(p, b.true) is b.true
    assert b.pnot(p) is b.cmp("sge", b.lane(), 7)
    q = b.fcmp("lt", b.cvt(b.lane(), F32), 0.5)
    assert b.select(b.pnot(q), 1, 2) is b.select(q, 2, 1) and b.pnot(b.pnot(q)) is q


def test_readfirst_of_a_carried_value_stays() -> None:
    """A carried value counts as uniform until the loop closes; if it is per lane then, its readfirst must be there."""
    kernel = new_kernel()
    b = Builder(kernel)
    with b.for_(0, 4, 1, [b.i32(0)]) as loop:
        first = b.readfirst(loop.carried[0])
        loop.yield_(b.add(b.lane(), first))
    b.finish()
    assert not loop.carried[0].uniform
    assert [op.name for op in kernel.body.walk()].count("readfirst") == 1


@pytest.mark.parametrize("stay", [False, True])
def test_arithmetic_stays_in_a_branch_that_says_so(stay):
    """Else it is done before, taken or not; copies of the kernel keep it where it is."""
    b = builder(waves=1)
    x = b.cvt(b.lane(), F32)
    with b.if_(b.any_lane(b.fcmp("ne", x, 1.0)), stay=stay) as branch:
        branch.yield_([b.fmul(x, x)])
    with branch.orelse():
        branch.yield_([x])
    after = b.fmul(branch.results[0], x)
    b.store_global(b.buffer(b.param(0), 256), b.mul(b.lane(), 4), after)
    copied = rebuild(b.finish())
    for kernel in (b.kernel, copied):
        (op,) = [op for op in kernel.body.ops if op.name == "if"]
        assert ("fmul" in names(op.regions[0])) == stay
        assert names(kernel.body).count("fmul") == 2 - stay
