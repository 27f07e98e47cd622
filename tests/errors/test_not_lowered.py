"""What the evaluator runs and the compiler does not is refused by name at the user's line."""

from __future__ import annotations

from typing import Any

import pytest
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.shared_search import too_large

import wavedsl as wd

M, N, K = wd.symbols("M N K")
X, Y = wd.symbols("X Y")


def refused(kernel: Any, error: type[Exception], *parts: str, target: str = "gfx950") -> None:
    with pytest.raises(error) as caught:
        kernel.compile(target=target)
    text = str(caught.value)
    assert __file__ in text and "^" in text, text
    for part in parts:
        assert part in text


def test_scales_of_other_blocks() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)], subs={M: 16, N: 16, K: 128})
    def kernel(
        a: wd.Memory[M, K, wd.f8e4m3], sa: wd.Memory[M, K / 16, wd.f8e8m0], b: wd.Memory[N, K, wd.f8e4m3],
        sb: wd.Memory[N, K / 16, wd.f8e8m0], c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        wd.write(wd.scaled_mma(wd.read(a), wd.read(sa), wd.read(b), wd.read(sb)), c)

    refused(kernel, wd.ConstraintError, "scaled_mma: a scale for 16 elements of K", "take one for 32")


def test_scaled_products_by_a_plain_instruction() -> None:
    @wd.wave(
        [wd.WorkgroupConstraint(M, 16, 0), wd.HardwareConstraint(mma_type=wd.MMAType.F32_16x16x32_F8E4M3)],
        subs={M: 16, N: 16, K: 128},
    )
    def kernel(
        a: wd.Memory[M, K, wd.f8e4m3], sa: wd.Memory[M, K / 32, wd.f8e8m0], b: wd.Memory[N, K, wd.f8e4m3],
        sb: wd.Memory[N, K / 32, wd.f8e8m0], c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        wd.write(wd.scaled_mma(wd.read(a), wd.read(sa), wd.read(b), wd.read(sb)), c)

    refused(kernel, wd.ConstraintError, "mma_type=F32_16x16x32_F8E4M3", "it has F32_16x16x128_F8E4M3")


def test_parts_that_are_no_power_of_two() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 48, 1)], subs={M: 16, N: 96})
    def kernel(a: wd.Memory[M, N / 3, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.repeat_interleave(wd.cumsum(wd.read(a), dim=M), N), b)

    refused(kernel, CompileError, "repeat_interleave of 3 elements each, no power of two", "wd.index(N) // 3")


def test_a_tile_in_another_shape() -> None:
    """It was told to reshape to [D, T, R, J], which has more elements than there are."""
    @wd.wave([wd.TilingConstraint(M, 32)], subs={M: 64, N: 16, X: 8, Y: 4})
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[X, N, wd.f32]):
        @wd.iterate(M)
        def tiles():
            wd.write(wd.sum(wd.reshape(wd.read(a), X, Y, N), dim=Y), b)

    refused(
        kernel, CompileError, "reshape of [M, N] to [X, Y, N]: M is spread over workgroups, waves or trips",
        "a[wd.tile_start(M) + wd.index(X) * 4 + wd.index(Y)]",
    )  # fmt: skip


@pytest.mark.parametrize("op", ["extract", "shuffle"])
def test_places_in_other_workgroups(op: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 32, 1)], subs={M: 16, N: 64})
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        x = wd.read(a)
        wd.write(x * wd.extract(x, {N: 3}) if op == "extract" else wd.shuffle(x, wd.index(N) + 1, N), b)

    refused(kernel, CompileError, f"{op} along N, which is spread over workgroups or trips", target="sm_80")
    if op == "extract":
        refused(kernel, CompileError, "wd.sum(wd.where(wd.index(N) == i, x, 0), dim=N)", target="sm_80")


def test_the_only_element_of_a_trip() -> None:
    """The help was to choose it by a condition and sum up."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(N, 1)], subs={M: 16, N: 64})
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)])
        def total(so_far):
            return so_far * 0.5 + wd.extract(wd.read(a), {N: 0})

        wd.write(total, b)

    refused(kernel, CompileError, "extract along N, which is spread", "read it as a[wd.tile_start(N)]", target="sm_80")


@pytest.mark.parametrize("op", ["topk", "sort"])
def test_rows_too_long_for_a_network(op: str) -> None:
    """They took all the memory of the machine, or minutes and thousands of spilled registers."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)], subs={M: 4, N: 32000, K: 64 if op == "topk" else 32000})
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, K, wd.f32]):
        x = wd.read(a)
        wd.write(wd.topk(x, K, dim=N)[0] if op == "topk" else wd.sort(x, dim=N), b, mapping=wd.IndexMapping(
            (K,) if op == "topk" else (N,), {} if op == "topk" else {K: N}))  # fmt: skip

    refused(kernel, CompileError, f"{op} along N: a row padded to 32768 elements", "[..., N / 1024, 1024]")


def test_sums_of_what_workgroups_share() -> None:
    """The help is the line to write, with what is left of the value's dimensions."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)], subs={M: 64, N: 64})
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[N, wd.f32]):
        wd.write(wd.sum(wd.read(a), dim=M), b)

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)], subs={M: 64, N: 64})
    def largest(a: wd.Memory[M, N, wd.f32], b: wd.Memory[N, wd.f32]):
        wd.write(wd.max(wd.read(a), dim=M), b)

    refused(kernel, CompileError, "sum along M, which is spread over workgroups", "an array [N] that is 0 before",
            "wd.atomic_add(wd.sum(x, dim=M), out)",
            "for a result per tile", "an array [M / 16, 16]")  # fmt: skip
    refused(largest, CompileError, "max along M, which is spread over workgroups",
            "an array [N] that holds the identity before", "wd.atomic_max(wd.max(x, dim=M), out)")  # fmt: skip


def test_scans_of_what_workgroups_share() -> None:
    @wd.wave([wd.WorkgroupConstraint(N, 256, 0)], subs={N: 1024})
    def kernel(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32]):
        wd.write(wd.cumsum(wd.read(a), dim=N), b)

    refused(kernel, CompileError, "cumsum along N", "an array [N / 256, 256]", "wd.WorkgroupConstraint(…, 1, …)")


FULL = [(512, "exceeds the 512 bytes left"), (-2048, "finds none left by other tiles")]


@pytest.mark.parametrize(("left", "said"), FULL)
def test_tiles_that_find_shared_memory_full(left: int, said: str) -> None:
    """A number of bytes below zero is nothing to say to a user."""
    error = too_large({"M": 64, "K": 128}, 2, 1, left)
    assert error.message == f"a shared tile of M=64 x K=128 elements of 2 bytes, 1 times, {said}" + (
        " and by exchanges" if left < 0 else ""
    )


PRODUCTS = {
    "two-contracted": ((M, X, K), (N, X, K), (M, N), "pass arrays in which X, K are one dimension"),
    "a-batch": ((X, M, K), (X, N, K), (X, M, N), "make X an index dimension: wd.WorkgroupConstraint(X, 1, <axis>)"),
    "two-kept": ((M, X, K), (N, K), (M, X, N), "or make M an index dimension (workgroup tile 1)"),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_more_dimensions(name: str) -> None:
    first, second, result, help = PRODUCTS[name]

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)], subs={M: 16, N: 16, K: 16, X: 2})
    def kernel(
        a: wd.Memory[(*first, wd.f16)], b: wd.Memory[(*second, wd.f16)], c: wd.Memory[(*result, wd.f32)],
        d: wd.Memory[M, N, X, K, wd.f32],
    ):  # fmt: skip
        wd.write(wd.mma(wd.read(a), wd.read(b), wd.Register[(*result, wd.f32)](0.0)), c)
        wd.write(wd.Register[M, N, X, K, wd.f32](0.0), d)

    refused(kernel, CompileError, "a matrix instruction takes one dimension of each operand", help)


@pytest.mark.parametrize("op", ["tile_start", "tile_stop"])
def test_tiles_of_a_part_that_nothing_has(op: str) -> None:
    """It ended in a KeyError."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)], subs={M: 64})
    def kernel(a: wd.Memory[M, wd.i32], b: wd.Memory[M, wd.i32]):
        wd.write(wd.read(a) + getattr(wd, op)(M / 2), b)

    what = f"{op}: no array or value has the dimension M/2"
    refused(kernel, wd.ConstraintError, what, f"count from those of a dimension that has: wd.{op}(M)", target="sm_80")
