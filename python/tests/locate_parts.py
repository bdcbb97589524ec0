"""What the models of these tests are put together from."""
import functools
import math

import torch
from torch import nn

from locate_program import Program

H, B = torch.float16, torch.bfloat16
INF = float("inf")


def seeded(make):
    """The same weights each time, whatever ran before."""
    @functools.wraps(make)
    def again():
        torch.manual_seed(7)
        return make()
    return again


class Fn(nn.Module):
    """A model from a function of (self, **batch); parts are its parameters, buffers and modules."""

    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            elif isinstance(part, nn.Parameter):
                self.register_parameter(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *args, **batch):
        return self.run(self, *args, **batch)


def par(*values, dtype=torch.float32):
    return nn.Parameter(torch.tensor(values, dtype=dtype))


def program(run, batch=None, update=None, rows=0, dtype=None, **parts):
    model = Fn(run, **{name: part if isinstance(part, (nn.Module, torch.Tensor)) else part() for name, part in parts.items()})
    return Program(model.to(dtype) if dtype else model, batch or {}, update, rows)


def randn(*shape, dtype=torch.float32, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def scores(m, x):
    q, k, v = m.qkv(x).chunk(3, -1)
    return q @ k.transpose(-2, -1) / math.sqrt(8), v


def optimizer(kind, **options):
    return lambda model: kind(model.parameters(), **options).step()
