"""Root modules: those whose forward begins while no other module's runs. Found by a global hook in the first updates; from then on
each carries hooks of its own, which a copy or a pickle of the model does not take with it.
"""
from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from typing import Any, Dict, List, Optional

import torch
from torch.nn.modules import module as torch_module

from . import patch, session as sessions, untouched
from .since import is_compiling

SEARCH_UPDATES = 3  # updates in which every module call is looked at for roots

_search: Any = None  # handle of the global hook that looks for roots
_never = False  # torch.compile is used: a global hook would make it compile again
_searched_until = SEARCH_UPDATES
_rooted: Dict[int, Any] = {}  # id(module) -> (weak reference, handles) of a root that carries our hooks


def search(updates: Optional[int] = None) -> None:
    """Look at every module call for roots, until some updates more than `updates` have passed (None: as long as it was said
    before)."""
    global _search, _searched_until
    if updates is not None:
        _searched_until = updates + SEARCH_UPDATES
    if _search is None and not _never and patch.usable("session"):
        _search = torch_module.register_module_forward_pre_hook(_found)


def stop_search() -> None:
    global _search
    if _search is not None:
        _search.remove()
        _search = None


_transforms = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)


def transformed() -> bool:
    """Within torch.func.vmap, grad or another transform: tensors have no numbers that could be looked at, and the module mostly
    runs with parameters that are not its own."""
    return _transforms() is not None


def training_call() -> bool:
    """Grad mode, outside backward (a recomputation is no forward), outside replays, tracing and transforms."""
    return torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1 and not untouched.replaying() \
        and not is_compiling() and not torch.jit.is_scripting() and torch._C._get_tracing_state() is None \
        and not transformed()


def _found(module: Any, args: Any) -> None:
    """The global hook. Returns nothing: what a hook returns takes the place of the input."""
    if not training_call() or isinstance(module, torch.jit.ScriptModule):
        return
    session = sessions.current()
    if session is not None and (session.inside is not None or session.dead or threading.get_ident() != session.thread):
        return
    if id(module) in _rooted and _rooted[id(module)][0]() is module:
        return
    _first_call(module, args)


@patch.guest("session")
def _first_call(module: Any, args: Any) -> None:
    session = sessions.obtain()
    if session is None or not session.mine():
        return
    root(module)
    if session.updates >= _searched_until:
        stop_search()
    if session.root_enter(module, args, _keywords(module)):
        _entered.append(module)


def _keywords(module: Any) -> Dict[str, Any]:
    """Keyword arguments of the call that the global hook is in: it is not handed them, so they are read where torch holds them."""
    frame = sys._getframe(1)
    for _ in range(8):
        if frame is None:
            break
        names = frame.f_locals
        of_call = frame.f_code.co_name in ("inner", "_call_impl") and names.get("self") is module
        if of_call and isinstance(names.get("kwargs"), dict):
            return dict(names["kwargs"])
        frame = frame.f_back  # type: ignore[assignment]
    return {}


_entered: List[Any] = []  # the root whose first call the global hook entered


class _Enter:
    """Pre-hook of a root. A model that is pickled takes none of us with it: in its place stands something that does nothing."""

    def __call__(self, module: Any, args: Any, kwargs: Any) -> None:
        if _entered and _entered[-1] is module:
            return
        if training_call():
            enter(module, args, kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")


class _Exit:
    """Hook of a root, called also when forward raised."""

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        if _entered and _entered[-1] is module:
            _entered.pop()
        session = sessions.current()
        if session is not None and session.inside is module and not untouched.replaying():
            leave(session, module, output)

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")


_ENTER, _EXIT = _Enter(), _Exit()


@patch.guest("session")
def enter(module: Any, args: Any, kwargs: Any) -> None:
    session = sessions.obtain()
    if session is not None and session.mine():
        session.root_enter(module, args, kwargs)
        if _search is not None and session.updates >= _searched_until:
            stop_search()


@patch.guest("session")
def leave(session: Any, module: Any, output: Any) -> None:
    session.root_exit(module, output, failed=output is None and sys.exc_info()[0] is not None)


def root(module: Any) -> None:
    """From here on calls of this module are told to the session."""
    if id(module) in _rooted and _rooted[id(module)][0]() is module:
        return
    handles = (module.register_forward_pre_hook(_ENTER, prepend=True, with_kwargs=True),
               module.register_forward_hook(_EXIT, always_call=True))
    for handle in handles:
        _renumber(handle)
    _rooted[id(module)] = (weakref.ref(module), handles)


_KEY = -1  # of our hooks in a module's tables. A copy and a pickle take the tables along, and torch counts from 0 in each process


def _renumber(handle: Any) -> None:
    """A hook of the program must never get a number that stands in the tables of a module that was saved: it would be called with
    keyword arguments, or after an exception, as ours is."""
    tables = [handle.hooks_dict_ref(), *(reference() for reference in handle.extra_dict_ref)]
    for table in tables:
        if table is not None and handle.id in table:
            first = next(iter(table)) == handle.id
            table[_KEY] = table.pop(handle.id)
            if first and hasattr(table, "move_to_end"):
                table.move_to_end(_KEY, last=False)
    handle.id = _KEY


def unroot(module: Any) -> None:
    held = _rooted.pop(id(module), None)
    if held is not None and held[0]() is module:
        for handle in held[1]:
            handle.remove()


def rooted(target: Any) -> List[Any]:
    """Modules of `target` that carry our hooks."""
    return [module for module in target.modules() if id(module) in _rooted] if isinstance(target, torch.nn.Module) else []


def searching() -> bool:
    """Is every module call looked at?"""
    return _search is not None


def never_again() -> None:
    """No global hook from here on: it is part of what compiled code is guarded by."""
    global _never
    _never = True
    stop_search()


def forget() -> None:
    """Take every hook out."""
    stop_search()
    for reference, _ in list(_rooted.values()):
        module = reference()
        if module is not None:
            unroot(module)
    _rooted.clear()
