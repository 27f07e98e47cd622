"""Loads whose places are computed come as early as these are known, in straight code and in loops in program order."""

from __future__ import annotations

import pytest
from wavedsl.ir.schedule.early_loads import EARLY_WORDS, early_loads
from wavedsl.ir.schedule.plan_body import program_order
from wavedsl.ir.schedule.steps import Step


def step(name: str, kind: str = "compute", uses: str = "", defs: str = "", **rest: object) -> Step:
    """A step that uses and makes values of one letter each."""
    latency, issue = 40, (("issue", 4),)
    return Step(name, kind, issue, latency, tuple((u,) for u in uses), tuple((d,) for d in defs), _nothing, **rest)


def _nothing(context: object) -> None: ...


def fields(**other: object) -> list[Step]:
    """A record's number, two of its fields at places made of it, each used before the next is loaded."""
    return [
        step("big", "gload", defs="b", array="x", words=4),
        step("number", "gload", defs="n", array="order", words=1),
        step("place", uses="n", defs="p", light=True),
        step("first", uses="p", defs="f", array="y", words=1),
        step("sum", uses="fb", defs="s", light=True),
        step("next place", uses="n", defs="q", light=True),
        step("second", uses="q", defs="g", array="z", words=1, **other),
        step("product", uses="sg", defs="t", light=True),
    ]


def order(steps: list[Step], **rest: bool) -> list[str]:
    return [steps[i].name for i in program_order(steps, {}, cyclic=False, **rest).order]


def test_fields_of_a_record_are_on_their_way_together():
    # What places are made of comes first; a load that waits for nothing is in flight before they are computed.
    early = ["number", "big", "place", "next place", "first", "second"]
    assert order(fields()) == [*early, "sum", "product"]


def test_each_depth_stands_behind_the_last():
    steps = [
        step("a", "gload", defs="a", array="x", words=1),
        step("b", uses="a", defs="b", array="y", words=1),  # at the place that the first one loaded
        step("of b", uses="b", defs="p", light=True),
        step("use", uses="b", defs="u"),
        step("c", uses="p", defs="c", array="z", words=1),
        step("d", uses="a", defs="d", array="z", words=1),
    ]
    assert early_loads(steps, ()) == {0: 0, 1: 2, 2: 3, 4: 4, 5: 2}
    assert order(steps) == ["a", "b", "d", "of b", "c", "use"]


@pytest.mark.parametrize("why", ["late", "written", "heavy", "loop", "many"])
def test_others_stay_where_they_stand(why: str):
    steps = fields(**({"late": True} if why == "late" else {}))
    if why == "written":
        steps.append(step("write", "effect", uses="t", writes=("z",)))
    if why == "heavy":
        steps[5].light = False  # a sum over lanes, say: it would be carried out before the others' elements are used
    if why == "loop":
        steps[4].loop = True
    if why == "many":
        steps[6].words = EARLY_WORDS
    got = order(steps)
    assert got.index("first") < got.index("sum") < got.index("next place") < got.index("second")


def test_what_computes_from_a_load_that_stays_stays_too():
    steps = fields(late=True)
    steps.insert(7, step("third", uses="g", defs="h", array="x", words=1))
    assert order(steps)[-3:] == ["second", "third", "product"]
