"""The graph verifier objects to every way of breaking a good graph."""

import numpy as np
import pytest
from wavedsl.ir.dataflow.graph import Graph, Node, ValueType
from wavedsl.ir.dataflow.graph_verify import graph_problems, verify_graph

import wavedsl as wd

M, N, K = wd.symbols("M N K")


def _graph() -> Graph:
    @wd.wave([wd.TilingConstraint(K, 4), wd.WorkgroupConstraint(M, 4, 0)])
    def kernel(a: wd.Memory[M, K, wd.f32], b: wd.Memory[M, wd.f32], s: wd.Scalar[wd.f32]):
        zero = wd.Register[M, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc):
            return acc + wd.sum(wd.read(a), dim=K)

        wd.write(loop * s, b)

    return kernel.trace_afresh({})


def _node(graph: Graph, op: str) -> Node:
    return next(n for n in graph.all_nodes() if n.op == op)


def test_a_good_graph() -> None:
    assert graph_problems(_graph()) == []
    verify_graph(_graph())


def _swap_order(g: Graph) -> None:
    g.region.nodes.reverse()


def _wrong_type(g: Graph) -> None:
    _node(g, "sum").type = ValueType((M,), wd.f16)


def _wrong_dims(g: Graph) -> None:
    _node(g, "read").type = ValueType((M,), wd.f32)


def _same_id(g: Graph) -> None:
    _node(g, "write").id = _node(g, "mul").id


def _no_location(g: Graph) -> None:
    _node(g, "add").loc = None


def _no_yield(g: Graph) -> None:
    _node(g, "iterate").attrs["body"].yields = ()


def _yield_outside(g: Graph) -> None:
    _node(g, "iterate").attrs["body"].yields = (_node(g, "mul"),)


def _carry_type(g: Graph) -> None:
    _node(g, "carry").type = ValueType((M, N), wd.f32)


def _carry_position(g: Graph) -> None:
    _node(g, "carry").attrs["position"] = 1


def _uses_loop_value_outside(g: Graph) -> None:
    _node(g, "mul").inputs = (_node(g, "add"), _node(g, "scalar"))


def _uses_tuple(g: Graph) -> None:
    _node(g, "mul").inputs = (_node(g, "iterate"), _node(g, "scalar"))


def _unknown_memory(g: Graph) -> None:
    _node(g, "write").attrs["memory"] = "z"


def _scalar_as_memory(g: Graph) -> None:
    _node(g, "write").attrs["memory"] = "s"


def _unknown_op(g: Graph) -> None:
    _node(g, "mul").op = "frobnicate"


def _reduced_away(g: Graph) -> None:
    _node(g, "sum").attrs["dim"] = N


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (_swap_order, "DOM"), (_wrong_type, "TYPE"), (_wrong_dims, "TYPE"), (_same_id, "IDS"), (_no_location, "LOC"),
        (_no_yield, "LOOP"), (_yield_outside, "CLOSED"), (_carry_type, "LOOP"), (_carry_position, "LOOP"),
        (_uses_loop_value_outside, "DOM"), (_uses_tuple, "RESULT"), (_unknown_memory, "ARG"),
        (_scalar_as_memory, "ARG"),
        (_unknown_op, "TYPE"), (_reduced_away, "TYPE"),
    ],
    ids=lambda x: x.__name__.strip("_") if callable(x) else x,
)  # fmt: skip
def test_mutant(change, rule) -> None:  # type: ignore[no-untyped-def]
    graph = _graph()
    change(graph)
    assert rule in [text.split()[0] for _, text in graph_problems(graph)]
    with pytest.raises(wd.CompileError, match="the dataflow graph is wrong after a test: "):
        verify_graph(graph, after="a test")


def test_the_mutated_graph_was_fresh() -> None:
    """trace_afresh shares nothing with earlier traces, so passes may change what it gives."""
    a, b = np.ones((4, 8), np.float32), np.zeros(4, np.float32)

    @wd.wave([wd.TilingConstraint(K, 4)])
    def kernel(a: wd.Memory[M, K, wd.f32], b: wd.Memory[M, wd.f32]):
        wd.write(wd.sum(wd.read(a), dim=K), b)

    kernel.trace_afresh({}).region.nodes.clear()
    kernel.evaluate(a, b)
    assert np.array_equal(b, a.sum(axis=1))
