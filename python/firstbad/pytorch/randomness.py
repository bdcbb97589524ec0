"""The random streams of a process: what they are now, and back to it.

torch's generator of the CPU and of each device that is in use, Python's `random`, and numpy's where the program imported it. State
is read, never drawn from, so looking at it does not move it.
"""
from __future__ import annotations

import random
import sys
from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch


class RngState(NamedTuple):
    """All streams at one moment. Tensors are uint8 and on the CPU; None: that stream is not there."""

    cpu: torch.Tensor
    devices: Tuple[torch.Tensor, ...]
    python: Any
    numpy: Any


def _devices() -> Any:
    """The accelerator module whose generators are in use; None where none was started."""
    cuda = torch.cuda
    return cuda if cuda.is_available() and cuda.is_initialized() and not cuda.is_current_stream_capturing() else None


def capture() -> RngState:
    """The streams now. Cost: about 10 us on the CPU, a copy from each device in use."""
    devices = _devices()
    drawn = sys.modules.get("numpy.random")  # numpy imports it when it is first used, and it takes 40 ms
    return RngState(torch.get_rng_state(), tuple(devices.get_rng_state_all()) if devices is not None else (),
                    random.getstate(), drawn.get_state() if drawn is not None else None)


def restore(state: RngState) -> None:
    """Every stream that `state` holds, exactly as it was."""
    torch.set_rng_state(state.cpu)
    devices = _devices()
    if devices is not None and state.devices:
        devices.set_rng_state_all(list(state.devices))
    if state.python is not None:
        random.setstate(state.python)
    if state.numpy is not None:
        sys.modules["numpy.random"].set_state(state.numpy)


def of_generators(args: Any, kwargs: Dict[str, Any]) -> Tuple[Tuple[torch.Generator, torch.Tensor], ...]:
    """Generators among the arguments of one operator, each with its state. The process's own are `capture`'s."""
    found = [leaf for leaf in list(args) + list(kwargs.values()) if isinstance(leaf, torch.Generator)]
    return tuple((generator, generator.get_state()) for generator in found)


class Streams:
    """with Streams(): whatever is drawn inside, afterwards all streams stand where they stood."""

    def __init__(self) -> None:
        self.state: Optional[RngState] = None
        self.generators: Dict[int, Tuple[torch.Generator, torch.Tensor]] = {}

    def keep(self, generator: torch.Generator) -> None:
        """A generator of the program's own will be moved: it is put back too."""
        self.generators.setdefault(id(generator), (generator, generator.get_state()))

    def __enter__(self) -> "Streams":
        self.state = capture()
        return self

    def __exit__(self, *_: Any) -> None:
        assert self.state is not None
        restore(self.state)
        for generator, state in self.generators.values():
            generator.set_state(state)
        self.generators.clear()
