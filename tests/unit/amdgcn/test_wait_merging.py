"""One wait serves several results where that costs nothing, and only there."""

from __future__ import annotations

import amdgcn_kernels as kernels
from wavedsl.codegen.amdgcn import get_target
from wavedsl.codegen.amdgcn.emit import compile_kernel_ir
from wavedsl.codegen.amdgcn.isa import Unit
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, I32

CHIP = "gfx942"


def waits(between: int, plain: bool = False) -> list[str]:
    """The waits of two loads that are used one after the other, with `between` instructions between the loads. `plain`:
    four waves store what they load as it is."""
    kernel = kernels.new_kernel("two", CHIP, ["x", "y"], 4 if plain else 1)
    b = Builder(kernel, get_target(CHIP))
    at = b.mul(b.tid(), 4)
    source, target = b.buffer(b.param(0), 4096), b.buffer(b.param(1), 4096)
    first = b.load_global(source, at, bytes=4, type=B32)
    work = b.tid()
    for i in range(between):
        work = b.xor(b.mul(work, 12345), 1 + i)
        b.store_shared(at, b.bitcast(work, B32), bytes=4)
    kernel.shared_bytes = 1024
    second = b.load_global(source, at, bytes=4, imm=1024, type=B32)
    for word, imm in ((first, 0), (second, 1024)):
        result = word if plain else b.bitcast(b.add(b.bitcast(word, I32), 1), B32)
        b.store_global(target, at, result, bytes=4, imm=imm)
    program = compile_kernel_ir(b.finish(), get_target(CHIP)).program
    found = [i.ops[0] for block in program.blocks for i in block.insts if i.row.unit is Unit.WAITCNT]
    return [counts for counts in found if "vm" in counts]


def test_loads_issued_together_are_waited_for_together() -> None:
    assert waits(0) == ["vmcnt(0)"]


def test_what_is_stored_does_not_wait_for_what_comes_next() -> None:
    """With the first store on its way, the second load is again the last but one."""
    assert waits(0, plain=True) == ["vmcnt(1)", "vmcnt(1)"]


def test_a_load_issued_much_later_is_not_waited_for_early() -> None:
    assert waits(40)[0] == "vmcnt(1)"


def counts_of_sums(additions: int) -> list[str]:
    """The waits of three loads issued together, each of which takes part in so many additions, one load after the
    other."""
    kernel = kernels.new_kernel("sums", CHIP, ["x", "y"], waves=4)
    b = Builder(kernel, get_target(CHIP))
    at = b.mul(b.tid(), 4)
    source, target = b.buffer(b.param(0), 1 << 16), b.buffer(b.param(1), 1 << 16)
    loads = [b.load_global(source, at, bytes=4, imm=1024 * i, type=B32) for i in range(3)]
    total = b.tid()
    for load in loads:
        for k in range(additions):
            total = b.xor(b.add(total, b.bitcast(load, I32)), k)
    b.store_global(target, at, b.bitcast(total, B32), bytes=4)
    program = compile_kernel_ir(b.finish(), get_target(CHIP)).program
    found = [i.ops[0] for block in program.blocks for i in block.insts if i.row.unit is Unit.WAITCNT]
    return [counts for counts in found if "vm" in counts]


def test_what_comes_in_turn_is_worked_on_in_turn() -> None:
    assert counts_of_sums(8) == ["vmcnt(2)", "vmcnt(1)", "vmcnt(0)"]


def test_a_wait_is_not_spent_for_one_instruction() -> None:
    assert counts_of_sums(1) == ["vmcnt(0)"]
