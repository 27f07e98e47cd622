"""`@wd.autotune`: calls that tune, calls that find a pinned choice, and what happens where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tune_kernels as tk

import wavedsl as wd
from wavedsl.tuning import Candidate, TunedKernel
from wavedsl.tuning.results import TuningWarning
from wavedsl.tuning.tuner import Steps

M, N, BM, BN = wd.symbols("M N BM BN")
FAKE = Steps(tk.instant, tk.right, tk.measured)


def make(results: Path, buckets=None, **options) -> TunedKernel:
    merged = {"steps": FAKE, "workers": 1, "budget": 30.0, **options}

    @wd.autotune({BM: [4, 16], BN: [64]}, results=results, **merged)
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], buckets=buckets)
    def triple(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * 3.0, b)

    return triple


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "triple.tuning.json"


def arrays(m: int = 20, n: int = 130) -> tuple[np.ndarray, np.ndarray]:
    a = np.random.default_rng(m).standard_normal((m, n)).astype(np.float32)
    return a, np.full_like(a, np.nan)


def test_the_first_call_tunes_and_the_next_process_finds_it(results):
    triple = make(results)
    a, b = arrays()
    triple(a, b)
    np.testing.assert_array_equal(b, 3 * a)
    assert triple.choice(a, b) == Candidate((("BM", 4), ("BN", 64)))
    again = make(results, steps=Steps(tk.forbidden, tk.forbidden, tk.forbidden))
    assert again.choice(a, b).key == "BM=4 BN=64"
    b[:] = 0
    again.bind(a, b)()
    np.testing.assert_array_equal(b, 3 * a)


def test_a_choice_pinned_by_hand_holds(results):
    triple = make(results)
    triple.tune(subs={M: 20, N: 130})
    data = json.loads(results.read_text())
    (entry,) = data["kernels"]["triple"]["gfx942"]["MI300X"].values()
    entry["pinned"]["subs"]["BM"] = 16
    results.write_text(json.dumps(data))
    triple = make(results, on_miss="raise")
    compiled = triple.compile(target="gfx942", subs={M: 20, N: 130})
    assert triple.choice(subs={M: 20, N: 130}).key == "BM=16 BN=64"
    assert compiled.grid[0] == 2


def test_a_pinned_choice_of_strange_symbols_is_reported(results):
    triple = make(results)
    triple.tune(subs={M: 20, N: 130})
    results.write_text(results.read_text().replace('"BM": 4', '"BX": 4'))
    with pytest.warns(TuningWarning, match="binds BX"), pytest.raises(wd.LaunchError, match="no pinned choice"):
        make(results, on_miss="raise").choice(*arrays())


def test_buckets_share_a_choice(results):
    triple = make(results, buckets={M: (16, 64)}, on_miss="raise")
    triple.tune(subs={M: 40, N: 130})
    assert triple.choice(*arrays(17)).key == triple.choice(*arrays(64)).key == "BM=4 BN=64"
    with pytest.raises(wd.LaunchError, match=r"M<=16 N=130"):
        triple.choice(*arrays(16))
    with pytest.raises(wd.LaunchError, match=r"M>64 N=130"):
        triple.choice(*arrays(65))


def test_strict_mode_does_not_tune(results, monkeypatch):
    monkeypatch.setenv("WAVEDSL_STRICT", "1")
    triple = make(results)
    a, b = arrays()
    with pytest.raises(wd.LaunchError, match="no pinned choice for gfx942"):
        triple(a, b)
    assert not results.exists() and np.isnan(b).all()


def test_the_default_takes_the_decorator_s_tiles(results):
    @wd.autotune(results=results, on_miss="default")
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BM: 8, BN: 64})
    def triple(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * 3.0, b)

    a, b = arrays()
    triple(a, b)
    np.testing.assert_array_equal(b, 3 * a)
    assert not results.exists()
    want = b.copy()
    triple.evaluate(a, b)
    np.testing.assert_array_equal(b, want)


def test_no_usable_candidate_is_an_error_with_the_reasons(results):
    triple = make(results, steps=Steps(tk.forbidden, tk.right, tk.measured))
    with pytest.raises(wd.LaunchError, match="no candidate is usable: AssertionError"):
        triple(*arrays())


def test_mistakes_in_the_declaration():
    with pytest.raises(wd.ConstraintError, match="on_miss='maybe'"):
        wd.autotune(on_miss="maybe")
    with pytest.raises(wd.TraceError, match="decorates a kernel"):
        wd.autotune()(lambda a: None)
    with pytest.raises(wd.ConstraintError, match="sizes no tile"):
        wd.autotune({wd.sym.QQ: [1]})(tk.double)
    with pytest.raises(wd.ConstraintError, match="search space is empty"):
        wd.autotune({BM: []})(tk.double)
    assert isinstance(wd.autotune(tk.double), TunedKernel)


@pytest.mark.parametrize(
    ("buckets", "why"),
    [
        ({M: (64, 16)}, "ascending"),
        ({M: ()}, "ascending"),
        ({M: 16}, "ascending"),
        ({"M": (16,)}, "keys are"),
        (3, "a dict"),
    ],
)
def test_buckets_that_cannot_be(buckets, why):
    with pytest.raises(wd.ConstraintError, match=why):
        wd.wave([wd.WorkgroupConstraint(M, BM, 0)], buckets=buckets)(lambda a: None)
