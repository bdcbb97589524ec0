"""What the bench itself sees of a run, and what it adds for each peer.

The observer takes a digest of the whole state (parameters of every module, state of every optimizer) at the entry of every
backward, at the entry of every optimizer step and at exit, from raw memory: it calls no operator of torch, so that nothing that
records operators sees it. One JSON file a rank, FAULTBENCH_OUT.<rank>.json:

  events  [{kind: "backward" | "step" | "exit", digest, bad: [names of tensors that hold NaN or Inf]}]
  error   null, or the exception that ended the process: type, text, lines of the script and files of its traceback, innermost first
  warned  text of warnings; anomaly mode tells forward's traceback in one

FAULTBENCH_MODE is plain, or a peer: anomaly, clip, loss, duo; or oracle, which records operators (oracle_mode.py).
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import json
import os
import sys
import time
import traceback
import warnings
import weakref
from typing import Any, Dict, Iterator, List, Tuple

MODE = os.environ.get("FAULTBENCH_MODE", "plain")
EXPONENTS = {
    "torch.float32": ("<u4", 0x7F800000),
    "torch.float64": ("<u8", 0x7FF0000000000000),
    "torch.float16": ("<u2", 0x7C00),
    "torch.bfloat16": ("<u2", 0x7F80),
}

REPLAYS = ("locate.py", "locator.py", "replay.py", "replay_update.py", "rehearse.py", "smaller.py", "again.py")

_modules: List["weakref.ref[Any]"] = []
_optimizers: List["weakref.ref[Any]"] = []
_events: List[Dict[str, Any]] = []
_error: Dict[str, Any] = {}
_warned: List[str] = []
_inside = [0]
_started = time.perf_counter()


def install() -> None:
    """Called once, when torch has been imported."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook  # torch.optim deletes its name `optimizer`

    _remember(torch.nn.Module, _modules)
    _remember(torch.optim.Optimizer, _optimizers)
    _count_backwards(torch)
    register_optimizer_step_pre_hook(_before_step)
    atexit.register(_write)
    _watch_the_end()
    if MODE == "oracle":
        import oracle_mode

        oracle_mode.install(_events)
    elif MODE != "plain":
        PEERS[MODE](torch)


def _remember(owner: Any, into: List["weakref.ref[Any]"]) -> None:
    original = owner.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        into.append(weakref.ref(self))
        original(self, *args, **kwargs)

    owner.__init__ = init


def _count_backwards(torch: Any) -> None:
    """Tensor.backward calls torch.autograd.backward: only the outer one counts."""
    for owner, name in ((torch.autograd, "backward"), (torch.Tensor, "backward")):
        original = getattr(owner, name)

        def backward(*args: Any, original: Any = original, **kwargs: Any) -> Any:
            if _inside[0] or _is_replay():
                return original(*args, **kwargs)
            _note("backward")
            if MODE == "loss":
                _judge_loss(args[0])
            _inside[0] += 1
            try:
                return original(*args, **kwargs)
            finally:
                _inside[0] -= 1

        setattr(owner, name, functools.wraps(original)(backward))


def _is_replay() -> bool:
    """firstbad runs a bad update again, in this process: that is no step of the training, and not counted as one."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        folder, name = os.path.split(frame.f_code.co_filename)
        if name in REPLAYS and folder.endswith(os.path.join("firstbad", "pytorch")):
            return True
        frame = frame.f_back
    return False


def _before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not _is_replay():
        _note("step")


def _tensors() -> Iterator[Tuple[str, Any, bool]]:
    """Name, tensor, and whether it is part of the digest: buffers are looked at, and change in forward."""
    seen = set()
    for number, reference in enumerate(_modules):
        module = reference()
        if module is None or "_parameters" not in module.__dict__:
            continue
        for table, digested in ((module._parameters, True), (module._buffers, False)):
            for name, tensor in table.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield f"{number}.{type(module).__name__}.{name}", tensor, digested
    for number, reference in enumerate(_optimizers):
        optimizer = reference()
        for position, state in enumerate(getattr(optimizer, "state", {}).values() if optimizer is not None else ()):
            for name, tensor in sorted(state.items(), key=lambda item: str(item[0])) if isinstance(state, dict) else ():
                if hasattr(tensor, "data_ptr"):
                    yield f"optimizer{number}.{position}.{name}", tensor, True


def _note(kind: str) -> None:
    import numpy

    digest = hashlib.blake2b(digest_size=8)
    bad = []
    for name, tensor, digested in _tensors():
        if tensor.device.type != "cpu" or tensor.is_sparse:
            continue
        data = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())  # views with holes do not occur here
        if digested:
            digest.update(data)
        code = EXPONENTS.get(str(tensor.dtype))
        if code and bool((numpy.frombuffer(data, code[0]) & code[1] == code[1]).any()):
            bad.append(name)
    _events.append({"kind": kind, "digest": digest.hexdigest(), "bad": bad, "at": time.perf_counter() - _started})


def _write() -> None:
    _note("exit")
    path = f"{os.environ['FAULTBENCH_OUT']}.{os.environ.get('RANK', '0')}.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"events": _events, "error": _error or None, "warned": _warned}, file)


def _watch_the_end() -> None:
    """The exception that ends the process, and what was warned of before; both go on to who else wants them."""
    before, show = sys.excepthook, warnings.showwarning

    def ended(kind: Any, value: Any, trace: Any) -> None:
        frames = traceback.extract_tb(trace)[::-1]
        _error.update(type=kind.__name__, text=str(value), places=[[frame.filename, frame.lineno] for frame in frames])
        before(kind, value, trace)

    def warned(message: Any, *args: Any, **kwargs: Any) -> None:
        _warned.append(str(message))
        show(message, *args, **kwargs)

    sys.excepthook, warnings.showwarning = ended, warned


# What people use today, as they would write it into their script.


def _judge_loss(loss: Any) -> None:
    """`if not math.isfinite(loss.item()): raise ...`, before backward."""
    import torch

    if isinstance(loss, torch.Tensor) and not bool(torch.isfinite(loss.detach()).all()):
        raise FloatingPointError(f"Loss is {loss.detach()}, stopping training")


def _anomaly(torch: Any) -> None:
    torch.autograd.set_detect_anomaly(True)


def _clip(torch: Any) -> None:
    """clip_grad_norm_(parameters, ..., error_if_nonfinite=True) before every step, at the script's own limit where it has one."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    original = torch.nn.utils.clip_grad_norm_

    @functools.wraps(original)
    def clip(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = True, foreach: Any = None) -> Any:
        return original(parameters, max_norm, norm_type, True, foreach)

    torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad.clip_grad_norm_ = clip

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        clip([p for group in optimizer.param_groups for p in group["params"]], float("inf"))

    register_optimizer_step_pre_hook(before)


def _debug_underflow_overflow(torch: Any) -> None:
    """DebugUnderflowOverflow(model) for every model that is called in a training forward."""
    depth = [0]
    watched = set()

    def before(module: Any, args: Any) -> None:
        depth[0] += 1
        if depth[0] == 1 and torch.is_grad_enabled() and id(module) not in watched:
            watched.add(id(module))
            from transformers.debug_utils import DebugUnderflowOverflow

            module._faultbench = [DebugUnderflowOverflow(module)]

    def after(module: Any, args: Any, output: Any) -> None:
        depth[0] -= 1

    torch.nn.modules.module.register_module_forward_pre_hook(before)
    torch.nn.modules.module.register_module_forward_hook(after, always_call=True)


PEERS = {"anomaly": _anomaly, "clip": _clip, "loss": lambda torch: None, "duo": _debug_underflow_overflow}
