"""Loads an example as a module, with what examples share. Imported as `example_files`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name: str) -> ModuleType:
    """examples/<name>.py; the folder is on the path, last, while it imports its neighbours."""
    sys.path.append(str(EXAMPLES))
    try:
        found = sys.modules.get(name)
        if found is not None and Path(str(found.__file__)).parent == EXAMPLES:
            return found
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.pop()
