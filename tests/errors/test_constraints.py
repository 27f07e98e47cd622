"""Constraints that cannot be: each is a ConstraintError with the symbol, the user's line and the legal values."""

from __future__ import annotations

import numpy as np
import pytest
from source import assert_points_at, run
from wavedsl.ir.dataflow.constraints import resolve_constraints
from wavedsl.ir.symbols import DYNAMIC

import wavedsl as wd

# (name, constraints, subs beside the sizes, message, underlined, hint)
RESOLUTION = [
    ("wave-does-not-divide", "wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, 24)", {"BM": 64},
     "WaveConstraint(M, 24): a wave tile of 24 does not divide the workgroup's 64 elements of M",
     "wd.WaveConstraint(M, 24)", "legal wave tiles are 1, 2, 4, 8, 16, 32, 64"),
    ("wave-does-not-divide-loop",
     "wd.WorkgroupConstraint(M, BM, 0), wd.TilingConstraint(N, BM), wd.WaveConstraint(N, 24)", {"BM": 64},
     "WaveConstraint(N, 24): a wave tile of 24 does not divide the loop tile's 64 elements of N",
     "wd.WaveConstraint(N, 24)", "legal wave tiles are 1, 2, 4, 8, 16, 32, 64"),
    ("too-many-waves", "wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, 2)", {"BM": 64},
     "WaveConstraint(M, 2): 64 / 2 = 32 waves, but a workgroup has at most 16", "wd.WaveConstraint(M, 2)",
     "legal wave tiles are 4, 8, 16, 32, 64"),
    ("too-many-in-product",
     "wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BM, 1), wd.WaveConstraint(M, 8), "
     "wd.WaveConstraint(N, 8)",
     {"BM": 64}, "64 waves (8 along M × 8 along N), but a workgroup has at most 16", "wd.WaveConstraint(N, 8)",
     "larger wave tiles"),
    ("fraction", "wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, BM / 3)", {"BM": 64},
     "WaveConstraint(M, BM/3): the tile BM/3 is 64/3 with BM = 64, not a whole number", "wd.WaveConstraint(M, BM / 3)",
     "whole number"),
    ("unbound-tile", "wd.WorkgroupConstraint(M, BM, 0)", {}, "WorkgroupConstraint(M, BM, 0): BM has no value",
     "wd.WorkgroupConstraint(M, BM, 0)", "subs={BM: …}"),
    ("zero-tile", "wd.WorkgroupConstraint(M, BM, 0)", {"BM": 0}, "WorkgroupConstraint(M, BM, 0): the tile is 0",
     "wd.WorkgroupConstraint(M, BM, 0)", "at least 1"),
    ("dynamic-tile", "wd.WorkgroupConstraint(M, BM, 0)", {"BM": DYNAMIC},
     "WorkgroupConstraint(M, BM, 0): the tile BM depends on a dynamic dimension", "wd.WorkgroupConstraint(M, BM, 0)",
     "compile-time"),
    ("waves-per-block",
     "wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, 16), wd.HardwareConstraint(waves_per_block=(2, 1, 1))",
     {"BM": 64}, "waves_per_block=(2, 1, 1) asks for 2 waves, but the WaveConstraints make 4 (4 along M)",
     "wd.HardwareConstraint(waves_per_block=(2, 1, 1))", "give (4, 1, 1)"),
    ("waves-per-block-order",
     "wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, 16), wd.HardwareConstraint(waves_per_block=(1, 4, 1))",
     {"BM": 64}, "waves_per_block=(1, 4, 1) divides the workgroup differently",
     "wd.HardwareConstraint(waves_per_block=(1, 4, 1))", "give (4, 1, 1)"),
    ("waves-per-block-of-trips",
     "wd.WorkgroupConstraint(M, 1, 0), wd.TilingConstraint(N, 32), wd.HardwareConstraint(waves_per_block=8)",
     {}, "waves_per_block=(8,) asks for 8 waves, but the tiles along the grid's axes give 1",
     "wd.HardwareConstraint(waves_per_block=8)", "a trip's tile of 32: wd.WaveConstraint(N, 4)"),
    ("waves-per-block-limit", "wd.WorkgroupConstraint(M, BM, 0), wd.HardwareConstraint(waves_per_block=(8, 4))",
     {"BM": 64}, "waves_per_block=(8, 4) asks for 32 waves, but a workgroup has at most 16",
     "wd.HardwareConstraint(waves_per_block=(8, 4))", "a product of at most 16"),
]  # fmt: skip


def _kernel(constraints: str) -> wd.Kernel:
    return run(
        f"""
        @wd.wave([{constraints}])
        def kernel(a: wd.Memory[M, N, wd.f32]):
            wd.write(wd.read(a), a)
        """
    )["kernel"]


@pytest.mark.parametrize(
    ("constraints", "subs", "message", "underlined", "hint"),
    [c[1:] for c in RESOLUTION],
    ids=[c[0] for c in RESOLUTION],
)
def test_resolution(constraints: str, subs: dict, message: str, underlined: str, hint: str) -> None:
    kernel = _kernel(constraints)
    values = {wd.sym.M: 100, wd.sym.N: 100, **{getattr(wd.sym, k): v for k, v in subs.items()}}
    with pytest.raises(wd.ConstraintError) as raised:
        resolve_constraints(kernel, values, max_waves=16)
    assert raised.value.message.startswith(message), raised.value.message
    assert hint in raised.value.hint
    assert_points_at(raised.value, underlined)


def test_waves_that_share_rows_are_no_waves_of_the_grid() -> None:
    kernel = _kernel("wd.WorkgroupConstraint(M, 1, 0), wd.HardwareConstraint(waves_per_block=8)")
    with pytest.raises(wd.ConstraintError) as raised:
        kernel.compile(target="gfx942", subs={wd.sym.M: 100, wd.sym.N: 100})
    wanted = "for 8 waves that share a row: wd.WorkgroupConstraint(N, 128, 1) and wd.WaveConstraint(N, 16)"
    assert wanted in raised.value.hint


def test_a_tile_that_python_divided() -> None:
    """128 / 4 is 32.0, as BM / 4 of a symbol is 32."""
    assert run("x = wd.WaveConstraint(M, 128 / 4)\n")["x"].tile == 32


def test_a_derived_tile_must_be_whole() -> None:
    kernel = run(
        """
        @wd.wave([wd.TilingConstraint(K, 48), wd.WorkgroupConstraint(M, 16, 0)])
        def kernel(a: wd.Memory[M, K / 32, wd.f32]):
            wd.write(wd.read(a), a)
        """
    )["kernel"]
    resolved = resolve_constraints(kernel.trace(), {wd.sym.M: 16, wd.sym.K: 96})
    with pytest.raises(wd.ConstraintError, match="a tile of 48 elements of K is 3/2 elements of K/32") as raised:
        resolved[wd.sym.K / 32]
    assert "or read the array as IndexMapping((…, K), {K/32: K // 32})" in str(raised.value)


# (name, source of one statement, message, underlined)
CONSTRUCTION = [
    ("axis", "wd.WorkgroupConstraint(M, BM, 3)", "WorkgroupConstraint(M, …): axis 3"),
    ("dim", "wd.TilingConstraint('K', 32)", "TilingConstraint: 'K' is not a dimension"),
    ("negative-tile", "wd.WaveConstraint(M, -1)", "WaveConstraint: a tile of -1 elements"),
    ("float-tile", "wd.TilingConstraint(K, 0.5)", "TilingConstraint: the tile 0.5 is neither"),
    ("lanes", "wd.HardwareConstraint(threads_per_wave=48)", "HardwareConstraint: threads_per_wave=48"),
    ("waves", "wd.HardwareConstraint(waves_per_block=(0, 1, 1))", "HardwareConstraint: waves_per_block=(0, 1, 1)"),
    ("vector", "wd.HardwareConstraint(vector_shapes={M: -4})", "HardwareConstraint: vector_shapes has -4 for M"),
    ("mma", "wd.HardwareConstraint(mma_type=16)", "HardwareConstraint: mma_type=16 names no matrix instruction"),
    ("mma-name", "wd.MMAType.F32_16x16x16", "MMAType.F32_16x16x16: no such matrix instruction"),
    ("stages", "wd.Schedule(stages=0)", "Schedule: stages=0"),
    ("registers", "wd.Schedule(registers=(20, 240))", "Schedule: registers=(20, 240)"),
    ("cluster", "wd.Schedule(cluster=(2, 0))", "Schedule: cluster=(2, 0)"),
]


@pytest.mark.parametrize(("source", "message"), [c[1:] for c in CONSTRUCTION], ids=[c[0] for c in CONSTRUCTION])
def test_construction(source: str, message: str) -> None:
    with pytest.raises(wd.ConstraintError) as raised:
        run(f"x = {source}\n")
    assert raised.value.message.startswith(message), raised.value.message
    assert raised.value.hint
    assert_points_at(raised.value, source)


@pytest.mark.parametrize("source", ["wd.WorkgroupConstraint(M, 16, 0, 1)", "wd.TilingConstraint(K, 16, 1)"])
def test_an_argument_too_many(source: str) -> None:
    """It became the constraint's location, of which no error could be printed."""
    with pytest.raises(wd.ConstraintError, match=r"takes at most \d arguments without names"):
        run(f"x = {source}\n")


def test_the_evaluator_points_at_the_operation_that_has_no_size() -> None:
    space = run(
        """
        @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1)])
        def kernel(a: wd.Memory[M, wd.i32]):
            wd.write(wd.sum(wd.read(a) + wd.index(N), dim=N), a)
        """
    )
    with pytest.raises(wd.ConstraintError, match="N has no value") as raised:
        space["kernel"].evaluate(np.zeros(3, np.int32))
    assert_points_at(raised.value, "wd.index(N)")


def test_a_misspelt_matrix_instruction_names_close_ones() -> None:
    with pytest.raises(wd.ConstraintError) as raised:
        wd.MMAType.f32_16x16x16_f16  # noqa: B018
    assert "F32_16x16x16_F16" in raised.value.hint


LISTS = [
    ("not-a-constraint", "[M]", "wave: M is not a constraint"),
    ("not-a-list", "5", "wave: 5 is not a list of constraints"),
    ("twice", "[wd.TilingConstraint(K, 32), wd.TilingConstraint(K, 16)]", "wave: two TilingConstraints for K"),
    ("wave-without-workgroup", "[wd.WaveConstraint(M, 16)]", "WaveConstraint(M, 16): M has no WorkgroupConstraint"),
    ("loop-and-workgroup", "[wd.WorkgroupConstraint(K, 32, 0), wd.TilingConstraint(K, 16)]",
     "TilingConstraint(K, 16): K is also spread over workgroups"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "message"), [c[1:] for c in LISTS], ids=[c[0] for c in LISTS])
def test_lists(source: str, message: str) -> None:
    with pytest.raises(wd.ConstraintError) as raised:
        run(f"@wd.wave({source})\ndef kernel(a: wd.Memory[M, wd.f32]):\n    pass\n")
    assert raised.value.message.startswith(message), raised.value.message
    assert raised.value.location is not None and raised.value.hint


SUBS = [
    ("subs={BM: 'x'}", "subs binds BM to 'x'"),
    ("subs={BM: 1.5}", "subs binds BM to 1.5"),
    ("subs={BM: M / 2}", "subs binds BM to M/2"),
    ("subs={BM: -1}", "subs binds BM to -1"),
    ("subs={BM: BN}", "subs binds BM to BN"),
    ("subs={BM: BN, BN: BM}", "subs binds BM to"),
    ("subs=[BM]", "subs is [BM]"),
    ("subs={5: 5}", "subs has 5 as a key"),
    ("dynamic=['M']", "dynamic has 'M'"),
    ("dynamic=5", "dynamic=5"),
    ("schedule='fast'", "wave: schedule='fast'"),
]


@pytest.mark.parametrize(("source", "message"), SUBS)
def test_bindings(source: str, message: str) -> None:
    with pytest.raises(wd.ConstraintError) as raised:
        run(f"@wd.wave([], {source})\ndef kernel(a: wd.Memory[M, wd.f32]):\n    pass\n")
    assert raised.value.message.startswith(message), raised.value.message
    assert raised.value.hint


def test_forgotten_brackets() -> None:
    for decorator in ("@wd.wave", "@wd.wave()"):
        with pytest.raises(wd.ConstraintError, match="needs its constraints"):
            run(f"{decorator}\ndef kernel(a: wd.Memory[M, wd.f32]):\n    pass\n")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: wd.HardwareConstraint(vector_shapes=[16]), r"vector_shapes=\[16\]"),
        (lambda: wd.HardwareConstraint(waves_per_block="many"), "waves_per_block='many'"),
        (lambda: wd.Schedule(direct_to_shared="yes"), "direct_to_shared='yes'"),
        (lambda: wd.Schedule(dependent=3), "dependent=3"),
    ],
    ids=["vector-shapes", "waves", "choice", "count"],
)
def test_options_of_another_type(make, said: str) -> None:
    with pytest.raises(wd.ConstraintError, match=said):
        make()


@pytest.mark.parametrize("target", ["gfx942", "sm_90a"])
def test_all_of_a_dimension_that_is_cut_for_a_loop(target: str) -> None:
    """Outside of a loop over it one tile is not the dimension; where the tile holds it all, it is."""
    m, n = wd.symbols("M N")

    @wd.wave([wd.WorkgroupConstraint(m, 8, 0), wd.TilingConstraint(n, 16)])
    def kernel(a: wd.Memory[m, n, wd.f32], b: wd.Memory[m, wd.f32]):
        wd.write(wd.sum(wd.read(a), dim=n), b)

    with pytest.raises(wd.ConstraintError, match="read: all of N is meant outside of a loop over it") as raised:
        kernel.compile(subs={m: 8, n: 50}, target=target)
    assert_points_at(raised.value, "wd.read(a)")
    assert "@wd.iterate(N, …)" in raised.value.hint
    kernel.compile(subs={m: 8, n: 16}, target=target)


@pytest.mark.parametrize(
    ("choice", "target", "said"),
    [
        ({"specialize": True}, "gfx942", "is not available on gfx942"),
        ({"specialize": True}, "sm_80", "is not available on sm_80"),
        ({"stream_k": True}, "gfx942", "split_k also cuts those behind wd.exit_if"),
    ],
)
def test_choices_that_an_exit_stands_against(choice: dict, target: str, said: str) -> None:
    """Messages named an operation of the graph, or spoke of a condition around a loop that stands behind an exit."""
    m, n, k = wd.symbols("M N K")

    @wd.wave(
        [wd.WorkgroupConstraint(m, 64, 0), wd.WorkgroupConstraint(n, 64, 1), wd.TilingConstraint(k, 64)],
        schedule=wd.Schedule(**choice),
    )
    def kernel(
        a: wd.Memory[m, k, wd.f16], b: wd.Memory[n, k, wd.f16], c: wd.Memory[m, n, wd.f32], by: wd.Scalar[wd.i32]
    ):  # fmt: skip
        wd.exit_if(by + wd.tile_start(m) < 0)

        @wd.iterate(k, init_args=[wd.Register[m, n, wd.f32](0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    with pytest.raises(wd.ConstraintError, match=said):
        kernel.compile(subs={m: 128, n: 128, k: 128}, target=target)
