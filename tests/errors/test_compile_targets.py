"""What a chip cannot do: each is an error with the name, the user's line under a caret, and what the chip has."""

from __future__ import annotations

import pytest
from source import assert_points_at, run

import wavedsl as wd

SIZES = "M: 256, N: 256, K: 256"


def gemm(
    dtype: str = "f16", sums: str = "f32", tile: tuple[int, int, int] = (64, 64, 32), more: str = "", schedule: str = ""
) -> str:
    """Source of a product whose constraints end with `more`."""
    return f"""
    @wd.wave(
        [
            wd.WorkgroupConstraint(M, {tile[0]}, 0),
            wd.WorkgroupConstraint(N, {tile[1]}, 1),
            wd.TilingConstraint(K, {tile[2]}),
            {more}
        ],
        {schedule}
    )
    def gemm(a: wd.Memory[M, K, wd.SHARED, wd.{dtype}], b: wd.Memory[N, K, wd.SHARED, wd.{dtype}],
             c: wd.Memory[M, N, wd.{sums}]):
        zero = wd.Register[M, N, wd.{sums}](0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc: wd.Register[M, N, wd.{sums}]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)
    """


def refused(kind: type[wd.WaveError], source: str, target: str, sizes: str = SIZES) -> wd.WaveError:
    """The error that compiling for the target raises."""
    cell = run(source + f"\n    def build():\n        return gemm.compile(target={target!r}, subs={{{sizes}}})\n")
    with pytest.raises(wd.WaveError) as caught:
        cell["build"]()
    assert type(caught.value) is kind
    return caught.value


def expect(error: wd.WaveError, message: str, underlined: str, hint: str) -> None:
    assert message in error.message, error.message
    assert hint in error.hint, error.hint
    assert_points_at(error, underlined)


MMA = "wd.mma(wd.read(a), wd.read(b), acc)"


@pytest.mark.parametrize("target", ["gfx1100", "sm_70", "gfx942:xnack+", "", "cuda"])
def test_unknown_target(target: str) -> None:
    error = refused(wd.ConstraintError, gemm(), target)
    call = f"gemm.compile(target={target!r}, subs={{{SIZES}}})"
    expect(error, f"unknown target {target!r}", call, "gfx90a, gfx942, gfx950, sm_80, sm_90a")


@pytest.mark.parametrize(
    ("target", "dtype", "instead"),
    [
        ("gfx942", "f8e4m3", "f8e4m3fnuz"), ("gfx942", "f8e5m2", "f8e5m2fnuz"),
        ("gfx950", "f8e4m3fnuz", "f8e4m3"), ("gfx950", "f8e5m2fnuz", "f8e5m2"),
        ("gfx90a", "f8e4m3", "f16"), ("sm_80", "f8e4m3", "f16"), ("sm_80", "f8e5m2fnuz", "f16"),
        ("gfx90a", "tf32", "f32"), ("gfx950", "tf32", "f32"),
    ],
)  # fmt: skip
def test_dtype_that_the_chip_lacks(target: str, dtype: str, instead: str) -> None:
    error = refused(wd.ConstraintError, gemm(dtype), target)
    annotation = f"wd.Memory[M, K, wd.SHARED, wd.{dtype}]"
    expect(error, f"argument a: {target} has no {dtype}", f"~{annotation}", f"use {instead}")


def test_cast_to_a_dtype_that_the_chip_lacks() -> None:
    source = """
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def gemm(a: wd.Memory[M, wd.f32], b: wd.Memory[M, wd.f32]):
        wd.write(wd.cast(wd.cast(wd.read(a), wd.f8e4m3), wd.f32), b)
    """
    error = refused(wd.ConstraintError, source, "gfx942", "M: 64")
    expect(error, "gfx942 has no f8e4m3", "wd.cast(wd.read(a), wd.f8e4m3)", "use f8e4m3fnuz")


@pytest.mark.parametrize(
    ("target", "name", "has"),
    [
        ("gfx942", "F32_16x8x16_F16", "it has F32_32x32x8_F16, F32_16x16x16_F16"),
        ("gfx942", "F32_16x16x16_BF16", "it has F32_32x32x8_F16, F32_16x16x16_F16"),
        ("gfx90a", "F32_16x16x32_F16", "it has F32_32x32x8_F16, F32_16x16x16_F16"),
        ("sm_80", "F32_16x16x16_F16", "F32_16x8x16_F16"),
        ("sm_80", "F32_64x64x16_F16", "F32_16x8x16_F16"),
        ("sm_90a", "F32_16x16x16_F16", "it has F32_16x8x16_F16, F32_16x8x8_F16, F32_64x8x16_F16 to F32_64x256x16_F16"),
    ],
)
def test_matrix_instruction_that_the_chip_lacks(target: str, name: str, has: str) -> None:
    error = refused(wd.ConstraintError, gemm(more=f"wd.HardwareConstraint(mma_type=wd.MMAType.{name})"), target)
    expect(error, f"mma_type={name}: {target} has no such instruction for f16 x f16 -> f32", MMA, has)


def test_matrix_instruction_that_is_too_large_for_the_tile() -> None:
    error = refused(wd.ConstraintError, gemm(more="wd.HardwareConstraint(mma_type='F32_64x256x16_F16')"), "sm_90a")
    message = "mma_type=F32_64x256x16_F16: no wave of this kernel has a tile for it"
    expect(error, message, MMA, "a wave's tile is a multiple of 64x256x16")


def test_accumulator_that_no_instruction_has() -> None:
    error = refused(wd.ConstraintError, gemm("f16", "f16"), "gfx942")
    message = "gfx942 has no matrix instruction for f16 x f16 -> f16"
    expect(error, message, MMA, "it has F32_32x32x8_F16, F32_16x16x16_F16")


@pytest.mark.parametrize(("target", "asked", "lanes"), [("gfx942", 32, 64), ("sm_80", 64, 32), ("sm_80", 128, 32)])
def test_lanes_of_a_wave(target: str, asked: int, lanes: int) -> None:
    constraint = f"wd.HardwareConstraint(threads_per_wave={asked})"
    error = refused(wd.ConstraintError, gemm(more=constraint), target)
    message = f"threads_per_wave={asked}: a wave of {target} has {lanes} lanes"
    expect(error, message, constraint, f"write threads_per_wave={lanes}")


# ------------------------------------------------------------------------------------------------ what does not fit


def test_workgroup_of_too_many_waves() -> None:
    more = "wd.WaveConstraint(M, 8), wd.WaveConstraint(N, 16)"
    error = refused(wd.ConstraintError, gemm(more=more), "gfx942")
    message = "32 waves (8 along M × 4 along N), but a workgroup has at most 16"
    expect(error, message, "wd.WaveConstraint(N, 16)", "larger wave tiles")


def test_wave_tile_that_does_not_divide() -> None:
    error = refused(wd.ConstraintError, gemm(more="wd.WaveConstraint(M, 24)"), "sm_80")
    message = "a wave tile of 24 does not divide the workgroup's 64 elements of M"
    expect(error, message, "wd.WaveConstraint(M, 24)", "1, 2, 4, 8, 16, 32, 64")


@pytest.mark.parametrize(
    ("shares", "message", "hint"),
    [
        ("(3, 1, 1)", "waves_per_block gives 3 waves along axis 0, which do not divide the tile of 64 elements of M",
         "legal counts are 1, 2, 4"),
        ("(16, 2, 1)", "waves_per_block=(16, 2, 1) asks for 32 waves, but a workgroup has at most 16", "at most 16"),
        ("(1, 2, 2)", "waves_per_block=(1, 2, 2) asks for 4 waves, but the workgroup's tile has 2 (2 along N)",
         "leave waves_per_block out, or give (1, 2, 1)"),
    ],
)  # fmt: skip
def test_waves_per_block(shares: str, message: str, hint: str) -> None:
    constraint = f"wd.HardwareConstraint(waves_per_block={shares})"
    expect(refused(wd.ConstraintError, gemm(more=constraint), "gfx950"), message, constraint, hint)


@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("share", "shares", "made", "hint"),
    [
        ("M, 16", "(2, 2, 1)", "has 8 (4 along M, 2 along N)", "give (4, 2, 1)"),
        ("N, 32", "(2,)", "has 4 (2 along M, 2 along N)", "give (2, 2, 1)"),
        ("K, 16", "(1, 1, 1)", "has 2 (2 along K)", "give (2, 1, 1)"),
    ],
)
def test_waves_per_block_beside_a_wave_constraint(share: str, shares: str, made: str, hint: str, target: str) -> None:
    """Waves of a dimension that a constraint divides count too where others follow from `waves_per_block`."""
    asks = f"wd.HardwareConstraint(waves_per_block={shares})"
    error = refused(wd.ConstraintError, gemm(more=f"wd.WaveConstraint({share}), {asks}"), target)
    expect(error, f"but the workgroup's tile {made}", asks, hint)


@pytest.mark.parametrize(
    ("shapes", "target", "message", "hint"),
    [
        ("{M: 48}", "gfx942", "vector_shapes gives 48 elements of M, which do not divide the 32 of a wave",
         "1, 2, 4, 8, 16, 32"),
        ("{M: 8, N: 8}", "gfx942", "vector_shapes={M: 8, N: 8} fits no matrix instruction of gfx942 for f16 x f16",
         "multiples of 32 x 32 x 8 or 16 x 16 x 16"),
        ("{N: 4}", "sm_80", "vector_shapes={N: 4} fits no matrix instruction of sm_80 for f16 x f16", "16 x 8 x 16"),
        ("{K: 3}", "gfx90a", "vector_shapes gives 3 elements of K, which do not divide the 32 of a wave", "1, 2, 4"),
    ],
)  # fmt: skip
def test_vector_shapes(shapes: str, target: str, message: str, hint: str) -> None:
    constraint = f"wd.HardwareConstraint(vector_shapes={shapes})"
    more = f"wd.WaveConstraint(M, 32), wd.WaveConstraint(N, 32), {constraint}"
    expect(refused(wd.ConstraintError, gemm(more=more), target), message, constraint, hint)


SHARED_BYTES = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840, "sm_80": 166912}


@pytest.mark.parametrize(("target", "bytes"), SHARED_BYTES.items())
def test_tile_larger_than_shared_memory(target: str, bytes: int) -> None:
    """Who counts stages means his own tiles, so that they stay as they are."""
    source = gemm(tile=(256, 256, 512), schedule="schedule=wd.Schedule(stages=1)")
    error = refused(wd.ConstraintError, source, target, "M: 256, N: 256, K: 512")
    message = "argument a: a shared tile of M=256 x K=512 elements of 2 bytes"
    expect(error, message, "wd.read(a)", "smaller tiles or fewer pipeline stages")
    assert str(bytes) in error.message


def test_more_stages_than_shared_memory() -> None:
    source = gemm(tile=(128, 128, 64), schedule="schedule=wd.Schedule(stages=8)")
    error = refused(wd.ConstraintError, source, "gfx942", "M: 256, N: 256, K: 1024")
    expect(error, "8 times, exceeds the", "~wd.read(", "fewer pipeline stages")


def test_choice_that_this_version_cannot_fix() -> None:
    error = refused(wd.ConstraintError, gemm(schedule="schedule=wd.Schedule(cluster=2)"), "sm_80")
    assert "Schedule(cluster=" in error.message and "not available on sm_80" in error.message
    assert "stages" in error.hint and error.location is not None


@pytest.mark.parametrize(
    ("target", "rows", "message"),
    [
        ("gfx942", 512, "vector registers are live together, 256 are available on gfx942"),
        ("sm_80", 256, "registers per thread from trip to trip, sm_80 has 255 with 32 threads in a workgroup"),
    ],
)
def test_registers_that_do_not_fit(target: str, rows: int, message: str) -> None:
    """Not even with what scratch takes."""
    more = f"wd.WaveConstraint(M, {rows}), wd.WaveConstraint(N, 256)"
    source = gemm(tile=(rows, 256, 16), more=more)
    error = refused(wd.RegisterPressureError, source, target, f"M: {rows}, N: 256, K: 256")
    assert message in error.message and error.message.startswith("gemm: ")
    assert "smaller wave tile" in error.hint and "wd.TilingConstraint(N, 64)" in error.hint
    assert error.location is not None and error.location.text().strip() in str(error)
    assert "^^^" in str(error)


def test_dimension_held_whole_that_does_not_fit() -> None:
    source = """
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def gemm(a: wd.Memory[M, K, wd.f32], b: wd.Memory[M, K, wd.f32]):
        wd.write(wd.read(a), b)
    """
    error = refused(wd.RegisterPressureError, source, "gfx942", "M: 16, K: 1310720")
    message = "read: a workgroup's M=1 x K=1310720 elements of f32 are 1280 registers of each of its 1024 lanes"
    expect(error, message, "wd.read(a)", "loop over it: wd.TilingConstraint(K, 4096)")


def test_registers_of_a_tile_that_some_waves_hold_in_common() -> None:
    """The numbers of the message are those that give its registers: 32 warps, of which pairs have the same 64 rows."""
    source = """
    @wd.wave([wd.WorkgroupConstraint(M, 128, 0), wd.WaveConstraint(M, 64), wd.WorkgroupConstraint(N, 64, 1),
              wd.WaveConstraint(N, 32), wd.TilingConstraint(K, 512)])
    def gemm(a: wd.Memory[M, K, wd.f64], b: wd.Memory[M, N, wd.f64]):
        @wd.iterate(K, init_args=[wd.Register[M, wd.f64](0.0)])
        def total(t):
            return t + wd.sum(wd.read(a), dim=K)
        wd.write(wd.broadcast(total, M, N), b)
    """
    error = refused(wd.RegisterPressureError, source, "sm_80", "M: 96, N: 64, K: 1024")
    message = "read: a wave's M=64 x K=64 elements of f64 are 256 registers of each of its 32 lanes; sm_80 has 255"
    expect(error, message, "wd.read(a)", "smaller tiles of M")


def test_tiles_that_hints_name_are_shorter_than_the_dimension() -> None:
    """A loop of tiles of 4096 was said to help along 512 elements."""
    source = """
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 16, 1), wd.WaveConstraint(M, 16)])
    def gemm(a: wd.Memory[N, K, M, wd.i32], c: wd.Memory[N, K, M, wd.i32]):
        wd.write(wd.shuffle(wd.read(a), wd.index(N) // 2, N), c)
    """
    error = refused(wd.RegisterPressureError, source, "sm_80", "M: 64, N: 16, K: 512")
    expect(error, "registers of each of its", "wd.read(a)", "loop over it: wd.TilingConstraint(K, 32) and")


@pytest.mark.parametrize("line", ["wd.shuffle(wd.read(a), wd.read(places), N)", "wd.atomic_add(wd.read(a), sums)"])
def test_exchanges_that_shared_memory_does_not_hold(line: str) -> None:
    """They were called a defect of the compiler."""
    source = f"""
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 16, 1), wd.WaveConstraint(M, 16)])
    def gemm(
        a: wd.Memory[N, K, M, wd.i32], places: wd.Memory[M, N, wd.i32], sums: wd.Memory[N, K, M, wd.i32],
        c: wd.Memory[N, K, M, wd.i32],
    ):
        wd.write({line}, c)
    """
    error = refused(wd.ConstraintError, source, "gfx90a", "M: 64, N: 16, K: 32")
    what = line.removeprefix("wd.").partition("(")[0]
    expect(error, f"{what} exchanges 131072 bytes", line, "smaller tiles of its dimensions")
    assert "between the lanes of 4 waves, through shared memory; a workgroup of gfx90a has 65536" in error.message


@pytest.mark.parametrize(
    ("dims", "sizes", "hint"),
    [
        ("M, K", "M: 8192, K: 640", "give each workgroup a part: wd.WorkgroupConstraint(M, 4, 0)"),
        ("M", "M: 5242880", "give each workgroup a part: wd.WorkgroupConstraint(M, 1024, 0); or loop"),
    ],
)
def test_nothing_is_shared_among_workgroups(dims: str, sizes: str, hint: str) -> None:
    source = f"""
    @wd.wave([])
    def gemm(a: wd.Memory[{dims}, wd.f32], b: wd.Memory[{dims}, wd.f32]):
        wd.write(wd.read(a), b)
    """
    error = refused(wd.RegisterPressureError, source, "gfx942", sizes)
    expect(error, "read: a workgroup's M=", "wd.read(a)", hint)


def test_what_keeps_a_row_in_one_wave_is_named() -> None:
    """The hint was to give each workgroup a part of what has a workgroup each already."""
    source = """
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
    def gemm(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, K, wd.f32]):
        best, at = wd.topk(wd.read(a), K, dim=N)
        wd.write(best, b)
    """
    error = refused(wd.RegisterPressureError, source, "gfx942", "M: 16, N: 131072, K: 4")
    expect(error, "registers of each of its 64 lanes", "wd.read(a)", "loop over it: wd.TilingConstraint(N, ")
    assert error.message.endswith("; topk (line 8) keeps N in one wave")


def test_waves_that_the_user_counts_have_too_much() -> None:
    source = """
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.HardwareConstraint(waves_per_block=(4,))])
    def gemm(a: wd.Memory[M, K, wd.f32], b: wd.Memory[M, K, wd.f32]):
        wd.write(wd.read(a) - wd.max(wd.read(a), dim=K), b)
    """
    error = refused(wd.RegisterPressureError, source, "gfx942", "M: 16, K: 81920")
    assert "vector registers are live together" in error.message and error.location is not None


def test_dynamic_dimension_without_a_tile() -> None:
    cell = run("""
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def gemm(a: wd.Memory[M, K, wd.f32], b: wd.Memory[M, K, wd.f32]):
        wd.write(wd.read(a), b)
    """)
    with pytest.raises(wd.ConstraintError) as caught:
        cell["gemm"].compile(target="gfx942", subs={wd.sym.M: 16}, dynamic=(wd.sym.K,))
    message = "K is a run-time argument and has neither a workgroup nor a loop tile"
    expect(caught.value, message, "~wd.Memory[M, K, wd.f32]", "wd.TilingConstraint(K, <tile>)")


def test_a_kernel_that_writes_nothing() -> None:
    cell = run("""
    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def double(a: wd.Memory[M, wd.f32], b: wd.Memory[M, wd.f32]):
        x = wd.read(a) * wd.read(b)
    """)
    with pytest.raises(wd.TraceError) as caught:
        cell["double"].compile(target="gfx942", subs={wd.sym.M: 16})
    message = "kernel double writes nothing, so a call of it does nothing"
    expect(caught.value, message, "~def double(a: wd.Memory[M, wd.f32]", "wd.write(value, b)")


def test_dimension_without_a_value() -> None:
    error = refused(wd.ConstraintError, gemm(), "gfx942", "M: 256, N: 256")
    expect(error, "K has no value", "~wd.Memory[M, K, wd.SHARED, wd.f16]", "subs={K: …}")


def test_columns_that_no_constraint_cuts_are_shared_unless_waves_are_counted() -> None:
    """A product with a norm of its rows: four waves have a part of the columns each, as where the constraint says so;
    one wave that the user asks for has all of them, and is told what helps."""
    M, N, K = wd.symbols("M N K")

    def normed(*more: object) -> wd.Kernel:
        @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(K, 32), *more])
        def kernel(x: wd.Memory[M, K, wd.f16], w: wd.Memory[N, K, wd.f16], y: wd.Memory[M, N, wd.f32]):
            @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
            def loop(acc):
                return wd.mma(wd.read(x), wd.read(w), acc)

            wd.write(loop * wd.rsqrt(wd.sum(loop * loop, dim=N) / N + 1.0), y)

        return kernel

    sizes = {M: 32, N: 512, K: 64}
    one = wd.HardwareConstraint(waves_per_block=(1, 1, 1))
    with pytest.raises(wd.RegisterPressureError, match="carries 257 registers") as caught:
        normed(one).compile(target="sm_80", subs=sizes)
    assert "waves_per_block counts them" in str(caught.value)
    assert "wd.TilingConstraint(N, 64) and @wd.iterate(N, …)" in str(caught.value)
    assert normed().compile(target="sm_80", subs=sizes).block[0] == 128
    assert normed(wd.WorkgroupConstraint(N, 512, 1)).compile(target="sm_80", subs=sizes).block[0] == 128
