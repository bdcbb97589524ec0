"""Compiled code: torch.compile, Module.compile, and torch.jit. What is compiled is compiled without us, or it would be compiled
again."""
from __future__ import annotations

import functools
from typing import Any, List, Optional

import torch

from . import begin, patch, roots, session as sessions, untouched
from .since import COMPILES, is_compiling


def torch_compile(original: Any) -> Any:
    def compile(*args: Any, **kwargs: Any) -> Any:
        target = args[0] if args else kwargs.get("model")
        if target is None:  # used as a decorator with options: what it makes is given to us later
            decorate = original(*args, **kwargs)
            return (lambda function: compile(function, *args[1:], **dict(kwargs))) if callable(decorate) else decorate
        _note_compile(target)
        made = original(*args, **kwargs)
        if isinstance(made, torch.nn.Module):
            _root_compiled(made)
        elif callable(made) and not isinstance(target, type):
            return _compiled_function(made, target, bool(kwargs.get("fullgraph", False)))
        return made

    return compile


_whole = False  # compiled code that must be one graph runs: our hooks in it do nothing, for they would break it


def passing() -> bool:
    """Within a graph that must stay whole. torch.compile sees a constant here."""
    return is_compiling() and _whole


def _compiled_function(made: Any, target: Any, whole: bool) -> Any:
    """A compiled function: what runs in it is not recorded operator by operator.

    whole: it must be one graph. Then no hook of ours runs in it, so one that steps an optimizer is gated before it begins.
    """
    owner = getattr(target, "__self__", None)
    steps = [owner] if isinstance(owner, torch.optim.Optimizer) else None if _may_step(target) else []

    @functools.wraps(made)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return made(*args, **kwargs)
        global _whole
        held = _pause()
        before, _whole = _whole, whole
        gated = _before_whole(steps) if whole and steps != [] else None
        try:
            result = made(*args, **kwargs)
        except BaseException:
            _after_whole(gated, False)
            raise
        finally:
            _whole = before
            _resume(held)
        _after_whole(gated, True)
        return result

    return call


def _may_step(target: Any) -> bool:
    """Does this function, or one defined in it, name `step`?"""
    codes = [getattr(target, "__code__", None)]
    while codes:
        code = codes.pop()
        if code is None:
            continue
        if "step" in code.co_names:
            return True
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    return False


@patch.guest("session")
def _before_whole(steps: Optional[List[Any]]) -> Any:
    session = sessions.current()
    if session is None or not session.mine() or session.update is None or not session.update.backwards or session.update.over():
        return None
    return session if session.optim.before_whole(steps) else None


@patch.guest("session")
def _after_whole(session: Any, returned: bool) -> None:
    if session is not None and not session.dead:
        session.optim.after_whole(returned)


@patch.guest("tail")
def _pause() -> Any:
    session = sessions.current()
    if session is None or session.dead or session.recorder is None or session.inside is not None or untouched.replaying():
        return None
    if not torch.is_grad_enabled() or is_compiling():
        return None
    session.recorder.pause()
    return session


@patch.guest("tail")
def _resume(session: Any) -> None:
    if session is not None and not session.dead:
        session.recorder.resume()


@patch.guest("session")
def _note_compile(target: Any) -> None:
    """No global hook from here on, and none of ours inside of what is compiled."""
    roots.never_again()
    if not COMPILES:
        why = f"a program that uses torch.compile is guarded from torch 2.4 on, and this is {torch.__version__}"
        begin.note(error=why)
        raise RuntimeError(why)  # the session is off from here, and says so
    patch.beside_compiler()
    for module in roots.rooted(target):
        roots.unroot(module)


@patch.guest("session")
def _root_compiled(made: Any) -> None:
    roots.root(made)


def module_compile(original: Any) -> Any:
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        _note_compile(self)
        result = original(self, *args, **kwargs)
        _watch_compiled(self)
        return result

    return compile


@patch.guest("session")
def _watch_compiled(module: Any) -> None:
    """module.compile() put a compiled call into the module, hooks and all: we stand around it."""
    inner = module._compiled_call_impl

    def call(*args: Any, **kwargs: Any) -> Any:
        if roots.training_call():
            roots.enter(module, args, kwargs)
        output: Any = None
        try:
            output = inner(*args, **kwargs)
            return output
        finally:
            session = sessions.current()
            if session is not None and session.inside is module and not untouched.replaying():
                roots.leave(session, module, output)

    module._compiled_call_impl = call


def without_hooks(original: Any, frames: int = 0) -> Any:
    """torch.jit compiles the hooks of a module with it, which ours are not made for."""

    def call(*args: Any, **kwargs: Any) -> Any:
        target = args[0] if args else kwargs.get("obj", kwargs.get("func"))
        taken, searching = roots.rooted(target), roots.searching()
        roots.stop_search()
        for module in taken:
            roots.unroot(module)
        if frames:  # it looks names up where it was called from, and counts this call as well
            kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + frames
        try:
            return original(*args, **kwargs)
        finally:
            for module in taken:
                roots.root(module)
            if searching:
                roots.search()

    return call


