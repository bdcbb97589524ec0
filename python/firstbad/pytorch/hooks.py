"""Where we hook into torch: official hooks where there are any, wrapped functions where there are none.

Every body of ours is a guest (patch.py): it may raise Halted and nothing else.
"""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch

from . import compiled, patch, roots, scaler_hooks, session as sessions, untouched
from .patch import Patches
from .registry import optimizers as known_optimizers
from .schedule import Schedules
from .since import is_compiling

_patches: Optional[Patches] = None
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
    patches.wrap(torch.Tensor, "register_hook", _register_hook)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patches.wrap_everywhere(torch.nn.utils.clip_grad, name, _clip)
    scaler_hooks.install(patches)
    patches.wrap(torch.nn.Module, "compile", compiled.module_compile)
    patches.wrap(torch, "compile", compiled.torch_compile)
    patches.wrap(torch.jit, "script", lambda original: compiled.without_hooks(original, 1))
    patches.wrap(torch.jit, "trace", compiled.without_hooks)
    schedules.install(patches)
    for part in ("ranks", "labels", "loader", "saves", "loads", "postmortem"):
        module = patch.optional(part, part)
        if module is not None and hasattr(module, "install"):
            _install_part(part, module, patches)
    roots.search()


def _install_part(part: str, module: Any, patches: Patches) -> None:
    @patch.guest(part)
    def run() -> None:
        module.install(patches)

    run()


def uninstall() -> None:
    """Everything is as it was before install."""
    global _patches
    roots.forget()
    if _patches is not None:
        _patches.uninstall()
        _patches = None


# ---- backward --------------------------------------------------------------------------------------------------------------------


def _backward(original: Any) -> Any:
    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        if compiled.passing():
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
        if is_compiling():  # torch.compile knows this function
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
    if torch._C._current_graph_task_id() != -1 or roots.transformed():
        return None
    options = dict(zip(("retain_graph", "create_graph", "only_inputs", "allow_unused", "is_grads_batched"), args))
    options.update(kwargs)
    session.recorder.grad_enter(outputs, inputs, grad_outputs, options)
    return session


@patch.guest("tail")
def _grad_exit(session: Any, results: Any) -> None:
    session.recorder.grad_exit(results)
    if session.update is not None:
        session.update.calls.led_to(results)


def _register_hook(original: Any) -> Any:
    def register_hook(self: Any, hook: Any) -> Any:
        _hooked(self)
        return original(self, hook)

    return register_hook


@patch.guest("tail")
def _hooked(tensor: Any) -> None:
    session = sessions.current()
    if session is not None and session.recorder is not None and session.inside is None and session.mine():
        session.recorder.hooked(tensor)


# ---- clipping --------------------------------------------------------------------------------------------------------------------


def _clip(original: Any) -> Any:
    def clip(*args: Any, **kwargs: Any) -> Any:
        if compiled.passing() or (not args and "parameters" not in kwargs):
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
    return None if compiled.passing() else _stepping(optimizer, args, kwargs)


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not compiled.passing():
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
