"""Constraints in numbers, and the names of matrix instructions."""

import pytest
from wavedsl.ir.dataflow.constraints import divisors, resolve_constraints
from wavedsl.ir.symbols import DYNAMIC, evaluate, scale_of

import wavedsl as wd

M, N, K, H, BM, BN = wd.symbols("M N K H BM BN")


def _kernel(*constraints: object) -> wd.Kernel:
    @wd.wave(list(constraints))
    def kernel(a: wd.Memory[H, M, N, wd.f32], b: wd.Memory[N, K / 32, wd.f32]):
        wd.write(wd.read(a), a)

    return kernel


def test_resolution() -> None:
    kernel = _kernel(
        wd.WorkgroupConstraint(N, BN, 1),
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(H, 1, 2),
        wd.TilingConstraint(K, 64),
        wd.WaveConstraint(M, BM / 4),
        wd.HardwareConstraint(vector_shapes={M: 16, N: 0}, threads_per_wave=64),
    )
    resolved = resolve_constraints(kernel.trace(), {M: 100, N: DYNAMIC, K: 256, H: 3, BM: 64, BN: 32})
    assert list(resolved.dims) == [M, N, H, K]
    m, n, h, k = (resolved[d] for d in (M, N, H, K))
    assert (m.extent, m.workgroup, m.axis, m.wave, m.waves, m.vector, m.tile) == (100, 64, 0, 16, 4, 16, 64)
    assert (n.extent, n.workgroup, n.wave, n.waves, n.vector) == (DYNAMIC, 32, None, None, 1)
    assert (h.index, h.waves, h.workgroup) == (True, 1, 1)
    assert (k.loop, k.tile, k.workgroup, k.extent) == (64, 64, None, 256)
    assert (resolved[K / 32].loop, resolved[K / 32].extent) == (2, 8)
    assert resolved.waves is None and resolved.hardware.threads_per_wave == 64


def test_waves_of_a_workgroup() -> None:
    kernel = _kernel(
        wd.WorkgroupConstraint(M, 64, 0),
        wd.WorkgroupConstraint(N, 64, 1),
        wd.WaveConstraint(M, 32),
        wd.WaveConstraint(N, 16),
        wd.HardwareConstraint(waves_per_block=(2, 4)),
    )
    assert resolve_constraints(kernel, {M: 64, N: 64}, max_waves=16).waves == 8


def test_divisors() -> None:
    assert divisors(1) == [1] and divisors(12) == [1, 2, 3, 4, 6, 12] and divisors(49) == [1, 7, 49]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("F32_16x16x16_F16", (wd.f32, 16, 16, 16, 1, wd.f16, wd.f16)),
        ("F32_32x32x16_F8E4M3FNUZ", (wd.f32, 32, 32, 16, 1, wd.f8e4m3fnuz, wd.f8e4m3fnuz)),
        ("F32_64x256x16_BF16", (wd.f32, 64, 256, 16, 1, wd.bf16, wd.bf16)),
        ("F32_4x4x4_16B_F16", (wd.f32, 4, 4, 4, 16, wd.f16, wd.f16)),
        ("F32_16x16x32_F8E4M3FNUZ_F8E5M2FNUZ", (wd.f32, 16, 16, 32, 1, wd.f8e4m3fnuz, wd.f8e5m2fnuz)),
        ("I32_16x16x64_I8", (wd.i32, 16, 16, 64, 1, wd.i8, wd.i8)),
    ],
)
def test_mma_names(name: str, parts: tuple) -> None:
    mma = getattr(wd.MMAType, name)
    assert (mma.result, mma.m, mma.n, mma.k, mma.blocks, mma.a, mma.b) == parts
    assert str(mma) == name and mma is getattr(wd.MMAType, name)


def test_listed_mma_names_parse() -> None:
    assert len(dir(wd.MMAType)) > 40
    for name in dir(wd.MMAType):
        assert getattr(wd.MMAType, name).name == name


def test_expressions() -> None:
    assert evaluate(M / 2, {M: 8}) == 4 and str(evaluate(M / 2, {M: 7})) == "7/2"
    assert evaluate(M * N, {M: 3, N: DYNAMIC}) is DYNAMIC
    assert str(evaluate(M * N, {M: 3})) == "3*N"
    assert scale_of(K / 32, K) == evaluate(K / 32, {}) / K
    assert scale_of(K + 1, K) is None and scale_of(M, K) is None and scale_of(M * K, K) == M


def test_symbols() -> None:
    assert wd.symbols("M,N K") == (wd.sym.M, wd.sym.N, wd.sym.K)
    assert wd.symbols("M") == (wd.sym.M,)
    assert wd.sym.M.is_nonnegative and wd.sym.M.is_integer
    assert wd.sym.M.is_positive is None, "an index may be 0"
    with pytest.raises(wd.ConstraintError, match="got no names"):
        wd.symbols("")
    with pytest.raises(wd.ConstraintError, match="is not a name"):
        wd.symbols("2M")


def test_schedule_lists_what_is_fixed() -> None:
    assert str(wd.Schedule(stages=3, cluster=2)) == "Schedule(stages=3, cluster=(2,))"
