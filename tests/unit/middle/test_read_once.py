"""Tiles that several products read: joined reads, rings that both stages of a loop read, operands that stay in
registers, products that overtake."""

from __future__ import annotations

import re
from typing import Any

import example_files
import pytest
from wavedsl.ir.inference.read_once import read_once

import wavedsl as wd

backward = example_files.load("attention_backward")
M, N, K, J, BM, BN, BK = wd.symbols("M N K J BM BN BK")
SIZES = {M: 128, N: 128, K: 128}


def reads(kernel: Any, subs: dict[Any, Any], name: str) -> int:
    graph = read_once(kernel.trace(subs))
    return sum(n.op == "read" and n.attrs["memory"] == name for n in graph.all_nodes())


def chain(dtype: wd.DType, between: bool = False):
    """(A Bᵀ) B, where B is read for each product: its other dimension is summed over the second time."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, BM / 2), wd.TilingConstraint(N, BN)],
        subs={BM: 128, BN: 64, **SIZES},
    )
    def twice(a: wd.Memory[M, K, dtype], b: wd.Memory[N, K, wd.SHARED, dtype], c: wd.Memory[M, K, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, K, wd.f32](0.0)])
        def loop(acc):
            scores = wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](0.0))
            if between:
                wd.write(wd.read(b) * 1, b)
            return wd.mma(wd.cast(scores, dtype), wd.read(b), acc)

        wd.write(loop, c)

    return twice


def test_reads_of_the_same_tile_are_one() -> None:
    assert reads(chain(wd.bf16), {}, "b") == 1


def test_a_write_between_keeps_reads_apart() -> None:
    assert reads(chain(wd.bf16, between=True), {}, "b") == 3


def test_small_elements_with_another_k_are_read_twice() -> None:
    """Instructions want K along memory for 8-bit elements, which one tile cannot give to both."""
    assert reads(chain(wd.f8e4m3), {}, "b") == 2


def test_a_read_that_nobody_uses() -> None:
    """It is no operand, so nothing says along what it is summed (drawn kernel 90003)."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)], subs=SIZES)
    def idle(a: wd.Memory[M, K, wd.f32]):
        wd.read(a)

    assert reads(idle, {}, "a") == 1


def of_gradients(d: int, which: int, **options: Any) -> Any:
    """dK and dV (1) or dQ (2) of 16 heads of 4096 on sm_90a."""
    variant = backward.Variant(wd.bf16, **options)
    sizes = {backward.B: 1, backward.H: 16, backward.G: 16, backward.M: 4096, backward.N: 4096}
    kernel = backward.kernels(variant, backward.tile_for(variant, "sm_90a", d))[which]
    return kernel.compile(target="sm_90a", subs={**sizes, backward.D: d, backward.E: d})


def test_both_stages_of_a_loop_read_one_ring() -> None:
    """dK and dV of head size 64: Q and dO lie in shared memory once; the first stage waits for a slot, and the second
    gives it back a trip later."""
    notes = of_gradients(64, 1).kernel_ir.notes["lowering"]
    assert notes.strategy.overlapped
    rings = {ring.split(": ")[1].split(" ")[0].rstrip(";") for ring in notes.rings}
    assert rings == {"k", "v", "q", "d_o", "lse", "delta"}


def test_a_product_that_needs_nothing_of_its_trip_is_started_early() -> None:
    """dK and dV of head size 128, where registers hold one stage only: dO V^T runs while exponentials are taken, and
    starts when those of the trip before have left their operands' registers."""
    text = of_gradients(128, 1).asm
    loop = text[text.index("$M1:") : text.index("$M1_end:")]
    marks = re.findall(r"wgmma\.(commit_group|wait_group)\S*(?: (\d))?|(ex2)\.", loop)
    order = [a or c for a, _, c in marks]
    first = order.index("ex2")
    assert order[:first] == ["commit_group", "wait_group", "commit_group", "wait_group"]
    assert [b for a, b, _ in marks if a == "wait_group"][:2] == ["1", "1"]


@pytest.mark.parametrize(("options", "resident"), [({}, 2), ({"cap": 20.0}, 0)])
def test_operands_stay_in_registers_where_there_are_some(options: dict[str, Any], resident: int) -> None:
    """K and V of dK and dV, head size 64: instructions of 64 columns would take all of shared memory's bandwidth. The
    derivative of a soft cap takes their registers."""
    atoms = of_gradients(64, 1, **options).decisions.atoms
    assert sum("A from registers" in str(atom) for atom in atoms) == resident + 2
