"""Cache hints and prefetching change no result, and are spelled as each chip spells them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree
from wavedsl.ir.kernel.kernel_eval import run

import wavedsl as wd
from wavedsl.targets import get_target

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")

LOADS = {
    "gfx90a": {"stream": "glc slc", "keep": "", "bypass": "glc"},
    "gfx942": {"stream": "nt", "keep": "", "bypass": "sc1"},
    "gfx950": {"stream": "nt", "keep": "", "bypass": "sc1"},
    "sm_80": {
        "stream": "L1::no_allocate.L2::cache_hint.L2::128B", "keep": "L2::cache_hint", "bypass": "cg",
    },
}  # fmt: skip
LOADS["sm_90a"] = LOADS["sm_80"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("hint", ["stream", "keep", "bypass"])
def test_a_hint_on_loads_and_stores(hint: str, target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 1), wd.WorkgroupConstraint(N, 512, 0)])
    def copy(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a, cache=hint) + 1.0, b, cache=hint)

    a = np.arange(3 * 1000, dtype=np.float32).reshape(3, 1000)
    text = agree(copy, [a, np.zeros_like(a)], target, oracle).asm
    want = LOADS[target][hint]
    if target.startswith("gfx"):
        assert all(line.endswith(f"offen {want}".strip()) for line in lines(text, "buffer_load"))
        stores = "" if (target, hint) == ("gfx90a", "bypass") else want
        assert all(line.endswith(f"offen {stores}".strip()) for line in lines(text, "buffer_store"))
    else:
        assert lines(text, f"ld.global.{want}.v4.b32") and not lines(text, "ld.global.v4")
        assert lines(text, f"st.global.{want.removesuffix('.L2::128B')}.v4.b32")
        assert len(lines(text, "createpolicy.fractional")) == (hint != "bypass")


def lines(text: str, start: str) -> list[str]:
    """Instructions that start so, without comments and guards."""
    found = (re.sub(r"\s*//.*", "", line).strip() for line in text.splitlines())
    return [x for x in (re.sub(r"^@!?%p\d+ ", "", line) for line in found) if x.startswith(start)]


def gemm(hints: tuple[str | None, str | None, str | None], schedule: wd.Schedule | None = None, mem: str = "SHARED"):
    space = getattr(wd, mem)

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK)],
        subs={BM: 64, BN: 64, BK: 64},
        schedule=schedule,
    )
    def product(a: wd.Memory[M, K, space, wd.f16], b: wd.Memory[N, K, space, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a, cache=hints[0]), wd.read(b, cache=hints[1]), acc)

        wd.write(loop, c, cache=hints[2])

    return product


def operands(m: int, n: int, k: int) -> list[np.ndarray]:
    rng = np.random.default_rng(m + k)
    a, b = (rng.integers(-3, 4, (rows, k)).astype(np.float16) for rows in (m, n))
    return [a, b, np.full((m, n), np.nan, np.float32)]


def test_hints_on_copies_to_shared_memory(oracle: Callable[[str], str]) -> None:
    text = agree(gemm(("stream", "keep", "stream")), operands(64, 64, 128), "sm_80", oracle).asm
    assert lines(text, "cp.async.cg.shared.global ") and not lines(text, "cp.async.cg.shared.global.L2::cache_hint ")
    assert len(lines(text, "createpolicy")) == 1  # for C: of copies with one, ptxas 13.0 can make illegal instructions
    text = agree(gemm(("bypass", None, None)), operands(64, 64, 128), "sm_80", oracle).asm
    assert not lines(text, "createpolicy")  # copies of 16 bytes pass by the first-level cache anyway
    text = agree(gemm(("stream", None, None)), operands(64, 64, 128), "gfx942", oracle).asm
    hinted = [" nt" in line for line in lines(text, "buffer_load")]
    assert any(hinted) and not all(hinted)


@pytest.mark.warpgroups
@pytest.mark.parametrize("schedule", [None, wd.Schedule(specialize=False)], ids=str)
def test_hints_on_bulk_copies(schedule: wd.Schedule | None, oracle: Callable[[str], str]) -> None:
    text = agree(gemm(("stream", "keep", "stream"), schedule), operands(64, 64, 128), "sm_90a", oracle).asm
    loads = lines(text, "cp.async.bulk.tensor.2d.shared::cluster")
    assert loads and all("L2::cache_hint" in x for x in loads)
    stores = lines(text, "cp.async.bulk.tensor.2d.global")
    assert stores and all("L2::cache_hint" in x for x in stores)


@pytest.mark.parametrize(
    ("target", "schedule", "sizes", "mem", "word"),
    [
        ("sm_90a", wd.Schedule(prefetch=2), (64, 64, 320), "SHARED", "cp.async.bulk.prefetch.tensor.2d.L2.global.tile"),
        ("sm_90a", wd.Schedule(prefetch=3, specialize=False), (64, 64, 128), "SHARED", "cp.async.bulk.prefetch"),
        ("sm_80", wd.Schedule(prefetch=2), (64, 64, 320), "SHARED", "prefetch.global.L2"),
        ("sm_80", wd.Schedule(prefetch=3, stages=2), (70, 40, 328), "SHARED", "prefetch.global.L2"),
        ("sm_80", wd.Schedule(prefetch=1), (64, 64, 130), "GLOBAL", "prefetch.global.L2"),
        ("sm_90a", wd.Schedule(prefetch=1), (70, 40, 133), "SHARED", "prefetch.global.L2"),
    ],
    ids=str,
)
def test_tiles_are_asked_for_ahead(
    target: str, schedule: wd.Schedule, sizes: tuple, mem: str, word: str, oracle: Callable[[str], str]
) -> None:
    compiled = agree(gemm((None, None, None), schedule, mem), operands(*sizes), target, oracle)
    assert lines(compiled.asm, word)


@pytest.mark.parametrize("sizes", [(70, 40, 136), pytest.param((70, 40, 520), marks=pytest.mark.slow)], ids=str)
def test_nothing_is_asked_for_beyond_the_array(sizes: tuple) -> None:
    """The emulator watches no prefetch; the interpreter of the kernel IR objects to one outside of its array."""
    compiled = gemm((None, None, None), wd.Schedule(prefetch=2, stages=2)).compile(
        target="sm_80", subs=dict(zip((M, N, K), sizes))
    )  # fmt: skip
    asked = [op for op in compiled.kernel_ir.body.walk() if op.name == "touch.global"]
    assert asked and any(op.args[3].const is None for op in asked)
    run(compiled.kernel_ir, operands(*sizes), grid=compiled.grid, target=get_target("sm_80"))
    masked = next(op for op in asked if op.args[3].const is None)
    always = next(op for op in compiled.kernel_ir.body.walk() if op.name == "const" and op.attrs["value"] is True)
    masked.args = (*masked.args[:3], always.results[0], *masked.args[4:])
    with pytest.raises(wd.CompileError, match=r"touch\.global past the end of its array"):
        run(compiled.kernel_ir, operands(*sizes), grid=compiled.grid, target=get_target("sm_80"))


@pytest.mark.parametrize("hint", ["streaming", 1, True])
def test_a_hint_that_is_none(hint: object) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0)])
    def copy(a: wd.Memory[M, wd.f32], b: wd.Memory[M, wd.f32]):
        wd.write(wd.read(a, cache=hint), b)

    with pytest.raises(wd.TraceError, match=f"read: cache={hint!r}") as caught:
        copy.compile(target="gfx942", subs={M: 64})
    assert "'stream', 'keep', 'bypass'" in str(caught.value) and caught.value.location is not None


def test_chips_without_prefetch_say_so() -> None:
    with pytest.raises(wd.ConstraintError, match=r"Schedule\(prefetch=2\) is not available on gfx942"):
        gemm((None, None, None), wd.Schedule(prefetch=2)).compile(target="gfx942", subs={M: 64, N: 64, K: 64})
    with pytest.raises(wd.ConstraintError, match="prefetch=0"):
        wd.Schedule(prefetch=0)
