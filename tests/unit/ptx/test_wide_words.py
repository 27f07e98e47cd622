"""Pairs of words that are only loaded, split, copied and joined become 64-bit registers; any other use keeps words."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from wavedsl.codegen.ptx.machine import UNDEFINED, Copy, Imm, Ins, Mem, Reg
from wavedsl.codegen.ptx.select import row
from wavedsl.codegen.ptx.wide_words import wide_words

import wavedsl as wd
from wavedsl.strategies.kernels import Form, tiled

lookup = partial(row, "sm_90a")


class Made:
    """Registers and instructions by short names."""

    def __init__(self):
        self.count = 0
        self.base = self.reg("b32")

    def reg(self, kind="b32"):
        self.count += 1
        return Reg(self.count, kind, 0)

    def load(self, *words):
        return Ins(lookup("ld", "shared", f"v{len(words)}", "b32"), (words, Mem(self.base)), None)

    def join(self, lo, hi):
        wide = self.reg("b64")
        return wide, Ins(lookup("mov", "b64"), (wide, (lo, hi)), None)


def names(code):
    return [item.inst.name if type(item) is Ins else "copy" for item in code]


def test_a_load_that_is_joined_is_one_of_64_bits():
    made = Made()
    words = [made.reg() for _ in range(4)]
    (first, a), (second, b) = made.join(*words[:2]), made.join(*words[2:])
    out = wide_words([made.load(*words), a, b], lookup, made.count)
    assert names(out) == ["ld.shared.v2.b64", "copy", "copy"]
    regs = out[0].args[0]
    assert [r.kind for r in regs] == ["b64", "b64"] and len({r.id for r in regs} - set(range(made.count + 1))) == 2
    assert [c.pairs for c in out[1:]] == [[(first, regs[0])], [(second, regs[1])]]


def test_what_a_loop_carries_as_words_is_carried_as_one():
    made = Made()
    before, carried, again = ([made.reg(), made.reg()] for _ in range(3))
    _, used = made.join(*carried)
    code = [
        made.load(*before), Copy(list(zip(carried, before)), None), used, made.load(*again),
        Copy(list(zip(carried, again)), None, True),
    ]  # fmt: skip
    out = wide_words(code, lookup, made.count)
    assert names(out) == ["ld.shared.b64", "copy", "copy", "ld.shared.b64", "copy"]
    one = out[1].pairs[0][0]
    assert out[1].pairs == [(one, out[0].args[0])] and out[4].pairs == [(one, out[3].args[0])] and out[4].carried


def split(made, lo, hi):
    return Ins(lookup("mov", "b64"), ((lo, hi), made.reg("b64")), None)


@pytest.mark.parametrize("kind", ["read", "swapped", "half", "guard", "constant", "copied apart", "overlapping"])
def test_words_with_any_other_use_stay_words(kind):
    made = Made()
    lo, hi, other = made.reg(), made.reg(), made.reg()
    load, (_, join) = made.load(lo, hi), made.join(lo, hi)
    code = [load, join]
    if kind == "read":
        code.append(Ins(lookup("add", "s32"), (other, lo, Imm(1)), None))
    elif kind == "swapped":
        code[0] = made.load(hi, lo)
    elif kind == "half":
        code[0] = made.load(other, lo, hi, made.reg())
    elif kind == "guard":
        load.guard = made.reg("pred")
    elif kind == "constant":
        code[0] = Copy([(lo, Imm(0)), (hi, Imm(1))], None)
    elif kind == "copied apart":
        code.append(Copy([(other, hi)], None))
    else:
        code.append(made.join(hi, other)[1])
    assert names(wide_words(code, lookup, made.count)) == names(code)


def test_what_is_split_and_joined_again_is_one_register():
    made = Made()
    lo, hi = made.reg(), made.reg()
    wide, join = made.join(lo, hi)
    out = wide_words([split(made, lo, hi), join], lookup, made.count)
    assert names(out) == ["copy", "copy"] and out[1].pairs == [(wide, out[0].pairs[0][0])]


def test_undefined_words_are_an_undefined_number():
    made = Made()
    lo, hi = made.reg(), made.reg()
    _, join = made.join(lo, hi)
    out = wide_words([Copy([(lo, UNDEFINED), (hi, UNDEFINED)], None), made.load(lo, hi), join], lookup, made.count)
    assert names(out) == ["copy", "ld.shared.b64", "copy"] and out[0].pairs == [(out[1].args[0], UNDEFINED)]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("b_rows", [True, False])
def test_products_of_f64_join_nothing_in_their_loop(target, b_rows):
    a, b, c = np.ones((70, 100)), np.ones((90, 100) if b_rows else (100, 90)), np.full((70, 90), np.nan)
    kernel = tiled(Form(wd.f64, wd.f64, b_rows), (64, 64, 16), (2, 2, 1), 3)
    made = kernel.compile(a, b, c, 1.0, 0.0, target=target)
    loop = made.asm[made.asm.index("$K1:") : made.asm.index("$K1_end")]
    assert "mma.sync" in loop and not re.search(r"mov\.b64 .*\{", loop)
    made.emulate(a, b, c, 1.0, 0.0)
    np.testing.assert_array_equal(c, np.full((70, 90), 100.0))
