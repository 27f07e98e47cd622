"""Layouts of a 32 x 128 tile of fp8 in LDS, for both products of attention on gfx950, by counted clocks.

    python benchmarks/lds_layouts.py

Four waves copy the tile, one reads it for 32 x 32 x 16 matrix instructions. Q·Kᵀ contracts along the rows (128 wide),
P·V along the columns. Clocks of LDS come from the addresses of every lane, the banks and the phases of the target;
one VALU or LDS instruction takes an issue slot of 4 clocks. `once` counts the address registers that a layout needs
before its first tile beyond those of the cheapest, so a layout with cheaper tiles wins from the tile given last.

A transposing read (TR8) takes the lane map of the target table: lane l gets byte l % 8 of the 8 bytes that lanes
(l >> 3 & 1) + 2 e + (l & 48) point to, for e = 0 .. 7. Interleaved means rows in blocks of 8 whose bytes lie side by
side: byte (row, k) at row % 8 + row // 8 * 1024 + 8 k. The exchange between 8 lanes that a cooperative store needs is
three butterfly rounds: each moves two of four registers to another lane and merges by four byte permutations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import record
from wavedsl.codegen.amdgcn import get_target
from wavedsl.ir.layouts.bank_cycles import lane_cycles

from wavedsl.reports import table

TARGET = get_target("gfx950")
LANES = range(64)
ISSUE = 4
EXCHANGE = 3 * (2 + 4)
"""VALU instructions of a cooperative store's exchange."""


@dataclass(frozen=True)
class Access:
    """One kind of LDS instruction: how often a wave issues it per tile, bytes per lane, the address of each lane."""

    kind: str
    bytes: int
    count: int
    address: Callable[[int], int]

    def clocks(self) -> int:
        """For all of them, under the worst reading of the phases."""
        worst = max(
            lane_cycles([self.address(lane) for lane in LANES], self.bytes, phase, TARGET.banks[self.bytes])
            for phase in TARGET.phases[self.kind, self.bytes]
        )
        return self.count * worst


@dataclass(frozen=True)
class Way:
    """A layout with its instructions per wave and tile, `valu` beside the accesses. `addresses`: registers set once."""

    product: str
    name: str
    store: Access
    load: Access
    valu: int
    addresses: int

    def lds(self) -> int:
        """Clocks of LDS per tile: four waves store, one loads."""
        return 4 * self.store.clocks() + self.load.clocks()

    def instructions(self) -> int:
        """A wave's, per tile."""
        return self.store.count + self.load.count + self.valu

    def per_tile(self) -> int:
        """Clocks of LDS, and issue slots of a wave."""
        return self.lds() + ISSUE * self.instructions()


def swizzle(address: int) -> int:
    return address ^ (address >> 7 & 7) << 4


def row_store(xor: bool) -> Callable[[int], int]:
    """16 bytes of a row of 128 per lane, 8 lanes a row."""
    return lambda lane: (swizzle if xor else int)(lane // 8 * 128 + lane % 8 * 16)


def interleaved(row: int, k: int) -> int:
    return row % 8 + row // 8 * 1024 + 8 * k


def rows_of_keys(pitch: int, xor: bool) -> Callable[[int], int]:
    """Where lane L points for a transposing read of V: key (L >> 1 & 7) + 8 (L >> 5), 8 columns from
    8 (L & 1) + 16 (L >> 4 & 1)."""
    return lambda lane: (swizzle if xor else int)(
        ((lane >> 1 & 7) + 8 * (lane >> 5)) * pitch + 8 * (lane & 1) + 16 * (lane >> 4 & 1)
    )


def ways() -> Sequence[Way]:
    half = lambda lane: lane >> 5  # noqa: E731  (lanes 32 to 63 hold the second half of an instruction's K)
    blocks = Access(
        "read", 8, 8,
        lambda lane: interleaved(8 * (lane & 1) + 16 * (lane >> 4 & 1), (lane >> 1 & 7) + 8 * half(lane)),
    )  # fmt: skip
    return (
        Way("Q·Kᵀ", "rows of 128, ds_read_b64", Access("write", 16, 1, row_store(False)),
            Access("read", 8, 8, lambda lane: lane % 32 * 128 + 8 * half(lane)), 0, 2),
        Way("Q·Kᵀ", "pitch 136, ds_read_b64", Access("write", 8, 2, lambda lane: lane // 8 * 136 + lane % 8 * 16),
            Access("read", 8, 8, lambda lane: lane % 32 * 136 + 8 * half(lane)), 0, 2),
        Way("Q·Kᵀ", "XOR of 16 bytes, ds_read_b64", Access("write", 16, 1, row_store(True)),
            Access("read", 8, 8, lambda lane: swizzle(lane % 32 * 128 + 8 * half(lane))), 0, 9),
        Way("Q·Kᵀ", "XOR of 16 bytes, ds_read_b128", Access("write", 16, 1, row_store(True)),
            Access("read", 16, 4, lambda lane: swizzle(lane % 32 * 128 + 16 * half(lane))), 0, 5),
        Way("Q·Kᵀ", "interleaved, ds_write_b8, TR8",
            Access("write", 1, 16, lambda lane: interleaved(lane // 8, lane % 8 * 16)), blocks, 15, 2),
        Way("Q·Kᵀ", "interleaved, exchange, ds_write_b64, TR8",
            Access("write", 8, 2, lambda lane: interleaved(0, 2 * lane)), blocks, EXCHANGE, 2),
        Way("P·V", "rows of 128, ds_read_u8", Access("write", 16, 1, row_store(False)),
            Access("read", 1, 64, lambda lane: 8 * half(lane) * 128 + lane % 32), 48, 1),
        Way("P·V", "rows of 128, TR8", Access("write", 16, 1, row_store(False)),
            Access("read", 8, 8, rows_of_keys(128, False)), 0, 2),
        Way("P·V", "pitch 136, TR8", Access("write", 8, 2, lambda lane: lane // 8 * 136 + lane % 8 * 16),
            Access("read", 8, 8, rows_of_keys(136, False)), 0, 2),
        Way("P·V", "XOR of 16 bytes, TR8", Access("write", 16, 1, row_store(True)),
            Access("read", 8, 8, rows_of_keys(128, True)), 0, 5),
        Way("P·V", "columns of 40, blocks of 4 x 4 in registers, ds_read_b64",
            Access("write", 4, 4, lambda lane: lane % 32 * 4 * 40 + lane // 32 * 4),
            Access("read", 8, 8, lambda lane: lane % 32 * 40 + 8 * half(lane)), 8, 2),
    )  # fmt: skip


def rows() -> list[dict[str, object]]:
    """Every way with its counts, and from how many tiles it beats the cheapest to set up."""
    found = []
    for product in ("Q·Kᵀ", "P·V"):
        mine = [w for w in ways() if w.product == product]
        least = min(w.addresses for w in mine)
        simple = min((w for w in mine if w.addresses == least), key=lambda w: w.per_tile())
        for w in mine:
            gain = simple.per_tile() - w.per_tile()
            extra = ISSUE * (w.addresses - least)
            wins = None if w is simple or gain <= 0 else max(1, -(-extra // gain))
            found.append(
                {
                    "product": product, "layout": w.name, "store clocks": 4 * w.store.clocks(),
                    "read clocks": w.load.clocks(), "instructions": w.instructions(), "clocks per tile": w.per_tile(),
                    "once": extra, "wins from tile": wins,
                }
            )  # fmt: skip
    return found


def main() -> int:
    found = rows()
    head = tuple(found[0])
    print(table(head, [["" if r[k] is None else r[k] for k in head] for r in found]))
    print(record.write("lds_layouts", found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
