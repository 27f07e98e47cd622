"""How long arrays, hidden memory and what graphs use live: until the stream is done with them, or the graph is gone."""

from __future__ import annotations

import ctypes
import gc
import os
import weakref
from pathlib import Path

import numpy as np
import pytest
from scenarios import N_ITEMS, There, main, run_there
from selected import slow_but


def graphs_hold_what_they_use(there: There) -> None:
    from wavedsl.ir.errors import LaunchError
    from wavedsl.runtime import in_flight

    there.load("torch")
    driver = there.driver()
    held = in_flight.of(driver)
    stream = there.stream()
    there.arrays.STREAMS["torch", 0] = stream
    prefix = {"cuda": "cu", "hip": "hip"}[there.side]

    def ask(name, *arguments):
        with driver.entered():
            return driver._call(prefix + name, *arguments)

    if there.side == "cuda":
        mode = driver.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        instantiate = lambda graph: ask("GraphInstantiate", graph, 0)  # noqa: E731
    else:
        mode = driver.hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
        instantiate = lambda graph: ask("GraphInstantiate", graph, 0)[0]  # noqa: E731

    def alive(dead):
        gc.collect()
        held.release()
        return [kept() is not None for kept in dead]

    for kind in ("torch", "dlpack"):
        source, out, x, y = there.pair(kind)
        if kind == "dlpack":  # on a stream as such arrays have it: through a tensor that comes first
            source, *_ = there.pair("torch")
            x = np.frombuffer((ctypes.c_float * N_ITEMS).from_address(source.data_ptr()), np.float32)
        there.kernel(source, out, N_ITEMS)
        bound = there.kernel.bind(source, out, N_ITEMS)
        y[:] = -1
        ask("StreamBeginCapture", stream, mode)
        there.called(source, out, N_ITEMS, long=0)
        bound()
        assert (y == -1).all()  # nothing runs while it is captured
        graph = ask("StreamEndCapture", stream)
        weak = [weakref.ref(source), weakref.ref(out)]
        runnable = instantiate(graph)
        del source, out, bound
        assert alive(weak) == [True, True]
        ask("GraphLaunch", runnable, stream)
        assert (y == 2 * x).all()
        ask("GraphDestroy", graph)
        assert alive(weak) == [True, True]  # the executable graph goes on without the one that it was made of
        ask("GraphExecDestroy", runnable)
        assert alive(weak) == [False, False]
        assert len(held) == 0
    # What cannot be captured says what to do; so does a kernel that talks.
    source, out, *_ = there.pair("torch", count=80)
    ask("StreamBeginCapture", stream, mode)
    with pytest.raises(LaunchError, match="call the kernel once before the capture"):
        there.kernel(source, out, 80)
    ask("StreamEndCapture", stream)
    there.kernel(source, out, 80)


def hidden_memory_belongs_to_a_stream_or_a_graph(there: There) -> None:
    """Each stream's launches share sums and counters, which grow; a graph has its own, and the next one takes them."""
    import wavedsl as wd

    M, K = wd.symbols("M K")

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(K, 32)], schedule=wd.Schedule(split_k=2)
    )
    def row_sums(source: wd.Memory[M, K, wd.f32], out: wd.Memory[M, wd.f32], n: wd.Scalar[wd.i32]):
        @wd.iterate(K, init_args=[wd.Register[M, wd.f32](0.0)])
        def loop(acc):
            return acc + wd.sum(wd.read(source), dim=K)

        wd.write(loop * wd.cast(n, wd.f32), out)

    log = Path(os.environ["STANDIN_LOG"])
    os.environ["STANDIN_HIDDEN"] = "1"
    there.load("torch")
    driver = there.driver()
    streams = [there.stream(), there.stream()]
    cuda = there.side == "cuda"
    prefix = "cu" if cuda else "hip"
    modes = driver.driver.CUstreamCaptureMode if cuda else driver.hip.hipStreamCaptureMode
    mode = modes.CU_STREAM_CAPTURE_MODE_GLOBAL if cuda else modes.hipStreamCaptureModeGlobal

    def on(stream):
        there.arrays.STREAMS["torch", 0] = stream

    def ask(name, *arguments):
        with driver.entered():
            return driver._call(prefix + name, *arguments)

    def arrays(rows):
        address, into = there.memory(64 * rows)[0], there.memory(rows)[0]
        return there.array("torch", address, (rows, 64)), there.array("torch", into, (rows,)), 1

    def used(call):
        """(sums, counters) of the launches of a call, which all find counters of 0."""
        log.write_text("")
        call()
        found = [line.split()[2:] for line in log.read_text().splitlines() if line.startswith("ran with")]
        assert all(counter == "0" for *_, counter in found)
        return {tuple(addresses) for *addresses, _ in found}

    def captured(calls):
        ask("StreamBeginCapture", streams[0], mode)
        for call in calls:
            call()
        graph = ask("StreamEndCapture", streams[0])
        runnable = ask("GraphInstantiate", graph, 0) if cuda else ask("GraphInstantiate", graph, 0)[0]
        ask("GraphDestroy", graph)
        return runnable

    small, large = arrays(40), arrays(4000)
    bound = row_sums.bind(*small)
    found = []
    for stream in streams:
        on(stream)
        ways = [lambda: row_sums(*small), lambda: row_sums(*small), bound, bound]
        (one,) = set.union(*map(used, ways))
        found.append(one)
    on(streams[0])
    (larger,) = used(lambda: row_sums(*large))
    assert used(bound) == used(lambda: row_sums(*small)) == {larger}  # what has grown serves all
    for _ in range(2):
        graph = captured([lambda: row_sums(*small), bound])
        (own,) = used(lambda: ask("GraphLaunch", graph, streams[0]))
        found += [own]
        ask("GraphExecDestroy", graph)
        gc.collect()
    assert found[2] == found[3] and len({*found, larger}) == 4, (found, larger)
    assert used(bound) == {larger}
    del os.environ["STANDIN_HIDDEN"]


def arrays_live_until_the_stream_is_done(there: There) -> None:
    from wavedsl.runtime import in_flight

    there.load("torch")
    held = in_flight.of(there.driver())
    kind = "interface" if there.side == "cuda" else "dlpack"

    def alive(weak):
        gc.collect()
        held.release()
        return weak() is not None

    for use in ("call", "bound"):
        first = there.pair(kind)
        there.kernel(*first[:2], N_ITEMS)
        source, out, *_ = there.pair(kind)
        there.stand_in.standin_busy(1)
        if use == "call":
            there.called(source, out, N_ITEMS, long=0)
        else:
            bound = there.kernel.bind(source, out, N_ITEMS)
            bound()
            del bound
        weak = weakref.ref(source)
        del source, out
        assert alive(weak)
        there.stand_in.standin_busy(0)
        there.kernel(*first[:2], N_ITEMS)
        assert not alive(weak), use
    # torch frees in the order of its stream: nothing is held for its tensors.
    there.stand_in.standin_busy(1)
    source, out, *_ = there.pair("torch")
    for _ in range(2):
        there.kernel(source, out, N_ITEMS)
    weak = weakref.ref(source)
    del source, out
    assert not alive(weak)
    assert len(held) == 0, held._streams
    # The device is the arrays' own, whichever the first call was for. Launches of the same arrays are held once.
    second = in_flight.of(there.driver(1))
    with there.driver(1).entered():
        for long in (1, 0, 0):
            source, out, *_ = there.pair(kind, index=1)
            there.called(source, out, N_ITEMS, long=long)
        assert len(held) == 0 and len(second) == 3
        weak = weakref.ref(source)
        for _ in range(5):
            there.called(source, out, N_ITEMS, long=0)
    del source, out
    gc.collect()
    second.release()
    assert weak() is not None and len(second) == 3
    there.stand_in.standin_busy(0)
    second.release()
    assert weak() is None and len(second) == 0


def launches_again_cost_no_event(there: There) -> None:
    """The same arrays again and again on the default stream: marked when others come, behind the last launch."""
    from wavedsl.runtime import in_flight

    driver, log = there.driver(), Path(os.environ["STANDIN_LOG"])
    held = in_flight.of(driver)
    held.release()
    kind = there.kinds()[-1]
    events = {"cuda": "cuEventRecord", "hip": "hipEventRecord"}[there.side]

    def recorded() -> int:
        found = log.read_text().count(events)
        log.write_text("")
        return found

    def alive(weak) -> bool:
        gc.collect()
        held.release()
        return weak() is not None

    other = there.pair(kind)
    for settled in (lambda: there.kernel(*other[:2], N_ITEMS), lambda: None):
        source, out, x, y = there.pair(kind)
        there.kernel(source, out, N_ITEMS)
        there.kernel(source, out, N_ITEMS)
        recorded()
        for _ in range(5):
            y[:] = -1
            there.called(source, out, N_ITEMS, long=0)
            assert (y == 2 * x).all()
        assert recorded() == 0
        # The first launches have ended, the last has not: its end is what counts.
        there.stand_in.standin_busy(1)
        there.called(source, out, N_ITEMS, long=0)
        weak = weakref.ref(source)
        del source, out
        settled()
        assert alive(weak) and recorded() > 0
        there.stand_in.standin_busy(0)
        assert not alive(weak) and len(held) == 0
    # Same objects at another address, or another object at the same: nothing is taken for granted.
    source, out, x, y = there.pair(kind)
    for _ in range(2):
        there.kernel(source, out, N_ITEMS)
    address, moved = there.memory()
    source.pointer, moved[:] = address, -x
    recorded()
    there.called(source, out, N_ITEMS, long=0)
    assert (y == -2 * x).all() and recorded() == 2  # the launches before, and this one
    twin = there.array(kind, address, (N_ITEMS,))
    there.called(twin, out, N_ITEMS, long=0)
    assert recorded() == 1
    # In a capture nothing is given to another stream: it would end the capture.
    there.called(twin, out, N_ITEMS, long=0)
    weak = weakref.ref(twin)
    del twin
    recorded()
    held.release(settle=False)
    gc.collect()
    assert weak() is not None and recorded() == 0
    # From a thread whose device or context is another one.
    with there.driver(1).entered():
        assert not alive(weak)
    # A stream that may be destroyed is marked in each launch.
    if there.side == "cuda":
        source, out, *_ = there.pair(kind, stream=there.stream())
        there.kernel(source, out, N_ITEMS)
        recorded()
        for _ in range(3):
            there.called(source, out, N_ITEMS, long=0)
        assert recorded() == 3


SCENARIOS = (
    graphs_hold_what_they_use,
    hidden_memory_belongs_to_a_stream_or_a_graph,
    arrays_live_until_the_stream_is_done,
    launches_again_cost_no_event,
)


@pytest.mark.parametrize("side", slow_but(["cuda", "hip"], "cuda"))
def test_calls(side, standins, tmp_path):
    assert run_there(__file__, side, standins, tmp_path) == [f.__name__ for f in SCENARIOS]


if __name__ == "__main__":
    main(SCENARIOS)
