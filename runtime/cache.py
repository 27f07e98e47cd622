"""The compile cache on disk: what was compiled once is found again by any process.

In comes a key's parts, such as the traced graph (which holds what the kernel's source and its helpers amounted to),
bindings, options, target and `package_stamp()`; out come the files stored under their hash. Binaries are entries of
their own (`binaries`): what the assembler makes of a text does not depend on how the text came about.

An entry is one folder, complete from the moment it can be seen: it is written elsewhere and renamed into place. Whoever
comes second finds the name taken and drops its copy, which is the same. Entries leave by being renamed away first.
The folder `tmp` that both go through is never removed. Readers therefore need no lock.

Invariant: `load` returns exactly what `store` was given, or nothing; a damaged entry is dropped with a warning.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from wavedsl.ir.quick_dataclass import dataclass

META = "meta.json"
FORMAT = 1
"""Layout of an entry; part of every key."""
DEFAULT_LIMIT = 1 << 30


class CacheWarning(RuntimeWarning):
    """The cache could not keep or use something; compiling goes on without it."""


@dataclass(frozen=True)
class Entry:
    """What is known of one entry without reading its files: `parts` maps each part of the key to its hash."""

    key: str
    name: str
    target: str
    parts: dict[str, str]
    size: int
    created: float
    used: float
    """Times in seconds since the epoch."""
    path: Path


def folder() -> Path:
    """WAVEDSL_CACHE_DIR, else `wavedsl/kernels` in the user's cache folder."""
    own = os.environ.get("WAVEDSL_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "wavedsl", "kernels")


def limit() -> int:
    """Bytes that the cache may take: WAVEDSL_CACHE_BYTES, else 1 GiB. 0 turns it off."""
    given = os.environ.get("WAVEDSL_CACHE_BYTES", "")
    if given and not given.isdecimal():
        said = f"WAVEDSL_CACHE_BYTES={given} is no whole number of bytes: the cache takes up to {DEFAULT_LIMIT}"
        warnings.warn(said, CacheWarning, stacklevel=2)
        return DEFAULT_LIMIT
    return int(given) if given else DEFAULT_LIMIT


def part_hashes(parts: Mapping[str, str]) -> dict[str, str]:
    """A short hash per part, in the order of their names."""
    return {name: hashlib.sha256(parts[name].encode()).hexdigest()[:16] for name in sorted(parts)}


def key_of(parts: Mapping[str, str]) -> str:
    """The key that stands for `parts` (name → text). The names are free; equal parts give equal keys."""
    text = json.dumps([FORMAT, {name: parts[name] for name in sorted(parts)}])
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def package_stamp() -> str:
    """A string that changes with this package: the size and time of each of its source files.

    Found through the packages' own folders, so that an editable install is covered while it is being edited.
    """
    stamp = hashlib.sha256()
    walked: set[str] = set()
    for package in ("", ".codegen", ".ir", ".runtime", ".tracer"):
        spec = importlib.util.find_spec("wavedsl" + package)
        for start in (spec.submodule_search_locations or ()) if spec is not None else ():
            for file in _sources(start, walked):
                stat = file.stat()
                stamp.update(f"{file.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return stamp.hexdigest()[:16]


def _sources(folder: str, walked: set[str]) -> Iterator[os.DirEntry[str]]:
    """The source files in a folder and those inside it, by name, but for folders that have been `walked`."""
    if folder in walked:
        return
    walked.add(folder)
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=lambda e: e.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield entry
        elif entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
            yield from _sources(entry.path, walked)


# -------------------------------------------------------------------------------------------------------- load, store


def load(key: str) -> dict[str, bytes] | None:
    """The files stored under `key`, by name; None if there are none. Counts as a use."""
    if limit() == 0:
        return None
    path = _place(key)
    for _ in range(_TRIES):
        before = _identity(path)
        if before is None:
            return None
        found = _read_files(path)
        if isinstance(found, dict):
            _touch(path)
            return found
        if _identity(path) == before:
            _drop_damaged(path, found)
            return None
        # Another process replaced the entry while it was being read: look again.
    return None


_TRIES = 100


def _touch(path: Path) -> None:
    """Mark an entry as used now. It may be gone, or the folder read-only: its files are in hand all the same."""
    try:
        os.utime(path / META)
    except OSError:
        return


def _identity(path: Path) -> tuple[int, int] | None:
    """Which folder lies at `path`, and when it was put there or last changed; None without one."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_ctime_ns


def _read_files(path: Path) -> dict[str, bytes] | str:
    """The files of an entry as its list says, or what is wrong with it."""
    try:
        listed = json.loads((path / META).read_bytes())["files"]
        files = {name: (path / name).read_bytes() for name in listed}
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{META} is unreadable: {str(error) or type(error).__name__}"
    changed = [name for name, data in files.items() if hashlib.sha256(data).hexdigest() != listed[name]]
    return f"{', '.join(changed)} changed" if changed else files


def store(key: str, files: Mapping[str, bytes], *, name: str, target: str, parts: Mapping[str, str]) -> None:
    """Publish `files` under `key`, with what `wavedsl cache` shows. Losing a race, or a full disk, is no error."""
    if limit() == 0:
        return
    if META in files:
        raise ValueError(f"{META} is the cache's own file")
    meta = {
        "name": name,
        "target": target,
        "parts": part_hashes(parts),
        "created": time.time(),
        "files": {file: hashlib.sha256(data).hexdigest() for file, data in files.items()},
    }
    place = _place(key)
    try:
        staged = _staging()
        staged.mkdir(parents=True)
        for file, data in (*files.items(), (META, json.dumps(meta, indent=1).encode())):
            (staged / file).write_bytes(data)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not _rename(staged, place):
            shutil.rmtree(staged, ignore_errors=True)
            return
    except OSError as error:
        warnings.warn(f"{name} was not kept in {folder()}: {error}", CacheWarning, stacklevel=2)
        return
    evict()


def _place(key: str) -> Path:
    return folder() / key[:2] / key


def _staging() -> Path:
    """A new name under `tmp`: it says whose it is, so that others can tell a crashed process's leftovers."""
    return folder() / "tmp" / f"{os.getpid()}@{platform.node()}@{os.urandom(16).hex()}"


def _rename(staged: Path, place: Path) -> bool:
    """Move a complete folder into place; False if one is there already."""
    try:
        os.replace(staged, place)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _remove(path: Path) -> bool:
    """Take an entry away so that no reader sees half of it; False if another process did, or it cannot be moved."""
    grave = _staging()
    try:
        grave.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, grave)
    except OSError:
        return False
    shutil.rmtree(grave, ignore_errors=True)
    return True


def _drop_damaged(path: Path, reason: str) -> None:
    if _remove(path):
        warnings.warn(
            f"the cache entry {path.name[:12]} is damaged ({reason}); it is compiled anew", CacheWarning, stacklevel=3
        )


# ------------------------------------------------------------------------------------------------- list, explain, clear


def entries() -> list[Entry]:
    """Every entry, most recently used first."""
    return sorted(_walk(), key=lambda e: (-e.used, e.key))


def entry(key: str) -> Entry | None:
    """The entry of `key`, or None."""
    return _read(_place(key))


def _walk() -> Iterator[Entry]:
    root = folder()
    if not root.is_dir():
        return
    for shelf in root.iterdir():
        if shelf.name == "tmp" or not shelf.is_dir():
            continue
        for path in shelf.iterdir():
            found = _read(path)
            if found is not None:
                yield found


def _read(path: Path) -> Entry | None:
    try:
        meta: dict[str, Any] = json.loads((path / META).read_bytes())
        used = (path / META).stat().st_mtime
        size = sum(file.stat().st_size for file in path.iterdir())
        return Entry(path.name, meta["name"], meta["target"], meta["parts"], size, meta["created"], used, path)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # gone since it was listed, or damaged: `load` deals with it when it is asked for


def why(name: str) -> list[str]:
    """For each compile of kernel `name`, oldest first: which parts of its key differ from the one before."""
    found = sorted((e for e in _walk() if e.name == name), key=lambda e: (e.created, e.key))
    out = []
    last: dict[str, Entry] = {}
    for e in found:
        before = last.get(e.target)
        if before is None:
            reason = f"first compile for {e.target}"
        else:
            changed = [p for p in sorted({*e.parts, *before.parts}) if e.parts.get(p) != before.parts.get(p)]
            reason = f"{', '.join(changed) or 'nothing'} differs from {before.key[:12]}"
        last[e.target] = e
        out.append(
            f"{e.key[:12]}  {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(e.created))}  {e.target}: {reason}"
        )
    return out


def clear() -> int:
    """Remove every entry and what crashed processes left behind; the number of entries removed."""
    removed = 0
    root = folder()
    for shelf in list(root.iterdir()) if root.is_dir() else ():
        if shelf.name != "tmp" and shelf.is_dir():
            removed += sum(_remove(path) for path in list(shelf.iterdir()))
    _sweep()
    return removed


def evict() -> None:
    """Remove the least recently used entries until the rest fits `limit()`, and stale leftovers."""
    found = entries()
    total = 0
    for e in found:
        total += e.size
        if total > limit() and e is not found[0]:
            _remove(e.path)
    _sweep()


_STALE = 3600.0
"""Seconds after which a leftover of a process on another machine counts as abandoned."""


def _sweep() -> None:
    """Remove what crashed processes left under `tmp`, and nothing that a live one may still be writing."""
    tmp = folder() / "tmp"
    if not tmp.is_dir():
        return
    for path in list(tmp.iterdir()):
        process, _, rest = path.name.partition("@")
        here = rest.partition("@")[0] == platform.node()
        try:
            if not _alive(int(process)) if here else time.time() - path.stat().st_mtime > _STALE:
                shutil.rmtree(path, ignore_errors=True)
        except (OSError, ValueError):
            continue  # gone already, or not a name of ours


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True
