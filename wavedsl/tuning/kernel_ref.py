"""How a kernel travels to a worker: by name, never by value.

A kernel holds the calls that surround its definition, which no pickle can carry. A `KernelRef` names it instead: by a
token in the process that made the reference and in those forked from it, by module and name where it can be imported,
and by file and name where its module is a script.
"""

from __future__ import annotations

import importlib
import sys
import uuid
import weakref
from pathlib import Path
from typing import Any

from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.quick_dataclass import dataclass

_HERE: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class KernelRef:
    """Where to find a kernel. `qualname` is empty for one that only this process and its forks can find."""

    token: str
    module: str
    file: str
    qualname: str

    def load(self) -> Any:
        """The kernel. ConstraintError where this process cannot find it."""
        found = _HERE.get(self.token)
        if found is not None:
            return found
        if self.qualname:
            for load in (self._from_module, self._from_file):
                found = load()
                if found is not None:
                    return found
        raise ConstraintError(
            f"kernel {self.qualname or self.module} cannot be found in another process",
            hint="define it at the top level of a module that workers can import",
        )

    def _from_module(self) -> Any:
        if self.module == "__main__":
            return None
        try:
            return _inside(importlib.import_module(self.module), self.qualname)
        except ImportError:
            return None

    def _from_file(self) -> Any:
        path = Path(self.file)
        if not path.is_file():
            return None
        from wavedsl.find_kernel import load_file

        return _inside(load_file(path), self.qualname)


def _inside(module: Any, qualname: str) -> Any:
    from wavedsl.find_kernel import underlying

    return underlying(getattr(module, qualname, None))


def reference(kernel: Any) -> KernelRef:
    """A reference to `kernel`, by name as far as its name leads back to it."""
    token = getattr(kernel, "_token", None)
    if token is None:
        token = kernel._token = uuid.uuid4().hex
    _HERE[token] = kernel
    function = kernel.function
    module = sys.modules.get(function.__module__)
    named = module is not None and _inside(module, function.__name__) is kernel
    return KernelRef(token, function.__module__, function.__code__.co_filename, function.__name__ if named else "")
