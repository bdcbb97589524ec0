"""The oracle: every operator that made a NaN or Inf of finite numbers, seen by a dispatch mode of the bench's own.

Not part of what is measured, and knows nothing of firstbad. It is slow: every output and input of every operator is looked at. An
entry of the events: {kind: "op", op, node, phase: "forward" | "backward" | "update", module, lines: [source lines of the script,
innermost first], files: [other files], out: shapes}. A number that is not finite and is written in the program (masked_fill with
-inf) counts as an input that is not finite: it is meant. kind "nan": it made NaN of what held Inf and no NaN; "read": an operator
that read what is not finite although no operator made it.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Dict, List, Tuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

SCRIPT = os.environ.get("FAULTBENCH_SCRIPT", "")
_inside_step = [0]
_stack: List[Tuple[Any, str]] = []
_at_line: Dict[str, set] = {}


def install(events: List[Dict[str, Any]]) -> None:
    torch.autograd.set_detect_anomaly(True, check_nan=False)  # forward's traceback for every node
    register_optimizer_step_pre_hook(lambda *_: _enter())
    register_optimizer_step_post_hook(lambda *_: _leave())
    torch.nn.modules.module.register_module_forward_pre_hook(_push)
    torch.nn.modules.module.register_module_forward_hook(_pop, always_call=True)
    _Mode(events).__enter__()


def _enter() -> None:
    _inside_step[0] += 1


def _leave() -> None:
    _inside_step[0] = 0


def _push(module: Any, args: Any) -> None:
    root = _stack[0][0] if _stack else module
    name = next((path for path, child in root.named_modules() if child is module), "?")
    _stack.append((module, name))


def _pop(module: Any, args: Any, output: Any) -> None:
    while _stack and _stack.pop()[0] is not module:
        pass


def _floats(tree: Any) -> List[Any]:
    found: List[Any] = []
    if isinstance(tree, torch.Tensor):
        if tree.dtype.is_floating_point or tree.dtype.is_complex:
            found.append(tree)
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            found += _floats(part)
    elif isinstance(tree, float):
        found.append(torch.tensor(tree, dtype=torch.float64))
    return found


def _bad(tensor: Any) -> bool:
    return tensor.numel() > 0 and tensor.device.type == "cpu" and not bool(torch.isfinite(tensor).all())


class _Mode(TorchDispatchMode):
    def __init__(self, events: List[Dict[str, Any]]) -> None:
        super().__init__()
        self.events = events
        self.made: set = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _stack and torch._C._current_graph_task_id() == -1:
            frame = sys._getframe(1)
            while frame is not None and os.path.basename(frame.f_code.co_filename) != os.path.basename(SCRIPT):
                frame = frame.f_back  # type: ignore[assignment]
            if frame is not None:
                _at_line.setdefault(str(frame.f_lineno), set()).add(_stack[-1][1])
        written = {i for i, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write}
        over = func._schema.name in (
            "aten::copy_",
            "aten::fill_",
            "aten::zero_",
            "aten::uniform_",
            "aten::normal_",
            "aten::bernoulli_",
        )
        read = [a for i, a in enumerate(args) if not (over and i in written)] + list(kwargs.values())
        bad_in = [t for t in _floats(read) if _bad(t)]
        result = func(*args, **kwargs)
        bad_out = [t for t in _floats(result) if _bad(t)]
        if bad_out and not bad_in and not func._schema.name.startswith("aten::empty"):
            self.events.append({"kind": "op", **self.where(func), "out": [list(t.shape) for t in bad_out]})
        elif (
            not func._schema.name.startswith("aten::empty")
            and any(bool(torch.isnan(t).any()) for t in bad_out)
            and not any(bool(torch.isnan(t).any()) for t in bad_in)
        ):
            self.events.append({"kind": "nan", **self.where(func), "out": [list(t.shape) for t in bad_out]})
        for tensor in bad_in if not func.is_view else []:
            if isinstance(tensor, torch.Tensor) and tensor.dim() and tensor.untyped_storage().data_ptr() not in self.made:
                self.events.append({"kind": "read", **self.where(func), "out": [list(tensor.shape)]})
        if not bad_in or any(isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() in self.made for t in bad_in):
            self.made.update(tensor.untyped_storage().data_ptr() for tensor in bad_out)
        return result

    def where(self, func: Any) -> Dict[str, Any]:
        backward = torch._C._current_graph_task_id() != -1
        node = torch._C._current_autograd_node() if backward else None
        text = "".join(node.metadata.get("traceback_", [])) if node is not None else ""
        places = [(file, int(line)) for file, line in re.findall(r'File "([^"]+)", line (\d+)', text)][::-1]
        if not backward:
            frame = sys._getframe(2)
            while frame is not None:
                places.append((frame.f_code.co_filename, frame.f_lineno))
                frame = frame.f_back  # type: ignore[assignment]
        lines = [line for file, line in places if os.path.basename(file) == os.path.basename(SCRIPT)]
        module = _stack[-1][1] if _stack else ""
        if backward and lines:
            module = "|".join(sorted(_at_line.get(str(lines[0]), {""})))
        return {
            "op": func._schema.name.split("::")[-1],
            "node": node.name() if node is not None else None,
            "module": module,
            "lines": lines[:4],
            "phase": "backward" if backward else "update" if _inside_step[0] else "forward",
            "files": [f"{os.path.basename(file)}:{line}" for file, line in places if "transformers/models" in file][:2],
        }
