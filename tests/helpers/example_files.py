"""Loads an example, or a benchmark, as a module, with what its neighbours share. Imported as `example_files`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BENCHMARKS = EXAMPLES.parent / "benchmarks"


def load(name: str, folder: Path = EXAMPLES) -> ModuleType:
    """<folder>/<name>.py; the folder is on the path, last, while it imports its neighbours."""
    sys.path.append(str(folder))
    try:
        found = sys.modules.get(name)
        if found is not None and Path(str(found.__file__)).parent == folder:
            return found
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.pop()
