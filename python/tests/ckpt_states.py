"""Training states as people save them, with bad numbers planted at known places. All choices come from the `random.Random` handed in."""
import argparse
import collections
import random

import numpy as np
import torch

from ckpt_truth import FLOATS, UNSIGNED, code_of

KINDS = ["nan", "+inf", "-inf"]
NAN, INF = float("nan"), float("inf")


def plant(rng, tensor, flat=None, kind=None):
    """Write a bad code at a place of a tensor of any strides; returns (flat index, kind)."""
    flat = rng.randrange(tensor.numel()) if flat is None else flat
    code, kind = code_of(rng, tensor.dtype, kind or rng.choice(KINDS))
    with torch.no_grad():
        whole = tensor.detach().view(UNSIGNED[tensor.element_size()][0])
        place = tuple(int(i) for i in np.unravel_index(flat, tensor.shape)) if tensor.dim() else ()
        raw = np.array(code, UNSIGNED[tensor.element_size()][1])
        whole[place] = torch.from_numpy(raw.reshape(1))[0]
    return flat, kind


def finite(rng, shape, dtype):
    """Finite codes only, the extreme ones among them."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 60))
    tensor = torch.randn(shape, generator=generator)
    if dtype == torch.float8_e8m0fnu:
        return torch.randint(0, 255, tuple(shape), dtype=torch.uint8, generator=generator).view(dtype)
    tensor = tensor.to(dtype)
    if tensor.numel():
        limits = torch.finfo(dtype)
        for value in rng.sample([limits.max, limits.min, 0.0, -0.0, limits.smallest_normal], rng.randrange(3)):
            tensor.view(-1)[rng.randrange(tensor.numel())] = value
    return tensor


def random_shape(rng):
    return tuple(rng.choice([1, 1, 2, 3, 5, 8, 17]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4])))


def random_tensor(rng, bad):
    if rng.random() < 0.15:
        dtype = rng.choice([torch.int64, torch.uint8, torch.bool, torch.int16, torch.uint16])
        return torch.ones(random_shape(rng), dtype=dtype)
    tensor = finite(rng, random_shape(rng), rng.choice(FLOATS))
    for _ in range(rng.randrange(1, 4) if rng.random() < bad else 0):
        plant(rng, tensor)
    if tensor.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        return tensor
    way = rng.randrange(8)
    if way == 0:
        return torch.nn.Parameter(tensor)
    if way == 1 and tensor.dim() > 1:
        return tensor.transpose(0, 1)
    if way == 2 and tensor.dim() and tensor.shape[0] > 2:
        return tensor[1::2]
    if way == 3 and tensor.dim():
        return tensor[:1].expand(rng.randrange(2, 5), *tensor.shape[1:])
    return tensor


def random_array(rng, bad):
    kind = rng.choice(["<f4", ">f4", "<f8", ">f8", "<f2", ">f2", "<c8", "<c16", "<i4", "|b1", "<U3"])
    shape = random_shape(rng)
    array = np.ones(shape, kind) if kind != "<U3" else np.full(shape, "abc", kind)
    if array.dtype.kind in "fc" and array.size and rng.random() < bad:
        array = array.copy()
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice([NAN, INF, -INF])
    return np.asfortranarray(array) if rng.random() < 0.3 else array


def random_state(rng, bad, depth=0):
    """Nested containers of anything."""
    way = rng.randrange(10 if depth < 4 else 4)
    if way == 0:
        return rng.choice([rng.random(), 7, "text", None, True, 1e300, b"\xff\xff\xc0\x7f"])
    if way == 1 and rng.random() < bad:
        return rng.choice([NAN, INF, -INF])
    if way == 2:
        return random_array(rng, bad)
    if way < 4:
        return random_tensor(rng, bad)
    items = [random_state(rng, bad, depth + 1) for _ in range(rng.randrange(1, 5))]
    if way < 6:
        keys = [rng.choice(["w", "layer.0", "ключ", "a b", "lr", 7, "line\nbreak"]) for _ in items]
        made = rng.choice([dict, collections.OrderedDict])((f"{key}{i}" if isinstance(key, str) else key + i, item)
                                                           for i, (key, item) in enumerate(zip(keys, items)))
        return made
    if way == 6:
        return argparse.Namespace(**{f"n{i}": item for i, item in enumerate(items)})
    return items if way < 9 else tuple(items)


def model():
    return torch.nn.Sequential(torch.nn.Embedding(11, 6), torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 4, bias=False))


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "adam": lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-3)),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "plain_sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "adamax": lambda p: torch.optim.Adamax(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "asgd": lambda p: torch.optim.ASGD(p),
    "rprop": lambda p: torch.optim.Rprop(p),
    "lbfgs": lambda p: torch.optim.LBFGS(p),
}


def training(rng, optimizer="adamw", named=False, scheduler="plateau", bad_moment=False, bad_weight=False):
    """Returns (state, names for Walk, [(the tensor's name, flat, kind)])."""
    torch.manual_seed(rng.randrange(1 << 30))
    net = model()
    opt = OPTIMIZERS[optimizer](net.named_parameters() if named else net.parameters())

    def loss():
        opt.zero_grad()
        out = net(torch.arange(8) % 11).pow(2).mean()
        out.backward()
        return out
    for _ in range(2):
        opt.step(loss) if optimizer == "lbfgs" else (loss(), opt.step())
    schedule = {"plateau": lambda: torch.optim.lr_scheduler.ReduceLROnPlateau(opt),
                "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10),
                "sequential": lambda: torch.optim.lr_scheduler.SequentialLR(
                    opt, [torch.optim.lr_scheduler.LinearLR(opt), torch.optim.lr_scheduler.StepLR(opt, 5)], [3])}[scheduler]()
    state = {"model": net.state_dict(), "optimizer": opt.state_dict(), "lr_scheduler": schedule.state_dict(),
             "scaler": torch.amp.GradScaler("cpu", init_scale=1024.0).state_dict() or {"scale": 1024.0, "growth_factor": 2.0},
             "rng": {"torch": torch.get_rng_state(), "numpy": np.random.RandomState(3).get_state(), "python": random.Random(3).getstate()},
             "args": argparse.Namespace(lr=0.1, betas=(0.9, 0.95), name="run"), "epoch": 3, "best_loss": INF, "iter_num": 40}
    names = [name for name, _ in net.named_parameters()]
    planted = []
    if bad_weight:
        name = rng.choice(["0.weight", "1.bias", "2.running_var", "3.weight"])
        planted.append(("model." + name, *plant(rng, state["model"][name])))
    if bad_moment:
        number = rng.choice(sorted(state["optimizer"]["state"]))
        moments = state["optimizer"]["state"][number]
        key = rng.choice([k for k, v in moments.items() if isinstance(v, torch.Tensor) and v.dim()])
        planted.append(((number, key), *plant(rng, moments[key])))
    return state, names, planted
