"""Which operator made the first bad number that counts, worked out without any dataflow: by repairing.

The step runs in torch alone. Operators that read finite numbers and made others are the suspects. Then it runs again, once for
each, with the outputs of all suspects but that one repaired; those with which the finding is bad all the same are to blame. Nothing
here knows how firstbad follows a value.
"""
import re

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


def bad(tensor, masks):
    """Is something in it not finite? Where masks of -Inf are in use, -Inf alone is not counted."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    if masks and not tensor.is_complex():
        return bool((torch.isnan(tensor) | (tensor == float("inf"))).any())
    return not bool(torch.isfinite(tensor).all())


class Watch(TorchDispatchMode):
    """Counts operators as they are dispatched, notes suspects, and repairs what it is told to."""

    def __init__(self, masks, repair=()):
        super().__init__()
        self.masks, self.repair, self.count, self.suspects, self.ops = masks, set(repair), 0, [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        number, self.count = self.count, self.count + 1
        self.ops.append(str(func))
        given = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        writes = [a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments]
        read = given
        if any(writes) and func._schema.name.split("::")[1] in ("copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_"):
            read = given[1:]
        numbers = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, float)]
        before = any(bad(t, self.masks) for t in read) or any(v != v for v in numbers)
        result = func(*args, **kwargs)
        made = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        if any(writes):
            made += [t for t, w in zip(given, writes) if w]
        if not before and any(bad(t, self.masks) for t in made):
            self.suspects.append(number)
        if number in self.repair:
            for t in made:
                if t.is_floating_point():
                    t.copy_(torch.where(torch.isnan(t) | (t == float("inf")) | ((t == float("-inf")) & (not self.masks)),
                                        torch.full_like(t, 0.5), t))
                elif t.is_complex():
                    t.copy_(torch.full_like(t, 0.5))
        return result


def is_bad(watched, finding):
    return any(place[:3] == finding[:3] and not place[3] for place in watched)


def run(program, masks, repair=()):
    program.restore()
    watch = Watch(masks, repair)
    watched = program.step(program.some_batch(None), watch)
    program.restore()
    return watch, watched


def to_blame(program, finding, masks):
    """Numbers and names of the operators to blame, in the order in which they ran."""
    watch, _ = run(program, masks)
    found = []
    for suspect in watch.suspects:
        _, watched = run(program, masks, [s for s in watch.suspects if s != suspect])
        if is_bad(watched, finding):
            found.append((suspect, watch.ops[suspect]))
    return found


def anomaly(program):
    """The backward function that torch's own anomaly detection accuses, or None."""
    program.restore()
    try:
        with torch.autograd.detect_anomaly(check_nan=True):
            program.step(program.some_batch(None))
    except RuntimeError as error:
        named = re.search(r"Function '(\w+)' returned nan values", str(error))
        return named.group(1) if named else None
    finally:
        program.restore()
    return None
