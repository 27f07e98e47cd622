"""The command line: `wavedsl COMMAND …`, also `python -m wavedsl`.

Each command is a function from parsed options to an exit status; a `WaveError` ends in its text on standard error and
status 1, never in a traceback. Kernels are named `path.py:name` or `module:name`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import functools
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import wavedsl
from wavedsl.codegen import TARGETS
from wavedsl.ir.errors import EmulationError, LaunchError, WaveError
from wavedsl.ir.loc import Loc
from wavedsl.ir.source import from_traceback


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status: 0, 1 for a failure or a finding, 2 for wrong usage, 130 after Ctrl-C."""
    top = parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        top.print_help(sys.stderr)
        return 2
    options, unknown = top.parse_known_args(arguments)
    if unknown:
        _refuse(options.parser, unknown)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return int(options.run(options))
    except KeyboardInterrupt:
        print(f"wavedsl {options.command}: interrupted", file=sys.stderr)
        return 130
    except WaveError as error:
        script = (Path(__file__).with_name("__main__.py"), Path(sys.argv[0]))
        if error.location is not None and Path(error.location.file) in script:
            error.location = None  # the mistake is on the command line
        error.hint = _as_options(error.hint)
        message = str(error)
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone. Python would complain once more when it flushes at exit.
        sys.stderr.close()
        return 1
    except Exception as error:
        message = _of_the_user(error)
        if not message:
            raise
    print(f"wavedsl {options.command}: {message}", file=sys.stderr)
    return 1


def _refuse(command: argparse.ArgumentParser, unknown: Sequence[str]) -> None:
    """Ends the program as argparse does for arguments that a command does not know, with what may have been meant."""
    known = [name for action in command._actions for name in action.option_strings]
    first = unknown[0].partition("=")[0]
    near = difflib.get_close_matches(first, known, n=1) if first.startswith("-") else []
    meant = f"did you mean {near[0]}?" if near else ""
    bindings = [part for text in unknown for part in text.split(",") if re.fullmatch(r"[A-Za-z_]\w*=\w+", part)]
    if bindings:
        meant = f"values are separated by commas, without a space: --subs M=64,{','.join(bindings)}"
    command.error(f"unrecognized arguments: {' '.join(unknown)}" + (f"\n  help: {meant}" if meant else ""))


def _as_options(hint: str) -> str:
    """Help that names parameters of `compile`, in the command line's words."""
    found = re.match(r"bind it: subs=\{(.*?)\}", hint)
    if found is None:
        return hint
    symbols = [part.split(":")[0].strip() for part in found[1].split(",")]
    dynamic = f", or --dynamic {','.join(symbols)}" if "dynamic=" in hint else ""
    return f"bind it on the command line: --subs {','.join(f'{s}=64' for s in symbols)}{dynamic}"


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    """A warning as one line: which line of this package gave it says nothing to a user."""
    print(f"wavedsl: warning: {message}", file=sys.stderr if file is None else file)


def _of_the_user(error: Exception) -> str:
    """What the user's own file raised while it was loaded, or a file that cannot be read or written; else empty."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
        text = f"{type(error).__name__}: {error.msg}"
        return f"{text}\n{Loc(error.filename, error.lineno, max(0, (error.offset or 1) - 1)).caret()}"
    location, ours = from_traceback(error.__traceback__)
    return "" if ours or location is None else f"{text}\n{dataclasses.replace(location, call_site=None).caret()}"


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="wavedsl", description="Compile, run, check and look at @wave kernels.")
    top.add_argument("--version", action="version", version=f"wavedsl {wavedsl.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[Any], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run, parser=added)
        return added

    def kernel_command(name: str, run: Callable[[Any], int], text: str) -> argparse.ArgumentParser:
        added = command(name, run, text)
        added.add_argument(
            "kernel", help="path.py:name or module:name (the name may be left out if there is one kernel)"
        )
        added.add_argument(
            "--subs", action="append", default=[], metavar="M=64,…", help="values of symbols, over the decorator's"
        )
        return added

    def with_arguments(added: argparse.ArgumentParser) -> None:
        added.add_argument("--seed", type=int, default=0, help="seed of the random arguments (default 0)")
        added.add_argument("--integers", action="store_true", help="small whole numbers, whose results are exact")

    target_help = "gfx90a, gfx942, gfx950, sm_80 or sm_90a (default: the default device's)"

    demo = command("demo", _demo, "run copy and GEMM on every target on the emulator, and print what was measured")
    demo.add_argument("--targets", default="", help="comma-separated (default: all)")

    compile_ = kernel_command("compile", _compile, "print a kernel's target text, or write it or its binary to a file")
    compile_.add_argument("--target", help=target_help)
    compile_.add_argument(
        "--dynamic",
        metavar="M,K:16",
        default="",
        help="dimensions that stay run-time ones, and what they are multiples of",
    )
    compile_.add_argument(
        "-o",
        "--output",
        type=Path,
        help="by suffix: .s .ptx text, .hsaco .cubin binary, .json for wd.load, .h for a C program",
    )

    run = kernel_command("run", _run, "launch a kernel on random arguments and compare with the graph evaluator")
    run.add_argument("--device", help="cuda:0, hip:0 or emulator:gfx950 (default: WAVEDSL_DEVICE, a GPU, the emulator)")
    run.add_argument("--target", help=argparse.SUPPRESS)
    with_arguments(run)

    emulate = kernel_command("emulate", _emulate, "execute a kernel's text on the emulator and report what it finds")
    emulate.add_argument("--target", help=target_help)
    emulate.add_argument("--no-checks", action="store_true", help="run as fast as possible")
    emulate.add_argument("--waits", action="store_true", help="at which lines of kernel and text waves wait longest")
    emulate.add_argument(
        "--timeline", metavar="FILE", help="write what warps and units do when, by the cycle model, for ui.perfetto.dev"
    )
    with_arguments(emulate)

    inspect = kernel_command("inspect", _inspect, "show what the compiler made of a kernel")
    inspect.add_argument("--target", help=target_help)
    for what, text in (
        ("graph", "the traced dataflow graph"),
        ("dot", "the same for Graphviz"),
        ("ir", "the kernel IR"),
        ("schedule", "the loops as cycle tables"),
        ("decisions", "the form of each copy and product, shared buffers, needs and reasons"),
        ("cycles", "clocks per trip of each loop of AMDGCN text by the cycle model, memory taken as ideal"),
        ("machine", "AMDGCN machine code before it is text, with registers and how many are live"),
        ("liveness", "which instructions each register tuple is live between"),
        ("allocation", "what each register holds in the course of the program"),
        ("asm", "the target text"),
        ("roofline", "work, traffic per level, what bounds it and a strategy"),
        ("resources", "registers, shared memory, instructions (the default)"),
    ):
        inspect.add_argument(f"--{what}", action="append_const", dest="what", const=what, help=text)
    inspect.add_argument(
        "--live-plot", type=Path, metavar="FILE", help="draw live registers over the AMDGCN program (needs matplotlib)"
    )
    inspect.add_argument("--product", help="for --roofline: A100, H200, MI300X, … (default: the target's)")
    inspect.add_argument("--plot", type=Path, help="draw the roofline to a file too (needs matplotlib)")
    inspect.add_argument(
        "--measured", type=Path, metavar="FILE",
        help='for --plot: JSON of measured times, {"kernel": seconds} or a result of benchmarks/gpu_*.py',
    )  # fmt: skip

    bench = kernel_command("bench", _bench, "time a kernel's launches")
    bench.add_argument("--device", help="as for run; times on an emulator say nothing of a chip")
    bench.add_argument("--target", help=argparse.SUPPRESS)
    bench.add_argument("--repeat", type=int, default=20, help="launches that are timed (default 20)")
    with_arguments(bench)

    tune = kernel_command("tune", _tune, "find the fastest tiles for --subs and pin them beside the source")
    tune.add_argument("--target", help=target_help)
    tune.add_argument("--product", help="the chip to tune for: A100, H200, MI300X, … (default: the target's)")
    tune.add_argument(
        "--space",
        action="append",
        default=[],
        metavar="BM=32/64,…",
        help="values to try (default: the decorator's, or derived)",
    )
    tune.add_argument("--budget", type=float, help="seconds of wall time (default: the decorator's, or 60)")
    tune.add_argument("--limit", type=int, help="candidates that are compiled at most (default 200)")
    tune.add_argument("--keep", type=float, help="share of them that runs (default 0.1)")
    tune.add_argument("--workers", type=int, help="processes (default: one per core)")
    tune.add_argument("--results", type=Path, help="the results file (default: the decorator's, or beside the source)")
    tune.add_argument("--fresh", action="store_true", help="measure again what is already in the results file")

    cache = command("cache", _cache, "list, explain or clear the compile cache on disk")
    cache.add_argument("action", choices=("ls", "why", "clear"))
    cache.add_argument("name", nargs="?", help="for why: the kernel's name")

    command("doctor", _doctor, "say which tools, packages and devices were found, and what to install")
    return top


# ------------------------------------------------------------------------------------------------------------ commands


def _demo(options: Any) -> int:
    from wavedsl import demo
    from wavedsl.runtime import devices

    named = [name.strip() for name in options.targets.split(",") if name.strip()]
    return demo.run([devices.known_target(name) for name in named] or TARGETS)


def _compile(options: Any) -> int:
    from wavedsl.precompile import compile_open, open_dims

    kernel, subs = _kernel(options, options.target)
    compiled = compile_open(kernel, subs, open_dims(options.dynamic), options.target)
    if options.output is None:
        print(compiled.asm, end="")
        return 0
    suffix = options.output.suffix
    if suffix in (".s", ".ptx"):
        options.output.write_text(compiled.asm, encoding="utf-8")
    elif suffix in (".hsaco", ".cubin"):
        options.output.write_bytes(compiled.binary())
    elif suffix == ".json":
        compiled.save(options.output)
    elif suffix == ".h":
        stem = options.output.stem
        prefix = stem if stem.isidentifier() and stem.isascii() else None
        options.output.write_text(compiled.c_header(prefix), encoding="utf-8")
    else:
        raise LaunchError(f"{options.output}: unknown kind of file", hint="use .s, .ptx, .hsaco, .cubin, .json or .h")
    from wavedsl.reports import resources_text

    print(resources_text(compiled), file=sys.stderr)
    return 0


def _device(options: Any) -> Any:
    """The device that --device names, or the default one. LaunchError for --target, which names no device."""
    from wavedsl.runtime import devices

    if options.target is not None:
        raise LaunchError(
            f"--target {options.target} names a chip, and a launch takes a device",
            hint=f"--device emulator:{options.target}, or the number of a GPU: --device cuda:0, --device hip:0",
        )
    return devices.parse(options.device) if options.device else devices.default()


def _run(options: Any) -> int:
    from wavedsl.reports import errors
    from wavedsl.runtime.launch import launch

    device = _device(options)
    kernel, subs, arguments = _kernel_and_arguments(options, device.target)
    compiled = kernel.compile(**arguments, target=device.target, subs=subs)
    want = _evaluated(kernel, subs, arguments)
    start = time.perf_counter()
    launch(compiled, list(arguments.values()), device)
    seconds = time.perf_counter() - start
    print(f"{kernel.name} on {device}: {1e3 * seconds:.1f} ms, copies included")
    _print_errors(errors(arguments, want, _outputs(compiled)))
    return 0


def _emulate(options: Any) -> int:
    from wavedsl.reports import errors, model_text, table, waits_text

    kernel, subs, arguments = _kernel_and_arguments(options, options.target)
    compiled = kernel.compile(**arguments, target=options.target, subs=subs)
    want = _evaluated(kernel, subs, arguments)
    start = time.perf_counter()
    try:
        report = compiled.emulate(**arguments, checks=False if options.no_checks else "report")
    except EmulationError as error:  # raised for what no mode goes on after, such as a deadlock
        print(error, file=sys.stderr)
        return 1
    seconds = time.perf_counter() - start
    total = sum(report.instructions.values())
    print(f"{kernel.name} for {compiled.target}: {total} instructions in {1e3 * seconds:.1f} ms of emulation")
    print(model_text(report, compiled.target))
    _print_errors(errors(arguments, want, _outputs(compiled)))
    most = sorted(report.instructions.items(), key=lambda item: (-item[1], item[0]))[:15]
    print(table(("instruction", "executed"), most))
    if options.waits and report.timing is not None:
        print("\n" + waits_text(report, compiled.asm, compiled.target))
    if options.timeline:
        _write_timeline(report, Path(options.timeline))
    told: set[str] = set()
    for finding in report.findings:
        print(f"\n{finding.shown()}")
        if finding.hint and finding.hint not in told:
            print(f"    help: {finding.hint}")
        told.add(finding.hint)
    if not options.no_checks:
        count = len(report.findings)
        print("\nno findings" if not count else f"\n{count} finding{'s' * (count != 1)}")
    return 1 if report.findings else 0


def _write_timeline(report: Any, path: Path) -> None:
    if report.timing is None:
        raise LaunchError("--timeline: nothing ran", hint="sizes that are not zero")
    try:
        path.write_text(json.dumps(report.timeline(), separators=(",", ":")))
    except OSError as error:
        raise LaunchError(f"--timeline: {error.strerror}: {path}", hint="a file in a folder that exists") from None
    print(f"\n{path}: open it in ui.perfetto.dev; a microsecond there is a clock of the model")


def _inspect(options: Any) -> int:
    from wavedsl import registers
    from wavedsl.ir.kernel.kernel_text import text
    from wavedsl.reports import loop_cycles_text, resources_text, schedule_text

    def register_view(view: str) -> str:
        return registers.text(compiled(), view) + "\n"

    if options.plot and options.what and "roofline" not in options.what:
        raise LaunchError("--plot draws the roofline, which was not asked for", hint="give --roofline too, or alone")
    if options.measured and not options.plot:
        raise LaunchError("--measured is for the roofline's picture", hint="give --plot FILE too")
    needed = any(what not in ("graph", "dot") for what in options.what or ["resources"])
    kernel, subs = _kernel(options, options.target, options.product, needed)
    views: dict[str, Callable[[], str]] = {
        "graph": lambda: kernel.trace(subs).text(locations=True),
        "dot": lambda: kernel.trace(subs).dot(),
        "ir": lambda: text(compiled().kernel_ir),
        "schedule": lambda: schedule_text(compiled().kernel_ir),
        "decisions": lambda: compiled().decisions.text(),
        "cycles": lambda: loop_cycles_text(compiled()) + "\n",
        **{view: functools.partial(register_view, view) for view in registers.VIEWS},
        "asm": lambda: compiled().asm,
        "roofline": lambda: _roofline(kernel, subs, options),
        "resources": lambda: resources_text(compiled()) + "\n",
    }
    found: list[Any] = []

    def compiled() -> Any:
        if not found:
            found.append(kernel.compile(target=options.target, subs=subs))
        return found[0]

    drawn = ["roofline"] if options.plot else [] if options.live_plot else ["resources"]
    for what in options.what or drawn:
        print(views[what](), end="")
    if options.live_plot:
        with _drawing("--live-plot"):
            print(registers.plot(compiled(), options.live_plot))
    return 0


@contextlib.contextmanager
def _drawing(option: str) -> Iterator[None]:
    """A picture's file of a kind that matplotlib does not write is a mistake on the command line."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("Format"):
            raise
        raise LaunchError(f"{option}: {error}", hint="a name that ends in .svg, .png or .pdf") from error


def _roofline(kernel: Any, subs: dict[Any, Any], options: Any) -> str:
    from wavedsl.analysis.roofline import analyze

    record = analyze(kernel, target=options.target, product=options.product, subs=subs)
    if options.plot is not None:
        from wavedsl.analysis.measured import read_measured
        from wavedsl.analysis.plot import plot_roofline

        seconds, points = read_measured(options.measured) if options.measured else ({}, [])
        if seconds and record.kernel not in seconds:
            raise LaunchError(
                f"{options.measured} has no time of {record.kernel}", hint=f"it has those of {', '.join(seconds)}"
            )
        with _drawing("--plot"):
            plot_roofline(record, options.plot, seconds, points)
    return f"{record}\n"


def _bench(options: Any) -> int:
    from wavedsl.runtime.launch import launch
    from wavedsl.testing import bench_compiled

    if options.repeat < 1:
        raise LaunchError(f"--repeat {options.repeat} times no launch", hint="a number of launches from 1 on")
    device = _device(options)
    kernel, subs, arguments = _kernel_and_arguments(options, device.target)
    compiled = kernel.compile(**arguments, target=device.target, subs=subs)
    values = list(arguments.values())
    emulated = device.kind == "emulator"
    report = launch(compiled, values, device) if emulated else None
    times = bench_compiled(compiled, values, device, warmup=0.0 if emulated else 0.025, count=options.repeat)
    kind = "emulation, which says nothing of a chip's speed" if emulated else "device time, L2 flushed before each"
    print(
        f"{kernel.name} on {device}: median {1e3 * times.median:.3f} ms, "
        f"best {1e3 * times.best:.3f} ms of {times.count} ({kind})"
    )
    if report is not None:
        from wavedsl.reports import model_text

        print(model_text(report, compiled.target))
    return 0


def _tune(options: Any) -> int:
    from wavedsl.find_kernel import find, parse_space, parse_subs
    from wavedsl.tuning import TuningInterrupted, tune
    from wavedsl.tuning.results import beside

    kernel, subs = find(options.kernel), parse_subs(options.subs)
    if subs:
        kernel.trace(subs)
    asked = {
        "space": parse_space(options.space), "target": options.target, "product": options.product,
        "budget": options.budget, "limit": options.limit, "keep": options.keep, "workers": options.workers,
        "results": options.results, "resume": False if options.fresh else None,
    }  # fmt: skip
    status = 0
    try:
        result = tune(kernel, subs=subs, **{name: value for name, value in asked.items() if value is not None})
    except TuningInterrupted as error:
        result, status = error.result, 130
    print(result)
    print(f"results: {result.path}")
    tuned = hasattr(kernel, "for_arguments")
    reads = kernel.file.path if tuned else beside(kernel)
    if result.pinned is not None and result.path.resolve() != reads.resolve():
        print(f"{kernel.name} reads {reads}, not this file")
    elif result.pinned is not None and not tuned:
        print(
            "wavedsl run, bench, compile, emulate and inspect take it where the tiles have no other value; calls take"
        )
        print("it with @wd.autotune() above @wd.wave")
    return status or (0 if result.best is not None else 1)


def _cache(options: Any) -> int:
    from wavedsl.reports import table
    from wavedsl.runtime import cache

    if options.action == "clear":
        print(f"{cache.clear()} entries removed from {cache.folder()}")
        return 0
    entries = cache.entries()
    if options.action == "why":
        there = sorted({entry.name for entry in entries})
        for name in [options.name.rpartition(":")[2]] if options.name else there:
            lines = cache.why(name)
            near = difflib.get_close_matches(name, there, n=3)
            never = f"{name}: never compiled" + (f"; there are {', '.join(near)}" if near else "")
            print("\n".join([f"{name}:", *(f"  {line}" for line in lines)]) if lines else never)
        return 0
    rows = [
        (e.key[:12], e.name, e.target, e.size, time.strftime("%Y-%m-%d %H:%M", time.localtime(e.used))) for e in entries
    ]
    if rows:
        print(table(("key", "kernel", "target", "bytes", "last used"), rows))
    print(f"{len(rows)} entries, {sum(e.size for e in entries)} of {cache.limit()} bytes in {cache.folder()}")
    return 0


def _doctor(options: Any) -> int:
    import importlib.metadata
    import platform

    from wavedsl.runtime import cache, devices, toolchain

    print(f"wavedsl {wavedsl.__version__}, Python {platform.python_version()}, {platform.platform()}")
    for package in ("numpy", "sympy", "networkx", "ml_dtypes"):
        print(f"  {package} {importlib.metadata.version(package)}")
    print("tools:")
    for tool in toolchain.inventory():
        print(f"  {tool.name}: " + (f"missing; {tool.missing}" if tool.missing else f"{tool.version} ({tool.path})"))
    print("devices:")
    for kind, package, extra in (("cuda", "cuda-python", "cuda"), ("hip", "hip-python", "rocm")):
        driver = "found" if devices.driver_present(kind) else "none"
        bindings = _release(package) if devices.bindings_installed(kind) else f"missing; pip install 'wavedsl[{extra}]'"
        print(f"  {kind}: driver {driver}; {package} {bindings}")
    for device in devices.gpus():
        opened = devices.open_driver(device.kind, device.index)
        print(f"  {device}: {getattr(opened, 'name', '')}, runs {device.target} text")
    print(f"  emulator: {', '.join(TARGETS)}")
    print(f"default device: {devices.default()}")
    print(f"cache: {cache.folder()}, {len(cache.entries())} entries")
    return 0


def _release(package: str) -> str:
    """Which release of an importable package there is; its parts may have come without it."""
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "installed"


# -------------------------------------------------------------------------------------------------------------- shared


def _kernel(
    options: Any, target: str | None, product: str | None = None, needed: bool = True
) -> tuple[Any, dict[Any, Any]]:
    """The kernel of the command line with its pinned choice for these sizes where it has one, and its `--subs`."""
    from wavedsl.find_kernel import find, parse_subs
    from wavedsl.tuning.pins import with_pin

    found, subs = find(options.kernel), parse_subs(options.subs)
    if subs:
        found.trace(subs)  # says which of them the kernel does not use, before what it lacks
    kernel, said = with_pin(found, subs, target, product, needed)
    if said:
        print(said, file=sys.stderr)
    return kernel, subs


def _kernel_and_arguments(options: Any, target: str | None) -> tuple[Any, dict[Any, Any], dict[str, Any]]:
    from wavedsl.find_kernel import make_arguments

    kernel, subs = _kernel(options, target)
    return kernel, subs, make_arguments(kernel, subs, options.seed, options.integers)


def _outputs(compiled: Any) -> list[str]:
    return [p.name for p in compiled.params if not p.source and p.access in ("write", "readwrite")]


def _evaluated(kernel: Any, subs: dict[Any, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """What the graph evaluator makes of copies of the arguments."""
    copies = {name: value.copy() if hasattr(value, "copy") else value for name, value in arguments.items()}
    kernel.evaluate(**copies, subs=subs)
    return copies


def _print_errors(errors: dict[str, float]) -> None:
    for name, error in errors.items():
        print(f"{name}: largest difference from the graph evaluator {error:.3g}")
