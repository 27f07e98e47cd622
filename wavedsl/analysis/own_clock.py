"""The clock at which a kernel runs: what a chip's power limit leaves to the tensor cores that it keeps busy.

In: the product and what plays a kernel on an `SmModel`. Out: what is played at the kernel's own clock, in clocks of the
product's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wavedsl.analysis.played import Played
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.product import Product
from wavedsl.runtime.emulator.cycle_chips import SMS, ChipModel, SmModel, varied

PRODUCTS_OF_MATRIX = frozenset(("matrix.start", "mma", "mma.scaled"))
"""Ops that keep tensor cores busy."""
SAME = 0.02
"""By what share a clock may be off the one that the power limit leaves before a kernel is replayed again."""


def sm_of(product: Product, clock: float | None = None) -> SmModel | None:
    """The table's chip with a product's SMs, memory and L2 while its SMs run at `clock` Hz (default: the product's);
    None for chips without an `SmModel`. L2 and memory have clocks of their own."""
    chip = SMS.get(product.target)
    if chip is None:
        return None
    clock = clock or product.clock
    return replace(
        chip, units=product.units, gigahertz=clock / 1e9, dram_rate=product.reached * product.hbm / clock,
        l2_rate=chip.l2_rate * product.clock / clock,
    )  # fmt: skip


def model_of_product(product: Product) -> ChipModel:
    """The table's chip with a product's units; of NVIDIA's with its memory and L2 as well."""
    model: ChipModel = sm_of(product) or varied(product.target, units=product.units)
    return model


def power_of_products(kernel: Kernel, product: Product) -> float:
    """What a clock of the tensor cores takes of the product's power limit in this kernel, as a share of what it is at
    `PowerLimit.full`; 0 where they have nothing to do."""
    atoms = [op.attrs["atom"] for op in kernel.body.walk() if op.name in PRODUCTS_OF_MATRIX]
    doubles = 1.0 if product.power is None else product.power.doubles
    return max((doubles if atom.a_dtype.bits == 64 else 1.0 for atom in atoms), default=0.0)


def at_own_clock(
    product: Product, power_of: float, used: float, played: Callable[[SmModel], Played]
) -> Played | None:  # fmt: skip
    """What `played` says of the chip at the clock that its power limit leaves this kernel, in clocks of `product`; None
    for chips without an `SmModel`. `power_of`: see `power_of_products`; `used`: share of the SMs that are at work, on
    average."""
    power = product.power
    chip = sm_of(product)
    if chip is None or power is None:
        return None if chip is None else played(chip)
    clock = power.clock(power_of)
    for last in (False, False, True):
        chip = sm_of(product, clock)
        assert chip is not None
        found = played(chip)
        left = power.clock(power_of * min(1.0, used * found.busy.get("tensor", 0.0) / max(1.0, found.clocks)))
        if last or abs(left / clock - 1) < SAME:
            break
        clock = left
    return found.scaled(product.clock / clock)
