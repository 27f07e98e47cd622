"""The shadow of LDS against one that goes through lanes and cells one after the other, on drawn accesses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from wavedsl.runtime.emulator.amdgcn.lds import LdsShadow

LANES, STRIDE, GRANULE = 64, 1024, 4
Who = tuple[int, Any, int]
"""Epoch, wave (None: several), instruction."""


def shadow_of(found: list[tuple[str, int, str, set[tuple[int, int]]]], has_dma: bool) -> LdsShadow:
    def find(kind: str, index: int, text: str, st: Any, lanes: np.ndarray) -> None:
        found.append((kind, index, text, set(map(tuple, np.argwhere(lanes).tolist()))))

    lines = [SimpleNamespace(text=f"op {i}", number=i, inst=None) for i in range(100)]
    engine = SimpleNamespace(program=SimpleNamespace(lines=lines), env=SimpleNamespace(stride=STRIDE), find=find)
    shadow = LdsShadow(engine, GRANULE, has_dma, True)
    shadow.new_batch(STRIDE)
    return shadow


class Slow:
    """The same, cell by cell. What it finds: what was found, and whose lanes."""

    def __init__(self) -> None:
        self.writer: dict[int, Who] = {}
        self.reader: dict[int, Who] = {}

    def others(self, table: dict[int, Who], touched: list[tuple[int, int, int]], st: Any) -> set[tuple[int, int]]:
        return {
            (w, lane) for w, lane, cell in touched
            if cell in table and table[cell][0] == st.epoch[w] and table[cell][1] != w
        }  # fmt: skip

    def read(self, st: Any, index: int, touched: list[tuple[int, int, int]]) -> tuple[list[Any], set[tuple[int, int]]]:
        bad = self.others(self.writer, touched, st)
        before = dict(self.reader)
        by: dict[int, set[int]] = {}
        for w, _, cell in touched:
            by.setdefault(cell, set()).add(w)
            old = before.get(cell)
            several = old is not None and old[0] == st.epoch[w] and old[1] != w
            self.reader[cell] = (st.epoch[w], None if several else w, index)
        for cell, waves in by.items():
            if len(waves) > 1:
                self.reader[cell] = (self.reader[cell][0], None, index)
        return [("reads", bad)] * bool(bad), {(w, lane) for w, lane, cell in touched if cell not in self.writer}

    def write(self, st: Any, index: int, touched: list[tuple[int, int, int]]) -> list[Any]:
        over, twice = self.others(self.reader, touched, st), self.others(self.writer, touched, st)
        for w, _, cell in touched:
            self.writer[cell] = (st.epoch[w], w, index)
        lost = {(w, lane) for w, lane, cell in touched if self.writer[cell][1] != w}
        return [(what, lanes) for what, lanes in (("overwrites", over), ("writes", twice), ("writes", lost)) if lanes]


@pytest.mark.parametrize("seed", range(24))
def test_drawn_accesses(seed: int) -> None:
    random = np.random.default_rng(seed)
    found: list[Any] = []
    shadow, slow = shadow_of(found, False), Slow()
    waves = int(random.integers(1, 5))
    st = SimpleNamespace(wave=np.arange(waves), epoch=np.zeros(waves, np.int64), waves=waves, vm=[], lgkm=[])
    races = 0
    for index in range(60):
        size = int(random.choice([4, 8, 16]))
        position = random.integers(0, int(random.choice([6, STRIDE // size])), (waves, LANES)) * size
        active = None if random.random() < 0.5 else random.random((waves, LANES)) < 0.1
        lanes = [(w, n) for w in range(waves) for n in range(LANES) if active is None or active[w, n]]
        touched = [(w, n, int(position[w, n] + b) // GRANULE) for w, n in lanes for b in range(0, size, GRANULE)]
        found.clear()
        if random.random() < 0.3:
            st.epoch = st.epoch + (random.random(waves) < 0.9)
        elif random.random() < 0.6:
            expected, never = slow.read(st, index, touched)
            mask = shadow.read(st, index, position, size, active)
            assert never == (set() if mask is None else set(map(tuple, np.argwhere(mask).tolist())))
            assert [(text.split()[0], where) for _, _, text, where in found] == expected
        else:
            expected = slow.write(st, index, touched)
            shadow.write(st, index, position, size, active, None, True)
            assert [(text.split()[0], where) for _, _, text, where in found] == expected
        races += len(found)
    assert races or waves == 1


def test_what_copies_will_write_names_the_instruction_that_wrote_nothing_known() -> None:
    found: list[Any] = []
    shadow = shadow_of(found, True)
    st = SimpleNamespace(wave=np.zeros(1, np.int64), epoch=np.zeros(1, np.int64), waves=1, vm=[], lgkm=[])
    position = np.arange(LANES)[None] * 4
    shadow.write(st, 7, position, 4, None, None, True)
    shadow.coming[shadow.granules(position, 4)] = True
    shadow.unwrite(position, 4, np.arange(LANES)[None] < 3)
    never = shadow.read(st, 9, position, 4, None)
    assert never is not None and never.sum() == 3
    assert [(kind, index) for kind, index, *_ in found] == [("missing-wait", 9)] and "`op 7` (line 7)" in found[0][2]
