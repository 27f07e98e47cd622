"""The verifier objects to every mutant: good kernels with one defect each."""

import random

import pytest
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import F32, I32, Op, Region, Value, vector
from wavedsl.ir.kernel.kernel_parse import parse
from wavedsl.ir.kernel.kernel_passes import remove_dead_code
from wavedsl.ir.kernel.kernel_verify import check, verify

from .kernels import gemm, make_target, random_loops


def ops(kernel, name):
    return [op for op in kernel.body.walk() if op.name == name]


def facts_of(kernel, **kw):
    return {f.fact for f in check(kernel, **kw)}


def clean(seed):
    kernel, _ = random_loops(seed)
    remove_dead_code(kernel)
    return kernel


@pytest.mark.parametrize("seed", range(25))
def test_good_kernels_pass(seed):
    assert check(clean(seed), locations=True) == []


def test_a_good_gemm_passes():
    assert check(gemm(), locations=True) == []


@pytest.mark.parametrize("seed", range(6))
def test_every_dropped_definition_is_found(seed):
    count = sum(1 for _ in clean(seed).body.walk())
    for i in range(count):
        kernel = clean(seed)
        op = list(kernel.body.walk())[i]
        if op.row.effects and not op.results and op.name != "yield":
            continue  # a missing store is a different program, not a malformed one
        region = next(r for r in _regions(kernel.body) if op in r.ops)
        region.ops.remove(op)
        used = any(r in a.args for r in op.results for a in kernel.body.walk())
        assert check(kernel) or not (used or op.name == "yield"), op


@pytest.mark.parametrize("seed", range(4))
def test_every_operand_of_another_type_or_scope_is_found(seed):
    """Retarget every operand to a value of another type, to one defined later, and to one of a closed region."""
    kernel = clean(seed)
    foreign = Value(10**6, I32, True)
    wrong = Value(10**6 + 1, vector(3, "f64"), True)
    for op in list(kernel.body.walk()):
        for i, a in enumerate(op.args):
            for other in (foreign, wrong):
                op.args = (*op.args[:i], other, *op.args[i + 1 :])
                assert check(kernel), (op, i)
            if op.results and not op.regions:
                op.args = (*op.args[:i], op.results[0], *op.args[i + 1 :])
                assert "scope" in facts_of(kernel), "an op reads its own result"
            op.args = (*op.args[:i], a, *op.args[i + 1 :])
    assert check(kernel) == []


@pytest.mark.parametrize("seed", range(6))
def test_every_false_uniform_mark_is_found(seed):
    kernel = clean(seed)
    marked = 0
    for op in kernel.body.walk():
        for v in (*op.results, *(a for r in op.regions for a in r.args)):
            if not v.uniform:
                v.uniform = True
                marked += 1
                assert "uniform" in facts_of(kernel), v
                v.uniform = False
            elif op.name in ("for", "if") or op.row.uniform == "args":
                v.uniform = False  # saying less is legal unless something needs it
                assert not facts_of(kernel) - {"uniform", "types"}
                v.uniform = True
    assert marked > 5


def _with_facts(kernel):
    return [
        (op, v)
        for op in kernel.body.walk()
        for v in (*op.results, *(a for r in op.regions for a in r.args))
        if v.lo is not None and op.name != "const"
    ]


def test_false_ranges_are_found():
    """Cut every range in half, forbid every bit that can be set: what is really reached must be noticed."""
    found = tried = 0
    for seed in range(8):
        kernel = clean(seed)
        for op, v in _with_facts(kernel):
            lo, hi, zeros = v.lo, v.hi, v.zeros
            if hi - lo < 8 or op.name.startswith("load") or op.name == "for":
                continue
            v.hi = lo + (hi - lo) // 2
            tried += 1
            found += bool(check(kernel))
            v.hi = hi
            v.zeros = (1 << 32) - 1
            tried += 1
            found += bool(check(kernel))
            v.zeros = zeros
        assert check(kernel) == []
    # Derived ranges may be wider than what any execution reaches; nine of ten are not.
    assert tried > 100 and found >= 0.9 * tried, (found, tried)


SUMS = """kernel k() waves=1 grid=(8, 1, 1)
  %l: i32 in 0..63 = lane
  %m: i32 in 0..252 = shl %l, 2
  %r: i32 = for %i: i32 uniform in 0..3 = 0 to 4 step 1 carry (%p: i32 in 0..{last} = 0) do
    %a: i32 = add %p, %m
    %b: i32 = {how}
    yield %b
  end
end"""


def test_a_carried_value_grows_by_several_terms():
    """A carried value that grows by `4 lane + 16`, as the builder writes it: it was taken for any number in its range,
    which the next trip then seemed to leave (index(N) * index(F) in a loop over N)."""
    assert check(parse(SUMS.format(last=3 * 268, how="add %a, 16"))) == []
    assert check(parse(SUMS.format(last=3 * 189, how="sub %a, %l"))) == []
    assert {f.fact for f in check(parse(SUMS.format(last=3 * 268 - 1, how="add %a, 16")))} == {"range"}
    assert {f.fact for f in check(parse(SUMS.format(last=3 * 189 - 1, how="sub %a, %l")))} == {"range"}


def test_leaf_ranges_are_exact():
    text = """kernel k(n: scalar i32 "extent n") waves=4 grid=(9, 1, 1)
      %l: i32 {lane}= lane
      %t: i32 {tid}= tid
      %w: i32 uniform {wgid}= wgid {{axis=0}}
      %n: i32 uniform {n}= param {{index=0, hi=1000, multiple=8}}
    end"""
    good = {"lane": "in 0..63 ", "tid": "in 0..255 ", "wgid": "in 0..8 ", "n": "in 0..1000 zeros 0x7 "}
    assert check(parse(text.format(**good))) == []
    for name, bad in (
        ("lane", "in 0..62 "), ("lane", "in 1..63 "), ("tid", "in 0..254 "), ("wgid", "in 0..7 "), ("n", "in 0..992 "),
        ("n", "in 0..1000 zeros 0xf "), ("n", "in 1..1000 "),
    ):  # fmt: skip
        assert {f.fact for f in check(parse(text.format(**{**good, name: bad})))} == {"range"}, (name, bad)


LOOP = """kernel k(n: scalar i32 "extent n") waves=4
  %n = %N
  %r: i32 %R= for %i %I= 0 to %n step 4 carry (%p: i32 uniform %P= 100) {label="k"} do
    %q = add %p, 12
    yield %q
  end
end"""


def loop_text(n="and %m, 31", r="", i="", p=""):
    text = LOOP.replace("%N", n).replace("%R", r).replace("%I", i).replace("%P", p)
    return text.replace("  %n =", "  %m: i32 = param {index=0}\n  %n =")


def test_carried_values_are_computed_from_the_trip():
    """0..31 in steps of 4: at most 8 trips, so iv <= 28 and the carried value is 100 .. 184 inside, 196 after."""
    assert (
        check(parse(loop_text(p="in 100..184 ", i=": i32 uniform in 0..28 zeros 0x3 ", r="uniform in 100..196 "))) == []
    )
    assert facts_of(parse(loop_text(p="in 100..183 "))) == {"range"}
    assert facts_of(parse(loop_text(p="in 101..184 "))) == {"range"}
    assert facts_of(parse(loop_text(i=": i32 uniform in 0..27 "))) == {"range"}
    assert facts_of(parse(loop_text(r="uniform in 100..195 "))) == {"range"}


def _regions(region):
    yield region
    for op in region.ops:
        for body in op.regions:
            yield from _regions(body)


def test_structure():
    def fresh():
        return parse(loop_text())

    def loop(k):
        return ops(k, "for")[0]

    k = fresh()
    loop(k).regions[0].ops.pop()
    assert "scope" in facts_of(k)
    k = fresh()
    body = loop(k).regions[0]
    body.ops.insert(0, Op("yield", ()))
    assert "scope" in facts_of(k)
    k = fresh()
    loop(k).regions[0].ops[-1].args = ()
    assert "types" in facts_of(k)
    k = fresh()
    loop(k).results[0].type = F32
    assert "types" in facts_of(k)
    k = fresh()
    loop(k).regions[0].depth = 4
    assert "scope" in facts_of(k)
    k = fresh()
    loop(k).regions[0].parent = Op("for", ())
    assert "scope" in facts_of(k)
    k = fresh()
    k.body.ops.append(k.body.ops[-2])
    assert "scope" in facts_of(k), "defined twice"
    k = fresh()
    loop(k).regions = (Region(1, loop(k)),)
    assert facts_of(k)
    k = fresh()
    assert facts_of(k, locations=True) == {"location"}


@pytest.mark.parametrize(
    "change",
    ["imm", "bytes", "atom words", "slice", "shift", "store bytes", "how", "missing attribute"],
)
def test_rules_told_in_words(change):
    k = gemm()
    if change == "imm":
        ops(k, "load.shared")[0].attrs["imm"] = 70000
        target = make_target()
        assert "target" in {f.fact for f in check(k, target)}
        return
    if change == "bytes":
        ops(k, "load.global")[0].attrs["bytes"] = 8
    elif change == "atom words":
        op = ops(k, "mma")[0]
        op.args = (op.args[0], op.args[0], op.args[0])
        op.results[0].type = op.args[0].type
    elif change == "slice":
        ops(k, "slice")[0].attrs["start"] = 4
    elif change == "shift":
        shl = ops(k, "shl")[0]
        shl.args[1].op.attrs["value"] = 32
    elif change == "store bytes":
        ops(k, "store.global")[0].attrs["bytes"] = 12
    elif change == "how":
        k = parse(loop_text(n="select %c, %m, 5").replace("  %n =", '  %c = cmp %m, 5 {how="lt"}\n  %n ='))
    else:
        del ops(k, "load.shared")[0].attrs["imm"]
    assert "types" in facts_of(k)


def test_target_limits():
    assert check(gemm(), make_target()) == []
    for kw in (
        {"shared_bytes": 1024},
        {"wave_size": 32},
        {"max_threads": 128},
        {"mma_atoms": ()},
        {"global_imm": (0, 1)},
    ):
        k = gemm()
        if "global_imm" in kw:
            ops(k, "load.global")[0].attrs["imm"] = 2
        assert "target" in {f.fact for f in check(k, make_target(**kw))}, kw


COPIES = """kernel k(x: pointer f32 read) waves={waves} shared=4096
  %b: i64 = param {{index=0}}
  %buf = buffer %b, 4096:i64
  %t = tid
  %a = shl %t, 2
  copy.async %buf, %a, 0, true, true, %a {{bytes=4, imm=0, simm=0, buffer="a"}}
  {commit}
  copy.async %buf, %a, 0, true, true, %a {{bytes=4, imm=0, simm=1024, buffer="a"}}
  copy.commit
  {wait}
  {barrier}
  %v: b32 = load.shared %a {{bytes=4, imm=0, atom="vector", buffer="a"}}
end"""


def test_copies_are_waited_for():
    good = {"waves": 4, "commit": "copy.commit", "wait": "copy.wait {pending=1}", "barrier": "barrier"}
    assert check(parse(COPIES.format(**good))) == []
    assert check(parse(COPIES.format(**{**good, "waves": 1, "barrier": ""}))) == []
    assert check(parse(COPIES.format(**{**good, "barrier": "fence"}))) == []
    for bad in ({"wait": ""}, {"barrier": ""}, {"wait": "copy.wait {pending=2}"}, {"commit": ""}):
        found = check(parse(COPIES.format(**{**good, **bad})))
        assert [f.fact for f in found] == ["copies"], bad


def test_nothing_is_read_or_written_before_the_launch_in_front_has_ended():
    text = """kernel k(a: pointer f32) waves=1 grid=(8, 1, 1)
      %p: i64 uniform = param {{index=0}}
      %e: i64 uniform = const {{value=4096}}
      %b = buffer %p, %e
      %l = lane
      {before}
      grid.wait
      {after}
    end"""
    load = "%x: b32 = load.global %b, %l, 0, true, true {bytes=4, imm=0}"
    touch = "touch.global %b, %l, 0, true, true {bytes=4, imm=0}"
    assert check(parse(text.format(before=touch, after=load))) == []
    found = check(parse(text.format(before=load, after="")))
    assert [f.fact for f in found] == ["launch"] and "may not have written" in found[0].message
    inside = parse(text.format(before="", after="").replace("grid.wait", "if true do\n grid.wait\n end"))
    assert [f.fact for f in check(inside)] == ["launch"]


def test_barriers_that_not_all_waves_reach():
    text = """kernel k() waves=4 grid=(8, 1, 1)
      %w = {what}
      %c = cmp %w, 1 {{how="eq"}}
      if %c do
        barrier
      end
    end"""
    assert check(parse(text.format(what="wgid {axis=0}"))) == []
    found = check(parse(text.format(what="wave")))
    assert [f.fact for f in found] == ["barriers"] and "differs between waves" in found[0].message
    assert check(parse(text.format(what="wave").replace("waves=4", "waves=1"))) == []


def test_the_error_names_op_fact_and_line():
    k = gemm()
    op = ops(k, "mma")[0]
    op.results[0].uniform = True
    with pytest.raises(CompileError) as info:
        verify(k, after="lower")
    message = str(info.value)
    assert "after lower" in message and "'uniform' does not hold" in message and "mma" in message
    assert info.value.location == op.loc


def test_most_random_mutants_of_a_gemm_are_found():
    """Any operand replaced by any value. What is not found is another well-formed program."""
    rng = random.Random(3)
    objected = 0
    for _ in range(150):
        k = gemm()
        all_ops = [op for op in k.body.walk() if op.args]
        values = [v for op in k.body.walk() for v in op.results]
        op = rng.choice(all_ops)
        i = rng.randrange(len(op.args))
        new = rng.choice(values)
        op.args = (*op.args[:i], new, *op.args[i + 1 :])
        bad = bool(check(k))
        objected += bad
    assert objected > 90
