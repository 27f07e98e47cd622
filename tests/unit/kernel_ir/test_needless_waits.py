"""Waits for asynchronous copies and bulk stores at which none can be in flight go from a kernel; all others stay."""

from __future__ import annotations

import pytest
from amdgcn_kernels import new_kernel
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Kernel, Op
from wavedsl.ir.kernel.needless_waits import remove_needless_waits
from wavedsl.ir.kernel.passes import no_needless_waits


def kernel(parts: str) -> Kernel:
    """`c`: a copy whose group is closed; `e`: a group without copies; a digit: a wait that lets as many pass; `s`: a
    bulk store whose group is closed; `E`: a group of none; `w` and `r`: a wait until all have been written, or read;
    `v`: until all but one have been read; `(` and `)`: a loop of three trips; `[` and `]`: a branch."""
    b = Builder(new_kernel("k", "gfx942", ["y"], waves=4))
    b.kernel.shared_names.update(a=(0, 4096))
    b.kernel.shared_bytes = 4096
    at = b.mul(b.tid(), 4)

    def walk(text: str) -> str:
        while text:
            part, text = text[0], text[1:]
            if part == "(":
                with b.for_(0, 3) as loop:
                    text = walk(text)
                    loop.yield_()
            elif part == "[":
                with b.if_(b.cmp("slt", b.wgid(0), 3)) as branch:
                    text = walk(text)
                    branch.yield_()
            elif part in ")]":
                return text
            elif part == "c":
                b.copy_async(b.buffer(b.param(0), 4096), at, at, bytes=4, buffer="a")
                b.copy_commit()
            elif part == "e":
                b.copy_commit()
            elif part == "s":
                b.copy_bulk_store(b.param(0), at, b.cmp("eq", b.lane(), 0), [b.wgid(0)])
                b.bulk_commit()
            elif part == "E":
                b.bulk_commit()
            elif part in "wrv":
                b.bulk_wait(int(part == "v"), reading=part != "w")
            else:
                b.copy_wait(int(part))
        return ""

    walk(parts)
    return b.finish()


def left(parts: str) -> str:
    made = kernel(parts)
    remove_needless_waits(made)
    assert not no_needless_waits(made)
    names = {"copy.commit": "c", "bulk.commit": "s"}

    def letter(op: Op) -> str:
        if op.name == "bulk.wait":
            return ("v" if op.attrs["pending"] else "r") if op.attrs["reading"] else "w"
        return names.get(op.name) or str(op.attrs["pending"])

    return "".join(map(letter, (op for op in made.body.walk() if op.name in (*names, "copy.wait", "bulk.wait"))))


@pytest.mark.parametrize(
    "parts, stay",
    [
        ("0c0", "c0"),  # nothing is in flight at first
        ("cc2c", "ccc"), ("cc1c", "cc1c"),
        ("cc01", "cc0"), ("cc10", "cc10"),  # what left fewer, or more
        ("c(0)", "c0"),
        ("(0c)0", "0c0"),  # round the back edge, and no trip
        ("cc(1c)0", "cc1c0"), ("c(2c)", "c2c"), ("cc0(1c1)", "cc0c1"),
        ("c[0]0", "c00"),  # a branch that may be passed by
        ("[c]0", "c0"), ("[0c]1", "c"),
        ("c((0)c)0", "c0c0"), ("(c)9", "c9"),
        ("e0", ""), ("ce1", "cc1"), ("c0e1c0", "c0c0"), ("c(0e)0", "c00"),  # counted from a copy on
        ("wrs", "s"), ("sr", "sr"), ("sw", "sw"), ("swr", "sw"), ("srw", "srw"), ("srr", "sr"), ("rsrsw", "srsw"),
        ("sv", "s"), ("ssv", "ssv"), ("sEv", "ssv"), ("Ew", ""), ("srEv", "srs"), ("srEw", "srsw"),
        ("(rs)w", "rsw"), ("(w)", ""), ("[s]w", "sw"), ("[w]", ""), ("s(wE)r", "swr"), ("c0w", "c0"), ("sw0", "sw"),
    ],
)  # fmt: skip
def test_waits_that_wait_for_nothing_go(parts: str, stay: str) -> None:
    assert left(parts) == stay
