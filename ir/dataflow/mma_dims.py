"""Dimensions of a product: what its operands keep, what they contract, what a scale stands for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wavedsl.ir.dataflow.graph import Node, factors
from wavedsl.ir.dataflow.ops import MX_BLOCK, scale_block
from wavedsl.ir.errors import CompileError, ConstraintError


def product_dims(node: Node) -> tuple[Any, Any, Any]:
    """The dimensions (M, N, K) of a product; M or N is None where an operand has only K."""
    a, b = (node.inputs[p] for p in factors(node))
    result_dims = list(node.dims)
    shared = [d for d in a.dims if d in b.dims]
    k_dims = [d for d in shared if d not in result_dims]
    m_dims = [d for d in a.dims if d in result_dims and d not in shared]
    n_dims = [d for d in b.dims if d in result_dims and d not in shared]
    if len(k_dims) != 1 or len(m_dims) > 1 or len(n_dims) > 1 or any(d in result_dims for d in shared):
        raise CompileError(
            f"mma of [{_names(a.dims)}] and [{_names(b.dims)}] to [{_names(result_dims)}]: "
            "a matrix instruction takes one dimension of each operand and one that both contract",
            node.loc,
            _one_of_each([d for d in shared if d in result_dims], k_dims, m_dims if len(m_dims) > 1 else n_dims),
        )
    return m_dims[0] if m_dims else None, n_dims[0] if n_dims else None, k_dims[0]


def _one_of_each(batch: list[Any], contracted: list[Any], kept: list[Any]) -> str:
    """How a product of more dimensions becomes one that instructions take."""
    if batch:
        return f"make {_names(batch)} an index dimension: wd.WorkgroupConstraint({batch[0]}, 1, <axis>)"
    several = contracted if len(contracted) > 1 else kept
    other = "" if several is contracted else f", or make {several[0]} an index dimension (workgroup tile 1)"
    return f"pass arrays in which {_names(several)} are one dimension (a view, if they are neighbours in memory){other}"


def scale_dim(node: Node, position: int, k: Any) -> Any:
    """The dimension of a scale that stands for the contracted one. Raises ConstraintError where a scale is not for as
    many elements as the instructions have."""
    value, scale = node.inputs[position], node.inputs[position + 1]
    block = scale_block(value.type, scale.type, k)  # type: ignore[arg-type]
    if block != MX_BLOCK:
        raise ConstraintError(
            f"scaled_mma: a scale for {block} elements of {k}", node.loc, f"matrix instructions take one for {MX_BLOCK}"
        )
    return next(d for d in scale.dims if d not in value.dims)


def _names(dims: Iterable[Any]) -> str:
    return ", ".join(map(str, dims))
