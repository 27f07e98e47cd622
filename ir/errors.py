"""Every error a user can meet. Each carries where it happened and says what was wrong and what would be right."""

from __future__ import annotations

from wavedsl.ir.loc import Loc


class WaveError(Exception):
    """Base of all errors of this package.

    `message` says what was wrong, `hint` what would be right, `location` is the user's line.
    """

    def __init__(self, message: str, location: Loc | None = None, hint: str = ""):
        self.message = message
        self.location = location
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        return "\n".join([self.message, *self.places(), *([f"  help: {self.hint}"] if self.hint else [])])

    def places(self) -> list[str]:
        """The lines of the user's that are shown, quoted and marked."""
        return [] if self.location is None else [self.location.caret()]


class TraceError(WaveError):
    """The kernel's Python source uses the language wrongly."""


class ConstraintError(WaveError):
    """Constraints, sizes or arguments that no launch can satisfy on the target.

    `tile`: where shared memory does not hold a tile, its dimensions; the compiler may cut some of them finer.
    """

    def __init__(self, message: str, location: Loc | None = None, hint: str = "", tile: tuple[str, ...] = ()):
        super().__init__(message, location, hint)
        self.tile = tile


class NotHandedOut(ConstraintError):
    """Workgroups are to take several tiles of a kernel without bulk copies, and nothing else is asked for that needs
    those: the graph may say so itself (`turns`)."""


class CompileError(WaveError):
    """The kernel is legal, but could not be turned into target text."""


class RegisterPressureError(CompileError):
    """Values that must be live together do not fit the register file."""


class LaunchError(WaveError):
    """Arguments that do not fit what was compiled, or a driver call that failed.

    `argument` is the name of the argument that does not fit, where it is one. Then `location` is the user's call, and
    `declared` where the kernel says what the argument should be.
    """

    def __init__(self, message: str, location: Loc | None = None, hint: str = "", argument: str = ""):
        super().__init__(message, location, hint)
        self.argument = argument
        self.declared: Loc | None = None
        self.at_call = False

    def places(self) -> list[str]:
        declared = [] if self.declared is None else ["  declared in" + self.declared.caret()[1:]]
        return super().places() + declared


class EmulationError(WaveError):
    """The emulator found a defect in the text it ran; `report` holds all findings."""

    def __init__(self, message: str, location: Loc | None = None, hint: str = "", report: object = None):
        super().__init__(message, location, hint)
        self.report = report


class ToolchainError(WaveError):
    """A driver, an assembler or a package is missing or refused its input."""
