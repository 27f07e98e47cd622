"""Which chip a choice is for: the GPU at hand where there is one, else a product that the model knows.

Results are kept apart by `Chip.name`: the product's, or what the driver calls a GPU of which nothing is described.
"""

from __future__ import annotations

import os
import re

from wavedsl.analysis.roofline import product_called, product_named
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target
from wavedsl.runtime import devices
from wavedsl.runtime.devices import Device
from wavedsl.targets import get_target


@dataclass(frozen=True)
class Chip:
    """A chip to choose for. `device`: one that is at hand, None where candidates are ranked by a model; `said`: what
    its driver calls it."""

    target: Target
    product: Product
    name: str
    device: Device | None = None
    said: str = ""

    def __str__(self) -> str:
        return f"{self.target.name} ({self.name})"


def chip_for(target: str | None, product: str | Product | None) -> Chip:
    """The chip of these names; where neither is given, the default device's. A GPU at hand is taken whenever it runs
    that target and is that product, unless WAVEDSL_DEVICE names an emulator. ConstraintError for unknown names."""
    wanted = product_named(product, target) if product is not None else None
    if wanted is not None:
        target = wanted.target
    if target is None:
        target = devices.default().target
    described = get_target(target)
    for device in at_hand():
        if device.target != described.name:
            continue
        found = chip_of(device)
        if wanted is None or found.name == wanted.name:
            return found if wanted is None else Chip(described, wanted, wanted.name, device, found.said)
    wanted = wanted or product_named(None, target)
    return Chip(described, wanted, wanted.name)


def chip_of(device: Device) -> Chip:
    """The chip that a device is: its product as strategies take it, by the driver's name."""
    target = get_target(device.target)
    if device.kind == "emulator":
        product = product_named(None, device.target)
        return Chip(target, product, product.name)
    said = devices.open_driver(device.kind, device.index).name
    product = product_called(said, device.target)
    described = product.name.split()[0] in re.split(r"[^A-Za-z0-9]+", said)
    return Chip(target, product, product.name if described or not said else said, device, said)


def at_hand() -> list[Device]:
    """GPUs, the default one first; none where WAVEDSL_DEVICE names an emulator."""
    first = devices.default()
    if first.kind == "emulator" and os.environ.get("WAVEDSL_DEVICE"):
        return []
    return [d for d in dict.fromkeys((first, *devices.gpus())) if d.kind != "emulator"]
