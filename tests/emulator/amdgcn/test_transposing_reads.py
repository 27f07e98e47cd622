"""ds_read_b64_tr_b8: which byte of which lane's address each result comes from."""

from __future__ import annotations

import amdgcn_harness as harness
import numpy as np
import pytest

BODY = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    s_waitcnt lgkmcnt(0)
    v_lshlrev_b32_e32 v1, 3, v0
    global_load_dwordx2 v[2:3], v1, s[4:5]
    s_waitcnt vmcnt(0)
    ds_write_b64 v1, v[2:3]
    s_waitcnt lgkmcnt(0)
    {address}
    ds_read_b64_tr_b8 v[4:5], v6
    s_waitcnt lgkmcnt(0)
    global_store_dwordx2 v1, v[4:5], s[6:7]
    s_endpgm
"""


def results(address: str) -> tuple[np.ndarray, np.ndarray]:
    """(the 512 bytes in LDS, the 8 result bytes of every lane)."""
    given = np.random.default_rng(5).integers(0, 256, 512).astype(np.uint8)
    out = np.zeros((64, 8), np.uint8)
    harness.run(BODY.format(address=address), [given, out], target="gfx950", lds=512, checks=True)
    return given, out


@pytest.mark.parametrize("at", [0, 8, 504])
def test_a_uniform_address_gives_eight_identical_bytes(at: int) -> None:
    """Every lane points to the same 8 bytes, so all eight parts of a result are one byte of them: the lane's own."""
    given, out = results(f"v_mov_b32_e32 v6, {at:#x}")
    assert (out == out[:, :1]).all()
    np.testing.assert_array_equal(out[:, 0], given[at + np.arange(64) % 8])


def test_lanes_that_point_to_their_own_bytes_get_a_transposed_block() -> None:
    given, out = results("v_mov_b32_e32 v6, v1")
    lane, e = np.arange(64)[:, None], np.arange(8)
    np.testing.assert_array_equal(out, given.reshape(64, 8)[(lane >> 3 & 1) + 2 * e + (lane & 48), lane & 7])
