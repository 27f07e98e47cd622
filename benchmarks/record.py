"""What every benchmark writes beside its numbers: machine, versions, commit, date."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def _git(*arguments: str) -> str:
    """What git says; nothing where there is no git, or only a copy of the files."""
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=HERE, check=False).stdout.strip()
    except OSError:
        return ""


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def sources() -> str:
    """What identifies the sources where no git does: a hash of every Python file."""
    found = hashlib.sha256()
    for path in sorted(p for p in HERE.parent.rglob("*.py") if not any(x.startswith(".") for x in p.parts)):
        found.update(path.relative_to(HERE.parent).as_posix().encode() + b"\0" + path.read_bytes())
    return f"sources {found.hexdigest()[:12]}"


def surroundings(known: str = "") -> dict[str, Any]:
    """The machine and the software that numbers were measured on; `known`: the commit, where the caller knows it."""
    commit = known or _git("describe", "--always") or sources()
    if not known and _git("status", "--porcelain", "--untracked-files=no", "--", "..", ":!results"):
        commit += "-dirty"  # results that were written before this one do not count
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit,
        "python": platform.python_version(),
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
        "versions": {
            name: _version(name) for name in ("wavedsl", "numpy", "sympy", "networkx", "ml_dtypes")
        },
    }


def gpu(torch: Any) -> dict[str, Any]:
    """The GPU that torch uses, and its software."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    found = {"name": properties.name, "units": properties.multi_processor_count, "bytes": properties.total_memory}
    found["torch"], found["cuda"], found["hip"] = torch.__version__, torch.version.cuda, torch.version.hip
    asked = ["nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"]
    try:
        found["driver, power limit, clock"] = subprocess.run(
            asked, capture_output=True, text=True, check=False
        ).stdout.splitlines()
    except OSError:
        pass
    found["triton"] = _version("triton")
    return found


def write(name: str, rows: list[dict[str, Any]], folder: Path | None = None, **more: Any) -> Path:
    """Store the rows of benchmark `name` as `results/<name>.json`, or in another folder, and whatever else is given."""
    path = (folder or HERE / "results") / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**surroundings(), **more, "rows": rows}, indent=1) + "\n")
    return path


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
