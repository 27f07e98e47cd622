"""Straight code of many products in taps: what a product multiplies comes a few products ahead of it."""

from __future__ import annotations

import pytest
from wavedsl.ir.schedule.place_barriers import place_barriers
from wavedsl.ir.schedule.steps import BodySchedule, Step
from wavedsl.ir.schedule.taps import Window, taps


def step(name: str, kind: str, uses: str = "", defs: str = "", **rest: object) -> Step:
    """A step that uses and makes values named by words."""
    return Step(
        name, kind, (), 1, tuple((u,) for u in uses.split()), tuple((d,) for d in defs.split()), _nothing, **rest
    )


def _nothing(context: object) -> None: ...


def product(i: int, *operands: str) -> Step:
    """The `i`-th product, which adds to the one before."""
    before = (("acc", i - 1, 0, 0),) if i else ()
    return Step(f"product {i}", "mma", (), 1, (*((x,) for x in operands), *before), (("acc", i, 0, 0),), _nothing)


def through_shared(count: int, kind: str = "acopy") -> list[Step]:
    """Products of two operands: a tile that is copied to shared memory, and a gather whose place is loaded."""
    steps: list[Step] = []
    for i in range(count):
        if kind == "acopy":
            steps.append(step(f"copy {i}", "acopy", buffer=f"t{i}", array="a"))
        else:
            steps.append(step(f"load {i}", "gload", defs=f"c{i}", array="a", words=4))
            steps.append(step(f"store {i}", "swrite", f"c{i}", buffer=f"t{i}"))
        steps += [
            step(f"read {i}", "sread", defs=f"f{i}", buffer=f"t{i}"),
            step(f"number {i}", "gload", defs=f"n{i}", array="places", words=1),
            step(f"place {i}", "compute", f"n{i}", f"p{i}", light=True),
            step(f"gather {i}", "compute", f"p{i}", f"g{i}", array="b", words=4),
            product(i, f"f{i}", f"g{i}"),
        ]
    return steps


def names(steps: list[Step], window: Window) -> list[str]:
    found = taps(steps, window)
    assert found is not None
    made = {key: place for place, i in enumerate(found.order) for key in steps[i].defs}
    for place, i in enumerate(found.order):
        assert all(made[key] < place for key in steps[i].uses)
    return [steps[i].name for i in found.order]


def test_copies_and_gathers_start_a_product_ahead():
    order = names(through_shared(4), Window(1, 1))
    # Two products ahead the number, one ahead what lies there and the tile; nothing of the third in front of the first.
    assert order[: order.index("product 0")] == [
        "number 0", "copy 0", "number 1", "place 0", "gather 0", "copy 1", "number 2", "place 1", "gather 1", "read 0",
    ]  # fmt: skip
    between = order[order.index("product 0") + 1 : order.index("product 1")]
    assert between == ["copy 2", "number 3", "place 2", "gather 2", "read 1"]


def test_loads_stay_where_they_stand_though_copies_run_ahead():
    order = names(through_shared(3), Window(2, 0))
    assert order[:2] == ["copy 0", "copy 1"]
    assert order[order.index("product 1") + 1 :] == ["number 2", "read 2", "place 2", "gather 2", "product 2"]


def test_what_passes_registers_is_stored_behind_the_product_before():
    order = names(through_shared(4, "swrite"), Window(2, 1))
    assert order.index("load 3") < order.index("product 1") < order.index("product 2") < order.index("store 3")
    assert order.index("store 3") < order.index("read 3")
    spans = taps(through_shared(4, "swrite"), Window(2, 1)).spans
    assert spans == {"t0": (-1, 0), "t1": (0, 1), "t2": (1, 2), "t3": (2, 3)}
    assert taps(through_shared(4), Window(2, 1)).spans["t3"] == (1, 3)


def test_a_product_that_needs_nothing_more_is_of_the_tap_before():
    steps = through_shared(3)
    steps.insert(7, Step("again", "mma", (), 1, (("f0",), ("g0",)), (("acc", 9, 0, 0),), _nothing))
    found = taps(steps, Window(1, 1))
    assert found.count == 3 and found.of[7] == 0


@pytest.mark.parametrize("why", ["one product", "a loop", "a store between", "written"])
def test_others_keep_the_order_of_the_program(why: str):
    steps = through_shared(1 if why == "one product" else 3)
    store = step("store", "effect", writes=("b" if why == "written" else "out",), loop=why == "a loop")
    steps.insert(6 if why == "a store between" else len(steps), store)
    assert taps(steps, Window(1, 1)) is None
    steps.remove(store)
    steps.append(step("store", "effect", writes=("out",)))
    assert (taps(steps, Window(1, 1)) is None) == (why == "one product")


def test_a_barrier_lies_between_readers_and_whoever_takes_their_place():
    steps = through_shared(4)
    found = taps(steps, Window(1, 1))
    body = BodySchedule(list(found.order), [0] * len(steps), 1, {}, (), 0, 0, "")
    slots = {f"t{i}": 1 for i in range(4)}
    place_barriers(body, steps, slots, cyclic=False, over={"t2": ["t0"], "t3": ["t1"]}, starts=found.starts)
    place = {steps[i].name: p for p, i in enumerate(body.order)}
    for i in range(4):
        assert any(place[f"copy {i}"] < p <= place[f"read {i}"] for p in body.barriers)
    for i in range(2):
        assert any(place[f"read {i}"] < p <= place[f"copy {i + 2}"] for p in body.barriers)
    # One for each tap, in front of the next one's copy. Each waits for its own tap's alone.
    assert sorted(body.barriers) == [p for p in found.starts if found.of[body.order[p]] in range(4)]
    assert list(body.barriers.values()) == [0] * 4


def test_copies_of_later_taps_stay_in_flight():
    steps = through_shared(5)
    found = taps(steps, Window(2, 0))
    body = BodySchedule(list(found.order), [0] * len(steps), 1, {}, (), 0, 0, "")
    over = {"t3": ["t0"], "t4": ["t1"]}
    place_barriers(body, steps, {f"t{i}": 1 for i in range(5)}, cyclic=False, over=over, starts=found.starts)
    assert list(body.barriers.values()) == [1, 1, 1, 1, 0]


def simple(count: int, kind: str) -> list[Step]:
    """The same without gathers, whose places are computed and so not ahead of a loop's trip."""
    return [s for s in through_shared(count, kind) if s.name.split()[0] not in ("number", "place", "gather")]


@pytest.mark.parametrize("kind", ["acopy", "swrite"])
@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("count", [3, 4, 5, 9])
def test_trips_of_a_loop_hand_places_on(count: int, copies: int, kind: str):
    """Six trips by hand: whoever reads finds its own tile, copied, waited for and with a barrier between, and whoever
    writes stands behind a barrier that the readers of what was there have passed."""
    steps = simple(count, kind)
    found = taps(steps, Window(copies, 0), cyclic=True)
    if copies == count and kind == "acopy":  # the tile's own readers are not done
        assert found is None
        return
    places = handed_out(found, count)
    over = {f"t{i}": [f"t{j}" for j in range(i) if places[i] == places[j]] for i in range(count)}
    body = BodySchedule(list(found.order), found.stages, max(found.stages) + 1, {}, (), 0, 0, "")
    place_barriers(body, steps, {f"t{i}": 1 for i in range(count)}, over=over, starts=found.starts)
    assert body.count == 2 and (len(set(places)) < count or count <= 2 * copies + 1)
    holds: dict[int, tuple[int, int]] = {}
    fresh: set[int] = set()  # written behind the last barrier
    read: set[int] = set()  # read behind the last barrier
    flying: list[list[int]] = [[]]
    for trip in range(-1, 6):
        for p, i in enumerate(body.order):
            s, iteration = steps[i], trip + 1 - body.stages[i]
            if p in body.barriers and trip >= 0:
                pending = body.barriers[p]
                if pending is not None:
                    done = flying[: len(flying) - 1 - pending]
                    flying = flying[len(done) :]
                    fresh -= {place for group in done for place in group}
                else:
                    fresh.clear()
                read.clear()
            there = 0 <= iteration <= 5 and (trip >= 0 or not body.stages[i])
            if there and s.kind in ("acopy", "swrite"):
                place = places[s_number(s)]
                assert place not in read and place not in fresh
                holds[place] = (s_number(s), iteration)
                fresh.add(place)
                if s.kind == "acopy":
                    flying[-1].append(place)
            elif there and s.kind == "sread":
                place = places[s_number(s)]
                assert holds[place] == (s_number(s), iteration) and place not in fresh
                read.add(place)
            if p in body.commits:
                flying.append([])


def s_number(s: Step) -> int:
    return int(s.name.split()[1])


def handed_out(found, count: int) -> list[int]:
    """A place for each tile: the first that none has that is wanted at the same time."""
    places: list[int] = []
    for i in range(count):
        taken = {places[j] for j in range(i) if found.together(f"t{j}", f"t{i}")}
        places.append(next(p for p in range(count) if p not in taken))
    return places


def test_what_a_loop_does_not_know_ahead_stays_in_its_trip():
    """A gather whose place is computed would run ahead of it; places that are single numbers may."""
    assert taps(through_shared(4), Window(1, 0), cyclic=True) is not None
    assert taps(through_shared(4), Window(1, 1), cyclic=True) is None
    assert taps(simple(3, "acopy"), Window(4, 0), cyclic=True) is None  # more than a trip ahead


def test_first_taps_of_a_loop_are_brought_in_the_trip_before():
    found = taps(simple(4, "acopy"), Window(1, 0), cyclic=True)
    steps = simple(4, "acopy")
    early = [steps[i].name for i, stage in enumerate(found.stages) if stage == 0]
    assert early == ["copy 0"]
    assert steps[found.order[0]].name == "copy 1" and found.starts[0] == 0
