"""Whole-kernel passes keep the meaning, keep what they promise, and each promise's checker notices when they do not."""

import numpy as np
import pytest
from kernel_differences import differences
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel import passes
from wavedsl.ir.kernel.kernel_eval import run
from wavedsl.ir.kernel.kernel_parse import parse
from wavedsl.ir.kernel.kernel_passes import rebuild, remove_dead_code
from wavedsl.ir.kernel.kernel_text import text
from wavedsl.ir.kernel.kernel_verify import check
from wavedsl.ir.kernel.passes import (
    CHECKS,
    DEAD_CODE,
    MERGE_CARRIED,
    STRENGTH_REDUCE,
    Pass,
    run_passes,
    unroll_pass,
)
from wavedsl.ir.kernel.strength_reduce import ROOM, strength_reduce
from wavedsl.ir.kernel.unroll import Turns, unroll

from .kernels import gemm, random_loops

SIZES = (0, 1, 9)
REBUILD = Pass("rebuild", rebuild, gives=frozenset({"numbered", "hoisted", "no-dead-code"}))


def results(kernel, words, seed=1):
    x = np.random.default_rng(seed).integers(-(1 << 31), 1 << 31, words).astype(np.int32)
    out = []
    for n in SIZES:
        y = np.zeros(2048, np.int32)
        run(kernel, [x, y, n])
        out.append(y)
    return np.stack(out)


def names(kernel):
    return [op.name for op in kernel.body.walk()]


@pytest.mark.parametrize("seed", range(14))
def test_passes_keep_the_meaning_of_random_loops(seed):
    kernel, words = random_loops(seed)
    want = results(kernel, words)
    effects = [op.name for op in kernel.body.walk() if "write global" in op.row.effects]
    for sequence in (
        [DEAD_CODE],
        [REBUILD],
        [DEAD_CODE, MERGE_CARRIED],
        [DEAD_CODE, STRENGTH_REDUCE],
        [REBUILD, unroll_pass({}), STRENGTH_REDUCE],
    ):
        fresh, _ = random_loops(seed)
        got, facts = run_passes(fresh, sequence, checked=True)
        assert np.array_equal(results(got, words), want), [p.name for p in sequence]
        assert [op.name for op in got.body.walk() if "write global" in op.row.effects] == effects
        assert "no-dead-code" in facts


def test_random_loops_exercise_strength_reduction():
    reduced = 0
    for seed in range(40):
        kernel, _ = random_loops(seed)
        remove_dead_code(kernel)
        reduced += strength_reduce(kernel) is not kernel
    assert reduced >= 20


def test_gemm_addresses_are_one_add_and_immediates():
    kernel = strength_reduce(_clean(gemm(k=256)))
    loop = next(op for op in kernel.body.walk() if op.name == "for")
    inside = [op.name for op in loop.regions[0].ops]
    assert not {"shl", "mul"} & set(inside)
    assert inside.count("add") == 2, "one carried add, one large constant"
    assert check(kernel) == []


def test_gemm_still_multiplies_after_all_passes():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (64, 256)).astype(np.float16) for _ in range(2))
    for sequence in ([], [REBUILD, STRENGTH_REDUCE], [unroll_pass({"K": 2}), STRENGTH_REDUCE], [unroll_pass({"K": 4})]):
        c = np.zeros((64, 64), np.float32)
        kernel, _ = run_passes(gemm(k=256), sequence, checked=True)
        run(kernel, [a, b, c])
        assert np.array_equal(c, a.astype(np.float32) @ b.T.astype(np.float32))


def test_multiples_of_a_run_time_stride_are_carried():
    k = parse("""kernel k(x: pointer i32 read, stride: scalar i32 "extent s", n: scalar i32 "extent n") waves=1
      %p: i64 = param {index=0}
      %b = buffer %p, 1000:i64
      %s: i32 = param {index=1}
      %n: i32 = param {index=2}
      %l = lane
      for %i = 0 to %n step 2 do
        %m = mul %i, %s
        %a = add %m, %l
        %v: b32 = load.global %b, %a, 0, true, true {bytes=4, imm=0}
        store.global %b, %a, 0, true, true, %v {bytes=4, imm=0}
      end
    end""")
    out = strength_reduce(k)
    loop = next(op for op in out.body.walk() if op.name == "for")
    assert [op.name for op in loop.regions[0].ops] == ["load.global", "store.global", "add", "yield"]
    assert check(out) == []


def test_no_more_is_carried_than_lanes_have_room_for():
    """(ROOM): a lane's products of each of many numbers with the trip were carried, 513 registers for the angles of a
    transform of 32 x 48, and refused. What memory ops take comes first; the rest is computed in each trip."""
    lines = [f"""        %m{i} = mul %i, %n{i}
        %x{i} = xor %x{i - 1}, %m{i}""" for i in range(1, 100)]
    k = parse("""kernel k(x: pointer i32 write) waves=1
      %p: i64 = param {index=0}
      %b = buffer %p, 100000:i64
      %l = lane
      """ + "\n      ".join(f"%n{i} = add %l, {i}" for i in range(1, 100)) + """
      for %i = 0 to 9 step 1 do
        %x0 = xor %l, 5
""" + "\n".join(lines) + """
        %at = mul %i, %l
        %v: b32 = bitcast %x99
        store.global %b, %at, 0, true, true, %v {bytes=4, imm=0}
      end
    end""")
    out = strength_reduce(k)
    loop = next(op for op in out.body.walk() if op.name == "for")
    (store,) = [op for op in loop.regions[0].ops if op.name == "store.global"]
    carried = loop.regions[0].args[1:]
    assert len(carried) == ROOM and store.args[1] in carried
    assert [op.name for op in loop.regions[0].ops].count("mul") == 100 - ROOM
    assert check(out) == []


def _clean(kernel):
    remove_dead_code(kernel)
    return kernel


def test_dead_code():
    k = parse("""kernel k(x: pointer f32 write) waves=1
      %p: i64 = param {index=0}
      %b = buffer %p, 64:i64
      %l = lane
      %unused = mul %l, 12
      %kept: i32, %dead: i32 = for %i = 0 to 9 step 1 carry (%a: i32 = 1, %d: i32 = 5) do
        %a2 = mul %a, 3
        %d2 = mul %d, 5
        yield %a2, %d2
      end
      for %j = 0 to 9 step 1 do
        %nothing = add %j, %l
      end
      %c: b32 = bitcast %kept
      store.global %b, %l, 0, true, true, %c {bytes=4, imm=0}
    end""")
    assert CHECKS["no-dead-code"](k, None)
    assert remove_dead_code(k) == 6 and remove_dead_code(k) == 0
    (loop,) = [op for op in k.body.walk() if op.name == "for"]
    assert len(loop.results) == 1 and len(loop.args) == 4 and names(k).count("mul") == 1
    assert check(k) == [] and CHECKS["no-dead-code"](k, None) == []


def test_rebuild_merges_hoists_and_is_idempotent():
    source = """kernel k(x: pointer f32 write) waves=1
      %p: i64 = param {index=0}
      %b = buffer %p, 64:i64
      %l = lane
      for %i = 0 to 9 step 1 do
        %u = mul %l, 12
        %v = mul %l, 12
        %w = add %u, %v
        %c: b32 = bitcast %w
        store.global %b, %i, 0, true, true, %c {bytes=4, imm=0}
      end
    end"""
    k = parse(source)
    assert CHECKS["hoisted"](k, None) and CHECKS["numbered"](k, None)
    out = rebuild(k)
    loop = next(op for op in out.body.walk() if op.name == "for")
    assert [op.name for op in loop.regions[0].ops] == ["store.global", "yield"]
    assert names(out).count("mul") == 1 and not CHECKS["hoisted"](out, None) and not CHECKS["numbered"](out, None)
    assert differences(out, rebuild(out)) == [] and text(rebuild(out)) == text(out)


def test_unrolling():
    k = gemm(k=256)
    assert names(unroll(k, {"K": 2})).count("mma") == 2 * names(k).count("mma")
    whole = unroll(k, {"K": 4})
    assert "for" not in names(whole) and check(whole) == []
    with pytest.raises(CompileError, match="4 trips and cannot be unrolled by 3"):
        unroll(k, {"K": 3})
    assert "for" not in names(unroll(gemm(k=64), {})), "a loop of one trip is its body"


def test_unrolling_by_a_promised_multiple():
    k, _ = random_loops(3)
    loops = [op for op in k.body.walk() if op.name == "for" and op.args[1].const is None]
    assert loops
    with pytest.raises(CompileError, match="a multiple of 1 trips"):
        unroll(k, lambda op: 2 if op in loops else 1)
    plain = parse("""kernel k(y: pointer i32 write, n: scalar i32 "extent n") waves=1
      %p: i64 = param {index=0}
      %b = buffer %p, 4096:i64
      %n: i32 = param {index=1}
      %l = lane
      %r: i32 = for %i = 0 to %n step 1 carry (%s: i32 = 0) {label="k", trips_multiple=4} do
        %t = mul %s, 3
        %u = add %t, %i
        %v = xor %u, %l
        yield %v
      end
      %a = shl %l, 2
      %c: b32 = bitcast %r
      store.global %b, %a, 0, true, true, %c {bytes=4, imm=0}
    end""")
    out = unroll(plain, {"k": 4})
    assert names(out).count("xor") == 4
    for n in (0, 4, 12):
        want, got = np.zeros(64, np.int32), np.zeros(64, np.int32)
        run(plain, [want, n], (1, 1, 1))
        run(out, [got, n], (1, 1, 1))
        assert np.array_equal(want, got)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("factor", [2, 3])
def test_unrolling_with_a_remainder_keeps_the_meaning(seed, factor):
    kernel, words = random_loops(seed)
    want = results(kernel, words)
    out = unroll(kernel, lambda op: factor, remainder=True)
    assert check(out) == [] and np.array_equal(results(out, words), want)


@pytest.mark.parametrize(("factor", "behind"), [(1, 1), (2, 1), (2, 2), (2, 5), (3, 4), (7, 1)])
def test_last_trips_are_plain_code(factor: int, behind: int) -> None:
    """At least so many; all of them where one trip of the unrolled loop would be left."""
    k = gemm(k=512)
    out = unroll(k, lambda op: Turns(factor, behind), remainder=True)
    assert check(out) == []
    looped = (8 - behind) // factor
    plain = 8 - looped * factor if looped > 1 else 8
    assert ("for" in names(out)) == (looped > 1)
    assert [op.name for op in out.body.ops].count("mma") == plain * names(k).count("mma")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (64, 512)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    run(out, [a, b, c])
    assert np.array_equal(c, a.astype(np.float32) @ b.T.astype(np.float32))


def test_ring_slots_become_constants():
    """`slot = i mod 2` of a loop unrolled by 2 is an immediate."""
    source = """kernel k(n: scalar i32 "extent n") waves=1 shared=16384
      %n: i32 = param {index=0}
      %l = lane
      %b = shl %l, 2
      for %i = 0 to %n step 1 do
        %s = and %i, 1
        %o = shl %s, 13
        %a = add %b, %o
        %v: b32 = load.shared %a {bytes=4, imm=0, atom="vector", buffer="x"}
        store.shared %a, true, %v {bytes=4, imm=256, buffer="x"}
      end
    end"""
    out = unroll(parse(source), lambda op: 2, remainder=True)
    first = next(op for op in out.body.walk() if op.name == "for")
    assert [op.name for op in first.regions[0].ops].count("add") <= 2, "the counter and one base"
    assert not {"and", "shl"} & {op.name for op in first.regions[0].ops}


def test_the_runner_blames_pass_fact_and_line():
    lazy = Pass("lazy", lambda kernel, target: None, gives=frozenset({"no-dead-code"}))
    with pytest.raises(CompileError, match="after lazy: 'no-dead-code' does not hold"):
        run_passes(gemm(), [lazy], checked=True)
    with pytest.raises(CompileError, match="strength_reduce needs no-dead-code, which no earlier pass gives"):
        run_passes(gemm(), [STRENGTH_REDUCE])

    def spoil(kernel, target):
        next(op for op in kernel.body.walk() if op.name == "mma").results[0].uniform = True

    with pytest.raises(CompileError, match="after spoil: 'well-formed' does not hold") as info:
        run_passes(gemm(), [Pass("spoil", spoil)], checked=True)
    assert str(info.value.location) == "gemm.py:13" and "mma" in info.value.message
    run_passes(gemm(), [Pass("spoil", spoil)], checked=False)


def test_nothing_is_checked_twice_and_all_that_comes_out_is(monkeypatch):
    seen = []
    check = CHECKS["well-formed"]
    monkeypatch.setitem(CHECKS, "well-formed", lambda kernel, target: seen.append(kernel) or check(kernel, target))

    def spoil(kernel, target):
        next(op for op in kernel.body.walk() if op.name == "mma").results[0].uniform = True
        return kernel

    idle = Pass("idle", lambda kernel, target: kernel)
    run_passes(gemm(), [REBUILD, idle, idle, STRENGTH_REDUCE, idle], checked=True)
    assert len(seen) == 3, "after what changes something, and at the end"
    with pytest.raises(CompileError, match="after spoil: 'well-formed' does not hold"):
        run_passes(gemm(), [REBUILD, Pass("spoil", spoil)], checked=True)
    with pytest.raises(CompileError, match="'well-formed' does not hold"):
        run_passes(gemm(), [REBUILD, Pass("spoil", spoil), idle], checked=True)


def test_the_environment_switches_the_checkers(monkeypatch):
    monkeypatch.setenv("WAVEDSL_VERIFY", "0")
    assert not passes.verifying()
    monkeypatch.setenv("WAVEDSL_VERIFY", "1")
    assert passes.verifying()


def test_strength_reduced_notices_a_product():
    k = gemm()
    loop = next(op for op in k.body.walk() if op.name == "for")
    assert CHECKS["strength-reduced"](k, None) == []
    iv = loop.regions[0].args[0]
    inside = loop.regions[0].ops
    load = next(op for op in inside if op.name == "load.global")
    shl = load.args[1].op
    while iv not in shl.args:
        shl = next(a.op for a in shl.args if a.op is not None and a.op.name in ("add", "shl") and a.op in inside)
    assert shl.name == "shl"
    shl.name = "mul"
    assert CHECKS["strength-reduced"](k, None)


def test_short_loops_are_noticed():
    assert CHECKS["no-short-loops"](gemm(k=64), None) and not CHECKS["no-short-loops"](gemm(k=128), None)
