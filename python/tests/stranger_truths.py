"""What is true of every fault in `strangers/`, worked out by hand."""
from __future__ import annotations

from stranger_runs import Stranger, Truth

HF = ("transformers", "datasets", "accelerate")
IGNORED = ("label_all_ignored", "zero_denominator")
EMPTY = ("domain_math", "zero_denominator")
RANKS = ("after several micro-steps under no_sync no operator is named: the ranks' replays are held to differ", "not named: ")

LOOPS = [
    Stranger("nanogpt", "nanogpt.py", "padded",
             Truth(5, ("softmax",), ("transformer.h.0.attn",), "att = F.softmax(", "nanogpt.py", ("mask_full_row",), micro=1)),
    Stranger("nanogpt-bf16", "nanogpt.py", "unlabelled",
             Truth(5, ("nll_loss", "cross_entropy"), ("",), "F.cross_entropy(logits.view", "nanogpt.py", ("label_all_ignored",),
                   micro=1), args=("--dtype", "bfloat16"), poisons=False),
    Stranger("nanogpt-fp16", "nanogpt.py", "padded-for-ever",
             Truth(5, ("softmax",), ("transformer.h.0.attn",), "att = F.softmax(", "nanogpt.py", ("mask_full_row",), micro=1,
                   halts=True), args=("--dtype", "float16"), poisons=False),
    # Each loop of a GAN is two updates: the discriminator's and the generator's.
    Stranger("gan", "gan.py", "unscaled", Truth(10, ("log",), ("",), "loss_d = -torch.log", "gan.py", ("domain_math",))),
    Stranger("reinforce", "reinforce.py", "falls-at-once",
             Truth(5, ("std",), ("",), "returns.std()", "reinforce.py", ("domain_math",)), plain_ends=1),
    Stranger("ppo", "ppo.py", "constant-reward",
             Truth(2, ("div",), ("",), "mb_advantages.std()", "ppo.py", ("domain_math", "zero_denominator")), plain_ends=1),
    # Sample 21 comes in batch 1 of the first epoch and in batch 2 of the second: two cases, and `why` answers from the newer.
    Stranger("cnn", "cnn.py", "broken-image", Truth(8, cause=("input_nonfinite",), boundary=("input",), samples=(21,))),
    Stranger("lbfgs", "lbfgs.py", "pseudo-label",
             Truth(3, ("div",), ("",), "distance = torch.sqrt(", "lbfgs.py", ("domain_math",))),
    Stranger("ctc", "ctc.py", "short-clip",
             Truth(4, ("ctc_loss",), ("", "CTCLoss"), "loss = criterion(", "ctc.py", ("domain_math", "unknown"))),
    # The Inf is swallowed by a clamp in the loss and comes back as 0 * Inf in its gradient.
    Stranger("ddpm", "ddpm.py", "last-step", Truth(5, ("div",), ("",), "x0_guess = (x_t", "ddpm.py", ("domain_math",))),
    Stranger("contrastive", "contrastive.py", "black-image",
             Truth(6, ("div",), ("image",), "return x / x.norm", "contrastive.py", ("domain_math",))),
    Stranger("compiled", "compiled.py", "no-epsilon",
             Truth(5, ("rsqrt",), ("",), "rms = h * torch.rsqrt", "compiled.py", ("domain_math",))),
]

FRAMEWORKS = [
    Stranger("hf-gpt2", "hf_clm.py", "prompt-only", Truth(5, ("div",), ("",), "loss = loss /", "loss_utils.py", IGNORED),
             needs=HF, poisons=False),
    Stranger("hf-llama-weights", "hf_clm.py", "weights",
             Truth(5, ("div",), ("",), "loss = (each.view", "hf_clm.py", ("zero_denominator",)),
             args=("--model", "llama", "--weighted"), needs=HF),
    Stranger("hf-llama-bf16-accumulated", "hf_clm.py", "prompt-only",
             Truth(5, ("div",), ("",), "loss = loss /", "loss_utils.py", IGNORED),
             args=("--model", "llama", "--dtype", "bf16", "--accumulation", "2"), needs=HF, poisons=False),
    Stranger("peft-lora", "lora.py", "no-answer",
             Truth(4, ("nll_loss", "cross_entropy"), ("base_model.model",), "loss = ", "loss_utils.py", ("label_all_ignored",)),
             needs=("transformers", "peft"), poisons=False),
    # The row is bad from the beginning, and is found before its word comes: the first updates are held back and looked at whole.
    Stranger("trl-sft", "sft.py", "new-word",
             Truth(0, cause=("uninitialised_memory", "state_bad", "state_before_step"), boundary=("entry_state",), halts=True),
             needs=("transformers", "trl", "datasets", "tokenizers")),
    Stranger("lightning", "lit.py", "flat-row", Truth(4, ("div",), (), "per_row = ((x_hat", "lit.py", ("domain_math",)),
             needs=("lightning",)),
    Stranger("lightning-manual", "lit.py", "flat-row", Truth(4, ("div",), (), "per_row = ((x_hat", "lit.py", ("domain_math",)),
             args=("--manual",), needs=("lightning",)),
    Stranger("accelerate", "accel.py", "negative-target",
             Truth(6, ("log",), ("",), "torch.log(price)", "accel.py", ("domain_math",), micro=1),
             launcher="accelerate", needs=("accelerate",)),
    Stranger("accelerate-2", "accel.py", "negative-target",
             Truth(3, ("log",), ("",), "torch.log(price)", "accel.py", ("domain_math",), rank=1),
             launcher="torchrun", ranks=2, needs=("accelerate",), not_yet=RANKS),
    Stranger("ddp-2", "ddp.py", "empty-set", Truth(5, ("div",), ("",), "mean = total /", "ddp.py", EMPTY, rank=1),
             launcher="torchrun", ranks=2, not_yet=RANKS),
    Stranger("ddp-4", "ddp.py", "empty-set", Truth(2, ("div",), ("",), "mean = total /", "ddp.py", EMPTY, micro=1, rank=3),
             launcher="torchrun", ranks=4, not_yet=RANKS),
    # 1.9e38 is finite, and the vectorised gelu of it is not.
    Stranger("fsdp2", "fsdp2.py", "huge",
             Truth(4, ("gelu",), ("layers.0",), "self.down(F.gelu", "fsdp2.py", ("overflow",), rank=1, may_be_unnamed=True),
             launcher="torchrun", ranks=2),
]
