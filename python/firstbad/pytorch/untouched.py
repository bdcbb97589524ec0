"""All that a replay touches, put back: each of these is entered around one, and leaves no trace.

Gradients come back as the very tensors, buffers bit for bit, attributes of modules by reference, switches of torch as they stood.
"""
from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

import torch

from . import trees
from .program import Program, Ref, RootCall
from .tail import copy_of

_active = threading.local()


def replaying() -> bool:
    """True on a thread that is in a replay: hooks of ours pass everything on. Cost: 0.1 us."""
    return bool(getattr(_active, "depth", 0))


@contextlib.contextmanager
def active() -> Iterator[None]:
    """This thread is in a replay."""
    _active.depth = getattr(_active, "depth", 0) + 1
    try:
        yield
    finally:
        _active.depth -= 1


@contextlib.contextmanager
def autocast_as(was: Any, widen: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for device, enabled, dtype in was.devices:
            if device == "cuda" and not torch.cuda.is_available():
                continue
            stack.enter_context(torch.autocast(device, enabled=enabled and not widen, dtype=dtype, cache_enabled=was.cache))
        backends = torch.backends.cuda
        backends.enable_flash_sdp(was.attention[0])
        backends.enable_mem_efficient_sdp(was.attention[1])
        backends.enable_math_sdp(was.attention[2])
        yield


@contextlib.contextmanager
def flags() -> Iterator[None]:
    """Switches of torch: deterministic kernels where there are, none of our NaN in fresh memory, compiled code runs eagerly."""
    deterministic, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    backends = torch.backends.cuda
    attention = backends.flash_sdp_enabled(), backends.mem_efficient_sdp_enabled(), backends.math_sdp_enabled()
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    torch.clear_autocast_cache()
    try:
        with _eager(), _quiet():
            yield
    finally:
        torch.clear_autocast_cache()
        torch.use_deterministic_algorithms(deterministic, warn_only=warn)
        torch.utils.deterministic.fill_uninitialized_memory = fill
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
        backends.enable_flash_sdp(attention[0])
        backends.enable_mem_efficient_sdp(attention[1])
        backends.enable_math_sdp(attention[2])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Warnings of a replay were given in the run already, or are about our own switches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _eager() -> Iterator[None]:
    """torch.compile off. Dynamo is not imported for it where the program never did."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        yield
    elif hasattr(torch.compiler, "set_stance"):
        with torch.compiler.set_stance("force_eager"):
            yield
    else:
        was = dynamo.config.disable
        dynamo.config.disable = True
        try:
            yield
        finally:
            dynamo.config.disable = was


@contextlib.contextmanager
def threads_kept() -> Iterator[None]:
    """Autograd in this thread alone: a tape is heard in order."""
    with torch.autograd.set_multithreading_enabled(False):
        yield


@contextlib.contextmanager
def grad_mode() -> Iterator[None]:
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextlib.contextmanager
def state_of(program: Program, gradients: Sequence[torch.Tensor], widen: bool) -> Iterator[Dict[int, torch.Tensor]]:
    """Gradients, attributes, hooks of leaves and, for a wider replay, the parameters themselves. Buffers are replaced by copies, so
    that not even their version counters move; gives id(buffer) -> what stands in its place."""
    leaves: Dict[int, torch.Tensor] = {}
    buffers: Dict[int, Tuple[torch.Tensor, torch.Tensor]] = {}
    moved = {id(live): before for live, before in program.buffers}
    attributes = trees.Attributes()
    modules: List[torch.nn.Module] = []
    for _, root in program.roots:
        if isinstance(root, torch.nn.Module):
            modules += list(root.modules())
    for module in modules:
        attributes.keep(module)
        for held in (module._buffers, module._parameters, module._modules):
            attributes.keep_container(held)
        for parameter in module._parameters.values():
            if parameter is not None:
                leaves[id(parameter)] = parameter
        for buffer in module._buffers.values():
            if buffer is not None and id(buffer) not in buffers and buffer.device.type != "meta":
                given = copy_of(moved.get(id(buffer), buffer)).requires_grad_(buffer.requires_grad)
                buffers[id(buffer)] = buffer, given
    for step in program.steps:
        if isinstance(step, RootCall):
            trees.rebuild((step.args, step.kwargs), lambda leaf: _keep_object(leaf, attributes))
    for leaf in gradients:
        leaves[id(leaf)] = leaf
    for external in program.externals:
        if external.live():
            leaves[id(external.tensor)] = external.tensor
    grads = [(leaf, leaf.grad, leaf.requires_grad) for leaf in leaves.values()]
    hooks = [
        (held, dict(held)) for held in (getattr(leaf, "_post_accumulate_grad_hooks", None) for leaf in leaves.values()) if held
    ]
    wide: List[Tuple[torch.Tensor, torch.Tensor]] = []
    try:
        for leaf, _, _ in grads:
            leaf.grad = None
        for held, _ in hooks:
            held.clear()
        if widen:
            wide = _widen(leaves.values())
            buffers = {key: (live, _float(given)) for key, (live, given) in buffers.items()}
        for module in modules:
            for name, buffer in module._buffers.items():
                if buffer is not None and id(buffer) in buffers:
                    module._buffers[name] = buffers[id(buffer)][1]
        yield {key: given for key, (_, given) in buffers.items()}
    finally:
        attributes.put_back()
        for tensor, data in wide:
            tensor.data = data
        for leaf, _, requires in grads:
            leaf.grad = None
            if leaf.requires_grad != requires:
                leaf.requires_grad_(requires)
        for leaf, gradient, _ in grads:
            leaf.grad = gradient
        for held, entries in hooks:
            held.update(entries)


def _float(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _widen(leaves: Iterable[torch.Tensor]) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """Every number of 16 bits in 32; what to put back."""
    done = []
    for tensor in leaves:
        if tensor.dtype in (torch.float16, torch.bfloat16) and type(tensor.data) is torch.Tensor:
            done.append((tensor, tensor.data))
            tensor.data = tensor.data.float()
    return done


def _keep_object(leaf: Any, attributes: trees.Attributes) -> Any:
    """Objects among the inputs (a cache of keys and values, say) may be written into."""
    if not isinstance(leaf, (torch.Tensor, Ref, type(None), str, int, float, bool, torch.nn.Module)) and hasattr(leaf, "__dict__") \
            and not callable(leaf):
        attributes.keep(leaf)
    return leaf


@contextlib.contextmanager
def optimizer_hooks_off() -> Iterator[None]:
    """Hooks on every optimizer (ours, and those of others) do not hear of a step that is no step."""
    module = sys.modules["torch.optim.optimizer"]
    held = [getattr(module, name, None) for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")]
    kept = [(hooks, dict(hooks)) for hooks in held if hooks]
    for hooks, _ in kept:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, entries in kept:
            hooks.update(entries)
