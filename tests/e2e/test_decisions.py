"""The record of what was decided for a kernel: reviewed as text, checked against the kernel IR."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import hopper
import pytest
from hopper import tiles
from products import BF16, F16, K, M, N
from wavedsl.ir.regions.decisions import Atom, problems

import wavedsl as wd

GOLDEN = Path(__file__).parents[1] / "golden" / "decisions"
SIZES = {M: 4096, N: 4096, K: 4096}
CASES: dict[str, tuple[str, dict[Any, int], dict[str, Any]]] = {
    "sm_90a_gemm": ("sm_90a", tiles(128, 256, 64, 64, 256), {"kind": BF16}),
    "sm_90a_computed_operands": (
        "sm_90a", tiles(128, 128, 64, 64, 128), {"kind": F16, "stored": (wd.i8, wd.i8), "epilogue": "alpha beta"},
    ),
    "sm_90a_swapped": ("sm_90a", tiles(32, 128, 64, 32, 64), {"kind": BF16, "stored": (None, wd.i8)}),
    "sm_80_gemm": ("sm_80", tiles(128, 128, 64, 64, 64), {"kind": F16, "lanes": None}),
    "gfx942_gemm": ("gfx942", tiles(128, 128, 32, 64, 64), {"kind": F16, "lanes": None}),
}  # fmt: skip


def compiled(name: str) -> wd.CompiledKernel:
    target, subs, options = CASES[name]
    found: wd.CompiledKernel = hopper.gemm(**options).compile(target=target, subs={**subs, **SIZES})
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_record_is_the_reviewed_one(name: str) -> None:
    found = compiled(name)
    assert found.decisions is not None and found.kernel_ir is not None and found.graph is not None
    path, text = GOLDEN / f"{name}.txt", found.decisions.text()
    if os.environ.get("WAVEDSL_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "look at the difference, and run with WAVEDSL_UPDATE_GOLDEN=1"
    assert problems(found.decisions, found.kernel_ir) == []
    for n in found.graph.all_nodes():
        assert (found.decisions.atom(n.id) is not None) >= (n.op in ("read", "write", "mma"))
    assert found.decisions.needs.shared_bytes == found.shared_bytes
    assert found.decisions.needs.threads == found.block[0]


def test_a_wrong_record_is_noticed() -> None:
    """Each thing that the record says, said wrongly."""
    found = compiled("sm_90a_computed_operands")
    record, kernel = found.decisions, found.kernel_ir
    assert record is not None and kernel is not None
    first, second = record.buffers[:2]

    def wrong(**changes: Any) -> str:
        return "; ".join(problems(replace(record, **changes), kernel))

    def needs(**changes: Any) -> str:
        return wrong(needs=replace(record.needs, **changes))

    assert "overlaps another" in wrong(buffers=(first, replace(second, offset=first.offset + 1), *record.buffers[2:]))
    assert f"buffer {second.name} has no assignment" in wrong(buffers=(first, *record.buffers[2:]))
    assert "has no 3 equal slots" in wrong(buffers=(replace(first, slots=3), *record.buffers[1:]))
    assert "the kernel copies by copy.bulk, copy.bulk.store" in needs(async_copies=("copy.bulk",))
    assert "the kernel multiplies by F32_64x128x16_F16" in needs(tensor_cores=())
    assert "bytes of shared memory" in needs(shared_bytes=record.needs.shared_bytes + 16)
    assert "nothing of the kernel is copy.async" in wrong(atoms=(*record.atoms, Atom(99, "", ("copy.async",), "")))


def test_a_compile_checks_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    import wavedsl.ir.lower_kernel as lower

    build = lower.decisions
    monkeypatch.setattr(lower, "decisions", lambda low: replace(build(low), buffers=()))
    with pytest.raises(wd.CompileError, match=r"the record of gemm is wrong: buffer \w has no assignment"):
        hopper.gemm(F16, epilogue="", lanes=None, schedule=wd.Schedule(stages=2)).compile(
            target="gfx942", subs={**tiles(64, 64, 32, 32, 32), **SIZES}
        )
