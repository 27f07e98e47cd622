"""What is printed reads back as the same kernel; what is written by hand gets the facts the builder would give."""

import pytest
from kernel_differences import differences
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import I32, I64, vector
from wavedsl.ir.kernel.kernel_parse import parse
from wavedsl.ir.kernel.kernel_text import text
from wavedsl.ir.kernel.kernel_verify import check
from wavedsl.ir.loc import Loc

from .kernels import ATOM, gemm, random_loops

EXAMPLE = """
kernel axpy(x: pointer f32 read, y: pointer f32 readwrite, n: scalar i32 "extent n") target=gfx942 waves=4 grid=(8, 1)
  shared "tile a" at 0 bytes 1024
  %base: i64 = param {index=0}
  %buf = buffer %base, 4096:i64
  %t = tid
  %off = shl %t, 2                  ; a comment that is no location
  %x: b32 = load.global %buf, %off, 0, true, true {bytes=4, imm=0}  ; a.py:3:4-8 in f < b.py:9
  %acc: f32x4 = for %i = 0 to 256 step 16 carry (%a: f32x4 = -0.0:f32x4) {label="K"} do
    %j = add %i, 4
    %s: b32x4 = load.shared %j {bytes=16, imm=0, atom="vector", buffer="tile a"}
    %c: f32x4 = bitcast %s
    yield %c
  end
  %cond = cmp %base, 7:i64 {how="ult"}
  %r: i32 = if %cond do
    yield 1
  else
    yield 2
  end
  %z: f32 = unpack %x {dtype=f16, index=1}
  %inf = fmax %z, -inf:f32
  store.global %buf, %off, 0, true, true, %x {bytes=4, imm=0}
end
"""


def by_name(kernel):
    found = {}
    for op in kernel.body.walk():
        for v in (*op.results, *(a for r in op.regions for a in r.args)):
            found[v.name] = v
    return found


def test_hand_written_kernel():
    k = parse(EXAMPLE)
    v = by_name(k)
    assert check(k) == []
    assert (k.name, k.target, k.waves, k.grid, k.shared_names) == ("axpy", "gfx942", 4, (8, 1), {"tile a": (0, 1024)})
    assert v["off"].type is I32 and (v["off"].lo, v["off"].hi, v["off"].zeros & 3) == (0, 1020, 3)
    assert v["buf"].uniform and not v["t"].uniform and v["cond"].uniform and v["base"].type is I64
    assert (v["i"].lo, v["i"].hi) == (0, 240) and v["acc"].type is vector(4, "f32")
    assert str(v["a"].region.parent.args[3].const) == "-0.0"
    assert v["x"].op.loc == Loc("a.py", 3, 4, 8, "f", Loc("b.py", 9))
    assert k.params[2].source == "extent n" and k.params[1].access == "readwrite"


def test_round_trip_of_the_example():
    k = parse(EXAMPLE)
    again = parse(text(k))
    assert differences(k, again) == [] and text(again) == text(k)


@pytest.mark.parametrize("seed", range(10))
def test_round_trip_of_random_kernels(seed):
    kernel, _ = random_loops(seed)
    again = parse(text(kernel))
    assert differences(kernel, again) == []
    assert text(again) == text(kernel)


def test_round_trip_of_a_gemm():
    k = gemm()
    again = parse(text(k), atoms=[ATOM])
    assert differences(k, again) == []
    assert differences(k, parse(text(k, facts=False), atoms=[ATOM])) == [], "facts derive again"


def test_differences_are_found():
    k = gemm()
    for change in ("imm", "type", "uniform", "range", "operand", "loc"):
        other = parse(text(k), atoms=[ATOM])
        op = next(op for op in other.body.walk() if op.name == "load.shared")
        add = next(op for op in other.body.walk() if op.name == "add")
        if change == "imm":
            op.attrs["imm"] += 1
        elif change == "type":
            op.results[0].type = vector(3)
        elif change == "uniform":
            add.result.uniform = not add.result.uniform
        elif change == "range":
            add.result.hi -= 1
        elif change == "operand":
            add.args = (add.args[1], add.args[0])
        else:
            op.loc = None
        assert differences(k, other), change


@pytest.mark.parametrize(
    "line, message",
    [
        ("%a = frobnicate %t", "no op frobnicate"),
        ("%a = add %t, %nowhere", "%nowhere is not defined here"),
        ("%t = add %t, 1", "%t is defined twice"),
        ("%a = add %t, 1.5", "floats are written 1.5:f32"),
        ("%a: i33 = add %t, 1", "no such type: i33"),
        ("%a = load.shared %t", "needs the type of its result"),
        ("%a = add %t, 1 {how=f99}", "no such dtype: f99"),
        ("%a: f32x4 = mma %t, %t, %t {atom=@F99}", "no matrix instruction F99"),
        ("%a, %b = add %t, 1", "add has 1 results, not 2"),
        ("add %t, 1 }", "found '}'"),
        ("barrier $", "cannot read"),
    ],
)
def test_errors_name_the_line(line, message):
    with pytest.raises(CompileError, match="line 3: ") as info:
        parse(f"kernel k() waves=1\n  %t = tid\n  {line}\nend\n")
    assert message in str(info.value)


def test_a_missing_end():
    with pytest.raises(CompileError, match="`end` is missing"):
        parse("kernel k()\n  %t = tid\n")
