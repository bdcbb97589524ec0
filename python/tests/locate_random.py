"""Random programs of torch: views, operators in place, values that arise, pass, are swallowed and are written over.

Everything is elementwise or moves elements, so the truth can be carried along element by element: beside each tensor goes another
of the same layout that says, as bits, which instructions made this element bad (0: it is finite). What moves the one moves the
other.
"""
import random

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from locate_parts import program

VALUES = (0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 100.0, -100.0)
SIZE, TENSORS = 6, 4
ONE = {"log": torch.log, "sqrt": torch.sqrt, "exp": torch.exp, "neg": torch.neg, "tanh": torch.tanh, "nan_to_num": torch.nan_to_num}
TWO = {"mul": torch.mul, "add": torch.add, "div": torch.div, "sub": torch.sub}
INTO = {"mul_": torch.Tensor.mul_, "div_": torch.Tensor.div_, "add_": torch.Tensor.add_, "copy_": torch.Tensor.copy_}
SELF = {"log_": torch.Tensor.log_, "sqrt_": torch.Tensor.sqrt_, "exp_": torch.Tensor.exp_, "zero_": torch.Tensor.zero_,
        "nan_to_num_": torch.Tensor.nan_to_num_}
VIEWS = (lambda t: t, lambda t: t[:3], lambda t: t[3:], lambda t: t[::2], lambda t: t.view(2, 3)[1], lambda t: t.view(3, 2).t()[0],
         lambda t: t.flip(0)[1:4])  # flip copies
WRITABLE = len(VIEWS) - 1


def instructions(rng):
    """(operator, tensor and view that it reads first, the same for the second). Out of place: the result becomes a new tensor."""
    made, tensors = [], TENSORS
    for _ in range(rng.randrange(3, 14)):
        kind = rng.choice((ONE, TWO, TWO, INTO, INTO, SELF))
        name = rng.choice(sorted(kind))
        look = rng.randrange(WRITABLE if kind in (INTO, SELF) else len(VIEWS))
        other = 0 if look == 0 else rng.randrange(1, len(VIEWS))
        made.append((name, rng.randrange(tensors), look, rng.randrange(tensors), other))
        tensors += kind in (ONE, TWO) and look == 0
    return made


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def bad(t):
    return ~torch.isfinite(t)


def run(made, tensors, after=lambda *_: None):
    """after(index, operator, result, places) is called for each instruction; `result` is None where nobody can read it."""
    tensors = list(tensors)
    for index, (name, a, look, b, other) in enumerate(made):
        x, y = VIEWS[look](tensors[a]), VIEWS[other](tensors[b])
        if name in ONE:
            result = ONE[name](x)
        elif name in TWO:
            result = TWO[name](x, y)
        elif name in INTO:
            result = INTO[name](x, y)
        else:
            result = SELF[name](x)
        if name in {**ONE, **TWO} and look == 0:
            tensors.append(result)
        elif name in {**ONE, **TWO}:
            result = None  # nobody reads it
        after(index, name, result, (a, look, b, other))
    return torch.stack([t.sum() for t in tensors[-2:]]).sum()


def truth(made, inputs):
    """({instruction to blame: number of its operator as dispatched}, whether an operator failed that had read something bad)."""
    values, origins = [t.clone() for t in inputs], [torch.zeros(SIZE, dtype=torch.int64) for _ in inputs]
    numbers, tangled, mode = {}, [], Count()
    before = []

    def snapshot():
        before[:] = [t.clone() for t in values], [t.clone() for t in origins]

    def after(index, name, result, places):
        a, look, b, other = places
        with torch.utils._python_dispatch._disable_current_modes():
            numbers[index] = mode.count - 1
            reads = [] if name in ("zero_", "copy_") else [(a, look)]
            reads += [(b, other)] if name in TWO or name in INTO else []
            given = torch.zeros((), dtype=torch.int64)
            for t, view in reads:
                given = given | VIEWS[view](before[1][t])
            if result is not None:
                known = torch.where(bad(result), given, torch.zeros_like(given))
                new = bad(result) & (known == 0)
                if bool(new.any()) and any(bool(bad(VIEWS[view](before[0][t])).any()) for t, view in reads):
                    tangled.append(index)
                origin = torch.where(new, torch.tensor(1 << index), known)
                if name in ONE or name in TWO:
                    values.append(result)
                    origins.append(origin.clone())
                else:
                    VIEWS[look](origins[a]).copy_(origin)
            snapshot()

    snapshot()
    with mode:
        run(made, values, after)
    blame = 0
    for t in origins[-2:]:
        for bits in t.tolist():
            blame |= bits
    return {index: numbers[index] for index in range(len(made)) if blame >> index & 1}, bool(tangled)


def draw(seed):
    """A program that goes wrong, and the operators to blame by their numbers; None where none does, or where chains do not tell."""
    rng = random.Random(seed)
    made = instructions(rng)
    inputs = [torch.tensor([rng.choice(VALUES) for _ in range(SIZE)]) for _ in range(TENSORS)]
    blame, tangled = truth(made, inputs)
    if tangled or not blame:
        return None
    step = program(lambda m, **batch: run(made, [t.clone() for t in batch.values()]), {f"x{i}": t for i, t in enumerate(inputs)})
    return step, {f"#{number + TENSORS}" for number in blame.values()}
