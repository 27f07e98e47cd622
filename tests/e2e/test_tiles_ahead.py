"""What an output tile has once (Q of attention) is on its way while the tile before is computed: workgroups of sm_90a
that take several tiles."""

from __future__ import annotations

import re
from typing import Any

import example_files
import numpy as np
import pytest

import wavedsl as wd

attention = example_files.load("attention")
backward = example_files.load("attention_backward")
SLOTS = 24
"""Slots of 32 keys and values of 64 numbers that leave room for one tile of 128 queries and its results."""
WAIT, COPY = "mbarrier.try_wait", "cp.async.bulk.tensor"


def attend(sizes: dict[str, int], schedule: wd.Schedule | None, **options: Any) -> wd.CompiledKernel:
    """Attention of more tiles of 128 x 32 than an H100 has units, on the emulator with all checks, within the bound of
    float64; what was compiled."""
    variant = attention.Variant(wd.bf16, **options)
    given = attention.arguments_of(variant, {"b": 1, "d": 64, "e": 64, **sizes})
    kernel = attention.attention_kernel(variant, tile=(128, 32), waves=2, schedule=schedule)
    compiled = kernel.compile(**given, target="sm_90a")
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0
    return compiled


def rings(compiled: wd.CompiledKernel) -> dict[str, int]:
    """Slots by what a ring brings."""
    found = [line.split(": ", 1)[1] for line in compiled.kernel_ir.notes["lowering"].rings]
    return {names: int(rest.split()[0]) for names, rest in (line.split("; ") for line in found)}


def role(compiled: wd.CompiledKernel, which: int) -> list[str]:
    """The lines of the copying (0) or the computing (1) warpgroups' loop over tiles."""
    lines = [line.strip() for line in compiled.asm.splitlines()]
    starts = [i for i, line in enumerate(lines) if line.startswith("$tile") and not line.split(":")[0].endswith("end")]
    ends = [i for i, line in enumerate(lines) if line.startswith("$tile") and line.split(":")[0].endswith("end")]
    return lines[starts[which] : ends[which]]


def copied(compiled: wd.CompiledKernel) -> str:
    """Of whose tensor map each bulk copy of keys and values is, in the order of the text."""
    names = dict(re.findall(r"mov\.b64 +(%rd\d+), param_([kv]);", compiled.asm))
    pairs = re.findall(r"cvta\.param\.u64 +(%rd\d+), (%rd\d+);", compiled.asm)
    maps = {new: names[old] for new, old in pairs if old in names}
    found = re.findall(r"cp\.async\.bulk\.tensor\S+ \[[^\]]+\], \[(%rd\d+),", compiled.asm)
    return "".join(maps[x] for x in found if x in maps)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, {"h": 70, "m": 200, "n": 70}),
        ({"causal": True, "lse": True}, {"h": 70, "m": 200, "n": 200}),
        ({"causal": True}, {"h": 70, "m": 200, "n": 40}),  # tiles of queries that see no key
    ],
    ids=["full", "causal", "no keys"],
)
@pytest.mark.parametrize("stages", [None, SLOTS], ids=["two tiles", "one tile"])
def test_attention_of_several_tiles(options: dict[str, Any], sizes: dict[str, int], stages: int | None) -> None:
    compiled = attend(sizes, wd.Schedule(stages=stages) if stages else None, **options)
    found = rings(compiled)
    assert found["q"] == (1 if stages else 2)
    assert min(slots for name, slots in found.items() if name != "q") == stages or not stages


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, {"h": 70, "m": 200, "n": 33}),  # two blocks of keys
        ({"causal": True, "lse": True}, {"h": 70, "m": 200, "n": 200}),
        ({"causal": True}, {"h": 70, "m": 200, "n": 40}),  # tiles of queries that see no key, or one block
        ({"window": 50, "causal": True}, {"h": 3, "m": 300, "n": 320}),
        ({"bias": True, "cap": 20.0}, {"h": 2, "m": 100, "n": 136}),
    ],
    ids=["full", "causal", "no keys", "window", "bias"],
)
@pytest.mark.parametrize("stages", [2, 3])
def test_keys_of_the_next_block_come_before_values_of_this_one(
    options: dict[str, Any], sizes: dict[str, int], stages: int
) -> None:
    """A block's values are given back a trip behind its keys: with few slots, whoever copies in the order of reads
    would wait for values while there is room for keys."""
    compiled = attend(sizes, wd.Schedule(stages=stages), **options)
    assert copied(compiled) == "kkvv"


def test_values_come_in_the_order_of_reads_where_slots_are_many() -> None:
    compiled = attend({"h": 2, "m": 200, "n": 200}, wd.Schedule(stages=4))
    assert copied(compiled) == "kv"


def test_one_slot_is_given_back_before_results_and_filled_behind_the_first_keys() -> None:
    sizes = {"h": 70, "m": 200, "n": 200}
    compiled = attend(sizes, wd.Schedule(stages=SLOTS), causal=True)
    names = compiled.kernel_ir.shared_names
    empty = f"[smem+{names['barriers 0'][0] + 8}]"
    assert rings(compiled)["q"] == 1
    copying, computing = role(compiled, 0), role(compiled, 1)
    wait = next(i for i, line in enumerate(copying) if line.startswith(WAIT) and empty in line)
    assert any(line.startswith(COPY) for line in copying[:wait]), "keys are asked for before the slot is waited for"
    given = [i for i, line in enumerate(computing) if "mbarrier.arrive" in line and empty in line]
    products = [i for i, line in enumerate(computing) if line.startswith("wgmma.mma_async")]
    assert len(given) == 2, "with trips, and without"
    assert given[0] < products[-1], "the last product of weights and values does not hold Q back"


def test_a_workgroup_of_one_tile_has_one_slot() -> None:
    compiled = attend({"h": 2, "m": 200, "n": 70}, None)
    assert rings(compiled)["q"] == 1


def test_slots_of_loops_come_first() -> None:
    """Head size 256: a second tile of queries would leave keys and values less than they have."""
    z = [np.zeros((8, 8, 2048, 256), wd.bf16.storage) for _ in range(4)]
    kernel = attention.attention_kernel(attention.Variant(wd.bf16, causal=True), tile=(128, 64), waves=2)
    found = rings(kernel.compile(*z, np.float32(1), target="sm_90a"))
    assert found["q"] == 1 and min(found.values()) == 1 and sorted(found.values())[1:] == [2, 2]


@pytest.mark.parametrize("deterministic", [True, False])
def test_gradients_of_several_tiles(deterministic: bool) -> None:
    variant = backward.Variant(dtype=wd.bf16, lse=True, causal=True)
    given = backward.arguments_of(variant, {"b": 1, "h": 70, "m": 130, "n": 130, "d": 64, "e": 64}, 0)
    two = []
    for kernel in backward.kernels(variant, backward.tile_for(variant, "sm_90a", 64), deterministic=deterministic):
        mine = {p.name: given[p.name] for p in kernel.parameters}
        compiled = kernel.compile(**mine, target="sm_90a")
        compiled.emulate(**mine)
        two.append(rings(compiled) if "lowering" in compiled.kernel_ir.notes else {})
    assert backward.check(variant, given) == 0
    assert any(found.get("k, v") == 2 or found.get("k") == 2 for found in two), two


@pytest.mark.parametrize(
    ("causal", "step", "slots"), [(False, 32, (3, 2)), (True, 32, (3, 2)), (False, 64, (2, 1)), (True, 64, (2, 1))]
)
def test_what_both_stages_read_has_a_slot_more(causal: bool, step: int, slots: tuple[int, int]) -> None:
    """Gradients of head size 256: Q of scores and of dK is given back a trip later than dO, so that with as many slots
    the next copy would begin when what it brings is wanted."""
    variant = backward.Variant(dtype=wd.bf16, lse=True, causal=causal)
    given = backward.arguments_of(variant, {"b": 1, "h": 1, "m": 140, "n": 140, "d": 256, "e": 256}, 0)
    found = {}
    for kernel in backward.kernels(variant, backward.Tiles(128, step, 2, True)):
        mine = {p.name: given[p.name] for p in kernel.parameters}
        compiled = kernel.compile(**mine, target="sm_90a")
        compiled.emulate(**mine)
        found[kernel.name] = rings(compiled)
    assert backward.check(variant, given) == 0
    assert (found["attention_keys_k"]["q"], found["attention_keys_k"]["d_o"]) == slots
    assert (found["attention_queries"]["k"], found["attention_queries"]["v"]) == slots
