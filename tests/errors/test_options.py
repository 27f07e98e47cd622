"""An option by another language's name, a misspelt one, or a call that does not fit: named, with the right one."""

from __future__ import annotations

import array
import dataclasses
import inspect

import pytest
from wavedsl.ir.options import option, with_options

import wavedsl as wd
from wavedsl import schedule

M = wd.sym.M


@wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
def copy(x: wd.Memory[M, wd.f32], y: wd.Memory[M, wd.f32]):
    wd.write(wd.read(x), y)


def traced(body):
    """The error of a kernel whose value is what `body` makes of x."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def kernel(x: wd.Memory[M, wd.f32], y: wd.Memory[M, wd.f32]):
        wd.write(body(x), y)

    with pytest.raises(wd.WaveError) as caught:
        kernel.trace()
    assert caught.value.location is not None and caught.value.location.file == __file__
    return caught.value


@pytest.mark.parametrize(
    "call, message, hint",
    [
        (lambda: wd.Schedule(num_stages=3), "wd.Schedule has no option num_stages", "stages=…; it has stages, "),
        (lambda: wd.Schedule(num_warps=4), "wd.Schedule has no option num_warps", "wd.WaveConstraint(M, BM / 4)"),
        (lambda: wd.Schedule(stagse=3), "wd.Schedule has no option stagse", "stages=…"),
        (lambda: wd.Schedule(splitK=3), "wd.Schedule has no option splitK", "split_k=…"),
        (lambda: wd.Schedule(waves_per_eu=2), "wd.Schedule has no option waves_per_eu", "compiled.resources.occupancy"),
        (lambda: wd.Schedule(colour=3), "wd.Schedule has no option colour", "wd.Schedule(stages=, specialize=, "),
        (lambda: wd.strategies.matmul(1, 2, 3, out=4), "wd.strategies.matmul has no option out", "c=…; it has a, b, c"),
        (lambda: wd.strategies.matmul(1, 2), "wd.strategies.matmul lacks c", "(a, b, c, alpha="),
        (lambda: wd.strategies.tuned_matmul(1, 2, 3, trans_a=True), "has no option trans_a", "a.T"),
        (lambda: wd.strategies.grouped_matmul(1, 2, 3, 4, transb=True), "has no option transb", "transpose_b=…"),
        (lambda: wd.strategies.matmul(1, 2, 3, split_k=4), "has no option split_k", 'strategy="split_k"; it has'),
        (lambda: wd.strategies.grouped_matmul(1, 2, 3, 4, split_k=4), "has no option split_k", "wd.strategies.grouped"),
        (lambda: wd.wave([], num_warps=4), "wd.wave has no option num_warps", "wd.WaveConstraint(M, BM / 4)"),
        (lambda: wd.wave([], num_stages=4), "wd.wave has no option num_stages", "schedule=wd.Schedule(stages=…)"),
        (lambda: wd.wave([], split_k=4), "wd.wave has no option split_k", "schedule=wd.Schedule(split_k=…)"),
        (lambda: wd.wave([], sub={M: 4}), "wd.wave has no option sub", "subs=…; it has constraints, subs, "),
        (lambda: wd.wave([], {M: 4}), "wd.wave takes at most 1 argument without names, got 2", "wd.wave(constraints="),
        (lambda: wd.WorkgroupConstraint(M, 64), "wd.WorkgroupConstraint lacks axis", "(dim, tile, axis)"),
        (lambda: wd.WorkgroupConstraint(M), "wd.WorkgroupConstraint lacks tile and axis", "(dim, tile, axis)"),
        (lambda: wd.WorkgroupConstraint(M, 64, workgroup_dim=0), "no option workgroup_dim", "axis=…"),
        (lambda: wd.WaveConstraint(M, block_size=64), "wd.WaveConstraint has no option block_size", "tile=…"),
        (lambda: wd.TilingConstraint(M, 4, tile=4), "wd.TilingConstraint got two values for tile", "(dim, tile)"),
        (lambda: wd.TilingConstraint(M, 4, 1), "wd.TilingConstraint takes at most 2 arguments", "(dim, tile)"),
        (lambda: wd.HardwareConstraint(num_warps=4), "has no option num_warps", "waves_per_block"),
        (lambda: wd.symbols("M", "N"), "wd.symbols takes at most 1 argument without names", 'wd.symbols("M N K")'),
        (lambda: wd.symbols("M", positive=True), "wd.symbols has no option positive", 'wd.symbols("M N K")'),
        (lambda: wd.symbols(3), "symbols(3)", 'wd.symbols("M N K")'),
        (lambda: wd.IndexMapping((M,), inputs={M: M + 1}), "no option inputs", "indices=…"),
        (lambda: wd.IndexMapping(), "wd.IndexMapping lacks dims", "wd.IndexMapping((T, D), {V: wd.read(ids)})"),
        (lambda: wd.testing.do_bench(print, grad_to_none=[]), "no option grad_to_none", "nothing: a kernel makes no"),
        (lambda: wd.testing.do_bench(print, percentiles=[0.5]), "no option percentiles", "quantiles=…"),
        (lambda: wd.testing.do_bench(), "wd.testing.do_bench lacks fn", "wd.testing.do_bench(fn, warmup="),
        (lambda: copy.trace(target="sm_80"), "kernel.trace has no option target", "kernel.compile(…, target=…)"),
        (lambda: wd.HardwareConstraint(warp_size=32), "no option warp_size", "threads_per_wave=…"),
    ],
)
def test_names_the_right_option(call, message, hint):
    with pytest.raises(wd.WaveError) as caught:
        call()
    assert message in caught.value.message and hint in caught.value.hint
    assert caught.value.location is not None and caught.value.location.file == __file__
    assert caught.value.__cause__ is None and (caught.value.__suppress_context__ or not caught.value.__context__)


def test_what_fits_is_as_it_was():
    assert wd.Schedule(stages=3) == wd.Schedule(3) == dataclasses.replace(wd.Schedule(), stages=3)
    assert list(inspect.signature(wd.WorkgroupConstraint).parameters) == ["dim", "tile", "axis", "loc"]
    assert list(inspect.signature(wd.wave).parameters)[:2] == ["constraints", "subs"]


def test_a_type_error_of_another_kind_stays_one():
    @with_options()
    def longer(x):
        return len(x)

    with pytest.raises(TypeError, match="has no len"):
        longer(3)


def test_a_cluster_that_is_no_shape():
    """It ended in Python's TypeError."""
    with pytest.raises(wd.ConstraintError, match=r"cluster=2\.5"):
        wd.Schedule(cluster=2.5)


@pytest.mark.parametrize("name", schedule.ELSEWHERE)
def test_synonyms_are_options_or_say_how(name):
    known = [f.name for f in dataclasses.fields(wd.Schedule)]
    assert name not in known
    said = option(name, known, schedule.ELSEWHERE)
    assert said.removesuffix("=…") in known or " " in said


@pytest.mark.parametrize(
    "body, hint",
    [
        (lambda x: wd.read(x, element_per_thread=4), "elements_per_thread=…: wd.read(mem, *, mapping=None, "),
        (lambda x: wd.read(x, cache_modifier=".cg"), "cache=…: wd.read("),
        (lambda x: wd.read(x, boundary_check=(0,)), "what lies beyond an end is left out by itself"),
        (lambda x: wd.mma(wd.read(x), wd.read(x), allow_tf32=True), "precision=…: wd.mma("),
        (lambda x: wd.mma(wd.read(x), wd.read(x), out_dtype=wd.f32), "acc=wd.Register[M, N, wd.f32](0.0)"),
        (lambda x: wd.max(wd.read(x), dim=M, return_indices=True), "wd.argmax(x, dim=N)"),
        (lambda x: wd.iterate(M, init_args=[], num_stages=3), "schedule=wd.Schedule(stages=3)"),
        (lambda x: wd.iterate(M, init_arg=[]), "init_args=…: wd.iterate("),
        (lambda x: wd.exp(wd.read(x), eviction_policy="evict_first"), "wd.exp(x"),
        (lambda x: wd.cast(wd.read(x), wd.f16, fp_downcast_rounding="rtz"), "rounding=…: wd.cast("),
    ],
)
def test_of_an_operation(body, hint):
    """The signature alone was the help, of which each reader had to find the option."""
    assert hint in traced(body).hint


def test_what_is_no_plain_function():
    """It was called, and its generator or coroutine was what the kernel had returned."""

    async def waits(x: wd.Memory[M, wd.f32]):
        pass

    def yields(x: wd.Memory[M, wd.f32]):
        yield x

    for function, said in ((waits, "waits is async"), (yields, "yields has a yield")):
        with pytest.raises(wd.TraceError, match=said):
            wd.wave([wd.WorkgroupConstraint(M, 64, 0)])(function)


def test_an_array_of_another_package_is_named_with_it():
    """`a is a array, not an array`."""
    with pytest.raises(wd.LaunchError, match=r"x is an array\.array, not an array") as caught:
        copy(array.array("f", [1.0]), array.array("f", [1.0]))
    assert "numpy.asarray(…)" in caught.value.hint
