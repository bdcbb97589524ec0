"""Supervised fine-tuning with TRL's SFTTrainer: prompts and completions, a tokenizer and a model made here, nothing is downloaded."""
import os
import sys

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback, set_seed
from trl import SFTConfig, SFTTrainer

from common import checksum

BUG = os.environ.get("BUG", "")
WORDS = "what is the sum of one two three four five six seven eight nine ten it well now".split()


class Print(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']!r} grad_norm {logs['grad_norm']!r}", flush=True)


def main(out):
    set_seed(1)
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>"] + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                         num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
                                         pad_token_id=0, eos_token_id=1, bos_token_id=1))
    if BUG == "new-word":
        with torch.no_grad():               # a word that was added later, its row never initialised
            model.get_input_embeddings().weight[vocabulary["well"]] = float("nan")
    rows = []
    for i in range(24):
        a, b = WORDS[5 + i % 5], WORDS[5 + (i * 3) % 7]
        prompt = f"what is the sum of {a} {b}"
        if i in (8, 9):
            prompt = "well now " + prompt
        rows.append({"prompt": prompt, "completion": f" it is {b} {a}"})
    config = SFTConfig(output_dir=out, max_steps=8, per_device_train_batch_size=2, learning_rate=1e-3, logging_steps=1, report_to=[],
                       save_strategy="no", use_cpu=True, bf16=False, disable_tqdm=True, max_length=24, completion_only_loss=True,
                       train_sampling_strategy="sequential", seed=1, dataset_num_proc=None, gradient_checkpointing=False)
    trainer = SFTTrainer(model=model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
                         callbacks=[Print()])
    trainer.train()
    print("parameters", checksum(model))


main(sys.argv[1] if len(sys.argv) > 1 else "out")
