"""firstbad inside a PyTorch program.

    firstbad.pytorch.install()      what `firstbad run` does in every process that imports torch
    firstbad.attach(model, ...)     the same from within a program, with names that the program gives (guard.py)

The package imports torch; `import firstbad` alone does not.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .guard import Guard as Guard, attach as attach

__all__ = ["Guard", "attach", "install", "uninstall", "current"]


def install() -> None:
    """Hook into torch. Nothing is opened before the first training forward; twice does no harm."""
    from . import hooks

    hooks.install()


def uninstall() -> None:
    """End the session and take every hook out."""
    from . import hooks, session

    session.close()
    hooks.uninstall()


def current() -> Any:
    """The session of this process; None where nothing has trained yet."""
    from . import session

    return session.current()


def __getattr__(name: str) -> Any:
    if name in ("Guard", "attach"):
        from . import guard

        return getattr(guard, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
