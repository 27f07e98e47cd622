"""The compile cache: what is stored comes back or nothing does, under races, damage and a size limit."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import platform
import time

import pytest
from wavedsl.runtime import cache

FILES = {"kernel.s": b"s_endpgm\n", "kernel.json": b"{}"}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("WAVEDSL_CACHE_BYTES", raising=False)
    return tmp_path / "cache"


def store(files=FILES, **parts) -> str:
    key = cache.key_of(parts)
    cache.store(key, files, name="gemm", target="gfx942", parts=parts)
    return key


def test_what_is_stored_comes_back():
    key = store(graph="a", target="gfx942")
    assert cache.load(key) == FILES
    assert cache.load(cache.key_of({"graph": "b", "target": "gfx942"})) is None
    (only,) = cache.entries()
    assert (only.key, only.name, only.target) == (key, "gemm", "gfx942")
    assert only.size > sum(map(len, FILES.values()))


def test_key_does_not_depend_on_order_and_separates_parts():
    assert cache.key_of({"a": "1", "b": "2"}) == cache.key_of({"b": "2", "a": "1"})
    assert len({cache.key_of(p) for p in ({"a": "12", "b": ""}, {"a": "1", "b": "2"}, {"ab": "12"}, {"a": "1"})}) == 4


def test_second_publisher_changes_nothing(own_folder):
    key = store(graph="a")
    store(files={"kernel.s": b"something else"}, graph="a")
    assert cache.load(key) == FILES
    assert list((own_folder / "tmp").iterdir()) == []


@pytest.mark.parametrize("damage", ["change", "truncate meta", "remove file", "remove meta"])
def test_a_damaged_entry_is_dropped_with_a_warning(damage):
    key = store(graph="a")
    path = cache.entry(key).path
    if damage == "change":
        (path / "kernel.s").write_bytes(b"s_nop 0\n")
    elif damage == "truncate meta":
        (path / cache.META).write_bytes(b'{"name": ')
    else:
        (path / ("kernel.s" if damage == "remove file" else cache.META)).unlink()
    with pytest.warns(cache.CacheWarning, match="is damaged"):
        assert cache.load(key) is None
    assert not path.exists()
    store(graph="a")
    assert cache.load(key) == FILES


def test_least_recently_used_go_first(monkeypatch):
    keys = [store(graph=str(i)) for i in range(4)]
    now = time.time()
    for age, key in zip((10, 40, 20, 30), keys):
        os.utime(cache.entry(key).path / cache.META, (now - age, now - age))
    size = cache.entry(keys[0]).size
    monkeypatch.setenv("WAVEDSL_CACHE_BYTES", str(2 * size + size // 2))
    cache.evict()
    assert [cache.load(key) is not None for key in keys] == [True, False, True, False]


def test_a_use_makes_an_entry_recent(monkeypatch):
    old, new = store(graph="old"), store(graph="new")
    now = time.time()
    for age, key in ((60, old), (30, new)):
        os.utime(cache.entry(key).path / cache.META, (now - age, now - age))
    cache.load(old)
    assert [e.key for e in cache.entries()] == [old, new]


def test_the_newest_entry_stays_however_large(monkeypatch):
    monkeypatch.setenv("WAVEDSL_CACHE_BYTES", "10")
    key = store(graph="a")
    assert cache.load(key) == FILES


def test_limit_zero_turns_it_off(monkeypatch, own_folder):
    monkeypatch.setenv("WAVEDSL_CACHE_BYTES", "0")
    assert cache.load(store(graph="a")) is None
    assert not own_folder.exists()


def test_why_names_the_changed_parts():
    store(graph="a", bindings="M=1", target="gfx942")
    store(graph="b", bindings="M=1", target="gfx942")
    store(graph="b", bindings="M=2", target="gfx942")
    first, second, third = cache.why("gemm")
    assert "first compile for gfx942" in first
    assert ": graph differs from" in second and ": bindings differs from" in third
    assert cache.why("another") == []


def test_clear_keeps_the_folder_that_writers_use(own_folder):
    for i in range(3):
        store(graph=str(i))
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    left = own_folder / "tmp" / f"{process.pid}@{platform.node()}@0123"
    writing = own_folder / "tmp" / f"{os.getpid()}@{platform.node()}@4567"
    elsewhere = own_folder / "tmp" / f"{process.pid}@another-machine@89ab"
    for path in (left, writing, elsewhere):
        path.mkdir()
    assert cache.clear() == 3
    assert cache.entries() == [] and (own_folder / "tmp").is_dir()
    assert not left.exists() and writing.exists() and elsewhere.exists()
    assert cache.clear() == 0


def test_an_unwritable_folder_is_a_warning(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(cache.CacheWarning, match="not kept"):
        store(graph="a")
    assert cache.load(cache.key_of({"graph": "a"})) is None


def hammer(directory: str, seed: int, rounds: int, results) -> None:
    """Store, load, evict and clear, and say what went wrong."""
    os.environ["WAVEDSL_CACHE_DIR"] = directory
    os.environ["WAVEDSL_CACHE_BYTES"] = "4000"
    wrong = []
    try:
        for i in range(rounds):
            part = str((i * 7 + seed) % 5)
            key = cache.key_of({"graph": part})
            expected = {"kernel.s": part.encode() * 200, "other": b"x"}
            found = cache.load(key)
            if found is None:
                cache.store(key, expected, name="gemm", target="gfx942", parts={"graph": part})
                found = cache.load(key) or expected
            if found != expected:
                wrong.append(f"process {seed}, round {i}: {found}")
            if i % 23 == seed % 23:
                cache.clear()
    except BaseException as error:
        wrong.append(f"process {seed}: {error!r}")
    results.put(wrong)


@pytest.mark.filterwarnings("error", "ignore:.*fork:DeprecationWarning")  # pytest has threads
def test_eight_processes_at_once(own_folder):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=hammer, args=(str(own_folder), seed, 60, results)) for seed in range(8)]
    for process in processes:
        process.start()
    wrong = [line for _ in processes for line in results.get(timeout=120)]
    for process in processes:
        process.join()
    assert wrong == []
    assert (own_folder / "tmp").is_dir()


def test_package_stamp_is_stable_and_covers_sources(monkeypatch, tmp_path):
    first = cache.package_stamp()
    cache.package_stamp.cache_clear()
    assert cache.package_stamp() == first
    cache.package_stamp.cache_clear()
    (tmp_path / "more.py").write_text("pass")
    find_spec = importlib.util.find_spec

    def with_one_more(name):
        spec = find_spec(name)
        if name == "wavedsl.ir":
            spec.submodule_search_locations = [*spec.submodule_search_locations, str(tmp_path)]
        return spec

    monkeypatch.setattr(importlib.util, "find_spec", with_one_more)
    assert cache.package_stamp() != first
    cache.package_stamp.cache_clear()
