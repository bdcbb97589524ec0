"""firstbad-gpt against the same model written in PyTorch: logits, loss, every gradient, and ten updates of AdamW.

The program writes its first parameters (a checkpoint) and what it computed in each step (--dump). The reference loads the parameters,
reads the same tokens and computes all of it again: in FP64, which serves as the truth, and in the format under test, whose own
distance from the truth is the yardstick for ours. Tests are written so that NaN fails: assert error <= limit.

Run: FIRSTBAD_GPT=build/firstbad-gpt pytest python/tests/test_gpt_reference.py
"""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
from safetensors.torch import load_file  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("FIRSTBAD_GPT", Path(os.environ.get("FIRSTBAD_BUILD", ROOT / "build")) / "firstbad-gpt"))
LAYERS, CHANNELS, HEADS, BLOCK, BATCH, STEPS = 3, 48, 3, 40, 3, 10
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

pytestmark = pytest.mark.skipif(not PROGRAM.exists() and "FIRSTBAD_BUILD" not in os.environ,
                                reason=f"{PROGRAM} is not built; set FIRSTBAD_GPT")
torch.set_num_threads(1)


def train(folder, precision, *more, ranks=1):
    """Run the program; return the first parameters, and what rank 0 (and the others) computed in each step."""
    command = [str(PROGRAM), "--no-guard", "--precision", precision, "--steps", str(STEPS), "--layers", str(LAYERS),
               "--channels", str(CHANNELS), "--heads", str(HEADS), "--block", str(BLOCK), "--batch", str(BATCH), "--warmup", "3",
               "--loss-scale", "1024", "--save-every", str(STEPS), "--out", str(folder / "out"), "--dump", str(folder / "step"),
               "--log-every", "0", *more]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if ranks > 1:
        command = ["mpirun", "--oversubscribe", "-n", str(ranks), *command]
    subprocess.run(command, check=True, env=environment, timeout=120)
    start = load_file(folder / "out" / "step-000000.safetensors")
    names = [name for name in start if not name.startswith(("train.", "scaler.", "optimizer."))]
    suffixes = [""] + [f"-r{rank}" for rank in range(1, ranks)]
    steps = [[load_file(folder / f"step-{step:06d}{suffix}.safetensors") for suffix in suffixes] for step in range(1, STEPS + 1)]
    return {name: start[name] for name in names}, steps


def forward(p, tokens, targets):
    """The model as the paper writes it, one operation a line, in the dtype of the parameters; the loss from FP32 or better."""
    B, T = tokens.shape
    functional = torch.nn.functional
    x = p["wte.weight"][tokens] + p["wpe.weight"][:T]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    for layer in range(LAYERS):
        def q(name):
            return p[f"h.{layer}.{name}"]
        normed = functional.layer_norm(x, (CHANNELS,), q("ln_1.weight"), q("ln_1.bias"), 1e-5)
        qkv = functional.linear(normed, q("attn.c_attn.weight"), q("attn.c_attn.bias"))
        query, key, value = (part.view(B, T, HEADS, -1).transpose(1, 2) for part in qkv.split(CHANNELS, dim=2))
        scores = (query @ key.transpose(2, 3)) * (CHANNELS // HEADS) ** -0.5
        att = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        heads = (att @ value).transpose(1, 2).reshape(B, T, CHANNELS)
        x = x + functional.linear(heads, q("attn.c_proj.weight"), q("attn.c_proj.bias"))
        normed = functional.layer_norm(x, (CHANNELS,), q("ln_2.weight"), q("ln_2.bias"), 1e-5)
        hidden = functional.gelu(functional.linear(normed, q("mlp.c_fc.weight"), q("mlp.c_fc.bias")), approximate="tanh")
        x = x + functional.linear(hidden, q("mlp.c_proj.weight"), q("mlp.c_proj.bias"))
    x = functional.layer_norm(x, (CHANNELS,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    logits = functional.linear(x, p["lm_head.weight"])
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return logits, functional.cross_entropy(wide.view(B * T, -1), targets.reshape(-1).long(), ignore_index=-100)


def gradients(parameters, ranks, dtype, scale=1.0):
    """Logits and loss of the last micro-step of rank 0, and the mean gradient over ranks and micro-steps, in FP64."""
    result, total = None, {name: torch.zeros_like(value, dtype=torch.float64) for name, value in parameters.items()}
    for rank, step in enumerate(ranks):
        p = {name: value.detach().to(dtype).requires_grad_() for name, value in parameters.items()}
        micro_steps = step["tokens"].shape[0]
        for micro in range(micro_steps):
            logits, loss = forward(p, step["tokens"][micro].long(), step["targets"][micro])
            (loss * scale / micro_steps).backward()
        if rank == 0:
            result = logits.detach().double(), loss.detach().double()
        for name in total:
            total[name] += p[name].grad.double() / (scale * len(ranks))
    return *result, total


def distance(a, b):
    """Relative distance of two tensors, by their norms."""
    return float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30))


def key_bias(name, tensor):
    """The part of c_attn.bias that adds to the keys. Softmax does not see it: its true gradient is 0, and what is left is rounding."""
    if not name.endswith("c_attn.bias"):
        return tensor
    return torch.cat([tensor[:CHANNELS], tensor[2 * CHANNELS:]])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return {precision: train(tmp_path_factory.mktemp(precision), precision) for precision in FORMATS}


def test_first_step_in_fp32_equals_torch_in_fp64(runs):
    parameters, steps = runs["fp32"]
    logits, loss, grads = gradients(parameters, steps[0], torch.float64)
    ours = steps[0][0]
    assert distance(ours["logits"], logits) <= 1e-6
    assert abs(float(ours["loss"]) - float(loss)) <= 1e-6
    assert len(grads) == 2 + 12 * LAYERS + 3
    worst = {name: distance(key_bias(name, ours["grad." + name]), key_bias(name, grads[name])) for name in grads}
    print("worst gradient in fp32:", max(worst.items(), key=lambda item: item[1]))
    for name, error in worst.items():
        assert error <= 2e-6, name


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_first_step_in_16_bits_is_as_near_to_the_truth_as_torch_in_the_same_format(runs, precision):
    parameters, steps = runs[precision]
    ours = steps[0][0]
    logits, loss, truth = gradients(parameters, steps[0], torch.float64)
    torch_logits, torch_loss, theirs = gradients(parameters, steps[0], FORMATS[precision], 1024.0 if precision == "fp16" else 1.0)
    unit = torch.finfo(FORMATS[precision]).eps
    assert distance(ours["logits"], logits) <= 1.5 * distance(torch_logits, logits) + unit
    assert abs(float(ours["loss"]) - float(loss)) <= 2 * abs(float(torch_loss) - float(loss)) + unit
    for name in truth:
        mine, reference, exact = (key_bias(name, value) for value in (ours["grad." + name], theirs[name], truth[name]))
        assert distance(mine, exact) <= 1.5 * distance(reference, exact) + unit, name
    # Values of the format: nothing between them is left over.
    assert torch.equal(ours["logits"], ours["logits"].to(FORMATS[precision]).float())


def updated(parameters, steps, dtype, scale=1.0):
    """Ten updates as the program makes them: torch's own AdamW and clip, on FP32 or FP64 masters. Yields the parameters after each."""
    master = {name: value.detach().double().requires_grad_() for name, value in parameters.items()}
    groups = [{"params": [v for v in master.values() if v.ndim > 1], "weight_decay": 0.1},
              {"params": [v for v in master.values() if v.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    for step, ranks in enumerate(steps, start=1):
        _, loss, grads = gradients(master, ranks, dtype, scale)
        for name, value in master.items():
            value.grad = grads[name]
        torch.nn.utils.clip_grad_norm_(master.values(), 1.0)
        done = torch.tensor((step - 3) / (STEPS - 3), dtype=torch.float64)
        rate = 2e-3 * step / 3 if step <= 3 else 2e-4 + 0.5 * (1 + torch.cos(torch.pi * done)) * (2e-3 - 2e-4)
        rate = 2e-4 if step >= STEPS else rate
        for group in optimizer.param_groups:
            group["lr"] = float(rate)
        optimizer.step()
        yield float(loss), {name: value.detach().clone() for name, value in master.items()}


def strayed(name, ours, expected, begin):
    """Both travel from the same start: how far ours ends from theirs, against the length of the way."""
    ours, expected, begin = (key_bias(name, t.double()) for t in (ours, expected, begin))
    return float((ours - expected).norm() / (expected - begin).norm())


def compare_updates(start, steps):
    worst = ("", 0.0)
    for step, (loss, theirs) in zip(steps, updated(start, steps, torch.float64)):
        assert abs(float(step[0]["loss"]) - loss) <= 1e-5
        for name, value in theirs.items():
            error = strayed(name, step[0]["parameter." + name], value, start[name])
            worst = max(worst, (name, error), key=lambda item: item[1])
            assert error <= 1e-3, name
    print("worst tensor in ten updates in fp32:", worst)


def test_ten_updates_in_fp32_follow_torch(runs):
    compare_updates(*runs["fp32"])


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_ten_updates_in_16_bits_stray_no_further_than_those_of_torch_in_the_same_format(runs, precision):
    start, steps = runs[precision]
    truth = updated(start, steps, torch.float64)
    theirs = updated(start, steps, FORMATS[precision], 1024.0 if precision == "fp16" else 1.0)
    ours_sum = theirs_sum = 0.0
    for step, (loss, exact), (torch_loss, reference) in zip(steps, truth, theirs):
        assert abs(float(step[0]["loss"]) - loss) <= 2 * abs(torch_loss - loss) + 2e-3
        for name, value in exact.items():
            ours = strayed(name, step[0]["parameter." + name], value, start[name])
            torchs = strayed(name, reference[name], value, start[name])
            # The first updates are nearly signs of the gradient: one element near 0 may point either way. That wears off by the tenth.
            assert ours <= 2 * torchs + (0.02 if step is steps[-1] else 0.2), name
            ours_sum, theirs_sum = ours_sum + ours, theirs_sum + torchs
    print(f"{precision}: ours strays by {ours_sum / theirs_sum:.3f} of what torch does")
    assert ours_sum <= 1.2 * theirs_sum


def test_accumulated_micro_steps_average_as_torch_does(tmp_path):
    compare_updates(*train(tmp_path, "fp32", "--accum", "3"))


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_ranks_average_as_torch_does(tmp_path):
    start, steps = train(tmp_path, "fp32", ranks=2)
    assert not torch.equal(steps[0][0]["tokens"], steps[0][1]["tokens"])
    for name in start:
        assert torch.equal(steps[-1][0]["parameter." + name], steps[-1][1]["parameter." + name]), name
    compare_updates(start, steps)
