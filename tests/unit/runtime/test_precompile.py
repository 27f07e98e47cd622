"""No surprise compiles: `precompile`, WAVEDSL_STRICT, and the line that says why a call compiled."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import wavedsl as wd

M, N, BM, BN = wd.symbols("M N BM BN")


def make(factor: float, **options):
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BM: 8, BN: 64}, **options)
    def scaled(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * factor, b)

    return scaled


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path))


def arrays(m: int, n: int = 64):
    return np.ones((m, n), np.float32), np.zeros((m, n), np.float32)


@pytest.fixture
def strict(monkeypatch):
    monkeypatch.setenv("WAVEDSL_STRICT", "1")


def test_strict_mode_raises_instead_of_compiling(strict):
    kernel = make(2.0)
    a, b = arrays(16)
    with pytest.raises(wd.LaunchError, match="WAVEDSL_STRICT") as error:
        kernel(a, b)
    assert "first call in this process" in str(error.value) and "precompile" in str(error.value)
    assert (b == 0).all()
    assert kernel.compile(a, b, target="gfx942").target == "gfx942"  # what is asked for is no surprise


def test_precompiled_shapes_run_and_others_do_not(strict):
    kernel = make(3.0)
    (compiled,) = kernel.precompile(subs={M: 16, N: 64})
    assert compiled.target == "gfx942"
    a, b = arrays(16)
    kernel(a, b)
    assert (b == 3).all()
    with pytest.raises(wd.LaunchError, match=r"`a` has shape \(17, 64\), not \(16, 64\)"):
        kernel(*arrays(17))
    with pytest.raises(wd.LaunchError, match="`a` has strides"):
        kernel(np.ones((16, 128), np.float32)[:, ::2], arrays(16)[1])


def test_precompile_takes_arrays_and_several_sizes(strict):
    kernel = make(4.0)
    assert len(kernel.precompile(*arrays(8))) == 1
    assert len(kernel.precompile(subs=[{M: 16, N: 64}, {M: 24, N: 64}, {M: 16, N: 64}])) == 2
    for m in (8, 16, 24):
        a, b = arrays(m)
        kernel(a, b)
        assert (b == 4).all()


def test_a_kernel_in_the_cache_on_disk_is_no_compile(strict):
    make(5.0).precompile(subs={M: 16, N: 64})
    a, b = arrays(16)
    make(5.0)(a, b)  # another kernel object of the same source: a new process would do the same
    assert (b == 5).all()


@pytest.mark.parametrize("target", ["gfx950", "sm_80"])
def test_precompile_for_another_target(strict, monkeypatch, target):
    kernel = make(6.0)
    (compiled,) = kernel.precompile(subs={M: 16, N: 64}, target=target)
    assert compiled.target == target
    monkeypatch.setenv("WAVEDSL_DEVICE", f"emulator:{target}")
    a, b = arrays(16)
    kernel(a, b)
    assert (b == 6).all()


def test_one_precompile_covers_a_dynamic_dimension(strict):
    kernel = make(7.0, dynamic=[M], buckets={M: (64, 1024)})
    found = kernel.precompile(subs={N: 64})
    assert len(found) == 1
    for m in (1, 7, 16, 33, 128):
        a, b = arrays(m)
        kernel(a, b)
        assert (b == 7).all()


def test_a_dynamic_inner_dimension_has_a_text_per_class(strict):
    kernel = make(8.0, dynamic=[M, N])
    assert len(kernel.precompile()) == 5  # by what divides N; the text does not depend on M
    for m, n in ((16, 64), (17, 64), (16, 65), (5, 33), (3, 34), (4, 36), (2, 40)):
        a, b = arrays(m, n)
        kernel(a, b)
        assert (b == 8).all()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "M, N has no extent"),
        ({"subs": {M: 16}}, "N has no extent"),
        ({"subs": {M: 16, N: 64, BM: 4}}, "BM is no dimension"),
        ({"subs": {M: 16, N: 64}, "target": "sm_12"}, "unknown target"),
    ],
)
def test_precompile_without_sizes(arguments, why):
    with pytest.raises(wd.ConstraintError, match=why):
        make(9.0).precompile(**arguments)


def test_arrays_and_subs_together_are_a_mistake():
    a, b = arrays(16)
    with pytest.raises(wd.ConstraintError, match="not both"):
        make(9.0).precompile(a, b, subs={M: 16})


def test_every_compile_says_why(caplog):
    caplog.set_level(logging.INFO, "wavedsl")
    kernel = make(10.0)
    kernel(*arrays(16))
    kernel(*arrays(16))
    kernel(*arrays(24))
    kernel.precompile(subs={M: 32, N: 64})
    make(10.0)(*arrays(16))
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 4
    assert "compiled scaled for gfx942 in" in said[0] and said[0].endswith("first call in this process")
    assert said[1].endswith("`a` has shape (24, 64), not (16, 64); `b` has shape (24, 64), not (16, 64)")
    assert said[2].endswith("it was asked for")
    assert "comes from the cache on disk" in said[3]


def test_the_log_prints_where_it_is_asked_to(monkeypatch, capsys):
    make(11.0)(*arrays(16))
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("WAVEDSL_LOG", "1")
    make(12.0)(*arrays(16))
    assert capsys.readouterr().err.startswith("wavedsl: compiled scaled for gfx942 in")
    monkeypatch.setenv("WAVEDSL_LOG", "0")
    make(13.0)(*arrays(16))
    assert capsys.readouterr().err == ""


def test_another_order_in_memory_is_said_as_strides(caplog):
    """What divides run-time extents is relied on where they are contiguous, which is not what the user changed."""
    caplog.set_level(logging.INFO, "wavedsl")
    kernel = make(11.0, dynamic=[M])
    kernel(*arrays(32))
    a, b = arrays(32)
    kernel(np.asfortranarray(a), b)
    said = [r.getMessage() for r in caplog.records]
    assert said[1].endswith("`a` has strides (4, 128), not (256, 4)")
