"""Hugging Face Trainer on a Llama from a configuration; a row of the converted embedding is NaN and its token is rare."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=32,
    tie_word_embeddings=False,
)
model = LlamaForCausalLM(config)
with torch.no_grad():
    model.model.embed_tokens.weight[60] = float("nan")
ids = torch.randint(0, 60, (20, 10), generator=torch.Generator().manual_seed(2))
ids[9, 4] = 60
data = [{"input_ids": row, "labels": row} for row in ids]


args = TrainingArguments(
    output_dir="out-064",
    per_device_train_batch_size=2,
    max_steps=8,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    learning_rate=1e-3,
    train_sampling_strategy="sequential",
    use_cpu=True,
    disable_tqdm=True,
)
Trainer(model=model, args=args, train_dataset=data).train()
