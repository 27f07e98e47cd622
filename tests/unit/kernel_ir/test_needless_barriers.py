"""Barriers that no two accesses to shared memory need go from a kernel; all others stay."""

from __future__ import annotations

import re

import numpy as np
import pytest
from agree import agree, near
from amdgcn_kernels import new_kernel
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, Kernel, Value
from wavedsl.ir.kernel.needless_barriers import remove_needless_barriers
from wavedsl.ir.kernel.passes import no_needless_barriers

import wavedsl as wd

M, N = wd.symbols("M N")


def kernel(parts: str, wave_size: int = 64, waves: int = 4) -> Kernel:
    """`w` and `r`: a write, each thread its own word, and a read of the neighbour's of buffer a; `W` and `R`: of buffer
    b; `o` and `O`: reads of the own word; `A`: an asynchronous copy to b; `c`: a wait for copies; `|`: a barrier; `!`:
    a barrier of the wave; `f`: a fence; `(` and `)`: a loop of three trips; `[` and `]`: a branch."""
    b = Builder(new_kernel("k", "gfx942", ["y"], waves=waves))
    b.kernel.wave_size = wave_size
    b.kernel.shared_names.update(a=(0, 4096), b=(4096, 4096))
    b.kernel.shared_bytes = 8192
    at = b.mul(b.tid(), 4)
    places = {"a": at, "b": b.add(at, 4096)}
    there = b.xor(at, 4)
    others = {"a": there, "b": b.add(there, 4096)}
    word = b.bitcast(b.tid(), B32)

    def read(buffer: str, own: bool) -> None:
        place = (places if own else others)[buffer]
        got: Value = b.load_shared(place, bytes=4, buffer=buffer, type=B32)
        b.store_global(b.buffer(b.param(0), 4096), at, got, bytes=4)

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
            elif part == "|":
                b.barrier()
            elif part == "!":
                b.wave_barrier()
            elif part == "c":
                b.copy_wait(0)
            elif part == "A":
                source = b.buffer(b.param(0), 4096)
                b.copy_async(source, at, places["b"], bytes=4, buffer="b")
            elif part == "f":
                b.fence()
            elif part in "wW":
                b.store_shared(places["ab"["wW".index(part)]], word, bytes=4, buffer="ab"["wW".index(part)])
            else:
                read("ab"["rRoO".index(part) % 2], part in "oO")
        return text

    walk(parts)
    return b.finish()


def barriers(k: Kernel) -> int:
    return sum(op.name == "barrier" for op in k.body.walk())


@pytest.mark.parametrize(("parts", "stay"), [
    ("|w|r", 1),  # nobody reads yet what is written first
    ("|w|r|w|r", 3), ("|w|r|W|R", 2),  # the second buffer needs no wait for readers of the first
    ("w||r", 1), ("w|W|r", 1), ("r|R", 0), ("w|r|", 1),
    ("(|w|r)", 2), ("|(w|r)", 1), ("(|r)w", 1),  # round the back edge, behind the loop
    ("w[|]r", 1), ("w|[r]", 1), ("w[R]|r", 1), ("[w]|r", 1), ("[|w|]r", 1), ("w|[R]", 0),
    ("Ac|R", 1), ("R|Ac", 1), ("c|", 0), ("|f|w", 0), ("wf|r", 0), ("w|fr", 0), ("w|(f)r", 1),
    ("w|Ac", 0), ("Ac|r", 0), ("A|Rc|R", 2),  # what a wait brings is what copies write, wherever they began
    ("w|o", 0), ("o|w", 0), ("(w|o)", 0), ("w|o|r", 1), ("w|or", 1),  # own words
    ("Ac|O", 1), ("A|c|R", 2), ("Ac|OR", 1),  # copies for several waves
])  # fmt: skip
def test_what_orders_two_accesses_stays(parts: str, stay: int) -> None:
    k = kernel(parts)
    before = barriers(k)
    assert remove_needless_barriers(k) == before - stay
    assert barriers(k) == stay and no_needless_barriers(k) == []


@pytest.mark.parametrize(("parts", "stay", "of_warps"), [
    ("!w!r", 0, 1), ("w!r!W!R", 0, 2), ("(!w!r)", 0, 2), ("w|!r", 1, 0), ("w!|r", 1, 0), ("w!|!r", 1, 0),
    ("w|!W!r", 1, 0), ("w|!r!w", 1, 1), ("w[!]r", 0, 1), ("w!f!r", 0, 0), ("!c!", 0, 0), ("A!Rc!R", 0, 2),
    ("A!c!R", 0, 1),
    ("w!o", 0, 0), ("Ac!O!W", 0, 0), ("Ac!OR!W", 0, 2),
])  # fmt: skip
def test_barriers_of_a_warp_order_its_lanes_alone(parts: str, stay: int, of_warps: int) -> None:
    """One of the workgroup orders lanes too; one of a warp orders no waves, and none where nothing is between."""
    k = kernel(parts, wave_size=32)
    remove_needless_barriers(k)
    assert (barriers(k), sum(op.name == "wave.barrier" for op in k.body.walk())) == (stay, of_warps)
    assert no_needless_barriers(k) == []
    groups = kernel(parts, wave_size=128)
    remove_needless_barriers(groups)
    again = parts == "!c!"  # where nothing copies the wait is none
    assert sum(op.name == "wave.barrier" for op in groups.body.walk()) == parts.count("!") - again


@pytest.mark.parametrize(("parts", "stay", "alone"), [
    ("!!", 1, 1), ("!!!", 1, 1), ("!w!r!", 3, 3), ("!o!", 2, 2), ("!A!", 2, 2), ("!(!)!", 3, 3), ("![!]!", 3, 3),
    ("!(w!!)", 2, 2), ("f!w", 1, 0), ("f|!w", 1, 0), ("w!f!r", 2, 1), ("|!w", 1, 1),
])  # fmt: skip
def test_the_second_of_two_barriers_of_a_warpgroup_goes(parts: str, stay: int, alone: int) -> None:
    """Those of all waves are not those of one, but where there is one alone."""
    for waves, want in ((4, stay), (1, alone)):
        k = kernel(parts, wave_size=128, waves=waves)
        remove_needless_barriers(k)
        assert (waves, sum(op.name == "wave.barrier" for op in k.body.walk())) == (waves, want)
        assert no_needless_barriers(k) == []


def test_each_barrier_is_asked_about_by_itself() -> None:
    """Of two in a row each orders nothing while the other one is there: one of them stays."""
    k = kernel("w||r")
    assert len(no_needless_barriers(k)) == 2
    assert remove_needless_barriers(k) == 1 and no_needless_barriers(k) == []


@pytest.mark.parametrize(("roles", "stay"), [
    ((7, 7, 7), 1), ((7, 8, 7), 2), ((None, 7, 7), 1), ((None, None, 7), 2),
])  # fmt: skip
def test_barriers_of_a_role_order_its_waves(roles: tuple[int | None, ...], stay: int) -> None:
    """Between two barriers of a role those of another, or of all, divide nothing: `w` and `r` want one of each."""
    k = kernel("|w|W|r")
    for op, role in zip((op for op in k.body.walk() if op.name == "barrier"), roles):
        op.attrs.update({} if role is None else {"id": role, "threads": 128})
    remove_needless_barriers(k)
    assert barriers(k) == stay and no_needless_barriers(k) == []


def test_groups_that_are_a_barrier_apart_keep_all() -> None:
    k = kernel("|w|r")
    (first, _) = (op for op in k.body.walk() if op.name == "barrier")
    first.attrs["half"] = 0
    assert remove_needless_barriers(k) == 0


@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
def test_one_sum_over_waves_takes_one_barrier(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, 4096, 1), wd.WaveConstraint(N, 1024)])
    def normed(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
        row = wd.read(x)
        wd.write(row * wd.rsqrt(wd.sum(row * row, dim=N)), y)

    x = np.random.default_rng(0).standard_normal((3, 4096)).astype(np.float32)
    compiled = agree(normed, [x, np.zeros_like(x)], target, compare=near(8))
    assert len(re.findall(r"^\s+(s_barrier|bar\.sync)", compiled.asm, re.MULTILINE)) == 1


@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
@pytest.mark.parametrize("form", ["once", "in a loop"])
def test_two_sums_over_waves_take_two_barriers(form: str, target: str) -> None:
    """They meet at two places in turn, so that nobody waits for who still reads what was there the time before: behind
    the barrier of the other one's all have read it."""
    rows = [wd.WorkgroupConstraint(M, 1, 0)] if form == "once" else [wd.TilingConstraint(M, 1)]

    def softmax(row):
        shifted = wd.exp2(row - wd.max(row, dim=N))
        return shifted * (1.0 / wd.sum(shifted, dim=N))

    @wd.wave([*rows, wd.WorkgroupConstraint(N, 4096, 1), wd.WaveConstraint(N, 1024)])
    def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
        if form == "once":
            wd.write(softmax(wd.read(x)), y)
        else:
            wd.iterate(M, init_args=[])(lambda: wd.write(softmax(wd.read(x)), y))

    x = np.random.default_rng(0).standard_normal((3, 4096)).astype(np.float32)
    compiled = agree(kernel, [x, np.zeros_like(x)], target, compare=near(8))
    assert len(re.findall(r"^\s+(s_barrier|bar\.sync)", compiled.asm, re.MULTILINE)) == 2


def test_lanes_that_read_what_they_copied_do_not_meet() -> None:
    """Each lane takes from shared memory what it has copied there itself: its wait is enough."""
    b, r, t = wd.symbols("B R T")

    @wd.wave([wd.WorkgroupConstraint(b, 1, 0), wd.WaveConstraint(b, 1), wd.TilingConstraint(t, 1)], subs={t: 3})
    def kernel(x: wd.Memory[b, N, wd.i32], a: wd.Memory[r, N, wd.SHARED, wd.i32], y: wd.Memory[b, N, wd.i32]):
        added = wd.read(a)

        @wd.iterate(t, init_args=[wd.read(x)])
        def loop(row):
            return wd.max(wd.reshape(row, r) + added, dim=r)

        wd.write(loop, y)

    x, a = np.arange(5, dtype=np.int32).reshape(1, 5), np.arange(25, dtype=np.int32).reshape(5, 5)
    compiled = agree(kernel, [x, a, np.zeros((1, 5), np.int32)], "sm_80")
    between = re.search(r"cp\.async\.wait_group.*?ld\.shared", compiled.asm, re.DOTALL)
    assert between is not None and "bar." not in between[0]
    assert "bar.warp.sync" in compiled.asm, "what other lanes wrote is still waited for"
