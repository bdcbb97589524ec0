"""Where we hook into torch: official hooks where there are any, wrapped functions where there are none.

Every body of ours is a guest (patch.py): it may raise Halted and nothing else.
"""
from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from torch.nn.modules import module as torch_module

from . import patch, session as sessions, untouched
from .patch import Patches
from .registry import optimizers as known_optimizers, scalers as known_scalers
from .schedule import Schedules

SEARCH_UPDATES = 3  # updates in which every module call is looked at for roots

_patches: Optional[Patches] = None
_search: Any = None  # handle of the global hook that looks for roots
_compiled = False  # torch.compile is used: a global hook would make it compile again
_searched_until = SEARCH_UPDATES
_rooted: Dict[int, Any] = {}  # id(module) -> weak reference to a root that carries our hooks
schedules = Schedules()


def installed() -> bool:
    return _patches is not None


def install() -> None:
    """Hook in. Twice does no harm. Nothing is opened and nothing is looked at before the first training forward. Cost: 1-5 ms."""
    global _patches
    if _patches is not None:
        return
    patches = _patches = Patches()
    optim = torch.optim.Optimizer
    patches.wrap(optim, "__init__", _optimizer_made)
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    patches.keep(register_optimizer_step_pre_hook(_before_step))
    patches.keep(register_optimizer_step_post_hook(_after_step))
    patches.wrap_everywhere(torch.autograd, "backward", _backward)
    patches.wrap_everywhere(torch.autograd, "grad", _grad)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patches.wrap_everywhere(torch.nn.utils.clip_grad, name, _clip)
        setattr(torch.nn.utils, name, getattr(torch.nn.utils.clip_grad, name))
    _wrap_scaler(torch.amp.GradScaler)
    patches.wrap(torch.nn.Module, "compile", _module_compile)
    patches.wrap(torch, "compile", _torch_compile)
    patches.wrap(torch.jit, "script", lambda original: _without_hooks(original, 1))
    patches.wrap(torch.jit, "trace", _without_hooks)
    schedules.install(patches)
    for part in ("ranks", "labels", "loader", "saves", "loads"):
        module = patch.optional(part, part)
        if module is not None and hasattr(module, "install"):
            _install_part(part, module, patches)
    search()


def _install_part(part: str, module: Any, patches: Patches) -> None:
    @patch.guest(part)
    def run() -> None:
        module.install(patches)

    run()


def uninstall() -> None:
    """Everything is as it was before install."""
    global _patches
    stop_search()
    for reference in list(_rooted.values()):
        module = reference[0]()
        if module is not None:
            _unroot(module)
    _rooted.clear()
    if _patches is not None:
        _patches.uninstall()
        _patches = None


# ---- roots -----------------------------------------------------------------------------------------------------------------------


def search(updates: Optional[int] = None) -> None:
    """Look at every module call for roots, until some updates more than `updates` have passed (None: as long as it was said before)."""
    global _search, _searched_until
    if updates is not None:
        _searched_until = updates + SEARCH_UPDATES
    if _search is None and not _compiled and patch.usable("session"):
        _search = torch_module.register_module_forward_pre_hook(_found)


def stop_search() -> None:
    global _search
    if _search is not None:
        _search.remove()
        _search = None


def _training_call() -> bool:
    """Grad mode, outside backward (a recomputation is no forward), outside replays and tracing."""
    return torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1 and not untouched.replaying() \
        and not torch.compiler.is_compiling() and not torch.jit.is_scripting() and torch._C._get_tracing_state() is None


def _found(module: Any, args: Any) -> None:
    """The global hook. Returns nothing: what a hook returns takes the place of the input."""
    if not _training_call() or isinstance(module, torch.jit.ScriptModule):
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
        if frame.f_code.co_name in ("inner", "_call_impl") and names.get("self") is module and isinstance(names.get("kwargs"), dict):
            return dict(names["kwargs"])
        frame = frame.f_back  # type: ignore[assignment]
    return {}


_entered: List[Any] = []  # the root whose first call the global hook entered


class _Enter:
    """Pre-hook of a root. A model that is pickled takes none of us with it: in its place stands something that does nothing."""

    def __call__(self, module: Any, args: Any, kwargs: Any) -> None:
        if _entered and _entered[-1] is module:
            return
        if _training_call():
            _enter(module, args, kwargs)

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
            _exit(session, module, output)

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")


_ENTER, _EXIT = _Enter(), _Exit()


@patch.guest("session")
def _enter(module: Any, args: Any, kwargs: Any) -> None:
    session = sessions.obtain()
    if session is not None and session.mine():
        session.root_enter(module, args, kwargs)
        if _search is not None and session.updates >= _searched_until:
            stop_search()


@patch.guest("session")
def _exit(session: Any, module: Any, output: Any) -> None:
    session.root_exit(module, output, failed=output is None and sys.exc_info()[0] is not None)


def root(module: Any) -> None:
    """From here on calls of this module are told to the session."""
    import weakref

    if id(module) in _rooted and _rooted[id(module)][0]() is module:
        return
    handles = (module.register_forward_pre_hook(_ENTER, prepend=True, with_kwargs=True),
               module.register_forward_hook(_EXIT, always_call=True))
    _rooted[id(module)] = (weakref.ref(module), handles)


def _unroot(module: Any) -> None:
    held = _rooted.pop(id(module), None)
    if held is not None and held[0]() is module:
        for handle in held[1]:
            handle.remove()


# ---- compiled code ---------------------------------------------------------------------------------------------------------------


def _compile_seen(target: Any) -> None:
    """No global hook from here on: it is part of what compiled code is guarded by. Hooks of ours inside of it go as well."""
    global _compiled
    _compiled = True
    stop_search()
    patch.beside_compiler()
    if isinstance(target, torch.nn.Module):
        for module in target.modules():
            _unroot(module)


def _torch_compile(original: Any) -> Any:
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


def _passing() -> bool:
    """Within a graph that must stay whole. torch.compile sees a constant here."""
    return torch.compiler.is_compiling() and _whole


def _compiled_function(made: Any, target: Any, whole: bool) -> Any:
    """A compiled function: what runs in it is not recorded operator by operator.

    whole: it must be one graph. Then no hook of ours runs in it, so one that steps an optimizer is gated before it begins.
    """
    import functools

    owner = getattr(target, "__self__", None)
    steps = [owner] if isinstance(owner, torch.optim.Optimizer) else None if _may_step(target) else []

    @functools.wraps(made)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
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
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    session.recorder.pause()
    return session


@patch.guest("tail")
def _resume(session: Any) -> None:
    if session is not None and not session.dead:
        session.recorder.resume()


@patch.guest("session")
def _note_compile(target: Any) -> None:
    _compile_seen(target)


@patch.guest("session")
def _root_compiled(made: Any) -> None:
    root(made)


def _module_compile(original: Any) -> Any:
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
        if _training_call():
            _enter(module, args, kwargs)
        output: Any = None
        try:
            output = inner(*args, **kwargs)
            return output
        finally:
            session = sessions.current()
            if session is not None and session.inside is module and not untouched.replaying():
                _exit(session, module, output)

    module._compiled_call_impl = call


def _without_hooks(original: Any, frames: int = 0) -> Any:
    """torch.jit compiles the hooks of a module with it, which ours are not made for."""

    def call(*args: Any, **kwargs: Any) -> Any:
        target = args[0] if args else kwargs.get("obj", kwargs.get("func"))
        taken = [m for m in target.modules() if id(m) in _rooted] if isinstance(target, torch.nn.Module) else []
        searching = _search is not None
        stop_search()
        for module in taken:
            _unroot(module)
        if frames:  # it looks names up where it was called from, and counts this call as well
            kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + frames
        try:
            return original(*args, **kwargs)
        finally:
            for module in taken:
                root(module)
            if searching:
                search()

    return call


# ---- backward --------------------------------------------------------------------------------------------------------------------


def _backward(original: Any) -> Any:
    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _passing():
            return original(tensors, grad_tensors, *args, **kwargs)
        session = _backward_enter(tensors, grad_tensors, args, kwargs)
        if session is None:
            return original(tensors, grad_tensors, *args, **kwargs)
        done = False
        try:
            original(tensors, grad_tensors, *args, **kwargs)
            done = True
        finally:
            _backward_exit(session, not done)

    return backward


@patch.guest("session")
def _backward_enter(tensors: Any, grad_tensors: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    if untouched.replaying() or torch._C._current_graph_task_id() != -1:
        return None
    session = sessions.obtain()
    if session is None or not session.mine():
        return None
    options = dict(zip(("retain_graph", "create_graph", "grad_variables", "inputs"), args))
    options.update(kwargs)
    return session if session.backward_enter(tensors, grad_tensors, options) else None


@patch.guest("session")
def _backward_exit(session: Any, failed: bool) -> None:
    session.backward_exit(failed)


def _grad(original: Any) -> Any:
    def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # torch.compile knows this function
            return original(outputs, inputs, grad_outputs, *args, **kwargs)
        session = _grad_enter(outputs, inputs, grad_outputs, args, kwargs)
        if session is None:
            return original(outputs, inputs, grad_outputs, *args, **kwargs)
        results: Tuple[Any, ...] = ()
        try:
            results = original(outputs, inputs, grad_outputs, *args, **kwargs)
            return results
        finally:
            _grad_exit(session, results)

    return grad


@patch.guest("tail")
def _grad_enter(outputs: Any, inputs: Any, grad_outputs: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    session = sessions.current()
    if session is None or session.recorder is None or session.inside is not None or session.in_backward or not session.mine():
        return None
    if torch._C._current_graph_task_id() != -1:
        return None
    options = dict(zip(("retain_graph", "create_graph", "only_inputs", "allow_unused", "is_grads_batched"), args))
    options.update(kwargs)
    session.recorder.grad_enter(outputs, inputs, grad_outputs, options)
    return session


@patch.guest("tail")
def _grad_exit(session: Any, results: Any) -> None:
    session.recorder.grad_exit(results)


# ---- clipping --------------------------------------------------------------------------------------------------------------------


def _clip(original: Any) -> Any:
    def clip(*args: Any, **kwargs: Any) -> Any:
        if _passing() or (not args and "parameters" not in kwargs):
            return original(*args, **kwargs)
        given = args[0] if args else kwargs["parameters"]
        if not isinstance(given, (torch.Tensor, list, tuple)):
            given = list(given)  # an iterator can be walked once, and that is the original's to do
            args, kwargs = ((given,) + tuple(args[1:]), kwargs) if args else (args, dict(kwargs, parameters=given))
        session = _before_clip(given)
        norm = original(*args, **kwargs)
        if session is not None:
            _after_clip(session, norm)
        return norm

    return clip


@patch.guest("session")
def _before_clip(given: Any) -> Any:
    session = sessions.current()
    if session is None or not session.mine() or session.update is None or session.in_backward:
        return None
    update = session.update
    if update.backwards == 0 or update.over():
        return None
    if update.scaler_used and not session.scaling.any_unscaled():
        update.clipped_scaled = True
    owned = [given] if isinstance(given, torch.Tensor) else given
    if not any(session.optim.owns(parameter) for parameter in owned[:4]):
        return None  # of something that no optimizer of torch owns
    session.gate("clip")
    return session


@patch.guest("session")
def _after_clip(session: Any, norm: Any) -> None:
    if session.dead or session.update is None:
        return
    session.gates.note_versions()
    if isinstance(norm, torch.Tensor) and norm.device.type == "cpu" and norm.numel() == 1 and type(norm) is torch.Tensor:
        session.update.grad_norm = float(norm.item())


# ---- optimizers ------------------------------------------------------------------------------------------------------------------


def _optimizer_made(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not untouched.replaying():
            known_optimizers.add(self)

    return __init__


def _before_step(optimizer: Any, args: Any, kwargs: Any) -> Any:
    return None if _passing() else _stepping(optimizer, args, kwargs)


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not _passing():
        _stepped(optimizer)


@patch.guest("session")
def _stepping(optimizer: Any, args: Any, kwargs: Any) -> Any:
    if untouched.replaying():
        return None
    session = sessions.obtain()
    if session is None or not session.mine():
        return None
    return session.optim.before_step(optimizer, args, kwargs)


@patch.guest("session")
def _stepped(optimizer: Any) -> None:
    session = sessions.current()
    if session is not None and session.mine():
        session.optim.after_step(optimizer)


# ---- GradScaler ------------------------------------------------------------------------------------------------------------------


def _wrap_scaler(kind: Any) -> None:
    """Wrap what a scaler class defines itself; what it inherits is wrapped where it is defined."""
    if _patches is None:
        return
    for name, factory in (("__init__", _scaler_made), ("scale", _scale), ("unscale_", _unscale), ("step", _scaler_step),
                          ("update", _scaler_update)):
        if name in kind.__dict__:
            _patches.wrap(kind, name, factory)


def _scaler_made(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        known_scalers.add(self)
        for kind in type(self).__mro__:
            if kind is not object and issubclass(kind, torch.amp.GradScaler):
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
