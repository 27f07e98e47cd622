"""From Python function to graph: locations, loops, helpers, notebooks, names, listing, DOT, networkx."""

import functools
import subprocess
import sys

import networkx
import numpy as np
import pytest
import sympy
from source import run
from wavedsl.ir.dataflow.graph import Graph, Node, ValueType
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.source import statement_columns

import wavedsl as wd

M, N, K, D, H, BM, BN, BK = wd.symbols("M N K D H BM BN BK")


@wd.wave(
    [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, BM / 2),
    ],
    subs={BM: 64, BN: 64, BK: 32},
)
def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
    """C = A B^T."""
    acc = wd.Register[M, N, wd.f32](0.0)

    @wd.iterate(K, init_args=[acc])
    def loop(acc: wd.Register[M, N, wd.f32]):
        return wd.mma(wd.read(a), wd.read(b), acc)

    wd.write(loop, c)


LISTING = """\
kernel gemm
  a: memory [M, K] f16 shared
  b: memory [N, K] f16 shared
  c: memory [M, N] f32
  WorkgroupConstraint(M, BM, 0)
  WorkgroupConstraint(N, BN, 1)
  TilingConstraint(K, BK)
  WaveConstraint(M, BM/2)
  with BK=32, BM=64, BN=64
  %0 = fill value=0.0 : [M, N] f32
  %1 = iterate K (%2 = %0) : [M, N] f32
    %3 = read memory=a : [M, K] f16
    %4 = read memory=b : [N, K] f16
    %5 = mma %3, %4, %2 : [M, N] f32
    yield %5
  %6 = result %1 position=0 : [M, N] f32
  write %6 memory=c
"""

DOT = """\
digraph "gemm" {
  node [shape=box, fontname=monospace];
  n0 [label="fill value=0.0\\n[M, N] f32"];
  n1 [label="iterate"];
  subgraph cluster_1 {
    label="iterate K";
    n2 [label="carry position=0 name=acc\\n[M, N] f32"];
    n3 [label="read memory=a\\n[M, K] f16"];
    n4 [label="read memory=b\\n[N, K] f16"];
    n5 [label="mma\\n[M, N] f32"];
  }
  n6 [label="result position=0\\n[M, N] f32"];
  n7 [label="write memory=c"];
  n0 -> n1;
  n3 -> n5;
  n4 -> n5;
  n2 -> n5;
  n0 -> n2 [style=dotted];
  n5 -> n1 [style=dashed];
  n1 -> n6;
  n6 -> n7;
}
"""


def test_listing() -> None:
    assert str(gemm.trace()) == LISTING


def test_dot() -> None:
    assert gemm.trace().dot() == DOT


def test_networkx() -> None:
    graph = gemm.trace().nx()
    assert isinstance(graph, networkx.DiGraph) and len(graph) == 8
    assert graph.nodes[5]["op"] == "mma" and graph.nodes[5]["loop"] == 1 and graph.nodes[6]["loop"] is None
    assert graph.edges[0, 2]["kind"] == "init" and graph.edges[5, 1]["kind"] == "yield"
    assert networkx.ancestors(graph, 7) >= {0, 2, 3, 4, 5, 6}


def test_traces_are_equal_and_kept() -> None:
    assert gemm.trace() is gemm.trace()
    assert gemm.trace({BM: 128}) is not gemm.trace()
    assert str(gemm.trace_afresh(gemm.subs)) == str(gemm.trace())


def test_the_kernel_keeps_the_functions_face() -> None:
    assert gemm.__name__ == "gemm" and gemm.__doc__ == "C = A B^T."
    assert repr(gemm).startswith("<kernel gemm(a: Memory[M, K, SHARED, f16], b:")


def _marked(node: Node) -> str:
    assert node.loc is not None
    text = node.loc.text()
    return text[node.loc.col : node.loc.end_col] if node.loc.end_col else text.strip()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="columns need Python 3.11")
def test_every_node_points_at_its_expression() -> None:
    marked = {n.id: _marked(n) for n in gemm.trace().all_nodes()}
    assert marked[0] == "wd.Register[M, N, wd.f32](0.0)"
    assert marked[1] == "wd.iterate(K, init_args=[acc])"
    assert marked[2] == "acc: wd.Register[M, N, wd.f32]"
    assert marked[3] == "wd.read(a)" and marked[4] == "wd.read(b)"
    assert marked[5] == "wd.mma(wd.read(a), wd.read(b), acc)"
    assert marked[7] == "wd.write(loop, c)"
    assert gemm.trace().arguments[1].loc is not None
    loc = gemm.trace().arguments[1].loc
    assert loc.text()[loc.col : loc.end_col] == "b: wd.Memory[N, K, wd.SHARED, wd.f16]"


def test_statements_stand_in_for_columns() -> None:
    """What Python 3.10 falls back to."""
    space = run("if True:\n    x = 1; y = (2 +\n           3)\n", preamble="", file="<statements>")
    assert space["y"] == 5
    assert statement_columns("<statements>", 1)[0] == 1
    line, col, end = statement_columns("<statements>", 2)
    assert (line, col) == (2, 11) and end == 0
    assert statement_columns("<no such file>", 3) == (3, 0, 0)


def test_helpers_are_traced_through_with_their_call_sites() -> None:
    kernel = run(
        """
        def gelu(x):
            return x * wd.sigmoid(1.702 * x)

        @wd.wave([])
        def kernel(a: wd.Memory[M, wd.f32]):
            y = gelu(wd.read(a))
            wd.write(gelu(y), a)
        """
    )["kernel"]
    sigmoids = [n for n in kernel.trace().all_nodes() if n.op == "sigmoid"]
    assert [n.loc.function for n in sigmoids] == ["gelu", "gelu"]
    assert [n.loc.call_site.line for n in sigmoids] == [11, 12]
    assert sigmoids[0].loc.line == sigmoids[1].loc.line == 7


def test_a_notebook_cell() -> None:
    cell = run(
        "from __future__ import annotations\nimport wavedsl as wd\nM = wd.sym.M\n"
        "@wd.wave([])\ndef kernel(a: wd.Memory[M, wd.f32]):\n    wd.write(wd.read(a) + 1, a)\n",
        preamble="",
        file="<ipython-input-3-0123456789ab>",
    )["kernel"]
    nodes = list(cell.trace().all_nodes())
    assert nodes[0].loc.file == "<ipython-input-3-0123456789ab>"
    assert nodes[0].loc.text() == "    wd.write(wd.read(a) + 1, a)"


def test_without_any_source_at_hand() -> None:
    """What a plain REPL is before Python 3.13: errors still name the line."""
    space: dict = {"__name__": "__main__"}
    exec(
        compile(
            "import wavedsl as wd\nM = wd.sym.M\n@wd.wave([])\ndef k(a: wd.Memory[M, wd.f32]):\n    wd.write(a, a)\n",
            "<stdin>",
            "exec",
        ),
        space,
    )
    with pytest.raises(wd.TraceError) as raised:
        space["k"].trace()
    assert "<stdin>:5 in k" in str(raised.value)


def test_a_kernel_in_the_interpreter_of_a_fresh_process() -> None:
    source = (
        "import wavedsl as wd, numpy as np\nM = wd.sym.M\n@wd.wave([])\n"
        "def k(a: wd.Memory[M, wd.f32]):\n    wd.write(wd.read(a) * 2, a)\n"
        "x = np.ones(3, np.float32)\nk.evaluate(x)\nprint(x)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[2. 2. 2.]"


def test_several_carried_values_and_nested_loops() -> None:
    @wd.wave([wd.TilingConstraint(K, 4), wd.TilingConstraint(N, 8), wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(
        a: wd.Memory[M, K, wd.f32], b: wd.Memory[N, K, wd.f32], rows: wd.Memory[M, wd.f32], most: wd.Memory[M, wd.f32]
    ):
        zero = wd.Register[M, wd.f32](0.0)
        low = wd.Register[M, wd.f32](-np.inf)

        @wd.iterate(N, init_args=[zero, low])
        def outer(total, best):
            inside = wd.Register[M, N, wd.f32](0.0)

            @wd.iterate(K, init_args=[inside])
            def inner(acc):
                return wd.mma(wd.read(a), wd.read(b), acc)

            return total + wd.sum(inner, dim=N), wd.maximum(best, wd.max(inner, dim=N))

        total, best = outer
        wd.write(total, rows)
        wd.write(best, most)

    graph = kernel.trace()
    assert [n.attrs["dim"] for n in graph.loops()] == [N, K]
    assert [n.attrs["position"] for n in graph.all_nodes() if n.op == "result"] == [0, 0, 1]
    rng = np.random.default_rng(1)
    a, b = rng.integers(-3, 4, (5, 10)).astype(np.float32), rng.integers(-3, 4, (19, 10)).astype(np.float32)
    rows, most = np.zeros(5, np.float32), np.zeros(5, np.float32)
    kernel.evaluate(a, b, rows, most)
    product = a @ b.T
    assert np.array_equal(rows, product.sum(axis=1)) and np.array_equal(most, product.max(axis=1))


def test_a_loops_function_may_take_what_is_carried_as_one_tuple() -> None:
    @wd.wave([wd.TilingConstraint(K, 4)])
    def kernel(a: wd.Memory[M, K, wd.f32], b: wd.Memory[M, wd.f32], c: wd.Memory[M, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, wd.f32](0.0), wd.Register[M, wd.f32](1.0)])
        def sums(first, *others):
            return first + wd.sum(wd.read(a), dim=K), *(x * 2 for x in others)

        wd.write(sums[0], b)
        wd.write(sums[1], c)

    a, b, c = np.ones((2, 6), np.float32), np.zeros(2, np.float32), np.zeros(2, np.float32)
    kernel.evaluate(a, b, c)
    assert b.tolist() == [6, 6] and c.tolist() == [4, 4]
    assert "name=others" in str(kernel.trace().dot())


def test_loops_one_after_the_other_and_a_loop_without_carries() -> None:
    @wd.wave([wd.TilingConstraint(K, 4)])
    def kernel(a: wd.Memory[K, wd.f32], b: wd.Memory[K, wd.f32]):
        @wd.iterate(K)
        def first():
            wd.write(wd.read(a) + 1, b)

        @wd.iterate(K)
        def second():
            wd.write(wd.read(b) * 2, b)

        assert first is None and second is None

    a, b = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    kernel.evaluate(a, b)
    assert np.array_equal(b, (a + 1) * 2)


def test_broadcast_by_name() -> None:
    @wd.wave([])
    def kernel(
        a: wd.Memory[M, N, wd.f32], b: wd.Memory[N, M, wd.f32], c: wd.Memory[N, wd.f32], d: wd.Memory[M, N, wd.f32]
    ):
        wd.write(wd.read(a) + wd.read(b) * wd.read(c), d)

    rng = np.random.default_rng(0)
    a, b, c = rng.random((3, 4), np.float32), rng.random((4, 3), np.float32), rng.random(4, np.float32)
    d = np.zeros((3, 4), np.float32)
    kernel.evaluate(a, b, c, d)
    assert np.array_equal(d, a + (b * c[:, None]).T)


def test_address_spaces() -> None:
    SPACE, OTHER_SPACE = wd.symbols("SPACE OTHER_SPACE")

    @wd.wave([], subs={SPACE: wd.SHARED})
    def kernel(
        a: wd.Memory[M, SPACE, wd.f32], b: wd.Memory[M, OTHER_SPACE, wd.f32], c: wd.Memory[M, wd.GLOBAL, wd.f32]
    ):
        wd.write(wd.read(a) + wd.read(b), c)

    spaces = [a.address_space for a in kernel.trace().arguments]
    assert spaces == [wd.SHARED, OTHER_SPACE, wd.GLOBAL]
    bound = kernel.trace({SPACE: wd.GLOBAL, OTHER_SPACE: wd.SHARED})
    assert [a.address_space for a in bound.arguments] == [wd.GLOBAL, wd.SHARED, wd.GLOBAL]
    assert all(a.dims == (M,) for a in bound.arguments)


def test_plain_sympy_symbols_are_taken_by_name() -> None:
    plain = sympy.Symbol("M")

    @wd.wave([wd.WorkgroupConstraint(plain, 16, 0)])
    def kernel(a: wd.Memory[plain, wd.f32]):
        wd.write(wd.sum(wd.read(a), dim=M) + wd.read(a), a)

    assert kernel.trace().arguments[0].dims == (M,)


def test_index_dimensions_are_in_no_register() -> None:
    @wd.wave([wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(a: wd.Memory[H, M, wd.f32], b: wd.Memory[H, M, wd.f32]):
        x = wd.read(a)
        assert x.dims == (M,)
        y = x * wd.cast(wd.index(H), wd.f32)
        assert wd.index(H).dims == () and y.dims == (M,)
        wd.write(y, b)

    a, b = np.ones((3, 5), np.float32), np.zeros((3, 5), np.float32)
    kernel.evaluate(a, b)
    assert np.array_equal(b, np.repeat(np.arange(3.0), 5).reshape(3, 5))


def test_extents_in_arithmetic() -> None:
    @wd.wave([])
    def kernel(a: wd.Memory[M, K, wd.f32], b: wd.Memory[M, wd.f32]):
        x = wd.sum(wd.read(a), dim=K) / K
        wd.write(M * x + (K + 1) * x, b)

    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(2, np.float32)
    kernel.evaluate(a, b)
    assert np.array_equal(b, a.mean(axis=1) * (2 + 4))


def test_numpy_scalars_on_either_side() -> None:
    @wd.wave([])
    def kernel(a: wd.Memory[M, wd.f32], b: wd.Memory[M, wd.f32]):
        wd.write(np.float32(2) * wd.read(a) + np.float64(1), b)

    a, b = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    kernel.evaluate(a, b)
    assert np.array_equal(b, 2 * a + 1)


def test_partial_and_lambda_helpers() -> None:
    scale = functools.partial(lambda x, by: x * by, by=3)

    @wd.wave([])
    def kernel(a: wd.Memory[M, wd.f32]):
        wd.write(scale(wd.read(a)), a)

    a = np.arange(3, dtype=np.float32)
    kernel.evaluate(a)
    assert a.tolist() == [0, 3, 6]


def test_the_seeds_programs_are_expressible() -> None:
    LOAD, STORE, SPACE = wd.symbols("LOAD STORE SPACE")

    @wd.wave(
        [
            wd.HardwareConstraint(threads_per_wave=64, waves_per_block=(1, 1, 1), vector_shapes={M: BM, N: BN}),
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.WaveConstraint(M, BM / 1),
            wd.WaveConstraint(N, BN / 1),
        ],
        subs={M: 16, N: 16, K: 16, BM: 16, BN: 16, LOAD: 4, STORE: 4, SPACE: wd.SHARED},
    )
    def mma(
        a: wd.Memory[M, K, SPACE, wd.f16], b: wd.Memory[N, K, SPACE, wd.f16], c: wd.Memory[M, N, wd.GLOBAL, wd.f32]
    ):
        acc = wd.mma(wd.read(a, elements_per_thread=LOAD), wd.read(b, elements_per_thread=LOAD))
        wd.write(acc, c, elements_per_thread=STORE)

    reads = [n for n in mma.trace().all_nodes() if n.op == "read"]
    assert [n.attrs["elements_per_thread"] for n in reads] == [4, 4]
    assert mma.trace().argument("a").address_space is wd.SHARED


def test_every_public_row_is_exported_with_its_docstring() -> None:
    for name, row in ROWS.items():
        if row.public:
            function = getattr(wd, name)
            assert function.__doc__ and name in wd.__all__
    assert wd.exp.__name__ == "exp" and "exp(x)" in wd.exp.__doc__


def test_all_names_exist_but_the_compilers_load_late() -> None:
    late = {"CompiledKernel", "load"}
    for name in wd.__all__:
        if name not in late:
            assert getattr(wd, name) is not None


def test_import_is_light() -> None:
    """Neither back ends nor the runtime nor networkx' heavier parts load before they are needed."""
    source = (
        "import sys, numpy, sympy, networkx, ml_dtypes\nbefore = set(sys.modules)\nimport wavedsl\n"
        "print('\\n'.join(sorted(m for m in set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not [m for m in loaded if m.startswith(("wavedsl.codegen", "wavedsl.runtime", "ctypes"))], loaded
    assert "wavedsl.ir.evaluator.evaluate" not in loaded


def test_graph_helpers() -> None:
    graph = gemm.trace()
    assert isinstance(graph, Graph)
    assert graph.next_id() == 8 and [a.name for a in graph.arguments] == ["a", "b", "c"]
    assert graph.symbols == (M, K, N, BM, BN, BK)
    assert len(list(graph.regions())) == 2
    with pytest.raises(KeyError):
        graph.argument("d")
    assert ValueType((M, N), wd.f32).same_as(ValueType((N, M), wd.f32))
    assert not ValueType((M, N), wd.f32).same_as(ValueType((N, M), wd.f16))


def test_a_reshape_in_either_order_of_operands_that_disagree() -> None:
    """`permute` says which is meant, also where the order is the one that the value has anyway."""
    H, P = wd.symbols("H P")
    for first, second in ((H, K), (K, H)):

        @wd.wave([wd.WorkgroupConstraint(M, 1, 0)], subs={P: 6})
        def kernel(a: wd.Memory[M, H, K, wd.i32], b: wd.Memory[M, H, wd.i32], c: wd.Memory[M, P, wd.i32]):
            mask = wd.where(wd.index(K) == 0, wd.read(b), 0)  # [K, H]
            wd.write(wd.reshape(wd.permute(mask + wd.read(a), first, second), P), c)

        a, b, c = np.arange(12).reshape(2, 2, 3), np.array([[7, 8], [9, 10]]), np.zeros((2, 6), np.int32)
        a, b = a.astype(np.int32), b.astype(np.int32)
        kernel.evaluate(a, b, c)
        want = a + np.where(np.arange(3) == 0, b[..., None], 0)
        assert np.array_equal(c, (want if first == H else want.transpose(0, 2, 1)).reshape(2, 6))
