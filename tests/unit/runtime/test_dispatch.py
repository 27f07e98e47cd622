"""Calls that have been made before: what they notice of arrays, extents, values from outside and tuned choices."""

from __future__ import annotations

import ctypes
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from scenarios import N_ITEMS, There, main, run_there, source_address
from selected import slow_but


def changes_are_noticed(there: There) -> None:
    for name in ("torch", "cupy"):
        there.load(name)
    for kind in there.kinds():
        source, out, x, y = there.pair(kind)
        there.called(source, out, N_ITEMS, long=1)
        assert (y == 2 * x).all()
        for _ in range(3):
            y[:] = -1
            there.called(source, out, N_ITEMS, long=0)
            assert (y == 2 * x).all(), kind
        there.called(source, out, n=7, long=0)
        there.called(n=7, out=out, source=source, long=0)
        # Other arrays with the same facts, at other addresses.
        other, into, x, y = there.pair(kind)
        there.called(other, into, N_ITEMS, long=0)
        assert (y == 2 * x).all()
        # The same objects are asked again in every call: an extent that has changed is seen.
        for changed in (other, into):
            changed.shape = (60,)
        y[:] = -1
        there.called(other, into, 60, long=1)
        assert (y[:60] == 2 * x[:60]).all()
        there.called(other, into, 60, long=0)
        # Strides.
        address, _ = there.memory(2 * N_ITEMS)
        strided = there.array(kind, address, (N_ITEMS,), (2,))
        there.called(strided, out, N_ITEMS, long=1)
        # Alignment: 4 bytes on.
        address, _ = there.memory(N_ITEMS + 1)
        there.called(there.array(kind, address + 4, (N_ITEMS,)), out, N_ITEMS, long=1)
        there.called(there.array(kind, address + 8, (N_ITEMS,)), out, N_ITEMS, long=1)
        # What is wrong is said although all else was seen before.
        there.refused(there.array(kind, address, (N_ITEMS,), dtype="int32"), out, N_ITEMS, match="dtype int32")
        there.refused(source, source, N_ITEMS, match="overlaps")
        there.refused(source, there.array(kind, source_address(source) + 16, (N_ITEMS,)), N_ITEMS, match="overlaps")
        there.refused(source, out, 1 << 31, match="does not fit|an integer from")
        there.refused(source, out, "7", match="Scalar")
        there.refused(there.array(kind, 1 << 50, (N_ITEMS,)), out, N_ITEMS, match="48 bits")
        there.refused(there.array(kind, 0, (N_ITEMS,)), out, N_ITEMS, match="no memory: its address is 0")
        there.refused(source, out, source, match="`?n`? is an? .*, but is declared Scalar")
        there.refused(source, out, np.zeros(3), match="n is a numpy.ndarray, but is declared Scalar")
        # Classes of numbers are told apart, and each has a way.
        there.called(source, out, np.int64(50), long=1)
        there.called(source, out, np.int64(50), long=0)
        there.called(source, out, True, long=1)
    class Flaky(there.arrays.Dlpack):
        """It gives capsules to the long way, and none any more when the call is to be remembered."""

        def __dlpack__(self, **options):
            if len(self.told) >= 3:
                raise RuntimeError("no more")
            return super().__dlpack__(**options)

    source, out, x, y = there.pair("dlpack")
    source = Flaky(source.pointer, source.shape, source.strides, device_type=there.place)
    there.called(source, out, N_ITEMS, long=1)  # it has been launched: it does not fail
    assert (y == 2 * x).all()
    there.refused(source, out, N_ITEMS, match="does not export its memory: no more")
    source, out, *_ = there.pair("torch")
    there.refused(there.array("torch", source.data_ptr(), (N_ITEMS,), requires_grad=True), out, 5, match="gradient")
    there.refused(there.array("torch", source.data_ptr(), (N_ITEMS,), negative=True), out, 5, match="negated")
    if there.side == "cuda":
        source, out, *_ = there.pair("interface")
        locked = there.array("interface", out.pointer, (N_ITEMS,), readonly=True)
        there.refused(source, locked, 5, match="read-only")


def guards_are_tried_before_keys(there: There) -> None:
    """Tensors like those of an earlier call are told by torch's guards, and whatever guards say, launches are right."""
    from wavedsl.runtime.dispatch import RECENT, RENEWED

    import wavedsl as wd

    there.load("torch")
    guards = there.arrays.TensorGuards

    def told():
        return sum(guard.told for guard in guards.made)

    def guarded(*arguments):
        """Whether a call of the short way found its plan by a guard."""
        before = told()
        there.called(*arguments, arguments[0].shape[0], long=0)
        return told() > before

    source, out, x, y = there.pair()
    there.called(source, out, N_ITEMS, long=1)
    guarded(source, out)  # makes the guard
    for _ in range(3):
        y[:] = -1
        assert guarded(source, out) and (y == 2 * x).all()
    for other in (there.pair(), there.pair()):  # at other addresses
        assert guarded(*other[:2]) and (other[3] == 2 * other[2]).all()
    # Addresses count as ever.
    address, view = there.memory(N_ITEMS + 8)
    view[:] = -1
    skewed = there.array("torch", address + 4, (N_ITEMS,))
    there.called(source, skewed, N_ITEMS, long=1)
    view[:] = -1
    there.called(source, skewed, N_ITEMS, long=0)
    assert (view[1 : N_ITEMS + 1] == 2 * x).all() and view[0] == -1
    there.refused(source, there.array("torch", 0, (N_ITEMS,)), N_ITEMS, match="null|address|memory")
    there.refused(source, source, N_ITEMS, match="overlaps `source`")
    there.refused(source, there.pair(requires_grad=True)[0], N_ITEMS, match="grad")
    there.refused(source, there.pair(negative=True)[0], N_ITEMS, match="neg")
    # Shapes in turn, at addresses of their own: all are found so. At one address, sizes tell them apart.
    pairs = [there.pair(count=N_ITEMS + 16 * i) for i in range(1, RECENT + 4)]
    room = there.pair(count=2 * N_ITEMS)
    for n in (N_ITEMS + 8, N_ITEMS + 24, 2 * N_ITEMS):
        pairs.append([*(there.array("torch", z.data_ptr(), (n,)) for z in room[:2]), *(z[:n] for z in room[2:])])
    for a, b, x, _ in pairs:
        there.called(a, b, len(x), long=1)
        there.called(a, b, len(x), long=0)  # makes the guard
    for a, b, x, y in pairs * 2:
        y[:] = -1
        assert guarded(a, b) and (y == 2 * x).all()
    # New addresses in every call: the plan that was found last is tried.
    for _ in range(3 * RENEWED):
        guarded(*there.pair()[:2])
    source, out, x, y = there.pair()
    keys = len(guards.made)
    assert guarded(source, out) and (y == 2 * x).all() and len(guards.made) == keys
    # Another class of numbers is another way, and calls go back and forth.
    for n in (np.int32(N_ITEMS), N_ITEMS, np.int32(7)):
        there.kernel(source, out, n)
        there.called(source, out, n, long=0)
    # So is another class of tensors.
    for _ in range(2):
        parameter = there.arrays.Parameter(source, requires_grad=False)
        there.kernel(parameter, out, N_ITEMS)
        assert guarded(source, out)
    there.called(there.arrays.Parameter(source, requires_grad=False), out, N_ITEMS, long=0)
    there.refused(there.arrays.Parameter(source), out, N_ITEMS, match="grad")
    # A context of one's own has plans of its own.
    if there.side == "cuda":
        driver = there.driver()
        there.own_context(driver)
        there.called(source, out, N_ITEMS, long=1)
        driver._call("cuCtxPopCurrent")
        assert guarded(source, out)
    # A torch whose guards do not tell what a call depends on, or that has none: keys do.
    from wavedsl.runtime import tensor_guard

    class Forgetful(guards):
        def check(self, *tensors):
            return [t.shape for t in tensors] == [facts[3] for facts in self._facts]

    for torch_has in (types.SimpleNamespace(TensorGuards=Forgetful), types.SimpleNamespace()):
        there.load("torch")
        sys.modules["torch"]._C._dynamo.guards = torch_has
        tensor_guard._tell.cache_clear()
        there.kernel.dispatch.forget()
        source, out, x, y = there.pair()
        there.called(source, out, N_ITEMS, long=1)
        for _ in range(3):
            y[:] = -1
            assert not guarded(source, out) and (y == 2 * x).all()
    tensor_guard._tell.cache_clear()
    # A tensor that is there twice is refused by guards; others with the same extents are not.
    there.load("torch")
    os.environ["STANDIN_IDLE"] = "1"
    N, BN = wd.symbols("N BN")

    @wd.wave([wd.WorkgroupConstraint(N, BN, 0)], subs={BN: 64})
    def added(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32], out: wd.Memory[N, wd.f32], n: wd.Scalar[wd.i32]):
        wd.write(wd.where(wd.index(N) < n, wd.read(a) + wd.read(b), 0.0), out)

    there.kernel = added
    (a, b, *_), (out, *_) = there.pair(), there.pair()
    there.called(a, a, out, N_ITEMS, long=1)
    made = len(guards.made)
    assert not any(guarded(a, a, out) for _ in range(RENEWED - 1))
    assert len(guards.made) <= made + 4  # tried out, and sampled
    for _ in range(RENEWED + 1):
        guarded(a, b, out)
    assert guarded(a, b, out) and not guarded(a, a, out) and guarded(a, b, out)
    del os.environ["STANDIN_IDLE"]


def capsules_are_checked(there: There) -> None:
    """What is no capsule, or one of another name, goes the long way, which says so."""
    source, out, x, y = there.pair("dlpack")

    class Switching(there.arrays.Dlpack):
        """It gives what it is told to."""

        answer = None

        def __dlpack__(self, **options):
            made = super().__dlpack__(**options)
            return made if self.answer is None else self.answer(self)

    given = Switching(source.pointer, source.shape, source.strides, device_type=there.place)
    there.called(given, out, N_ITEMS, long=1)
    there.called(given, out, N_ITEMS, long=0)

    def named(name):
        lasting.append(ctypes.create_string_buffer(name))
        return lambda array: new(ctypes.addressof(array.keep[1]), ctypes.addressof(lasting[-1]), None)

    lasting: list = []
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    given.answer = named(b"dltensor")  # the same name elsewhere
    y[:] = -1
    there.called(given, out, N_ITEMS, long=0)
    assert (y == 2 * x).all()
    for answer in (named(b"used_dltensor"), named(b"d"), lambda _: 5, lambda _: None, lambda _: "dltensor"):
        given.answer = answer
        there.refused(given, out, N_ITEMS, match="exports no DLPack tensor")
    # A name that is written over in place, as by a producer that reuses its memory.
    given = Switching(source.pointer, source.shape, source.strides, device_type=there.place)
    given.answer = named(b"dltensor")
    there.kernel.dispatch.forget()
    there.called(given, out, N_ITEMS, long=1)
    there.called(given, out, N_ITEMS, long=0)
    buffer = ctypes.create_string_buffer(64)
    buffer.value = b"dltensor"
    given.answer = lambda array: new(ctypes.addressof(array.keep[1]), ctypes.addressof(buffer), None)
    written_over = given
    there.kernel.dispatch.forget()
    there.called(given, out, N_ITEMS, long=1)
    there.called(given, out, N_ITEMS, long=0)
    # A capsule with a version: its flags are read in each call.
    address, _ = there.memory()
    given = there.arrays.Versioned(source.pointer, (N_ITEMS,), (1,), device_type=there.place)
    result = there.arrays.Versioned(address, (N_ITEMS,), (1,), device_type=there.place)
    for long in (1, 0):
        there.called(given, result, N_ITEMS, long=long)
    given.flags = 1
    for long in (1, 0):
        there.called(given, result, N_ITEMS, long=long)
    result.flags = 1
    there.refused(given, result, N_ITEMS, match="read-only")
    given.shape = result.shape = (50,)
    result.flags = 0
    there.called(given, result, 50, long=1)
    buffer.value = b"used_dltensor"
    there.refused(written_over, out, N_ITEMS, match="exports no DLPack tensor")


def run_time_extents(there: There) -> None:
    """New extents of run-time dimensions are launched as the long way launches them: grid, parameters, refusals."""
    from wavedsl.ir.errors import LaunchError
    from wavedsl.runtime.ways import Ways

    import wavedsl as wd

    there.load("torch")
    os.environ["STANDIN_IDLE"] = "1"
    M, N, K = wd.symbols("M N K")
    cuda = there.side == "cuda"

    @wd.wave([wd.WorkgroupConstraint(M, 8, 1), wd.WorkgroupConstraint(N, 64, 0)], dynamic=[M, N])
    def scaled(
        a: wd.Memory[M, N, wd.f32], row: wd.Memory[N, wd.f32], c: wd.Memory[M, N, wd.f32], by: wd.Scalar[wd.f32]
    ):
        wd.write(wd.read(a) * wd.broadcast(wd.read(row), [M, N]) * by, c)

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)], dynamic=[M]
    )
    def product(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        acc = wd.Register[M, N, wd.f32](0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    launched = []
    driver = there.driver()
    once = driver.prepared

    def recorded(function, block, params):
        start = once(function, block, params)

        def spied(stream, grid):
            sizes = [p.size for p in next(iter(there.launch._COMPILED[kernel].values())).params]
            pointers = (ctypes.c_void_p * len(sizes)).from_address(params)
            launched.append((grid, [ctypes.string_at(at, size) for at, size in zip(pointers, sizes)]))
            start(stream, grid)

        return spied

    driver.prepared = recorded
    place = [there.memory(1 << 16)[0] for _ in range(3)]

    def matrix(i, rows, columns, pitch=None, dtype="float32", kind="torch"):
        return there.array(kind, place[i], (rows, columns), (pitch or columns, 1), dtype=dtype)

    def pair(m, n, pitch=None, kind="torch"):
        return [matrix(0, m, n, pitch, kind=kind), there.array(kind, place[1], (n,)), matrix(2, m, n, kind=kind), 0.5]

    def operands(m, pitch=96):
        return [matrix(0, m, 96, pitch, "float16"), matrix(1, 128, 96, None, "float16"), matrix(2, m, 128)]

    def both(arguments, long):
        """By the way that is expected, and by the long way: the same launch."""
        before = there.long
        kernel(*arguments)
        assert there.long - before == long, (there.long - before, long)
        ways, kernel.dispatch.ways = kernel.dispatch.ways, Ways()
        kernel.ways = Ways()
        kernel(*arguments)
        kernel.ways = kernel.dispatch.ways = ways
        assert launched[-1] == launched[-2]

    kernel = scaled
    for kind in there.kinds():
        both(pair(24, 160, kind=kind), 1)
        for m, n, pitch in ((25, 160, None), (200, 48, None), (40, 96, 128), (64, 320, 640), (24, 160, None)):
            both(pair(m, n, pitch, kind), 0)
        kernel(*pair(31, 168, kind=kind))  # divides by 8 only: another text
        both(pair(33, 136, kind=kind), 0)
    for m in (1, 0):  # strides of such say nothing
        kernel(*pair(m, 160))
    transposed = pair(24, 160)
    transposed[2] = there.array("torch", place[2], (24, 160), (1, 24))
    kernel(*transposed)
    for wrong, match in (
        ([*pair(56, 160)[:2], *pair(64, 160)[2:]], "`c` has 64|dimension M is 64 in argument `c`, but 56"),
        ([pair(56, 160)[0], *pair(56, 176)[1:]], "N is 176|dimension N"),
        ([*pair(56, 160)[:2], matrix(2, 56, 160, 80), 0.5], "share memory"),
        ([*pair(56, 160)[:2], there.array("torch", place[0] + 640, (56, 160)), 0.5], "overlaps `a`"),
    ):
        with pytest.raises(LaunchError, match=match):
            kernel(*wrong)
    kernel = product
    both(operands(100), 1)
    for m, pitch in ((101, 96), (65, 104), (330, 96), (100, 96)):
        both(operands(m, pitch), int(pitch == 104))
    maps = [p for p in next(iter(there.launch._COMPILED[kernel].values())).params if p.map is not None]
    assert bool(maps) == cuda
    with pytest.raises(LaunchError, match=r"M is 80|dimension M"):
        kernel(*operands(72)[:2], matrix(2, 80, 128))
    driver.prepared = once


def tuned_kernels(there: There) -> None:
    """The choice of a tuned kernel is looked up once per bucket, and again when it has been tuned."""
    import types

    import wavedsl as wd
    from wavedsl.tuning import Candidate, tuned_kernel

    there.load("torch")
    os.environ["STANDIN_IDLE"] = "1"
    M, BM = wd.symbols("M BM")
    tiles, looked_up = {"M<=16": 4, "M>16": 16}, []

    shift = 0.0

    @wd.autotune({BM: [4, 8, 16]}, results=Path("none.tuning.json"))
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0)], dynamic=[M], buckets={M: (16,)})
    def copied(source: wd.Memory[M, wd.f32], out: wd.Memory[M, wd.f32], by: wd.Scalar[wd.f32]):
        wd.write(wd.read(source) * by + shift, out)

    def look_up(target, bucket):
        looked_up.append(bucket)
        return Candidate((("BM", tiles[bucket]),))

    copied._look_up = look_up
    address, into = there.memory(1 << 10)[0], there.memory(1 << 10)[0]

    def call(m, grid, long, **keywords):
        before = there.long
        copied(there.array("torch", address, (m,)), there.array("torch", into, (m,)), **(keywords or {"by": 2.0}))
        assert f" grid {grid} 1 1 " in Path(os.environ["STANDIN_LOG"]).read_text().splitlines()[-1]
        assert there.long - before == long, (m, there.long - before)

    calls = ((16, 4, 1), (16, 4, 0), (48, 3, 1), (64, 4, 0), (16, 4, 0), (32, 2, 0), (12, 3, 1), (4, 1, 0), (8, 2, 1))
    for m, grid, long in calls:  # 4 and 12 divide alike, and are of one bucket
        call(m, grid, long)
    assert looked_up == ["M<=16", "M>16"]
    call(80, 5, 1, by=1)
    once, tiles["M>16"] = tuned_kernel.tune, 8
    target = there.driver().device.target
    tuned_kernel.tune = lambda *_, **__: types.SimpleNamespace(target=target, bucket="M>16")
    copied.tune()
    tuned_kernel.tune = once
    for m, grid, long in ((48, 6, 1), (64, 8, 0), (16, 4, 1)):
        call(m, grid, long)
    seen = shift
    for shift in (1.0, float("1.0"), 2.0):
        call(16, 4, int(shift != seen))  # a variable that the kernel reads has changed, or is an equal one
        call(16, 4, 0)
        seen = shift


def values_from_outside(there: There) -> None:
    """A variable that the kernel reads has changed: the call compiles for it. An equal one changes nothing."""
    import wavedsl as wd

    N = wd.sym.N
    by, compiled = 2.0, []

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def times(source: wd.Memory[N, wd.f32], out: wd.Memory[N, wd.f32], n: wd.Scalar[wd.i32]):
        compiled.append(by)
        wd.write(wd.where(wd.index(N) < n, wd.read(source) * by, 0.0), out)

    there.kernel = times
    source, out, *_ = there.pair()
    for value, long in ((2.0, 1), (2.0, 0), (float("2.0"), 0), (3.0, 1), (3.0, 0)):
        by = value
        there.called(source, out, N_ITEMS, long=long)
    assert compiled == [2.0, 3.0]
    bound = times.bind(source, out, N_ITEMS)
    by = 4.0
    bound()  # as it was bound
    assert compiled == [2.0, 3.0]


def tensor_maps(there: There) -> None:
    """Made once per address, with the arguments that the prototypes of the installed bindings name, and passed by
    value; an error of the driver is a LaunchError."""
    if there.side == "hip":
        return
    import hopper
    from products import BF16, TILE
    from wavedsl.ir.errors import LaunchError
    from wavedsl.runtime.tensor_map import DATA_TYPES, PROMOTIONS, SWIZZLES

    import wavedsl as wd

    there.load("torch")
    os.environ["STANDIN_IDLE"] = "1"
    log = Path(os.environ["STANDIN_LOG"])
    log.write_text("")
    driver = there.driver()
    passed = []
    once = driver.prepared

    def recorded(function, block, params):
        start, pointers = once(function, block, params), (ctypes.c_void_p * 3).from_address(params)

        def spied(stream, grid):
            passed.append([ctypes.c_uint64.from_address(pointer).value for pointer in pointers])
            start(stream, grid)

        return spied

    driver.prepared = recorded
    tiles = dict(zip(TILE, (64, 128, 64, 64, 128)))
    kernel = hopper.gemm(BF16, schedule=wd.Schedule(specialize=True)).variant(Choice(tiles))
    m, n, k = 256, 384, 512

    def operands():
        shapes = ((m, k), (n, k), (m, n))
        return [there.array("torch", there.memory(a * b)[0], (a, b), dtype="bfloat16")
                for i, (a, b) in enumerate(shapes)]  # fmt: skip

    def made() -> list[str]:
        found = [line for line in log.read_text().splitlines() if "Encode" in line]
        log.write_text("")
        return found

    first, second = operands(), operands()
    kernel(*first)
    maps = made()
    assert len(maps) == 3
    for line, (rows, columns), box_rows in zip(maps, ((m, k), (n, k), (m, n)), (64, 128, 64)):
        kind, size = DATA_TYPES["bf16"], 2
        width = 128 // size
        assert line == (
            f"cuTensorMapEncodeTiled type {kind} rank 2 address given sizes {columns} {rows} strides {columns * size} "
            f"box {width} {box_rows} steps 1 1 interleave 0 swizzle {SWIZZLES[128]} "
            f"promotion {PROMOTIONS[128]} fill 0"
        )
    for arrays, new in ((first, 0), (second, 3), (first, 0), (second, 0)):
        kernel(*arrays)
        assert len(made()) == new
        # The stand-in's maps start with the address.
        assert passed[-1] == [array.data_ptr() for array in arrays]
    bound = kernel.bind(*second)
    made()
    bound()
    assert made() == [] and passed[-1] == [array.data_ptr() for array in second]
    # A kernel that waits for the launch in front itself is launched with the attribute that lets it begin early.
    log.write_text("")
    dependent = hopper.gemm(BF16, schedule=wd.Schedule(dependent=True)).variant(Choice(tiles))
    dependent(*first)
    dependent(*first)
    dependent.bind(*first)()
    kernel(*first)
    attributes = [line for line in log.read_text().splitlines() if "Launch" in line or "attribute" in line]
    assert [line.split(" attrs ")[1] for line in attributes if "Launch" in line] == [
        "1 extra (nil)", "1 extra (nil)", "1 extra (nil)", "0 extra (nil)"
    ]  # fmt: skip
    assert attributes.count("attribute 6 = 1") == 3
    # The same classes of arrays, but a text with other parameters: what lies askew is not copied in bulk.
    askew = operands()
    askew[0] = there.array("torch", there.memory(m * k)[0] + 2, (m, k), dtype="bfloat16")
    for arrays, long in ((askew, 1), (first, 0), (askew, 0), (second, 0)):
        before = there.long
        dependent(*arrays)
        assert there.long - before == long
    assert passed[-2][0] == askew[0].data_ptr() and passed[-1] == [array.data_ptr() for array in second]
    os.environ["STANDIN_FAIL"] = "cuTensorMapEncodeTiled:1:0"
    with pytest.raises(LaunchError, match=r"cuTensorMapEncodeTiled failed: CUDA_ERROR_INVALID_VALUE \(1\): as the"):
        kernel(*operands())


class Choice:
    """A tuning candidate, as `Kernel.variant` takes one."""

    def __init__(self, subs):
        self.subs = subs.items()

    def fields(self):
        return {}


SCENARIOS = (
    changes_are_noticed,
    guards_are_tried_before_keys,
    capsules_are_checked,
    run_time_extents,
    tuned_kernels,
    values_from_outside,
    tensor_maps,
)


@pytest.mark.parametrize("side", slow_but(["cuda", "hip"], "cuda"))
def test_calls(side, standins, tmp_path):
    assert run_there(__file__, side, standins, tmp_path) == [f.__name__ for f in SCENARIOS]


if __name__ == "__main__":
    main(SCENARIOS)
