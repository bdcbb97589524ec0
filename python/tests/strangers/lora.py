"""LoRA on a frozen small Llama with peft, in a loop of one's own."""
import os

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from common import checksum

BUG = os.environ.get("BUG", "")
torch.manual_seed(3)
base = LlamaForCausalLM(LlamaConfig(vocab_size=48, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                                    num_key_value_heads=2, max_position_embeddings=32))
model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, lora_dropout=0.05, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
model.train()
for step in range(8):
    ids = torch.randint(1, 48, (2, 12))
    labels = ids.clone()
    labels[:, :4] = -100
    if BUG == "no-answer" and step == 4:
        labels[:] = -100                    # both answers were filtered away
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item()!r}", flush=True)
print("parameters", checksum(model))
