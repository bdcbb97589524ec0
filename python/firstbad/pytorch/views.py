"""Tensors as the library takes them: one array of fb_view for a row of tensors, filled again only where an address changed."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, List, Optional, Sequence

import torch

from .. import _abi as abi

DTYPES: Dict[torch.dtype, int] = {
    torch.float64: abi.F64, torch.float32: abi.F32, torch.float16: abi.F16, torch.bfloat16: abi.BF16, torch.complex64: abi.C64,
    torch.complex128: abi.C128, torch.int8: abi.I8, torch.uint8: abi.U8, torch.int16: abi.I16, torch.int32: abi.I32,
    torch.int64: abi.I64, torch.bool: abi.BOOL,
}
for _name, _code in (("float8_e4m3fn", abi.F8_E4M3FN), ("float8_e5m2", abi.F8_E5M2), ("float8_e4m3fnuz", abi.F8_E4M3FNUZ),
                     ("float8_e5m2fnuz", abi.F8_E5M2FNUZ), ("float8_e8m0fnu", abi.F8_E8M0), ("uint16", abi.U16),
                     ("uint32", abi.U32), ("uint64", abi.U64)):
    if hasattr(torch, _name):
        DTYPES[getattr(torch, _name)] = _code

# Gradients in host memory are looked at as those of a device are: for tests.
ELSEWHERE = os.environ.get("FIRSTBAD_DEVICE_PATH") == "1"
FLOATS = frozenset(dtype for dtype, code in DTYPES.items() if code < abi.I8)


def memory_of(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """The dense tensor whose memory holds the numbers: the local part of one spread over ranks, the values of a sparse one.

    None where there is nothing that could be read: meta, fake, quantised, or a layout we do not know.
    """
    local = getattr(tensor, "to_local", None)
    if local is not None:
        tensor = local()
    if tensor.layout == torch.sparse_coo:
        tensor = tensor._values()
    elif tensor.layout != torch.strided:
        try:
            tensor = tensor.values()
        except (RuntimeError, NotImplementedError):
            return None
    if tensor.device.type == "meta" or tensor.is_quantized or tensor.dtype not in DTYPES:
        return None
    return tensor


def layout_of(tensor: torch.Tensor) -> Optional[abi.Layout]:
    """None: contiguous. A tensor of more dimensions than the library knows is the caller's to copy."""
    if tensor.is_contiguous():
        return None
    out = abi.Layout(ndim=tensor.dim())
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        out.shape[axis] = size
        out.strides[axis] = stride
    return out


def fill(view: abi.View, tensor: Optional[torch.Tensor]) -> Any:
    """Point a view at a tensor (None: there is none). Returns what must stay alive while the view is used.

    Tensors that are not in host memory keep data NULL, and count 0: they are looked at elsewhere.
    """
    memory = memory_of(tensor) if tensor is not None else None
    if memory is None or memory.device.type != "cpu":
        view.data, view.count = None, 0
        view.layout = None
        return None
    if memory.is_conj() or memory.is_neg() or (memory.dim() > abi.DIMS_MAX and not memory.is_contiguous()):
        memory = memory.detach().resolve_conj().resolve_neg().contiguous()
    layout = layout_of(memory)
    view.data = memory.data_ptr() or None
    view.count = memory.numel() if view.data else 0
    view.dtype = DTYPES[memory.dtype]
    view.layout = ctypes.pointer(layout) if layout is not None else None
    return memory, layout


def one(tensor: torch.Tensor, site: int = 0) -> Any:
    """(view, what must stay alive) of one tensor."""
    view = abi.View.new(site=site)
    return view, fill(view, tensor)


class Table:
    """Views of a row of tensors. `sites` one a tensor. The tensors given to `update` may be others each time."""

    def __init__(self, sites: Sequence[int]) -> None:
        self.count = len(sites)
        self.array = (abi.View * max(1, self.count))()
        self.views = [self.array[i] for i in range(self.count)]  # ctypes makes a new object at each access by index
        for view, site in zip(self.views, sites):
            view.device = -1
            view.site = site
            view.dtype = abi.F32  # of one that is absent, too
        self._address: List[int] = [0] * self.count
        self._dtype: List[Any] = [None] * self.count
        self._kept: List[Any] = [None] * self.count

    def update(self, tensors: Sequence[Optional[torch.Tensor]]) -> List[int]:
        """Point the views at these tensors. Returns indices of those that are not in host memory. Cost: 0.5 us for one at rest."""
        elsewhere: List[int] = []
        address, dtypes = self._address, self._dtype
        for i, tensor in enumerate(tensors):
            if tensor is None:
                if address[i]:
                    fill(self.views[i], None)
                    address[i], dtypes[i], self._kept[i] = 0, None, None
                continue
            if dtypes[i] is not None and tensor.dtype is dtypes[i] and tensor.layout is torch.strided and tensor.is_contiguous() \
                    and tensor.data_ptr() == address[i] and tensor.numel() == self.views[i].count:
                continue
            kept = fill(self.views[i], tensor)
            if kept is None:
                address[i], dtypes[i], self._kept[i] = 0, None, None
                if tensor.numel():
                    elsewhere.append(i)
                continue
            memory, layout = kept
            plain = layout is None and memory is tensor
            # What is a copy, or strided, is filled anew each time.
            address[i] = tensor.data_ptr() if plain else -1
            dtypes[i] = tensor.dtype if plain else None
            self._kept[i] = None if plain else kept
        return elsewhere
