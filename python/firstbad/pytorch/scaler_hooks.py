"""GradScaler, wrapped: what its methods do is scaler.py's."""
from __future__ import annotations

from typing import Any

import torch

from . import patch, session as sessions
from .registry import scalers as known_scalers
from .since import GradScaler

_patches: Any = None


def install(patches: Any) -> None:
    """Wrap torch's scaler; subclasses are wrapped as the first of them is made."""
    global _patches
    _patches = patches
    _wrap_scaler(GradScaler)


def _wrap_scaler(kind: Any) -> None:
    """Wrap what a scaler class defines itself; what it inherits is wrapped where it is defined."""
    for name, factory in (("__init__", _scaler_made), ("scale", _scale), ("unscale_", _unscale), ("step", _scaler_step),
                          ("update", _scaler_update)):
        if name in kind.__dict__:
            _patches.wrap(kind, name, factory)


def _scaler_made(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        known_scalers.add(self)
        for kind in type(self).__mro__:
            if kind is not object and issubclass(kind, GradScaler):
                _wrap_scaler(kind)

    return __init__


def _scaling(scaler: Any) -> Any:
    """The session, where this scaler's calls are to be watched."""
    if not getattr(scaler, "_enabled", False) or not patch.usable("session"):
        return None
    session = sessions.current()
    return session if session is not None and session.mine() else None


def _scale(original: Any) -> Any:
    def scale(self: Any, outputs: Any) -> Any:
        known_scalers.add(self)
        if not isinstance(outputs, (torch.Tensor, list, tuple)):
            return original(self, outputs)
        scaled = original(self, outputs)
        _scaled(self, outputs, scaled)
        return scaled

    return scale


@patch.guest("session")
def _scaled(scaler: Any, outputs: Any, scaled: Any) -> None:
    if sessions.current() is None and getattr(scaler, "_enabled", False) and torch.is_grad_enabled():
        sessions.obtain()  # a program without modules begins here
    session = _scaling(scaler)
    if session is not None:
        session.scaling.scaled(scaler, outputs, scaled)


def _unscale(original: Any) -> Any:
    def unscale_(self: Any, optimizer: Any) -> Any:
        session = _before_unscale(self, optimizer)
        result = original(self, optimizer)
        if session is not None:
            _after_unscale(session)
        return result

    return unscale_


@patch.guest("session")
def _before_unscale(scaler: Any, optimizer: Any) -> Any:
    session = _scaling(scaler)
    if session is not None:
        session.scaling.before_unscale(scaler, optimizer)
    return session


@patch.guest("session")
def _after_unscale(session: Any) -> None:
    if not session.dead:
        session.gates.note_versions()


def _scaler_step(original: Any) -> Any:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if _before_scaler_step(self, optimizer):
            return None
        return original(self, optimizer, *args, **kwargs)

    return step


@patch.guest("session", False)
def _before_scaler_step(scaler: Any, optimizer: Any) -> bool:
    session = _scaling(scaler)
    if session is None or not session.scaling.before_step(scaler, optimizer):
        return False
    return bool(session.scaling.withhold(scaler, optimizer))


def _scaler_update(original: Any) -> Any:
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        frozen = _before_scaler_update(self)
        result = original(self, *args, **kwargs)
        _after_scaler_update(self, frozen)
        return result

    return update


@patch.guest("session")
def _before_scaler_update(scaler: Any) -> Any:
    session = _scaling(scaler)
    return session.scaling.before_update(scaler) if session is not None else None


@patch.guest("session")
def _after_scaler_update(scaler: Any, frozen: Any) -> None:
    session = _scaling(scaler)
    if session is not None:
        session.scaling.after_update(scaler, frozen)
