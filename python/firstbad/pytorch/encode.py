"""A recorded program as JSON and named tensors, and back: names of operators and plain arguments, no pickle, no code.

What has no plain form (an object of the program's own among the arguments of forward, say) cannot be written down, and the program
then is replayed in its own process only.
"""
from __future__ import annotations

import json
import zlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .program import (Autocast, Backward, External, InnerGrad, Program, Ref, Require, RootCall, TailOp, digest_of, forward_of,
                      version_of)
from .randomness import RngState

SCHEMA = "firstbad.pytorch.program/1"


class NotPlain(ValueError):
    """It has no form that can be written down; the sentence says what."""


# ---- values ----------------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """JSON for an argument of an operator or of forward. Raises NotPlain."""
    if isinstance(value, Ref):
        return {"e": value.number} if value.external else {"v": value.number}
    if value is None or isinstance(value, (bool, str)):
        return value
    if type(value) is int:
        return value
    if type(value) is float:
        return {"f": repr(value)}
    if type(value) is complex:
        return {"c": repr(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value)}
    if isinstance(value, torch.layout):
        return {"layout": str(value)}
    if isinstance(value, torch.memory_format):
        return {"memory": str(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if type(value) is tuple:
        return {"t": [plain(child) for child in value]}
    if type(value) is list:
        return {"l": [plain(child) for child in value]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"d": {key: plain(child) for key, child in value.items()}}
    raise NotPlain(f"an argument of type {type(value).__module__}.{type(value).__qualname__}")


def _torch_name(text: str) -> Any:
    prefix, _, name = text.partition(".")
    if prefix != "torch" or not name.isidentifier():
        raise NotPlain(f"{text} is no name of torch's")
    return getattr(torch, name)


def value_of(given: Any) -> Any:
    """The value that `plain` wrote. Raises NotPlain for anything else."""
    if given is None or isinstance(given, (bool, str, int)):
        return given
    if not isinstance(given, dict) or len(given) != 1:
        raise NotPlain("a program that nobody wrote like this")
    (kind, inner), = given.items()
    if kind == "e" or kind == "v":
        return Ref(kind == "e", int(inner))
    if kind == "f":
        return float(inner)
    if kind == "c":
        return complex(inner)
    if kind in ("dtype", "layout", "memory"):
        return _torch_name(inner)
    if kind == "device":
        return torch.device(inner)
    if kind == "size":
        return torch.Size(inner)
    if kind == "t":
        return tuple(value_of(child) for child in inner)
    if kind == "l":
        return [value_of(child) for child in inner]
    if kind == "d":
        return {key: value_of(child) for key, child in inner.items()}
    raise NotPlain(f"a value of kind {kind}")


def _operator(name: str) -> Any:
    """torch.ops.aten.mul.Tensor, by its name."""
    parts = name.split(".")
    if len(parts) != 3 or not all(part.replace("_", "a").isalnum() for part in parts):
        raise NotPlain(f"{name} is no operator")
    found: Any = torch.ops
    for part in parts:
        found = getattr(found, part)
    return found


# ---- random streams --------------------------------------------------------------------------------------------------------------


def _rng_text(state: RngState) -> Dict[str, Any]:
    numpy = state.numpy
    out: Dict[str, Any] = {"devices": len(state.devices), "python": None, "numpy": None}
    if state.python is not None:
        out["python"] = [state.python[0], list(state.python[1]), state.python[2]]
    if isinstance(numpy, dict) and numpy.get("bit_generator") == "MT19937":
        out["numpy"] = {"key": [int(word) for word in numpy["state"]["key"]], "pos": int(numpy["state"]["pos"]),
                        "has_gauss": int(numpy["has_gauss"]), "gauss": repr(float(numpy["gauss"]))}
    return out


def _rng_of(text: Dict[str, Any], cpu: torch.Tensor, devices: Sequence[torch.Tensor]) -> RngState:
    python = text["python"]
    numpy = text["numpy"]
    if numpy is not None:
        numpy = {"bit_generator": "MT19937", "has_gauss": numpy["has_gauss"], "gauss": float(numpy["gauss"]),
                 "state": {"key": _words(numpy["key"]), "pos": numpy["pos"]}}
    return RngState(cpu, tuple(devices), None if python is None else (python[0], tuple(python[1]), python[2]), numpy)


def _words(key: Sequence[int]) -> Any:
    import numpy  # the program used it, or its state would not be here
    return numpy.array(key, dtype=numpy.uint32)


# ---- programs --------------------------------------------------------------------------------------------------------------------


def shape_of(root: torch.nn.Module) -> str:
    """What a module is built like: class, and names, shapes and formats of its parameters and buffers, as 32 bits."""
    rows = [type(root).__name__] + [f"{name} {tuple(t.shape)} {t.dtype}" for name, t in
                                    list(root.named_parameters()) + list(root.named_buffers())]
    return f"{type(root).__name__}-{zlib.crc32(';'.join(rows).encode()):08x}"


def write(program: Program) -> Tuple[str, Dict[str, torch.Tensor], Dict[str, torch.Tensor]]:
    """(text, tensors of the batch, tensors of random streams). Raises NotPlain."""
    if program.problems:
        raise NotPlain(program.problems[0])
    roots = [root for _, root in program.roots]
    batch: Dict[str, torch.Tensor] = {}
    rng: Dict[str, torch.Tensor] = {}
    externals = []
    for number, e in enumerate(program.externals):
        owner = _owner(e.tensor, roots)
        if owner is None:
            batch[f"{number}.{e.name or 'tensor'}"] = (e.before if e.before is not None else e.tensor).detach()
        externals.append({"name": e.name, "micro": e.micro, "batch": e.batch, "written": e.written, "owner": owner,
                          "requires_grad": bool(e.tensor.requires_grad)})
    from .program import plain_module
    places = {id(root): index for index, root in enumerate(roots)}
    steps: List[Dict[str, Any]] = []
    for index, step in enumerate(program.steps):
        if isinstance(step, RootCall):
            rng[f"{index}.cpu"] = step.rng.cpu
            for k, device in enumerate(step.rng.devices):
                rng[f"{index}.device{k}"] = device
            steps.append(
                {
                    "root": places[id(plain_module(step.root))],
                    "args": plain(tuple(step.args)),
                    "kwargs": plain(step.kwargs),
                    "micro": step.micro,
                    "rng": _rng_text(step.rng),
                    "grad": step.grad,
                    "training": list(step.training),
                    "autocast": {
                        "devices": [[d, on, str(dtype)] for d, on, dtype in step.autocast.devices],
                        "cache": step.autocast.cache,
                        "attention": list(step.autocast.attention),
                    },
                    "source": step.source,
                    "outputs": step.outputs,
                }
            )
        elif isinstance(step, TailOp):
            if step.generators:
                raise NotPlain("a generator of random numbers of the program's own")
            if step.rng is not None:
                rng[f"{index}.cpu"] = step.rng
            steps.append(
                {
                    "op": str(step.func),
                    "args": plain(tuple(step.args)),
                    "kwargs": plain(step.kwargs),
                    "outputs": step.outputs,
                    "writes": [plain(ref) for ref in step.writes],
                    "micro": step.micro,
                    "grad": step.grad,
                    "source": step.source,
                }
            )
        elif isinstance(step, Require):
            steps.append({"require": plain(step.ref)})
        elif isinstance(step, InnerGrad):
            steps.append({"gradient": [plain(step.outputs), plain(step.inputs), plain(step.grad_outputs)],
                          "options": plain(step.options), "results": step.results, "micro": step.micro, "source": step.source})
        else:
            steps.append({"backward": [plain(ref) for ref in step.tensors], "grads": [plain(ref) for ref in step.grads],
                          "inputs": None if step.inputs is None else [plain(ref) for ref in step.inputs],
                          "options": plain(step.options), "losses": [plain(ref) for ref in step.losses], "micro": step.micro,
                          "source": step.source})
    text = {"schema": SCHEMA, "roots": [{"name": name, "shape": shape_of(root)} for name, root in program.roots], "steps": steps,
            "externals": externals, "values": program.values, "micro": program.micro, "differences": program.differences}
    return json.dumps(text, allow_nan=False), batch, rng


def _owner(tensor: torch.Tensor, roots: Sequence[torch.nn.Module]) -> Optional[List[Any]]:
    """[root, path] of a parameter or buffer that the tail reads by itself."""
    for index, root in enumerate(roots):
        for path, known in list(root.named_parameters()) + list(root.named_buffers()):
            if known is tensor:
                return [index, path]
    return None


def read(text: str, roots: Sequence[Tuple[str, torch.nn.Module]], batch: Dict[str, torch.Tensor],
         rng: Dict[str, torch.Tensor]) -> Program:
    """The program, over living roots. Raises NotPlain, KeyError, ValueError for a text that nobody wrote like this."""
    given = json.loads(text)
    externals = []
    for number, e in enumerate(given["externals"]):
        if e["owner"] is not None:
            root = roots[e["owner"][0]][1]
            held = dict(list(root.named_parameters()) + list(root.named_buffers()))
            tensor = held[e["owner"][1]]
        else:
            tensor = batch[f"{number}.{e['name'] or 'tensor'}"].requires_grad_(e["requires_grad"])
        externals.append(External(tensor, version_of(tensor), digest_of(tensor), e["name"], e["micro"], e["batch"], None,
                                  e["written"]))
    steps: List[Any] = []
    for index, s in enumerate(given["steps"]):
        if "root" in s:
            state = _rng_of(s["rng"], rng[f"{index}.cpu"], [rng[f"{index}.device{k}"] for k in range(s["rng"]["devices"])])
            cast = Autocast(tuple((d, on, _torch_name(dtype)) for d, on, dtype in s["autocast"]["devices"]), s["autocast"]["cache"],
                            tuple(s["autocast"]["attention"]))
            name, root = roots[s["root"]]
            steps.append(RootCall(root, name, value_of(s["args"]), value_of(s["kwargs"]), s["micro"], state, cast, s["grad"],
                                  tuple(s["training"]), s["source"], s["outputs"], finished=True,
                                  forward=forward_of(root)))
        elif "op" in s:
            steps.append(
                TailOp(
                    _operator(s["op"]),
                    value_of(s["args"]),
                    value_of(s["kwargs"]),
                    s["outputs"],
                    [value_of(ref) for ref in s["writes"]],
                    s["micro"],
                    s["grad"],
                    s["source"],
                    rng.get(f"{index}.cpu"),
                )
            )
        elif "require" in s:
            steps.append(Require(value_of(s["require"])))
        elif "gradient" in s:
            outputs, inputs, seeds = (value_of(part) for part in s["gradient"])
            steps.append(InnerGrad(outputs, inputs, seeds, value_of(s["options"]), s["results"], s["micro"], s["source"]))
        else:
            steps.append(Backward([value_of(ref) for ref in s["backward"]], [value_of(ref) for ref in s["grads"]],
                                  None if s["inputs"] is None else [value_of(ref) for ref in s["inputs"]], value_of(s["options"]),
                                  [value_of(ref) for ref in s["losses"]], s["micro"], s["source"]))
    return Program(steps, externals, int(given["values"]), [], list(given["differences"]), [], list(roots), int(given["micro"]))
