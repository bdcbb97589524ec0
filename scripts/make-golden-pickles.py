#!/usr/bin/env python3
"""Write tests/golden/pickle/*.pkl with the real torch and numpy: the data.pkl of files of torch.save, and bare pickles.

    scripts/make-golden-pickles.py [FOLDER]

Needs torch 2.13, numpy 2 and ml_dtypes. The tests know what is in each file: names, shapes, and where the numbers lie.
The small ones are copied to tests/fuzz/corpus/pickle as well, since a fuzzer starts best from what programs really write.
"""
import argparse
import collections
import enum
import io
import math
import os
import pickle
import random
import shutil
import sys
import types
import warnings
import zipfile

import ml_dtypes
import numpy
import torch
import torch.distributed.tensor

warnings.simplefilter("ignore")
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "tests/golden/pickle")
corpus = os.path.join(root, "tests/fuzz/corpus/pickle")

# Classes of a module that no loader of these files has.
theirs = types.ModuleType("theirs")
sys.modules["theirs"] = theirs


class Weights(torch.Tensor):
    pass


class Mode(enum.Enum):
    FAST = 1


class Slots:
    __slots__ = ("a", "b")


for each in (Weights, Mode, Slots):
    each.__module__ = "theirs"
    setattr(theirs, each.__name__, each)


def write(name, data):
    with open(os.path.join(folder, name), "wb") as out:
        out.write(data)


def save(name, what):
    """The data.pkl of a file of torch.save."""
    file = io.BytesIO()
    torch.save(what, file)
    with zipfile.ZipFile(file) as archive:
        write(name, archive.read(next(member for member in archive.namelist() if member.endswith("data.pkl"))))


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def trained(make):
    net = model()
    optimizer = make(net)
    for _ in range(2):
        net(torch.randn(5, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return net, optimizer


def two_groups(net):
    weights = [p for p in net.parameters() if p.dim() >= 2]
    rest = [p for p in net.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": weights, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}])


os.makedirs(folder, exist_ok=True)
os.makedirs(corpus, exist_ok=True)

net, adam = trained(two_groups)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(adam)
state = {
    "model": net.state_dict(),
    "optimizer": adam.state_dict(),
    "scheduler": plateau.state_dict(),
    "scaler": {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 3},
    "iteration": 7,
    "best": math.inf,
    "loss": math.nan,
    "lr": -math.inf,
    "rng": [torch.get_rng_state()[:64], numpy.random.RandomState(1).get_state()[:1], random.Random(1).getstate()[2]],
    "args": argparse.Namespace(width=4, rates=[0.5]),
}
save("state.pkl", state)
net, sgd = trained(lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
save("sgd.pkl", {"optimizer": sgd.state_dict(), "model": net.state_dict()})
save("alone.pkl", sgd.state_dict())
net, named = trained(lambda net: torch.optim.SGD(net.named_parameters(), lr=0.1, momentum=0.9))
save("named.pkl", named.state_dict())
save("keyed.pkl", {"optim": {"state": {"h.0.weight": {"exp_avg": torch.zeros(2), "step": torch.tensor(1.0)}}, "param_groups": []}})
other = dict(net.state_dict())
other["0.weight"] = torch.zeros(5, 5)
save("unlike.pkl", {"model": other, "optimizer": sgd.state_dict()})

base = torch.arange(16.0).reshape(4, 4)
save("views.pkl", {
    "all": base, "part": base[1:3, 1:], "turned": base.t(), "parameter": torch.nn.Parameter(base), "same": base,
    "spread": torch.ones(3, 1).expand(3, 5), "one": torch.tensor(1.0), "none": torch.empty(0, 3), "line\n\x1b[31m\u20ac": torch.ones(1),
})
save("formats.pkl", {
    "bf16": torch.ones(2, dtype=torch.bfloat16), "e5m2": torch.ones(2).to(torch.float8_e5m2),
    "e4m3": torch.ones(2).to(torch.float8_e4m3fn), "e8m0": torch.zeros(2, dtype=torch.uint8).view(torch.float8_e8m0fnu),
    "c32": torch.zeros(2, dtype=torch.complex32), "c64": torch.zeros(2, dtype=torch.complex64), "u16": torch.ones(2, dtype=torch.uint16),
    "f4": torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "flag": torch.ones(2, dtype=torch.bool),
    "quantised": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "channels": torch.quantize_per_channel(torch.ones(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 0]), 0, torch.quint8),
})
subclass = torch.ones(2).as_subclass(Weights)
subclass.extra = torch.zeros(1)
save("kinds.pkl", {
    "coo": torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2)), "csr": torch.eye(2).to_sparse_csr(),
    "meta": torch.empty(2, device="meta"), "subclass": subclass, "untyped": torch.ones(2).untyped_storage(),
    "typed": torch.ones(2).storage(), "te._extra_state": torch.zeros(4, dtype=torch.uint8), "io": io.BytesIO(b"abc"),
    "bytes": b"x" * 65, "digest": b"y" * 64,
})
save("module.pkl", model())

# FSDP2 keeps each rank's part of a parameter in a DTensor.
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))


def part(*shape):
    return torch.distributed.tensor.distribute_tensor(torch.ones(*shape), mesh, [torch.distributed.tensor.Shard(0)])


save("dtensor.pkl", {
    "model": {"w": part(4, 2), "b": part(4)},
    "optimizer": {"state": {0: {"exp_avg": part(4, 2)}, 1: {"exp_avg": part(4)}}, "param_groups": [{"params": [0, 1]}]},
})
torch.distributed.destroy_process_group()

for protocol in range(2, 6):
    write("numpy%d.pkl" % protocol, pickle.dumps({
        "line": numpy.arange(3.0), "turned": numpy.asfortranarray(numpy.arange(6.0, dtype=">f4").reshape(2, 3)),
        "scalar": numpy.float32(2), "objects": numpy.array([math.inf, None], dtype=object), "none": numpy.zeros(0),
        "text": numpy.array(["a"]), "bf16": numpy.ones(2, ml_dtypes.bfloat16), "record": numpy.zeros(1, dtype=[("a", "f4"), ("b", "i4")]),
        "masked": numpy.ma.array([1.0, 2.0], mask=[True, False]),
    }, protocol))

circle = [1.5, -math.inf]
circle.append(circle)
own = {"circle": circle}
own["own"] = own
slots = Slots()
slots.a, slots.b = 1, [2.5]
for protocol in (2, 4):
    write("objects%d.pkl" % protocol, pickle.dumps([
        circle, own, argparse.Namespace(a=1), Mode.FAST, collections.OrderedDict(a=1), collections.deque([1.0]), {1, 2}, frozenset([3]),
        2**70, -(2**63), 2**63 - 1, bytearray(b"z"), "\u20ac", slots, torch.float16, torch.device("cpu"), torch.Size([1]),
    ], protocol))

# What Python 2 wrote: text as bytes, an OrderedDict from a list of pairs, an int of more than 32 bits in decimal.
write("python2.pkl", b"\x80\x02ccollections\nOrderedDict\nq\x00]q\x01]q\x02(U\x01aq\x03G\x7f\xf0\x00\x00\x00\x00\x00\x00ea\x85Rq\x04}"
      b"q\x05U\x01bI3000000000\nsb.")
write("system.pkl", b"cos\nsystem\n(X\x02\x00\x00\x00idtR.")
write("old.pkl", b"((ctheirs\nOld\nK\x01oI01\nL5L\n(lp1\ng1\nt.")

for name in os.listdir(folder):
    if os.path.getsize(os.path.join(folder, name)) < 3000:
        shutil.copy(os.path.join(folder, name), os.path.join(corpus, name))
