"""Load atoms and phases as the targets declare them, written here so that these tests need no back end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from wavedsl.ir.target import LoadAtom

EIGHT, SIXTEEN, THIRTY_TWO = (1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8, 16)
ANY = {4: THIRTY_TWO, 8: SIXTEEN, 16: EIGHT}


@pytest.fixture(scope="session")
def chip() -> SimpleNamespace:
    """`vectors`, `ldmatrix`, `tr`: atoms; `gfx942`, `gfx950`, `sm_80`: (banks, phases) for the search."""
    vectors = tuple(LoadAtom(f"b{8 * n}", n, n, tuple(e for e in (1, 2, 4, 8) if e <= n)) for n in (16, 8, 4, 2, 1))
    ldmatrix = (
        LoadAtom("ldmatrix.x4", 16, 16, (1, 2, 4), "l2 l3 l4 e1 e2", "e0 l0 l1"),
        LoadAtom("ldmatrix.x2", 8, 16, (1, 2, 4), "l2 l3 l4 e1", "e0 l0 l1"),
        LoadAtom("ldmatrix.x1", 4, 16, (1, 2, 4), "l2 l3 l4", "e0 l0 l1"),
        LoadAtom("ldmatrix.x4.trans", 16, 16, (2,), "e0 l0 l1 e1 e2", "l2 l3 l4"),
    )
    tr = (
        LoadAtom("tr_b16", 8, 8, (2,), "l2 l3 e0 e1 l4 l5", "l0 l1"),
        LoadAtom("tr_b8", 8, 8, (1,), "l3 e0 e1 e2 l4 l5", "l0 l1 l2"),
    )
    phases = {(kind, n): (basis,) for kind in ("read", "write") for n, basis in ANY.items()}
    gfx942 = phases | {("read", 16): (EIGHT, (1, 2, 20))}
    gfx950 = phases | {("read", 16): ((1, 2, 12, 20),), ("read", 8): (THIRTY_TWO,)}
    return SimpleNamespace(
        vectors=vectors,
        ldmatrix=ldmatrix,
        tr=tr,
        gfx942={"banks": {4: 32, 8: 32, 16: 32}, "phases": gfx942, "budget": 65536},
        gfx950={"banks": {4: 64, 8: 64, 16: 64}, "phases": gfx950, "budget": 163840},
        sm_80={"banks": {4: 32, 8: 32, 16: 32}, "phases": phases, "budget": 166912},
    )
