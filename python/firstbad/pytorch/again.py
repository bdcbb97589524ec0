"""One operator again, in FP64: what its arithmetic comes to when no format of the run stands in the way."""
from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence

import torch
from torch.utils import _pytree as pytree

from .. import _abi as abi
from .places import Geometry
from .tape import Kept, Leaf

BYTES_MAX = 4 << 30  # of the numbers of one operator, as F64


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype.is_floating_point else torch.complex128 if dtype.is_complex else dtype


def _doubles(pointer: Any, count: int) -> torch.Tensor:
    """[count] F64 over memory of the library, not copied."""
    if not count:
        return torch.empty(0, dtype=torch.float64)
    return torch.frombuffer((ctypes.c_double * count).from_address(ctypes.addressof(pointer.contents)), dtype=torch.float64)


def again(kept: Kept, inputs: Sequence[torch.Tensor]) -> Optional[List[torch.Tensor]]:
    """The outputs in FP64, in the order in which the tape was told of them; None where there is no such form.

    inputs: flat F64, one for each input of the operator. Raises whatever the operator raises.
    """
    if kept.never:
        return None
    if kept.places is not None:
        return _moved(kept, inputs)
    if kept.func is None:
        return [inputs[0].clone()]
    name = kept.func._schema.name
    if name == "aten::native_dropout" and kept.values is not None:
        mask, probability = kept.values[0], float(kept.leaves[1])
        scale = 1.0 / (1.0 - probability) if probability < 1.0 else 0.0
        return [(inputs[0].reshape(mask.shape) * mask) * scale, mask.to(torch.float64)]
    if kept.values is not None:
        return [t.to(torch.float64) for t in kept.values]
    leaves: List[Any] = []
    for leaf in kept.leaves:
        if isinstance(leaf, Leaf):
            at, shape, dtype = leaf
            given = torch.zeros(shape, dtype=torch.float64) if at < 0 else inputs[at].reshape(shape)
            leaf = given.to(_wide(dtype)).clone()
        elif isinstance(leaf, torch.dtype):
            leaf = _wide(leaf)
        elif isinstance(leaf, torch.device):
            leaf = torch.device("cpu")
        leaves.append(leaf)
    if name in ("aten::_softmax", "aten::_log_softmax"):
        leaves[2] = False  # no half_to_float: it is FP64 already
    args, kwargs = pytree.tree_unflatten(leaves, kept.spec)
    if name in ("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"):
        args = (*args[:3], torch.float64)
    result = kept.func(*args, **kwargs)
    targets = [leaves[i] for i in kept.written]
    if not isinstance(result, (torch.Tensor, tuple, list)):
        return [torch.tensor(result, dtype=torch.float64)] if isinstance(result, float) else targets
    return targets + [t for t in pytree.tree_leaves(result)
                      if isinstance(t, torch.Tensor) and not any(t is target for target in targets)]


def _moved(kept: Kept, inputs: Sequence[torch.Tensor]) -> Optional[List[torch.Tensor]]:
    """An alias or a select: what lies there, looked at from where the output is."""
    places = list(kept.places or ())
    of = [place for place in places + list(kept.to) if isinstance(place, Geometry)]
    if len({place.dtype for place in of}) > 1:
        return None
    room = [place.room() if isinstance(place, Geometry) else int(place[-1]) + 1 for place in places + list(kept.to)]
    base = torch.zeros(max(room + [1]), dtype=torch.float64)
    for place, values in zip(places, inputs):
        if not isinstance(place, Geometry):
            base[place] = values
        elif values.numel():
            place.on(base).copy_(values.reshape(place.shape))
    return [base[kept.left]] if kept.left is not None else [to.on(base) for to in kept.to]


def rerun(kept: Sequence[Kept], asked: Any) -> int:
    """Answer an fb_rerun: OK, or E_UNSUPPORTED where this operator has no FP64 form."""
    if asked.token >= len(kept):
        return abi.E_UNSUPPORTED
    if 8 * sum(asked.input_counts[i] for i in range(asked.input_count)) > BYTES_MAX:
        return abi.E_UNSUPPORTED
    with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():
        inputs = [_doubles(asked.inputs[i], asked.input_counts[i]).clone() for i in range(asked.input_count)]
        try:
            outputs = again(kept[asked.token], inputs)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, MemoryError):
            return abi.E_UNSUPPORTED  # most kernels have FP64; those that refuse it say so in many ways
        if outputs is None or len(outputs) != asked.output_count or any(
                t.is_complex() or t.layout != torch.strided for t in outputs):
            return abi.E_UNSUPPORTED
        if any(t.numel() != asked.output_counts[i] for i, t in enumerate(outputs)):
            return abi.E_UNSUPPORTED
        for i, t in enumerate(outputs):
            if t.numel():
                _doubles(asked.outputs[i], asked.output_counts[i]).copy_(t.reshape(-1))
    return abi.OK
