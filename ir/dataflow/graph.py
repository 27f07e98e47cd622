"""The dataflow graph: what a traced kernel means, before anything is decided about lanes, memory or time.

A `Graph` is a list of nodes in program order, with a nested `Region` per loop. Values are named-dimension arrays in
registers; a value's dimensions are names and their order carries no meaning. Effects (write, atomics, prints) are
nodes without a value whose order in the list is their order in time.

Invariants (checked by `graph_verify`): a node's inputs come before it, in its own region or in one that encloses it;
`iterate` has as many inputs as its region has carries and yields, with equal types, and after them those of its bounds
(`attrs["bounds"]`: where `start` and `stop` are among the inputs, None where there is none; `attrs["aligned"]`: they
are multiples of the loop's tile; `attrs["length"]`: their known distance); a tuple-valued node (`iterate`, `topk`) is
used through `result` nodes only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from wavedsl.ir.dtypes import DType
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import AddressSpace, Dim, dim_name, names

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True)
class ValueType:
    """A register value: named dimensions and an element type. A derived extent (`K / 32`) is its own name."""

    dims: tuple[Dim, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"[{names(self.dims)}] {self.dtype}"

    def same_as(self, other: ValueType) -> bool:
        """Equal up to the order of dimensions, which has no meaning."""
        return self.dtype is other.dtype and (self.dims == other.dims or frozenset(self.dims) == frozenset(other.dims))


@dataclasses.dataclass(eq=False, slots=True)
class Node:
    """One operation. `type` is a ValueType, a tuple of them for several results, None for an effect."""

    id: int
    op: str
    inputs: tuple[Node, ...]
    attrs: dict[str, Any]
    type: ValueType | tuple[ValueType, ...] | None
    loc: Loc | None

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Dimensions of the one value this node gives."""
        assert isinstance(self.type, ValueType), f"{self.op} has no single value"
        return self.type.dims

    @property
    def dtype(self) -> DType:
        """Element type of the one value this node gives."""
        assert isinstance(self.type, ValueType), f"{self.op} has no single value"
        return self.type.dtype

    def __repr__(self) -> str:
        return f"%{self.id} = {self.op}"


@dataclasses.dataclass(eq=False, slots=True)
class Region:
    """A list of nodes with arguments (`carries`) and results (`yields`): the kernel, a loop body, a combining function.

    `dim` is the loop's dimension, None for the kernel itself and for the functions of `reduce` and `scan`.
    """

    dim: Dim | None = None
    nodes: list[Node] = field(default_factory=list)
    carries: list[Node] = field(default_factory=list)
    yields: tuple[Node, ...] = ()
    loc: Loc | None = None


PRODUCTS = ("mma", "scaled_mma")
"""Matrix products. A scaled one takes a scale behind each operand."""
REGIONS = ("iterate", "when", "repeat")
"""Nodes that run a region and carry values: a loop over tiles, a condition, a loop that ends by itself."""


PART = "_part"
"""The grid dimension of the parts of a loop that workgroups share (`split_k`)."""


def factors(n: Node) -> tuple[int, int]:
    """Positions of the two operands of a product."""
    return (0, 2) if n.op == "scaled_mma" else (0, 1)


def addend(n: Node) -> Node | None:
    """What a product is added to."""
    position = 4 if n.op == "scaled_mma" else 2
    return n.inputs[position] if len(n.inputs) > position else None


def initial_values(node: Node) -> tuple[Node, ...]:
    """What a node of `REGIONS` carries into its region; `when` has its condition first."""
    return node.inputs[1:] if node.op == "when" else node.inputs[: len(node.attrs["body"].carries)]


def next_values(node: Node) -> tuple[Node, ...]:
    """What its region yields for what is carried; `repeat` yields last whether it goes on."""
    yields: tuple[Node, ...] = node.attrs["body"].yields
    return yields[:-1] if node.op == "repeat" else yields


@dataclass(frozen=True)
class Mapping:
    """Where the elements of a gathered or scattered value lie (`IndexMapping`, resolved).

    `dims`: dimensions of the value. `coords`: per dimension of the memory a sympy expression over the value's
    dimensions (each standing for the element's own index along it), or an int k: the node's k-th input holds it.
    """

    dims: tuple[Dim, ...]
    coords: tuple[Any, ...]


@dataclass(frozen=True)
class Argument:
    """A kernel parameter. `dims` are its dimensions, outermost first, index dimensions included; () for a scalar.

    `shape` holds the extents as expressions: a dimension and its extent are the same expression.
    """

    name: str
    kind: str
    dims: tuple[Dim, ...]
    dtype: DType
    address_space: AddressSpace | Any | None = None
    loc: Loc | None = None
    hidden: str = ""
    """What an array is for that the user does not pass: the launch brings it (`runtime.workspace`)."""

    def __str__(self) -> str:
        if self.kind == "scalar":
            return f"{self.name}: scalar {self.dtype}"
        space = f" {self.address_space}" if self.address_space is not None else ""
        if isinstance(self.address_space, AddressSpace):
            space = f" {self.address_space.value}"
        return f"{self.name}: memory [{names(self.dims)}] {self.dtype}{space}"


@dataclass(eq=False)
class Graph:
    """A traced kernel.

    `subs` binds symbols as far as they were bound when it was traced; `index_dims` are the dimensions that no register
    has (workgroup tile 1); `symbols` are all symbols that occur, in order of appearance.
    """

    name: str
    region: Region
    arguments: list[Argument]
    constraints: list[Any]
    subs: dict[Any, Any]
    symbols: tuple[Any, ...] = ()
    index_dims: tuple[Any, ...] = ()
    dynamic: tuple[Any, ...] = ()
    loc: Loc | None = None
    named: frozenset[Any] = frozenset()
    """Symbols that the kernel itself says: in its arguments, constraints and function."""
    notes: tuple[str, ...] = ()
    """What passes have decided, with reasons, for reports."""
    traced: Graph | None = None
    """The kernel as it was traced, where workgroups share what it says of one: its work is counted there."""
    gathered: frozenset[int] = frozenset()
    """Reads, by id, whose elements a mapping takes from memory in runs that copies to shared memory can have, as far
    as is known of their arrays (`gathered_rows.gathered_operands`)."""
    placements: dict[int, Any] = field(default_factory=dict, init=False, repr=False)
    """What `views.placement` has found, by node id. A graph's arguments, constraints and bindings stay as they are."""

    def argument(self, name: str) -> Argument:
        """The argument of that name."""
        for argument in self.arguments:
            if argument.name == name:
                return argument
        raise KeyError(name)

    def all_nodes(self) -> list[Node]:
        """Every node in program order; a loop's body follows its `iterate` node, region arguments first."""
        return region_nodes(self.region)

    def regions(self) -> Iterator[Region]:
        """The kernel's region, then every nested one in program order."""
        yield self.region
        for node in self.all_nodes():
            if "body" in node.attrs:
                yield node.attrs["body"]

    def loops(self) -> list[Node]:
        """Every `iterate` node, in program order."""
        return [n for n in self.all_nodes() if n.op == "iterate"]

    def next_id(self) -> int:
        """An id that no node has, for passes that add nodes."""
        return 1 + max((n.id for n in self.all_nodes()), default=-1)

    def nx(self) -> networkx.DiGraph:
        """A networkx graph with one vertex per node id, loop bodies included.

        Vertex attributes: `op`, `type`, `label`, `loop` (id of the enclosing iterate node or None), `node`.
        Edge attribute `kind`: `value`, `init` (into a carry), `yield` (from the body back to its loop).
        """
        import networkx

        graph = networkx.DiGraph(name=self.name)

        def visit(region: Region, loop: int | None) -> None:
            for node in [*region.carries, *region.nodes]:
                graph.add_node(node.id, op=node.op, type=node.type, label=_label(node), loop=loop, node=node)
            for node in region.nodes:
                for value in node.inputs:
                    graph.add_edge(value.id, node.id, kind="value")
                body = node.attrs.get("body")
                if body is not None:
                    visit(body, node.id)
                    if node.op in REGIONS:
                        for init, carry in zip(initial_values(node), body.carries):
                            graph.add_edge(init.id, carry.id, kind="init")
                    for value in body.yields:
                        graph.add_edge(value.id, node.id, kind="yield")

        visit(self.region, None)
        return graph

    def dot(self) -> str:
        """The graph in Graphviz' DOT language, loops as clusters. Byte-identical for equal graphs."""
        out = [f'digraph "{self.name}" {{', "  node [shape=box, fontname=monospace];"]
        edges: list[str] = []

        def visit(region: Region, indent: str) -> None:
            for node in [*region.carries, *region.nodes]:
                text = _label(node).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
                out.append(f'{indent}n{node.id} [label="{text}"];')
                edges.extend(f"  n{value.id} -> n{node.id};" for value in node.inputs)
                body = node.attrs.get("body")
                if body is not None:
                    out.append(f"{indent}subgraph cluster_{node.id} {{")
                    title = node.op if body.dim is None else f"{node.op} {body.dim}"
                    out.append(f'{indent}  label="{title}";')
                    visit(body, indent + "  ")
                    out.append(f"{indent}}}")
                    if node.op in REGIONS:
                        edges.extend(
                            f"  n{init.id} -> n{carry.id} [style=dotted];"
                            for init, carry in zip(initial_values(node), body.carries)
                        )
                    edges.extend(f"  n{value.id} -> n{node.id} [style=dashed];" for value in body.yields)

        visit(self.region, "  ")
        return "\n".join([*out, *edges, "}"]) + "\n"

    def __str__(self) -> str:
        return self.text()

    def text(self, *, locations: bool = False) -> str:
        """The graph as indented text, one node per line; `locations` appends the source line of each."""
        out = [f"kernel {self.name}"]
        out += [f"  {argument}" for argument in self.arguments]
        out += [f"  {constraint}" for constraint in self.constraints]
        if self.subs:
            bound = ", ".join(f"{k}={getattr(v, 'value', v)}" for k, v in sorted(self.subs.items(), key=_by_name))
            out.append(f"  with {bound}")
        if self.dynamic:
            out.append(f"  dynamic {names(self.dynamic)}")

        def visit(region: Region, indent: str) -> None:
            for node in region.nodes:
                line = indent + node_text(node)
                if locations and node.loc is not None:
                    line = f"{line:<64}  # {node.loc.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{node.loc.line}"
                out.append(line)
                body = node.attrs.get("body")
                if body is not None:
                    visit(body, indent + "  ")
                    out.append(f"{indent}  yield " + ", ".join(f"%{v.id}" for v in body.yields))

        visit(self.region, "  ")
        return "\n".join(out) + "\n"


def region_nodes(region: Region) -> list[Node]:
    """Every node of `region` and of the regions inside it, in program order, region arguments first."""
    found = list(region.carries)
    for node in region.nodes:
        found.append(node)
        body = node.attrs.get("body")
        if body is not None:
            found += region_nodes(body)
    return found


def loop_bounds(node: Node) -> tuple[Node | None, Node | None]:
    """The nodes that hold the first element and the end of a loop's range; None where it is that of the dimension."""
    start, stop = node.attrs.get("bounds", (None, None))
    return (None if start is None else node.inputs[start]), (None if stop is None else node.inputs[stop])


def xor_of_index(n: Node, dim: Any) -> int | None:
    """The constant c of `index(dim) ^ c`."""
    if n.op != "bitxor":
        return None
    for index, number in (n.inputs, n.inputs[::-1]):
        if index.op == "index" and index.attrs["dim"] == dim and number.op == "constant":
            return int(number.attrs["value"]) if number.attrs["value"] >= 0 else None
    return None


def node_text(node: Node) -> str:
    """One node as a line of the listing: `%3 = mma %1, %2, %0 : [M, N] f32`."""
    words = [node.op]
    body = node.attrs.get("body")
    if node.op in REGIONS and body is not None:
        if node.op == "iterate":
            words.append(str(body.dim))
            for word, bound in zip(("from", "to"), loop_bounds(node)):
                if bound is not None:
                    words.append(f"{word} %{bound.id}")
        elif node.op == "when":
            words.append(f"%{node.inputs[0].id}")
        if body.carries:
            pairs = zip(body.carries, initial_values(node))
            words.append("(" + ", ".join(f"%{c.id} = %{i.id}" for c, i in pairs) + ")")
    else:
        if body is not None:
            words.append("(" + ", ".join(f"%{c.id}" for c in body.carries) + ")")
        if node.inputs:
            words.append(", ".join(f"%{i.id}" for i in node.inputs))
    words += _shown(node)
    text = " ".join(words)
    if node.type is None:
        return text
    types = ", ".join(map(str, node.type)) if isinstance(node.type, tuple) else str(node.type)
    return f"%{node.id} = {text}" + (f" : {types}" if types else "")


_SILENT = ("body", "dims", "dtype", "bounds", "aligned", "length")


def _shown(node: Node) -> list[str]:
    """Attributes worth showing: what the type or the line's beginning already says is left out."""
    silent = (*_SILENT, "dim") if node.op == "iterate" else _SILENT
    return [_attr_text(key, value) for key, value in node.attrs.items() if key not in silent and value is not None]


def _attr_text(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        coords = ", ".join(f"%in{c}" if isinstance(c, int) else dim_name(c) for c in value.coords)
        return f"{key}=[{names(value.dims)} at {coords}]"
    if isinstance(value, tuple):
        return f"{key}=({names(value)})"
    return f"{key}={value!r}" if isinstance(value, str) and not value.isidentifier() else f"{key}={dim_name(value)}"


def _label(node: Node) -> str:
    label = " ".join([node.op, *_shown(node)])
    if isinstance(node.type, ValueType):
        label += f"\n{node.type}"
    return label


def _by_name(item: tuple[Any, Any]) -> str:
    return str(item[0])
