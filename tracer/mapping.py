"""`IndexMapping`: which elements of an array a gathered or scattered value stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
from wavedsl.ir.errors import TraceError
from wavedsl.ir.options import with_options
from wavedsl.ir.source import here


@with_options(
    {"inputs": "indices", "outputs": "indices", "mapping": "indices", "shape": "dims", "num_iterators": "dims"},
    example="wd.IndexMapping((T, D), {V: wd.read(ids)}): the value's dimensions, then where each element lies",
    error=TraceError,
)
class IndexMapping:
    """For `read` and `write`: the value has dimensions `dims`; its element lies at `indices` of the array.

    `indices` gives, per dimension of the array, an expression over symbols, in which each dimension of the value stands
    for the element's own index along it, or a traced integer value (a gather). A dimension left out is indexed by
    itself. `IndexMapping((T, D), {V: ids})` reads row `ids[t]` of an array `[V, D]`; `IndexMapping((N, K), {M: N})`
    reads an array `[M, K]` under the name N; `IndexMapping((M,), {M: M + 1})` is a shift. A gathered element whose
    index lies outside of the array is 0; a scattered one is skipped.
    """

    __slots__ = ("dims", "indices")

    def __init__(self, dims: Any, indices: Mapping[Any, Any] | None = None):
        if isinstance(dims, sympy.Expr):
            dims = (dims,)
        if isinstance(dims, Mapping) or indices is None:
            given = dims if isinstance(dims, Mapping) else {}
            own = [i for i in given.values() if isinstance(i, sympy.Symbol)]
            example = f"({''.join(f'{d}, ' for d in own).rstrip()}…), {given}" if own else "(N, K), {M: N}"
            raise TraceError(
                "IndexMapping: the dict alone" if isinstance(dims, Mapping) else "IndexMapping: the dimensions alone",
                here(),
                hint=f"first the value's dimensions, then where each element lies: wd.IndexMapping({example})",
            )
        if not isinstance(dims, (tuple, list)):
            raise TraceError(
                f"IndexMapping: dims is {dims!r}",
                here(),
                hint="the value's dimensions, for example wd.IndexMapping((N, K), {M: N})",
            )
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
