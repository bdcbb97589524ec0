"""How we sit in somebody else's program: functions that are wrapped and given back, and hook bodies that cannot hurt it.

A hook body of ours is decorated with `guest("part")`. What it raises by mistake is told once on stderr, that part is off from
there, coverage says so, and the user's call goes on as if we were not there. What we raise on purpose (Halted and its kin) passes.
"""
from __future__ import annotations

import functools
import os
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, TypeVar

from ..errors import NonFiniteError

F = TypeVar("F", bound=Callable[..., Any])

_off: Set[str] = {part.strip() for part in os.environ.get("FIRSTBAD_OFF", "").split(",") if part.strip()}
_broken: Dict[str, str] = {}
_told: List[Callable[[str, str], None]] = []  # who wants to hear of a part that broke: (part, sentence)


class _Clock(threading.local):
    """Time spent in our own Python, on this thread; nested bodies are counted once."""

    depth = 0
    spent_ns = 0
    other_ns = 0  # of it, time that is no cost of a healthy step: replays


clock = _Clock()


TRACEABLE = ("hooks.py", "roots.py", "compiled.py", "scaler_hooks.py", "labels.py")
_compiled = False  # the program uses torch.compile
_eval_frame: Any = None


def beside_compiler() -> None:
    """The program uses torch.compile: frames of ours are not to be compiled when compiled code calls them, nor what they call.
    Those in TRACEABLE can be traced instead: what they do within a graph is nothing. Imports torch._dynamo, as compiling does
    anyway."""
    global _compiled, _eval_frame
    if _compiled:
        return
    import torch
    from torch._dynamo import trace_rules as rules

    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder, _, files in os.walk(here):
        for name in files:
            if name.endswith(".py") and not (folder.endswith("pytorch") and name in TRACEABLE):
                rules.SKIP_DIRS.append(os.path.join(folder, name))
    rules._recompile_re()
    _eval_frame = torch._C._dynamo.eval_frame.set_eval_frame
    _compiled = True


def compiles() -> bool:
    """Does the program use torch.compile?"""
    return _compiled


def usable(part: str) -> bool:
    """Neither switched off by FIRSTBAD_OFF nor broken."""
    return part not in _off and part not in _broken


def broken() -> Dict[str, str]:
    """Parts that failed, and the sentence of each."""
    return dict(_broken)


def switched_off() -> Set[str]:
    """Parts that FIRSTBAD_OFF names."""
    return set(_off)


def reset() -> None:
    """Forget what broke; read FIRSTBAD_OFF again. For a process that attaches anew."""
    _broken.clear()
    _off.clear()
    _off.update(part.strip() for part in os.environ.get("FIRSTBAD_OFF", "").split(",") if part.strip())


def on_failure(listener: Callable[[str, str], None]) -> None:
    """listener(part, sentence) is called when a part breaks."""
    if listener not in _told:
        _told.append(listener)


def failed(part: str, why: BaseException) -> None:
    """A part of ours broke: say it once, and switch it off."""
    if part in _broken:
        return
    frames = traceback.extract_tb(why.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    sentence = f"{type(why).__name__}: {why}{place}"
    _broken[part] = sentence
    try:
        sys.stderr.write(f"firstbad: {part} failed and is off from here, training goes on: {sentence}\n")
        if os.environ.get("FIRSTBAD_DEBUG"):
            traceback.print_exception(type(why), why, why.__traceback__)
    except (OSError, ValueError):
        pass  # stderr is closed; there is nobody left to tell
    for listener in _told:
        listener(part, sentence)


def guest(part: str, otherwise: Any = None) -> Callable[[F], F]:
    """Decorate a hook body: see the head of this file. A body that is off returns `otherwise`. Cost: 0.4 us."""

    def decorate(body: F) -> F:
        @functools.wraps(body)
        def run(*args: Any, **kwargs: Any) -> Any:
            if part in _broken or part in _off:
                return otherwise
            outermost = clock.depth == 0
            clock.depth += 1
            began = time.perf_counter_ns() if outermost else 0
            compiling = _eval_frame(None) if outermost and _compiled else None
            try:
                return body(*args, **kwargs)
            except NonFiniteError:
                raise
            except Exception as why:
                failed(part, why)
                return otherwise
            finally:
                if compiling is not None:
                    _eval_frame(compiling)
                clock.depth -= 1
                if outermost:
                    clock.spent_ns += time.perf_counter_ns() - began

        return run  # type: ignore[return-value]

    return decorate


class Patches:
    """Functions that were replaced, and their originals."""

    def __init__(self) -> None:
        self._undo: List[Tuple[Any, str, Any, bool]] = []
        self._handles: List[Any] = []

    def wrap(self, owner: Any, name: str, factory: Callable[[Any], Any]) -> None:
        """owner.name = factory(original), looking like the original. Nothing happens where owner has no such name, or it is
        ours."""
        original = getattr(owner, name, None)
        if original is None or getattr(original, "_firstbad_original", None) is not None:
            return
        made = factory(original)
        functools.update_wrapper(made, original)
        made._firstbad_original = original
        inherited = isinstance(owner, type) and name not in owner.__dict__
        setattr(owner, name, made)
        self._undo.append((owner, name, original, inherited))

    def wrap_everywhere(self, owner: Any, name: str, factory: Callable[[Any], Any]) -> None:
        """As wrap, and in every imported module that holds the same function under the same name: `from x import f` ran already."""
        original = getattr(owner, name, None)
        self.wrap(owner, name, factory)
        made = getattr(owner, name, None)
        if original is None or made is original:
            return
        for module in list(sys.modules.values()):
            if module is not owner and getattr(module, "__dict__", {}).get(name) is original:
                setattr(module, name, made)
                self._undo.append((module, name, original, False))

    def keep(self, handle: Any) -> None:
        """A hook's handle: removed by uninstall."""
        self._handles.append(handle)

    def uninstall(self) -> None:
        """Everything is as it was, where nobody put something on top of ours."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for owner, name, original, inherited in reversed(self._undo):
            now = getattr(owner, name, None)
            if getattr(now, "_firstbad_original", None) is not original:
                continue  # wrapped again by somebody else: ours stays below, and does nothing
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._undo.clear()


def original_of(function: Any) -> Any:
    """The function below our wrapper."""
    return getattr(function, "_firstbad_original", function)


def optional(part: str, module: str) -> Optional[Any]:
    """firstbad.pytorch.<module>, or None when it is switched off or cannot be imported, which is said."""
    if not usable(part):
        return None
    import importlib

    try:
        return importlib.import_module("." + module, __package__)
    except ModuleNotFoundError as why:
        if why.name == f"{__package__}.{module}":
            _broken[part] = "it is not part of this installation"
        else:
            failed(part, why)
        return None
    except Exception as why:
        failed(part, why)
        return None
