"""One update of a model, recorded as the guard records it: what the tests of recording, replaying and locating have in common."""
import torch

from firstbad import _abi as abi
from firstbad.pytorch import locate, locator, program, recorder, replay, trees


def recorded(roots, step, optimizer=None, session=None, before=None):
    """Run step(call) once under a Recorder; call(root, *args, **kwargs) is a forward of a root. Returns (program, losses).

    roots: {prefix: module}. step returns nothing, and calls `.backward()` through the second argument.
    """
    rec = recorder.Recorder(session)
    names = {id(root): name for name, root in roots.items()}
    losses = []

    def call(root, *args, **kwargs):
        rec.root_enter(root, names[id(root)], args, kwargs, buffers=before or ())
        out = root(*args, **kwargs)
        rec.root_exit(out)
        return out

    def backward(tensor, seed=None, losses_are=None, **options):
        rec.backward_enter(tensor, seed, options, losses_are)
        losses.append(tensor.detach().clone() if isinstance(tensor, torch.Tensor) else [t.detach().clone() for t in tensor])
        torch.autograd.backward(tensor, seed, **options)
        rec.backward_exit()

    step(call, backward)
    program = rec.finish()
    return program, losses, rec


def replay_of(program, boundary=abi.LOCAL_GRAD, **options):
    return replay.Replay(program, locate.names_of(program), boundary, **options)


def finding_in(program, losses, micro=None):
    """The first thing that the guard would have found: a loss, else a gradient; None."""
    micro = program.micro if micro is None else micro
    for i, loss in enumerate(losses):
        for t in [loss] if isinstance(loss, torch.Tensor) else loss:
            if not bool(torch.isfinite(t).all()):
                return locator.Finding(0, abi.LOSS, i if len(losses) > 1 and program.micro else micro, 1, "", "loss")
    for leaf, module, name in locate.names_of(program).gradients:
        gradient = leaf.grad
        if gradient is None:
            continue
        gradient = gradient._values() if gradient.is_sparse else gradient
        if not bool(torch.isfinite(gradient).all()):
            return locator.Finding(0, abi.LOCAL_GRAD, micro, 1, module, f"{name}.grad")
    return None


def located(program, losses, finding=None, again=None, **options):
    """What fb_locate_run says of it; None where nothing is bad."""
    finding = finding or finding_in(program, losses)
    if finding is None:
        return None
    again = again or replay_of(program, micro=finding.micro)
    one = locator.Locator(again, program, locator.Group(), finding.micro)
    options.setdefault("precision", locate.precision_of(program))
    found = one.run(finding, **options)
    found.sentences = one.sentences
    return found


def bits(tensor):
    """The bytes of a tensor, as something that compares."""
    data = tensor.detach()
    if data.is_sparse:
        return bits(data._values()), bits(data._indices())
    return str(data.dtype), tuple(data.shape), data.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def everything(*modules):
    """All that a replay may not change: parameters, gradients (which tensors, and what is in them), buffers, attributes,
    streams."""
    import random

    import numpy
    found = {"torch": bits(torch.get_rng_state()), "python": random.getstate(), "numpy": str(numpy.random.get_state()),
             "deterministic": torch.are_deterministic_algorithms_enabled(), "autocast": program.autocast_now()}
    for i, root in enumerate(modules):
        for name, t in list(root.named_parameters()) + list(root.named_buffers()):
            found[i, name] = id(t), t._version, bits(t), t.requires_grad
            found[i, name, "grad"] = None if t.grad is None else (id(t.grad), bits(t.grad))
        for name, module in root.named_modules():
            found[i, name, "attributes"] = {key: value if isinstance(value, (int, float, str, bool, type(None))) else len(value)
                                            if isinstance(value, (dict, list, set)) else id(value)
                                            for key, value in vars(module).items()}
    return found


__all__ = ["recorded", "replay_of", "finding_in", "located", "bits", "everything", "trees"]
