"""`@wd.autotune`: a kernel that looks its tiles up in the results file, and tunes itself where nothing is pinned."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wavedsl.analysis.roofline import product_named
from wavedsl.binding import check_subs
from wavedsl.ir.called import door, leave
from wavedsl.ir.errors import ConstraintError, LaunchError, TraceError
from wavedsl.ir.source import here
from wavedsl.kernel_object import Kernel
from wavedsl.outside import Snapshot
from wavedsl.tracer.annotations import suggest
from wavedsl.tuning.candidates import Candidate, check_space
from wavedsl.tuning.chip import Chip, chip_for, chip_of
from wavedsl.tuning.options import check_options
from wavedsl.tuning.outcome import TuningResult
from wavedsl.tuning.pins import pinned_in
from wavedsl.tuning.results import ResultsFile, beside
from wavedsl.tuning.tuner import DEFAULTS, tune, tuned_extents
from wavedsl.unlaunched import UNLAUNCHED

if TYPE_CHECKING:
    from wavedsl.binding import Parameter
    from wavedsl.ir.dataflow.graph import Graph

ON_MISS = ("tune", "default", "raise")


def autotune(
    space: Mapping[Any, Sequence[int]] | None = None,
    *,
    on_miss: str = "tune",
    results: str | Path | None = None,
    reference: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[[Kernel], TunedKernel]:
    """Decorates a kernel (above `@wd.wave`); gives a `TunedKernel`.

    `space`: values per tile symbol and for `"stages"` (default: derived). `on_miss`: what a call does where nothing is
    pinned for its shapes: `tune` them, take the decorator's own `subs` as `default`, or `raise`; WAVEDSL_STRICT=1
    always raises. `results`: the file (default: beside the source). `options` are those of `tune`: budget, executor, …
    Raises ConstraintError for what has no meaning.
    """
    if isinstance(space, Kernel):
        return TunedKernel(space, None, on_miss, results, reference, options)
    if on_miss not in ON_MISS:
        raise ConstraintError(f"autotune: on_miss={on_miss!r}", here(calls=False), hint=f"one of {', '.join(ON_MISS)}")

    def decorate(kernel: Kernel) -> TunedKernel:
        if not isinstance(kernel, Kernel):
            raise TraceError(
                f"@wd.autotune decorates a kernel, not {kernel!r}", here(calls=False), hint="put it above @wd.wave(…)"
            )
        return TunedKernel(kernel, space, on_miss, results, reference, options)

    return decorate


class TunedKernel:
    """A kernel whose free tiles come from tuning. Call it like the kernel; `kernel` is the one underneath."""

    def __init__(
        self,
        kernel: Kernel,
        space: Mapping[Any, Sequence[int]] | None,
        on_miss: str,
        results: str | Path | None,
        reference: Callable[..., Any] | None,
        options: Mapping[str, Any],
    ):
        self.kernel = kernel
        known = set(DEFAULTS) - {"subs", "space", "reference", "results"}
        strange = [name for name in options if name not in known]
        if strange:
            known |= {"space", "on_miss", "results", "reference"}
            hint = suggest(strange[0], known, f"there are {', '.join(sorted(known))}")
            if strange[0] in ("configs", "key"):
                hint = "values are a dict, @wd.autotune({BM: (64, 128)}), or derived; choices are kept by extents"
            raise ConstraintError(f"autotune: {strange[0]} is no option", here(calls=False), hint=hint)
        check_options({**options, "reference": reference})
        self.space = None if space is None else check_space(kernel, space)
        if self.space is not None and not self.space:
            raise ConstraintError(f"the search space of {kernel.name} is empty", kernel.loc, hint="give values to try")
        self.on_miss = on_miss
        self.file = ResultsFile(results if results is not None else beside(kernel))
        self.reference = reference
        self.options = dict(options)
        self._choices: dict[tuple[str, str, str], Candidate] = {}
        self._arity = len(kernel.parameters)
        self._dispatch: Any = None
        self._ways: Any = UNLAUNCHED
        self._outside: Snapshot | None = None
        self._unchanged: Callable[[], bool] | None = None
        self.__name__ = kernel.__name__
        self.__qualname__ = kernel.__qualname__
        self.__module__ = kernel.__module__
        self.__doc__ = kernel.__doc__
        self.__wrapped__ = kernel

    def __reduce__(self) -> str:
        """As functions do, by the name under which its module has it."""
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<tuned {self.kernel!r}>"

    @property
    def name(self) -> str:
        """The kernel's name, under which the results file has it."""
        return self.kernel.name

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The kernel's arguments, in order."""
        return self.kernel.argument_names

    @property
    def parameters(self) -> list[Parameter]:
        """The kernel's parameters, as declared."""
        return self.kernel.parameters

    @door
    def tune(self, *args: Any, **options: Any) -> TuningResult:
        """`wavedsl.tuning.tune` with the decorator's options; `options` go over them."""
        merged = {
            "space": self.space,
            "reference": self.reference,
            "results": self.file.path,
            **self.options,
            **options,
        }
        result = tune(self.kernel, *args, **merged)
        self._choices.clear()
        if self._dispatch is not None:
            self._dispatch.forget()
        return result

    @door
    def choice(
        self, *args: Any, target: str | None = None, subs: Mapping[Any, Any] | None = None, **kwargs: Any
    ) -> Candidate:
        """The candidate for these arguments or extents: pinned, or as `on_miss` says. LaunchError, ConstraintError."""
        arguments = self.kernel.bind_arguments(args, kwargs) if args or kwargs else None
        return self._choice(self.chip(target), arguments, subs)

    def chip(self, target: str | None = None, product: Any = None) -> Chip:
        """The chip that choices are for: the one asked for, else the decorator's `product` or `target`, else the
        default device's."""
        own = self.options.get("product")
        if product is None and own is not None and target in (None, product_named(own).target):
            product = own
        if product is None and target is None:
            target = self.options.get("target")
        return chip_for(target, product)

    def _choice(self, chip: Chip, arguments: Any, subs: Mapping[Any, Any] | None) -> Candidate:
        dims, _ = tuned_extents(self.kernel, arguments, subs)
        bucket = self.kernel.bucket(dims)
        key = (chip.target.name, chip.name, bucket)
        found = self._choices.get(key)
        if found is None:
            found = self._choices[key] = self._look_up(chip, bucket) or self._miss(dims, chip, bucket)
        return found

    def _look_up(self, chip: Chip, bucket: str) -> Candidate | None:
        return pinned_in(self.file, self.kernel, chip, bucket)

    def _miss(self, dims: Mapping[Any, Any], chip: Chip, bucket: str) -> Candidate:
        from wavedsl.compile_policy import strict

        name = self.kernel.name
        if self.on_miss == "default" and not strict():
            return Candidate(())
        if self.on_miss == "raise" or strict():
            others = self.file.products(self.kernel, chip.target.name, bucket)
            told = f" (there is one for {', '.join(others)})" if others else ""
            raise LaunchError(
                f"{name} has no pinned choice for {chip}, {bucket} in {self.file.path}{told}",
                self.kernel.loc,
                hint=f"tune it first: {name}.tune(…), or wavedsl tune",
            )
        product = chip.product if chip.name == chip.product.name else None
        result = self.tune(subs=dict(dims), target=chip.target.name, product=product)
        found = result.pinned or result.best
        if found is None:
            raise LaunchError(f"{name}: {result.message}", self.kernel.loc, hint="see its results file for the reasons")
        return found

    @door
    def for_arguments(
        self, *args: Any, target: str | None = None, subs: Mapping[Any, Any] | None = None, **kwargs: Any
    ) -> Kernel:
        """The kernel with the choice for these arguments, or for the extents that `subs` binds."""
        return self.kernel.variant(self.choice(*args, target=target, subs=subs, **kwargs))

    def _for_call(self, arguments: dict[str, Any]) -> Kernel:
        """The kernel with the choice for these arguments where they lie."""
        from wavedsl.runtime.launch import device_of

        device = device_of(arguments)
        chip = self.chip(device.target)
        if device.kind != "emulator" and chip.device is not None and chip.device != device:
            chip = chip_of(device)
        return self.kernel.variant(self._choice(chip, arguments, None))

    def __getitem__(self, grid: Any) -> Any:
        return self.kernel[grid]

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch with the tuned choice for the arguments' bucket."""
        try:
            if kwargs or len(args) != self._arity:
                args = self.kernel.in_order(args, kwargs)
            if self._unchanged is not None and not self._unchanged():
                self._refresh()
            ways = self._ways
            if not ways.last(*args) and not ways.other(args):
                self._launch(self.kernel.bind_arguments(args, {}))
        except Exception as error:
            leave(error, self.argument_names, "__call__")
            raise

    def _launch(self, arguments: dict[str, Any]) -> None:
        """Look the choice up, launch, and remember both."""
        from wavedsl.runtime.dispatch import Dispatch
        from wavedsl.runtime.launch import launch_kernel

        if self._dispatch is None:
            self._dispatch = Dispatch(self.kernel.buckets)
            self._ways = self._dispatch.ways
        kernel = self._for_call(arguments)
        launch_kernel(kernel, arguments, self._dispatch)
        if self._outside is None:
            self._outside = Snapshot(self.kernel.function)
            self._unchanged = self._outside.unchanged

    def _refresh(self) -> None:
        """Forgets the short ways of calls if what the function reads from outside has changed since."""
        if self._outside is not None and not self._outside.same():
            self._dispatch = self._outside = self._unchanged = None
            self._ways = UNLAUNCHED

    @door
    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """As `Kernel.bind`, with the tuned choice."""
        arguments = self.kernel.bind_arguments(args, kwargs)
        return self._for_call(arguments).bind(**arguments)

    @door
    def compile(
        self, *args: Any, target: str | None = None, subs: Mapping[Any, Any] | None = None, **kwargs: Any
    ) -> Any:
        """As `Kernel.compile`, with the tuned choice."""
        dynamic = {"dynamic": kwargs.pop("dynamic")} if "dynamic" in kwargs else {}
        chosen = self.for_arguments(*args, target=target, subs=subs, **kwargs)
        return chosen.compile(*args, target=target, subs=subs, **dynamic, **kwargs)

    @door
    def precompile(
        self,
        *args: Any,
        subs: Mapping[Any, Any] | Sequence[Mapping[Any, Any]] | None = None,
        target: str | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """As `Kernel.precompile`, with the tuned choices: a dynamic dimension with buckets that `subs` leaves out is
        prepared for each of them. Where nothing is pinned, `on_miss` says what happens."""
        if args or kwargs:
            return self.for_arguments(*args, target=target, **kwargs).precompile(
                *args, subs=subs, target=target, **kwargs
            )
        given = [subs or {}] if subs is None or isinstance(subs, Mapping) else list(subs)
        found: dict[int, Any] = {}
        for sizes in given:
            left = [
                d for d in self.kernel.dynamic if d not in {**self.kernel.subs, **check_subs(sizes, self.kernel.loc)}
            ]
            ends = [(*self.kernel.buckets[d], self.kernel.buckets[d][-1] + 1) for d in left if d in self.kernel.buckets]
            for extents in itertools.product(*ends):
                inside = dict(zip((d for d in left if d in self.kernel.buckets), extents))
                chosen = self.for_arguments(target=target, subs={**sizes, **inside})
                found |= {id(c): c for c in chosen.precompile(subs=sizes, target=target)}
        return list(found.values())

    def trace(self, subs: Mapping[Any, Any] | None = None) -> Graph:
        """As `Kernel.trace`: the meaning does not depend on tiles."""
        return self.kernel.trace(subs)

    def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """As `Kernel.evaluate`: the meaning does not depend on tiles."""
        self.kernel.evaluate(*args, **kwargs)
