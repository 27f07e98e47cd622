"""`IndexMapping`: which elements of an array a gathered or scattered value stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
from wavedsl.ir.errors import TraceError
from wavedsl.ir.source import here


class IndexMapping:
    """For `read` and `write`: the value has dimensions `dims`; its element lies at `indices` of the array.

    `indices` gives, per dimension of the array, an expression over symbols, in which each dimension of the value stands
    for the element's own index along it, or a traced integer value (a gather). A dimension left out is indexed by
    itself. `IndexMapping((T, D), {V: ids})` reads row `ids[t]` of an array `[V, D]`; `IndexMapping((N, K), {M: N})`
    reads an array `[M, K]` under the name N; `IndexMapping((M,), {M: M + 1})` is a shift. A gathered element whose
    index lies outside of the array is 0; a scattered one is skipped.
    """

    __slots__ = ("dims", "indices")

    def __init__(self, dims: Any, indices: Mapping[Any, Any]):
        if isinstance(dims, sympy.Expr):
            dims = (dims,)
        if not isinstance(indices, Mapping):
            raise TraceError(
                f"IndexMapping: indices is {indices!r}",
                here(),
                hint="a dict from the array's dimensions to indices, for example {V: ids}",
            )
        self.dims = tuple(dims)
        self.indices = dict(indices)

    def __repr__(self) -> str:
        return f"IndexMapping({self.dims}, {self.indices})"
