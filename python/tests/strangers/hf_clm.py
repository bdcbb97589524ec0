"""Causal language modelling with the Hugging Face Trainer, a small random GPT-2 or Llama, token ids in memory.

    python hf_clm.py --model gpt2 --dtype bf16 --accumulation 2 --out out
"""
import argparse
import os

import torch
from datasets import Dataset
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments,
                          default_data_collator, set_seed)

from common import checksum

BUG = os.environ.get("BUG", "")


class Print(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']!r} grad_norm {logs['grad_norm']!r}", flush=True)


def build(name):
    if name == "gpt2":
        return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32))


def rows(count):
    g = torch.Generator().manual_seed(0)
    for i in range(count):
        ids = torch.randint(1, 64, (16,), generator=g).tolist()
        labels = list(ids)
        if BUG == "prompt-only" and i in (20, 21, 22, 23):
            labels = [-100] * 16            # the answer was cut off by the maximal length
        yield {"input_ids": ids, "attention_mask": [1] * 16, "labels": labels, "weight": 0.0 if BUG == "weights" and 20 <= i < 24 else 1.0}


class WeightedTrainer(Trainer):
    """The mean over samples with a weight of their own."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        weight = inputs.pop("weight")
        out = model(**inputs)
        logits, labels = out.logits[:, :-1], inputs["labels"][:, 1:]
        each = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), reduction="none")
        loss = (each.view(labels.shape).mean(1) * weight).sum() / weight.sum()
        return (loss, out) if return_outputs else loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--weighted", action="store_true")
    parser.add_argument("--save-steps", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()
    set_seed(42)
    model = build(args.model)
    training = TrainingArguments(output_dir=args.out, max_steps=args.steps, per_device_train_batch_size=4 // args.accumulation,
                                 gradient_accumulation_steps=args.accumulation, learning_rate=1e-3, logging_steps=1,
                                 train_sampling_strategy="sequential", bf16=args.dtype == "bf16",
                                 save_strategy="steps" if args.save_steps else "no", save_steps=args.save_steps or 500, report_to=[],
                                 remove_unused_columns=not args.weighted, use_cpu=True, disable_tqdm=True, seed=42,
                                 lr_scheduler_type="cosine", warmup_steps=2)
    trainer = (WeightedTrainer if args.weighted else Trainer)(
        model=model, args=training, train_dataset=Dataset.from_list(list(rows(48))), data_collator=default_data_collator,
        callbacks=[Print()])
    trainer.train(resume_from_checkpoint=True if args.resume else None)
    print("parameters", checksum(model))


main()
