"""ChaCha20's key stream (RFC 8439): hundreds of additions, exclusive ors and rotations one behind the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavedsl as wd

N, W, B = wd.symbols("N W B")
CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
"""The text "expand 32-byte k" as little-endian words."""
COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
ROUNDS = 20


def quarter_round(s: list[Any], a: int, b: int, c: int, d: int) -> None:
    for x, y, z, count in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = s[x] + s[y]
        s[z] = wd.rotate_left(s[z] ^ s[x], count)


@wd.wave([wd.WorkgroupConstraint(N, B, 0)], subs={B: 64, W: 16})
def key_stream(key: wd.Memory[W, wd.u32], first: wd.Scalar[wd.u32], stream: wd.Memory[N, W, wd.u32]):
    """Blocks `first`, `first` + 1, … of a stream. `key`: 8 words of the key, then 3 of the nonce."""

    def word(i: int) -> Any:
        return wd.read(key, mapping=wd.IndexMapping((N,), {W: i}))

    counter = wd.cast(wd.index(N), wd.u32) + first
    start = [*(wd.Register[N, wd.u32](c) for c in CONSTANTS), *map(word, range(8)), counter, *map(word, range(8, 11))]
    s = list(start)
    for _ in range(ROUNDS // 2):
        for places in (*COLUMNS, *DIAGONALS):
            quarter_round(s, *places)
    for i in range(16):
        wd.write(s[i] + start[i], stream, mapping=wd.IndexMapping((N,), {N: N, W: i}))


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a"])
def test_block_of_the_rfc(target: str) -> None:
    """Section 2.3.2: the key 00 01 … 1f, the nonce 00 00 00 09 00 00 00 4a 00 00 00 00, the block with counter 1."""
    key = np.zeros(16, np.uint32)
    key[:8] = np.arange(32, dtype=np.uint8).view("<u4")
    key[8:11] = np.array([0, 0, 0, 9, 0, 0, 0, 0x4A, 0, 0, 0, 0], np.uint8).view("<u4")
    stream = np.zeros((100, 16), np.uint32)
    compiled = key_stream.compile(key, 1, stream, target=target)
    compiled.emulate(key, 1, stream, checks=True)
    want = (
        0xE4E7F110, 0x15593BD1, 0x1FDD0F50, 0xC47120A3, 0xC7F4D1C7, 0x0368C033, 0x9AAA2204, 0x4E6CD4C3,
        0x466482D2, 0x09AA9F07, 0x05D7C214, 0xA2028BD9, 0xD19C12B5, 0xB94E16DE, 0xE883D0CB, 0x4E3C50A2,
    )  # fmt: skip
    np.testing.assert_array_equal(stream[0], np.array(want, np.uint32))
    evaluated = np.zeros_like(stream)
    key_stream.evaluate(key, 1, evaluated)
    np.testing.assert_array_equal(stream, evaluated)
    assert compiled.resources.spills == 0
