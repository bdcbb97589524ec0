"""A batch as it reaches a root module: which tensors there are, what each is, and a fingerprint of it.

What a field is goes by its name and number format, and only where both speak for it; everything else is `other` and is judged by
nobody. Looking at names and shapes reads no number, so it costs a few microseconds whatever the size of the batch.
"""
from __future__ import annotations

import array
import ctypes
import dataclasses
import hashlib
import inspect
import re
import weakref
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch

from .trees import walk

FIELDS_MAX = 256  # of one call; further ones are not looked at, and coverage says so
# A tensor is hashed whole up to so many bytes; of a larger one SAMPLES pieces of SAMPLE_BYTES at even distances, its first and last
# bytes among them. blake2b does 0.4 to 1 GB/s, so a large tensor costs some 0.2 ms, and a batch of 16 x 1,024 ids 0.3 ms at most.
WHOLE_BYTES = 256 << 10
SAMPLES, SAMPLE_BYTES = 16, 4096

IDS, POSITIONS, LABELS, MASK, ADDITIVE = "ids", "positions", "labels", "mask", "additive"
FLOAT, LENGTHS, SAMPLE_IDS, OTHER = "float", "lengths", "samples", "other"
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_NAMES = (  # of the last part of a name, best first
    (MASK, re.compile(r"mask|^pad(ding)?$")),
    (POSITIONS, re.compile(r"position|^pos(_ids)?$|cache_position")),
    (LABELS, re.compile(r"label|target|^(y|tgt|y_true)$")),
    (LENGTHS, re.compile(r"(^|_)len(gth)?s?$")),
    (SAMPLE_IDS, re.compile(r"^(sample|example|record|index|idx|id)_?(ids?|index|indices|idx)$|^(indices|__index_level_0__)$")),
    (IDS, re.compile(r"(^|_)(ids?|tokens?|idx|inputs?|x|src|words)$")),
)
# Of these the truth value is known: True takes a key out of the attention. Elsewhere 1 lets it in.
_TRUE_HIDES = re.compile(r"(key_)?padding_mask$")


@dataclasses.dataclass
class Field:
    """One tensor of a batch. `version` is torch's count of changes in place when it entered."""

    name: str  # "input_ids", "batch.x", or the number of a positional argument that has no name
    role: str
    tensor: torch.Tensor
    micro: int
    version: int

    @property
    def changed(self) -> bool:
        """Somebody wrote into it after it had entered."""
        return self.version >= 0 and _version(self.tensor) != self.version

    @property
    def true_hides(self) -> Optional[bool]:
        """Of a mask: True or 1 takes a key out. None: its name does not tell."""
        last = self.name.rpartition(".")[2]
        if _TRUE_HIDES.search(last):
            return True
        return False if last == "attention_mask" or last.endswith("_attention_mask") else None


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)  # tensors of inference mode have no count


def role_of(name: str, tensor: torch.Tensor) -> str:
    """What a field is."""
    last = name.rpartition(".")[2].lower()
    if tensor.is_floating_point() or tensor.is_complex():
        return ADDITIVE if "mask" in last and tensor.dim() >= 2 else FLOAT
    for role, pattern in _NAMES:
        if pattern.search(last):
            if role in (IDS, LABELS, POSITIONS) and tensor.dtype not in _INTEGERS:
                return OTHER
            return role
    return OTHER


_parameters: "weakref.WeakKeyDictionary[Any, Tuple[str, ...]]" = weakref.WeakKeyDictionary()


def innermost(module: Any) -> Any:
    """The module whose forward the program wrote, under DDP, torch.compile and the like."""
    for _ in range(8):
        inner = next((module.__dict__.get("_modules", {}).get(name) for name in ("_orig_mod", "module", "_fsdp_wrapped_module")
                      if module.__dict__.get("_modules", {}).get(name) is not None), None)
        if inner is None or (not _is_wrapper(module)):
            return module
        module = inner
    return module


def _is_wrapper(module: Any) -> bool:
    return type(module).__module__.split(".")[0] in ("torch", "accelerate", "deepspeed", "lightning", "pytorch_lightning")


def argument_names(root: Any) -> Tuple[str, ...]:
    """Names of the positional parameters of a root's forward. () where it takes *args, or cannot be asked."""
    known = _parameters.get(root)
    if known is None:
        try:
            found = inspect.signature(type(innermost(root)).forward).parameters.values()
            known = tuple(p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))[1:]
        except (TypeError, ValueError):
            known = ()
        _parameters[root] = known
    return known


def fields_of(root: Any, args: Sequence[Any], kwargs: Dict[str, Any], micro: int) -> Iterator[Field]:
    """The tensors of a call, in order, each memory once. Those that the program computes gradients for are no batch."""
    names = argument_names(root)
    named: List[Tuple[str, Any]] = [(names[i] if i < len(names) else str(i), value) for i, value in enumerate(args)]
    named += list(kwargs.items())
    seen: Set[int] = set()
    for name, value in named:
        for path, tensor in walk(value, name):
            if len(seen) >= FIELDS_MAX:
                return
            if id(tensor) in seen or tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
                continue
            seen.add(id(tensor))
            if tensor.is_nested:  # its shape is made of symbols: the rows behind one another are looked at
                if tensor.layout != torch.jagged:
                    continue
                with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():
                    tensor = tensor.values()
            yield Field(path, role_of(path, tensor), tensor, micro, _version(tensor))


# ---- fingerprint -----------------------------------------------------------------------------------------------------------------

def _memory(tensor: torch.Tensor) -> Optional[memoryview]:
    """The bytes of a contiguous tensor in host memory, without a copy; None where there are none to be had."""
    count = tensor.numel() * tensor.element_size()
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
        return None
    if count == 0:
        return memoryview(b"")
    return memoryview((ctypes.c_char * count).from_address(tensor.data_ptr()))


def _feed(digest: Any, tensor: torch.Tensor) -> bool:
    if not tensor.is_contiguous():
        if tensor.numel() * tensor.element_size() > WHOLE_BYTES:
            return False
        tensor = tensor.contiguous()
    memory = _memory(tensor)
    if memory is None:
        return False
    if len(memory) <= WHOLE_BYTES:
        digest.update(memory)
        return True
    last = len(memory) - SAMPLE_BYTES
    for k in range(SAMPLES):
        at = last * k // (SAMPLES - 1)
        digest.update(memory[at:at + SAMPLE_BYTES])
    return True


def fingerprint(fields: Sequence[Field]) -> Optional[int]:
    """64 bits over names, formats, shapes and bytes of the fields; None where a part of them cannot be read without waiting for a
    device, or holds no bytes. Equal batches have equal ones; of tensors above WHOLE_BYTES it is taken over a sample."""
    if not fields:
        return None
    digest = hashlib.blake2b(digest_size=8)
    for field in fields:
        tensor = field.tensor
        digest.update(f"{field.name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        if not _feed(digest, tensor.detach()):
            return None
    return int.from_bytes(digest.digest(), "little")


def rng_hash(state: Any) -> int:
    """64 bits over the random streams of a process, as `randomness.capture` gives them."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in (state.cpu, *state.devices):
        memory = _memory(tensor)
        if memory is not None:
            digest.update(memory)
    if state.python is not None:
        version, words, gauss = state.python
        digest.update(array.array("Q", words).tobytes() + repr((version, gauss)).encode())
    numpy = state.numpy
    if isinstance(numpy, dict):
        inner = numpy.get("state", {})
        for name in sorted(inner) if isinstance(inner, dict) else ():
            value = inner[name]
            digest.update(value.tobytes() if hasattr(value, "tobytes") else repr(value).encode())
        digest.update(repr((numpy.get("bit_generator"), numpy.get("has_gauss"), numpy.get("gauss"))).encode())
    return int.from_bytes(digest.digest(), "little")
