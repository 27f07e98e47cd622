"""Fences release where an atomic may follow, acquire where the result of one is there, and else order the workgroup."""

from __future__ import annotations

import pytest
from amdgcn_kernels import new_kernel
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.kernel.narrow_fences import narrow_fences
from wavedsl.ir.kernel.passes import no_wide_fences


def kernel(parts: str) -> Kernel:
    """`w` and `r`: a store and a load; `t`: an atomic that tells others; `l`: one whose result is used, too; `f`: a
    fence; `R` and `A`: one that is known to release, to acquire; `(` and `)`: a loop; `[` and `]`: a branch."""
    b = Builder(new_kernel("k", "gfx942", ["y"], waves=4))
    at, array = b.mul(b.tid(), 4), b.buffer(b.param(0), 4096)

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
            elif part in "fRA":
                b.fence(order={"R": "release", "A": "acquire"}.get(part))
            elif part == "w":
                b.store_global(array, at, b.tid(), bytes=4)
            elif part == "r":
                b.store_shared(at, b.load_global(array, at, bytes=4), bytes=4, buffer="")
            else:
                old = b.atomic_global(array, at, "add", b.i32(1))
                if part == "l":
                    b.store_shared(at, old, bytes=4, buffer="")
        return text

    walk(parts)
    return b.finish()


@pytest.mark.parametrize(("parts", "kinds"), [
    ("wflf[r]", "release acquire"),  # a ticket, then the parts of others
    ("wft", "release"), ("lfr", "acquire"), ("tfr", "workgroup"), ("wfr", "workgroup"), ("lft", "both"),
    ("lfwft", "acquire release"), ("wf[t]", "release"), ("[l]fr", "acquire"),
    ("(wft)", "release"), ("(wfl)", "both"), ("(wflf)", "release acquire"), ("(f)t", "release"), ("l(f)", "acquire"),
    ("(wfl[fr])", "both acquire"),  # who is not the last to come goes on, for all that is known, with that
    ("(wRl[Ar])", "release acquire"), ("lRfr", "release acquire"), ("wfAt", "release acquire"),
    ("lfAfr", "acquire acquire workgroup"),
])  # fmt: skip
def test_fences_order_what_others_can_tell(parts: str, kinds: str) -> None:
    k = kernel(parts)
    narrow_fences(k)
    fences = [op.attrs for op in k.body.walk() if op.name == "fence"]
    assert [a.get("scope") or a.get("order", "both") for a in fences] == kinds.split()
    assert no_wide_fences(k) == []


def test_the_checker_names_what_is_wider() -> None:
    (found,) = no_wide_fences(kernel("wft"))
    assert "release" in found.message
