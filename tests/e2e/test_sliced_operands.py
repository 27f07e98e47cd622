"""Operands of multiply-adds that change lanes through shared memory, read as the product comes to them: text against
evaluator, exactly, and the registers that it spares."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree, near

import wavedsl as wd

B, D, E, I, J, K, M, N = wd.symbols("B D E I J K M N")


def chain(dtype: wd.DType) -> Any:
    """x (x (2 x) + x) + x, and its square: each product's result is an operand of the next, lies as another does, and
    meets x element by element."""
    exactly: dict[str, Any] = {"precision": "ieee"} if dtype is wd.f32 else {}

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
    def kernel(a: wd.Memory[B, I, J, dtype], y: wd.Memory[B, I, J, dtype]):
        def times(x: Any, y: Any) -> Any:
            y = wd.reshape(wd.reshape(y, I, K), J, K)
            return wd.reshape(wd.mma(x, y, wd.Register[I, K, dtype](0), **exactly), I, J)

        x = wd.read(a)
        total = x + x
        for _ in range(2):
            total = times(x, total) + x
        wd.write(times(total, total) - x, y)

    return kernel


def small(*shape: int, dtype: wd.DType) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-1, 2, shape).astype(dtype.storage)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("dtype", [wd.f32, wd.f64], ids=str)
@pytest.mark.parametrize("n", [32, 16, 21])
def test_products_of_products(n: int, dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    a = small(2, n, n, dtype=dtype)
    agree(chain(dtype), [a, np.zeros_like(a)], target, oracle if n == 21 else None, subs={K: n})


def test_no_operand_is_held_as_a_whole(oracle: Callable[[str], str]) -> None:
    """Eight rows and four columns of 32 are 384 registers, and x was computed with in the layout of an operand, eight
    times in each lane: 255 registers and 15784 bytes of spills for the exponential of 32 x 32, 1024 quotients for 128.
    """
    oracle("ptxas")
    compiled = chain(wd.f32).compile(target="sm_80", subs={B: 4, I: 32, J: 32, K: 32})
    r = compiled.resources
    assert not r.spills and r.registers <= 168, (r.spills, r.registers)
    assert len(re.findall(r"\badd\.rn\.f32", compiled.asm)) <= 160, "sums of whole operands"


@wd.wave([wd.WorkgroupConstraint(M, 64, 0)], subs={K: 16})
def distances(x: wd.Memory[M, D, wd.f32], p: wd.Memory[K, D, wd.f32], y: wd.Memory[M, K, wd.f32]):
    """Squares of differences, weighted: both operands of both products are computed, or meet others."""
    points, weights = wd.read(x), wd.read(p)
    cross = wd.mma(points, weights + 1, precision="ieee")
    wd.write(wd.mma(points * points, weights, precision="ieee") - 2 * cross, y)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("d", [64, 40])
def test_waves_have_rows_of_their_own(d: int, target: str) -> None:
    arguments = [small(100, d, dtype=wd.f32), small(16, d, dtype=wd.f32), np.zeros((100, 16), np.float32)]
    agree(distances, arguments, target)


def test_operands_that_one_way_serves_stay_tiles_in_shared_memory(oracle: Callable[[str], str]) -> None:
    """Computed element by element of tiles that all waves share; in a layout of their own they took 128 registers, and
    each wave's scratch 55296 bytes for 20480."""
    oracle("ptxas")
    compiled = distances.compile(target="sm_80", subs={M: 256, D: 64})
    assert not compiled.resources.spills and compiled.resources.registers <= 96 and compiled.shared_bytes <= 20480


# ---- in loops: what a trip computes


def attention(tile: int, outside: bool = False, queries: int = 64) -> Any:
    """Weights are what a product left, and lie as it leaves them. `outside`: queries are made before the loop."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(M, queries, 0), wd.TilingConstraint(N, tile)])
    def kernel(
        q: wd.Memory[B, M, D, wd.f32], k: wd.Memory[B, N, D, wd.f32], v: wd.Memory[B, N, E, wd.f32],
        y: wd.Memory[B, M, E, wd.f32],
    ):  # fmt: skip
        rows = wd.Register[M, wd.f32]
        scaled = wd.read(q) * 0.5 if outside else None

        @wd.iterate(N, init_args=[rows(-1e30), rows(0.0), wd.Register[M, E, wd.f32](0.0)])
        def keys(top, total, acc):
            query = scaled if outside else wd.read(q)
            scores = wd.mma(query, wd.read(k), wd.Register[M, N, wd.f32](0.0), precision="ieee")
            higher = wd.maximum(top, wd.max(scores, dim=N))
            p, keep = wd.exp(scores - higher), wd.exp(top - higher)
            return higher, total * keep + wd.sum(p, dim=N), wd.mma(p, wd.read(v), acc * keep, precision="ieee")

        _, total, acc = keys
        wd.write(acc / total, y)

    return kernel


def gate(tile: tuple[int, int, int], both: bool = True) -> Any:
    """An operand of a loop's product is computed of two arrays, element by element, the other one of one."""
    m, n, k = tile

    @wd.wave([wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), wd.TilingConstraint(K, k)])
    def kernel(
        a: wd.Memory[M, K, wd.f32], b: wd.Memory[M, K, wd.f32], w: wd.Memory[N, K, wd.f32], y: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            x, weight = wd.read(a), wd.read(w)
            weight = 2 * weight if both else weight
            return wd.mma(x * wd.sigmoid(x) * wd.read(b), weight, acc, precision="ieee")

        wd.write(loop, y)

    return kernel


@wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(N, 32)])
def gradients(
    q: wd.Memory[B, N, D, wd.f32], k: wd.Memory[B, N, D, wd.f32], v: wd.Memory[B, N, E, wd.f32],
    y: wd.Memory[B, N, E, wd.f32], state: wd.Memory[B, D, E, wd.f32],
):  # fmt: skip
    """A state that is carried is an operand, and what is added to it a product of something computed; both are stored
    in every trip."""

    @wd.iterate(N, init_args=[wd.Register[D, E, wd.f32](0.0)])
    def loop(s):
        wd.write(wd.mma(wd.read(q), s, wd.Register[N, E, wd.f32](0.0), precision="ieee"), y)
        x = wd.read(k)
        return wd.mma(x * x - x, wd.read(v), s * 0.5, precision="ieee")

    wd.write(loop, state)


def keys_gradients(keys: int, queries: int) -> Any:
    """Gradients of attention: two products of a trip multiply what others of it left, one after the other."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(N, keys, 0), wd.TilingConstraint(M, queries)])
    def kernel(
        q: wd.Memory[B, M, D, wd.f32], k: wd.Memory[B, N, D, wd.f32], v: wd.Memory[B, N, D, wd.f32],
        g: wd.Memory[B, M, D, wd.f32], dk: wd.Memory[B, N, D, wd.f32], dv: wd.Memory[B, N, D, wd.f32],
    ):  # fmt: skip
        @wd.iterate(M, init_args=[wd.Register[N, D, wd.f32](0.0)] * 2)
        def loop(to_keys, to_values):
            query, grad = wd.read(q), wd.read(g)
            p = wd.exp2(wd.mma(wd.read(k), query, wd.Register[N, M, wd.f32](0.0), precision="ieee") - 4)
            to_values = wd.mma(p, grad, to_values, precision="ieee")
            ds = p * wd.mma(wd.read(v), grad, wd.Register[N, M, wd.f32](0.0), precision="ieee")
            return wd.mma(ds, query, to_keys, precision="ieee"), to_values

        wd.write(loop[0], dk)
        wd.write(loop[1], dv)

    return kernel


@pytest.mark.parametrize("target", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("m", [70, pytest.param(128, marks=pytest.mark.slow)])
def test_weights_of_attention(m: int, outside: bool, target: str) -> None:
    q, v = small(1, m, 64, dtype=wd.f32), small(1, m, 32, dtype=wd.f32)
    arrays = [q, q[:, ::-1].copy(), v, np.zeros_like(v)]
    agree(attention(32, outside), arrays, target, compare=near(64, 1e-5))


@pytest.mark.parametrize("target", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("tile", "size"),
    [((64, 64, 32), (64, 50, 70)), ((128, 64, 16), (140, 40, 45)), ((32, 32, 32), (30, 30, 40))],
    ids=str,
)
def test_gates(tile: Any, size: Any, target: str) -> None:
    m, n, k = size
    arguments = [small(*s, dtype=wd.f32) for s in ((m, k), (m, k), (n, k), (m, n))]
    agree(gate(tile), arguments, target, compare=near(64, 1e-4))


@pytest.mark.parametrize("target", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)])
def test_states_that_loops_carry(target: str) -> None:
    q, k, v = (small(1, 70, d, dtype=wd.f32) for d in (64, 64, 32))
    agree(gradients, [q, k, v, np.zeros_like(v), np.zeros((1, 64, 32), np.float32)], target, compare=near(8, 1e-3))


@pytest.mark.parametrize("target", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)])
def test_what_a_trip_computes_is_computed_once(target: str, oracle: Callable[[str], str]) -> None:
    """Each lane computed its rows along all of K, seven others the same, and held them: 3324 bytes of spills."""
    oracle("ptxas")
    compiled = gate((128, 128, 16), both=False).compile(target=target, subs={M: 2048, N: 2048, K: 256})
    assert not compiled.resources.spills
    waves = 2  # that share an operand's rows
    exponentials = len(re.findall(r"\bex2\.approx", compiled.asm)) * compiled.block[0]
    assert exponentials <= waves * 128 * 16, "computed by several lanes of a wave"


def test_what_a_loop_does_not_change_is_stored_in_front_of_it(oracle: Callable[[str], str]) -> None:
    """Queries that are scaled before the loop were 256 registers of a lane."""
    oracle("ptxas")
    compiled = attention(32, outside=True).compile(target="sm_80", subs={B: 2, M: 128, N: 512, D: 64, E: 64})
    assert not compiled.resources.spills and compiled.resources.registers <= 208
    (label,) = (loop.label for loop in compiled.resources.loops)
    before, trip = compiled.asm.split(f"{label}:")
    assert before.count("st.shared") >= 16 > 8 >= trip.split(f"{label}_end:")[0].count("st.shared")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_weights_are_not_held(target: str, oracle: Callable[[str], str]) -> None:
    """Four rows along 64 keys in each lane: 656 bytes of spills."""
    oracle("ptxas")
    compiled = attention(64).compile(target=target, subs={B: 2, M: 128, N: 128, D: 64, E: 64})
    assert not compiled.resources.spills


@pytest.mark.slow
def test_products_of_a_trip_take_turns_with_a_place(oracle: Callable[[str], str]) -> None:
    """Weights and their gradients had places of their own, 8 KB more; each is stored when the product before is done
    with its own."""
    kernel, (n, m, d) = keys_gradients(32, 32), (40, 70, 32)
    shapes = (m, n, n, m, n, n)
    arrays = [small(1, rows, d, dtype=wd.f32) for rows in shapes[:4]]
    arrays += [np.zeros((1, rows, d), np.float32) for rows in shapes[4:]]
    compiled = agree(kernel, arrays, "sm_80", oracle, compare=near(64, 1e-3))
    trip = max(compiled.kernel_ir.body.regions(), key=lambda region: len(region.ops))
    stores = [op for op in trip.ops if op.name == "store.shared" and op.attrs["buffer"] == "scratch"]
    places = {(op.args[0], op.attrs["imm"]) for op in stores}
    assert stores and len(stores) == 2 * len(places), "each place is filled twice in a trip"


def test_operands_take_what_tiles_leave_of_shared_memory(oracle: Callable[[str], str]) -> None:
    """Two operands of 64 x 64 were more than the quarter of shared memory that such may have beside any tiles: 1208
    bytes of spills by sixteen warps, and three times the clocks by the model."""
    oracle("ptxas")
    compiled = gate((64, 64, 64)).compile(target="sm_80", subs={M: 128, N: 128, K: 256})
    assert not compiled.resources.spills and compiled.resources.registers <= 224


@pytest.mark.slow
def test_reads_of_a_long_trip_wait_for_registers(oracle: Callable[[str], str]) -> None:
    """Copies into the only slot of a tile start when its last read is done: they were put early, and held the reads of
    a trip's last product before them. 16 bytes of spills."""
    oracle("ptxas")
    compiled = keys_gradients(64, 64).compile(target="sm_80", subs={B: 2, M: 128, N: 128, D: 64})
    assert not compiled.resources.spills


def test_no_simd_is_idle_where_one_workgroup_has_room() -> None:
    """Two warps of 16 queries and 90112 bytes of shared memory: two of an SM's four schedulers had nothing to do, and
    the model counted 1461822 clocks for 1195290."""
    compiled = attention(32, True, queries=32).compile(target="sm_80", subs={B: 2, M: 64, N: 512, D: 64, E: 64})
    assert compiled.block[0] == 128


def test_offsets_of_loads_are_no_registers(oracle: Callable[[str], str]) -> None:
    """Constants counted among the values that are live together, 194 of 437, so eight warps shared what four have room
    for: 1124040 clocks by the model for 761060."""
    oracle("ptxas")
    compiled = attention(64).compile(target="sm_80", subs={B: 2, M: 128, N: 128, D: 64, E: 64})
    assert compiled.block[0] == 128 and not compiled.resources.spills
