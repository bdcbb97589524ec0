"""Small training programs of every kind. Each is run once alone and once guarded, and must come out equal to the last bit.

    python guarded_programs.py plain|guarded BAD NAME...     a line of JSON each: digests of losses, state and random streams

The programs know nothing of firstbad; what is below the last line of dashes puts it around them.
"""
from __future__ import annotations

import hashlib
import json
import random
import sys

import numpy
import torch
from torch import nn

torch.set_num_threads(1)
BAD = -1  # update in which a batch is poisoned


def digest(*things) -> str:
    out = hashlib.sha256()

    def feed(thing) -> None:
        if isinstance(thing, torch.Tensor):
            thing = thing.detach()
            if thing.is_sparse:
                thing = thing.coalesce().to_dense()
            out.update(str((thing.dtype, tuple(thing.shape))).encode())
            out.update(thing.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if thing.numel() else b"")
        elif isinstance(thing, dict):
            for key in thing:
                out.update(str(key).encode())
                feed(thing[key])
        elif isinstance(thing, (list, tuple)):
            for part in thing:
                feed(part)
        else:
            out.update(repr(thing).encode())

    for thing in things:
        feed(thing)
    return out.hexdigest()[:16]


def streams() -> str:
    return digest(torch.get_rng_state(), random.getstate(), numpy.random.get_state())


class Gpt(nn.Module):
    def __init__(self, vocabulary=32, width=16, layers=2, dropout=0.1):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, 2, 32, dropout, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids, labels=None):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        mask = torch.triu(torch.full((ids.shape[1], ids.shape[1]), float("-inf")), 1)
        for block in self.blocks:
            x = block(x, src_mask=mask)
        logits = self.head(x)
        if labels is None:
            return logits
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Flatten(),
                                  nn.utils.parametrizations.spectral_norm(nn.Linear(4 * 36, 3)))

    def forward(self, images):
        return self.body(images)


def mlp():
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))


def result(models, optimizers, losses):
    models = models if isinstance(models, (list, tuple)) else [models]
    optimizers = optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]
    return {"losses": [repr(loss) for loss in losses], "parameters": [digest(m.state_dict()) for m in models],
            "optimizers": [digest(o.state_dict()) for o in optimizers], "streams": streams()}


SEEN = []  # digests of what an update changes, as each update found it


def seen(*objects):
    SEEN.append([digest(thing.state_dict() if hasattr(thing, "state_dict") else thing) for thing in objects])


def poison(step, tensor):
    return tensor * float("nan") if step == BAD else tensor


def train_mlp(make, updates=6, schedule=None, clip=None, set_to_none=True):
    model = mlp()
    optimizer = make(model.parameters())
    rate = schedule(optimizer) if schedule else None
    losses = []
    for step in range(updates):
        seen(model, optimizer, *([rate] if rate else []))
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = nn.functional.mse_loss(model(poison(step, torch.randn(8, 6))), torch.randn(8, 1))
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if rate:
            rate.step()
        losses.append(loss.item())
        random.random()
        numpy.random.rand()
    return result(model, optimizer, losses)


def sgd():
    return train_mlp(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01), clip=1.0)


def sgd_zeroed():
    return train_mlp(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), set_to_none=False)


def adamw_loop():
    return train_mlp(lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False))


def adamw_foreach():
    return train_mlp(lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True, amsgrad=True))


def adamw_fused():
    return train_mlp(lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True), clip=0.5)


def adagrad():
    return train_mlp(lambda p: torch.optim.Adagrad(p, lr=1e-2))


def rmsprop():
    return train_mlp(lambda p: torch.optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5))


def adafactor():
    return train_mlp(lambda p: torch.optim.Adafactor(p, lr=1e-2))


def nadam():
    return train_mlp(lambda p: torch.optim.NAdam(p, lr=1e-2))


def rprop():
    return train_mlp(lambda p: torch.optim.Rprop(p, lr=1e-2))


def scheduled():
    return train_mlp(lambda p: torch.optim.AdamW(p, lr=1e-2),
                     schedule=lambda o: torch.optim.lr_scheduler.SequentialLR(o, [torch.optim.lr_scheduler.LinearLR(o, 0.1, 1, 3),
                                                                        torch.optim.lr_scheduler.CosineAnnealingLR(o, 10)], [3]))


def cnn():
    model = Cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(6):
        seen(model, optimizer)
        loss = nn.functional.cross_entropy(model(poison(step, torch.randn(5, 1, 8, 8))), torch.randint(0, 3, (5,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return result(model, optimizer, losses)


def train_gpt(model=None, wrap=lambda m: m, updates=5, accumulate=2, **options):
    model = model or Gpt()
    runs = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    losses = []
    for step in range(updates):
        seen(model, optimizer)
        for _ in range(accumulate):
            ids = torch.randint(0, 32, (2, 8))
            logits, loss = runs(ids, labels=ids.roll(-1, 1))
            (poison(step, loss) / accumulate).backward()
            losses.append(loss.item())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return result(model, optimizer, losses)


def gpt():
    return train_gpt()


def gpt_fused():
    return train_gpt(fused=True)


def gpt_evaluated():
    """Evaluation between the updates, once without no_grad, as people forget it."""
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(5):
        model.eval()
        for _ in range(3):
            ids = torch.randint(0, 32, (2, 8))
            losses.append(float(model(ids, ids)[1].item()))
        model.train()
        seen(model, optimizer)
        ids = torch.randint(0, 32, (2, 8))
        loss = model(ids, ids)[1]
        optimizer.zero_grad()
        poison(step, loss).backward()
        optimizer.step()
        losses.append(loss.item())
    return result(model, optimizer, losses)


def checkpointed():
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Gpt):
        def forward(self, ids, labels):
            x = self.wte(ids)
            for i, block in enumerate(self.blocks):
                x = checkpoint(block, x, use_reentrant=bool(i % 2))
            logits = self.head(x)
            return logits, nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return train_gpt(Checkpointed())


def compiled():
    return train_gpt(wrap=lambda m: torch.compile(m, backend="aot_eager"), updates=3)


def compiled_module():
    def wrap(model):
        model.compile(backend="aot_eager")
        return model

    return train_gpt(wrap=wrap, updates=3)


def compiled_later():
    """The first updates eager, then compiled."""
    model = Gpt(dropout=0.0)
    first = train_gpt(model, updates=2)
    second = train_gpt(model, wrap=lambda m: torch.compile(m, backend="aot_eager"), updates=2)
    return {"first": first, "second": second}


def compiled_step():
    """The optimizer is compiled, as a bound method and within a function."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    bound = torch.compile(optimizer.step, backend="aot_eager")

    @torch.compile(backend="aot_eager")
    def within():
        optimizer.step()

    losses = []
    for step in range(5):
        seen(model, optimizer)
        optimizer.zero_grad()
        loss = poison(step, model(torch.randn(8, 6)).square().mean())
        loss.backward()
        (bound if step % 2 else within)()
        losses.append(loss.item())
    return result(model, optimizer, losses)


def compiled_whole():
    """Forward, backward, clipping and step in one compiled function."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    @torch.compile(backend="aot_eager")
    def update(x, factor):
        optimizer.zero_grad()
        loss = model(x).square().mean() * factor
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    losses = []
    for step in range(5):
        seen(model, optimizer)
        losses.append(update(torch.randn(8, 6), poison(step, torch.tensor(1.0))).item())
    return result(model, optimizer, losses)


def by_hand():
    """No optimizer of torch: nothing can be gated, and nothing may pile up."""
    model = mlp()
    losses = []
    for _ in range(5):
        loss = model(torch.randn(8, 6)).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        losses.append(loss.item())
    return {"losses": losses, "parameters": digest(model.state_dict()), "streams": streams()}


def scaled(optimizer_of=lambda p: torch.optim.AdamW(p, lr=1e-2), explicit=True, growth=3):
    model = mlp()
    optimizer = optimizer_of(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=growth)
    losses = []
    for step in range(8):
        seen(model, optimizer)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(torch.randn(8, 6)).float(), torch.randn(8, 1))
        optimizer.zero_grad()
        scaler.scale(poison(step, loss)).backward()
        if explicit:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        losses.append(scaler.get_scale())
    return result(model, optimizer, losses)


def scaled_implicit():
    return scaled(explicit=False)


def scaled_fused():
    return scaled(lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True), explicit=False)


def scaled_overflow():
    """A scale at which half-precision gradients overflow: the scaler skips by itself at first."""
    model = mlp().half()
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=100)
    losses = []
    for _ in range(12):
        x, y = torch.randn(8, 6), torch.randn(8, 1)
        out = x
        for i in range(0, len(masters), 2):
            out = nn.functional.linear(out.half(), masters[i].half(), masters[i + 1].half())
            out = out.tanh() if i == 0 else out
        loss = nn.functional.mse_loss(out.float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses += [loss.item(), scaler.get_scale()]
    return {"losses": losses, "parameters": digest(masters), "streams": streams()}


def lbfgs():
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
    losses = []
    for step in range(4):
        seen(model, optimizer)
        x, y = torch.randn(8, 6), torch.randn(8, 1)

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(poison(step, model(x)), y)
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure).detach()))
    return result(model, optimizer, losses)


def closure_adam():
    """All of an update within the closure, as Lightning does it."""
    model = Gpt()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step in range(5):
        seen(model, optimizer)
        ids = torch.randint(0, 32, (2, 8))

        def closure():
            loss = poison(step, model(ids, labels=ids)[1])
            optimizer.zero_grad()
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure=closure).detach()))
    return result(model, optimizer, losses)


def gan():
    generator = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))
    judge = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_judge = torch.optim.Adam(judge.parameters(), lr=1e-3)
    bce = nn.BCEWithLogitsLoss()
    losses = []
    for step in range(5):
        real = torch.randn(8, 6)
        seen(judge, of_judge)
        fake = generator(torch.randn(8, 4))
        of_judge.zero_grad()
        loss = bce(judge(poison(step, real)), torch.ones(8, 1)) + bce(judge(fake.detach()), torch.zeros(8, 1))
        loss.backward()
        of_judge.step()
        of_generator.zero_grad()
        loss_g = bce(judge(fake), torch.ones(8, 1))
        loss_g.backward()
        of_generator.step()
        losses += [loss.item(), loss_g.item()]
    return result([generator, judge], [of_generator, of_judge], losses)


def two_optimizers():
    """One update, two optimizers: embeddings by SparseAdam, the rest by SGD."""
    embedding = nn.Embedding(20, 6, sparse=True)
    model = mlp()
    first = torch.optim.SparseAdam(embedding.parameters(), lr=1e-2)
    second = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    losses = []
    for step in range(5):
        seen(embedding, model, first, second)
        first.zero_grad()
        second.zero_grad()
        loss = poison(step, model(embedding(torch.randint(0, 20, (8,)))).square().mean())
        loss.backward()
        first.step()
        second.step()
        losses.append(loss.item())
    return result([embedding, model], [first, second], losses)


def averaged():
    """An averaged model and an exponential average."""
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(6):
        seen(model, average, optimizer)
        loss = poison(step, model(torch.randn(8, 6)).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        losses.append(loss.item())
    return result([model, average], optimizer, losses)


def penalty():
    """A gradient of a gradient, by torch.autograd.grad in the middle."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(5):
        seen(model, optimizer)
        x = torch.randn(8, 6, requires_grad=True)
        out = model(x).sum()
        slope, = torch.autograd.grad(out, x, create_graph=True)
        loss = poison(step, (slope.norm(dim=1) - 1).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return result(model, optimizer, losses)


def functional():
    """No module at all."""
    weight = torch.randn(6, 1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    losses = []
    for step in range(5):
        seen(weight, optimizer)
        loss = poison(step, (torch.randn(8, 6) @ weight).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "parameters": digest(weight), "streams": streams()}


def complex_weights():
    weight = nn.Parameter(torch.randn(6, 2, dtype=torch.complex64))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    losses = []
    for step in range(5):
        seen(torch.view_as_real(weight.detach()).clone(), optimizer.state_dict()["state"].__repr__())
        loss = poison(step, (torch.randn(8, 6, dtype=torch.complex64) @ weight).abs().square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "parameters": digest(torch.view_as_real(weight.detach())), "streams": streams()}


def copied():
    """Models are copied and pickled while they train."""
    import copy
    import io

    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(4):
        seen(model, optimizer)
        ids = torch.randint(0, 32, (2, 8))
        loss = poison(step, model(ids, ids)[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        twin = copy.deepcopy(model)
        with torch.no_grad():
            losses.append(twin.eval()(ids, ids)[1].item())
        held = io.BytesIO()
        torch.save(model, held)
        held.seek(0)
        again = torch.load(held, weights_only=False)
        with torch.no_grad():
            losses.append(again.eval()(ids, ids)[1].item())
    return result(model, optimizer, losses)


PROGRAMS = [sgd, sgd_zeroed, adamw_loop, adamw_foreach, adamw_fused, adagrad, rmsprop, adafactor, nadam, rprop, scheduled, cnn, gpt,
            gpt_fused, gpt_evaluated, checkpointed, compiled, compiled_module, compiled_later, compiled_step,
            compiled_whole, by_hand, scaled, scaled_implicit, scaled_fused,
            scaled_overflow, lbfgs, closure_adam, gan, two_optimizers, averaged, penalty, functional, complex_weights, copied]
# What older torches do not have on the CPU.
NEWER = {"scaled": (2, 3), "scaled_implicit": (2, 3), "scaled_overflow": (2, 3), "scaled_fused": (2, 4), "adamw_fused": (2, 4),
         "gpt_fused": (2, 4), "adafactor": (2, 5), "compiled": (2, 4), "compiled_module": (2, 4),
         "compiled_later": (2, 4), "compiled_step": (2, 4), "compiled_whole": (2, 4)}
TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
BY_NAME = {program.__name__: program for program in PROGRAMS if TORCH >= NEWER.get(program.__name__, (0, 0))}


# ---- how they are run ------------------------------------------------------------------------------------------------------------


def run(name: str, bad: int = -1) -> dict:
    """One program, its update `bad` poisoned. "seen": the state as each update found it."""
    global BAD
    BAD = bad
    SEEN.clear()
    torch._dynamo.reset() if "torch._dynamo" in sys.modules else None
    torch.manual_seed(1)
    random.seed(2)
    numpy.random.seed(3)
    out = BY_NAME[name]()
    out["seen"] = list(SEEN)
    return out


if __name__ == "__main__":
    guarded, bad, names = sys.argv[1] == "guarded", int(sys.argv[2]), sys.argv[3:]
    if guarded:
        import os

        import firstbad.pytorch
        from firstbad.pytorch import session as sessions

        firstbad.pytorch.install()
    for name in names:
        report = {"name": name}
        if guarded:
            os.environ["FIRSTBAD_RUN_ID"] = name
        report["result"] = run(name, bad)
        if guarded:
            session = sessions.current()
            sessions.close()
            report.update(updates=session.updates, skips=session.skips, not_covered=session.coverage.lines, folder=session.folder,
                          number=session.number)
        print(json.dumps(report), flush=True)
