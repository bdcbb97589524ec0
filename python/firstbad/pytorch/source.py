"""Where in the program something was called: "train.py:88".

It is the innermost frame that is neither torch's nor ours nor that of a wrapper that only passes on. Code of a model library
(transformers) is right as it is: that is where the operator is written.
"""
from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Container, Dict, Optional

import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
# Packages that call the model or the optimizer for the user, and compute nothing themselves.
_WRAPPERS = tuple(f"{os.sep}site-packages{os.sep}{name}{os.sep}" for name in (
    "accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "deepspeed", "functorch", "opt_einsum", "numpy"))
_WRAPPERS += (f"{os.sep}transformers{os.sep}utils{os.sep}", f"{os.sep}transformers{os.sep}trainer.py",
              f"{os.sep}transformers{os.sep}modeling_layers.py", f"{os.sep}peft{os.sep}peft_model.py")
_names: Dict[CodeType, Optional[str]] = {}
_CODES_MAX = 100_000  # a program that makes code objects without end must not make us grow


def _name_of(code: CodeType) -> Optional[str]:
    """How a file is called in a message; None for one that is passed over."""
    path = code.co_filename
    if path.startswith("<frozen") or "<eval_with_key>" in path or "<attrs" in path:
        return None
    if path.startswith("<"):
        return path  # <string>, <stdin>: code that has no file
    path = os.path.abspath(path)
    if path.startswith(_TORCH) or path.startswith(_OURS):
        return None
    if any(part in path for part in _WRAPPERS):
        return None
    if path.startswith(_STDLIB) and "site-packages" not in path and "dist-packages" not in path:
        return None
    base = os.getcwd() + os.sep
    if path.startswith(base) and "site-packages" not in path:
        return path[len(base):]
    return os.path.basename(path)


def name_of(code: CodeType) -> Optional[str]:
    """The same, remembered: a step asks for the same few hundred files again and again."""
    try:
        return _names[code]
    except KeyError:
        pass
    if len(_names) > _CODES_MAX:
        _names.clear()
    name = _names[code] = _name_of(code)
    return name


def caller(frame: Optional[FrameType] = None, until: Container[CodeType] = ()) -> Optional[str]:
    """"train.py:88": the line that is at work now. None where every frame is torch's, as in a thread of autograd.

    until: code at which to stop. A replay is called from some line of the user's as well, which did nothing. Cost: about 2 us.
    """
    at = sys._getframe(1) if frame is None else frame
    while at is not None and at.f_code not in until:
        name = name_of(at.f_code)
        if name is not None:
            return f"{name}:{at.f_lineno}"
        at = at.f_back  # type: ignore[assignment]
    return None
