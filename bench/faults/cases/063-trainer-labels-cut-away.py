"""Hugging Face Trainer: the completions of two samples were cut away."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
config = GPT2Config(vocab_size=48, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
model = GPT2LMHeadModel(config)
ids = torch.randint(0, 48, (24, 12), generator=torch.Generator().manual_seed(2))
data = []
for n, row in enumerate(ids):
    labels = row.clone()
    if n in (12, 13):
        labels[:] = -100  # the completion was cut away
    data.append({"input_ids": row, "labels": labels})


args = TrainingArguments(
    output_dir="out-063",
    per_device_train_batch_size=2,
    num_train_epochs=1,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    learning_rate=1e-3,
    train_sampling_strategy="sequential",
    use_cpu=True,
    disable_tqdm=True,
)
Trainer(model=model, args=args, train_dataset=data).train()
