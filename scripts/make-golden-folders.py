#!/usr/bin/env python3
"""Make tests/golden/folders: small checkpoints of several files, written by the libraries that people train with.

The files are committed, so that the tests need no Python. Run this again only to change them. It needs torch 2.13 (CPU), deepspeed
0.19, transformers 5.24 and accelerate 1.15; other releases may give other bytes, and ids of saves differ each time:

    python3 scripts/make-golden-folders.py

Where a number is planted, the place is known because it is planted here; the C tests name it. Folders whose names begin with
"by-hand" are written in the documented structure, since the program that writes them does not run on a CPU.
"""
import copy
import json
import os
import pickle
import shutil
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "folders"))
PROGRAM = os.path.abspath(__file__)
NAN = float("nan")


def fresh(name):
    path = name
    shutil.rmtree(path, ignore_errors=True)
    return path


def two_processes(*arguments):
    """Run a function of this file in two processes that know each other."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29611", PROGRAM]
    environment = dict(os.environ, DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
    done = subprocess.run(command + list(arguments), env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])


# ---- torch.distributed.checkpoint -------------------------------------------------------------------------------------------------


def fsdp(name, steps, plant):
    """FSDP2 over two ranks; plant: element 2 of rank 1's piece of exp_avg of 1.weight (3, 7), which is cut after row 2: index 16."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3), nn.Linear(3, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(int(steps)):
        model(torch.randn(2, 5)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    if plant == "plant" and dist.get_rank() == 1:
        parameter = dict(model.named_parameters())["1.weight"]
        optimizer.state[parameter]["exp_avg"].to_local().view(-1)[2] = NAN
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optim": moments, "train_state": {"step": int(steps), "losses": torch.zeros(2)}}
    dcp.save(state, checkpoint_id=name)
    dist.destroy_process_group()


def hostile_tables():
    """Copies of one table, each with one thing wrong. Beside them, in the same folder, lies no data."""
    with open(os.path.join("fsdp", ".metadata"), "rb") as file:
        good = pickle.load(file)
    out = fresh("fsdp-tables")
    os.makedirs(out)

    def write(name, table, protocol=4):
        with open(os.path.join(out, name), "wb") as file:
            pickle.dump(table, file, protocol=protocol)

    def place(table, fqn, number=0):
        keys = [key for key in table.storage_data if key.fqn == fqn]
        return keys[number], table.storage_data[keys[number]]

    def change(name, function):
        table = copy.deepcopy(good)
        function(table)
        write(name, table)

    write("protocol-5", good, protocol=5)
    write("protocol-2", good, protocol=2)
    weight = "model.1.weight"
    change("outside", lambda t: setattr(place(t, weight)[1], "relative_path", "../__0_0.distcp"))
    change("absolute", lambda t: setattr(place(t, weight)[1], "relative_path", "/etc/passwd"))
    change("beyond-the-file", lambda t: setattr(place(t, weight)[1], "length", 1 << 40))
    change("beyond-everything", lambda t: setattr(place(t, weight)[1], "offset", (1 << 63) - 1))
    change("missing-file", lambda t: setattr(place(t, weight)[1], "relative_path", "__7_0.distcp"))
    change("overlapping-places", lambda t: setattr(place(t, weight)[1], "offset", place(t, "model.0.weight")[1].offset + 1))
    change("a-hole", lambda t: t.state_dict_metadata[weight].chunks.pop() and t.storage_data.pop(place(t, weight, 1)[0]))
    change("a-chunk-stored-nowhere", lambda t: t.storage_data.pop(place(t, weight, 1)[0]))

    def overlap(table):
        import torch

        chunk = table.state_dict_metadata[weight].chunks[1]
        key, info = place(table, weight, 1)
        del table.storage_data[key]
        chunk.offsets = torch.Size([1, 0])
        table.storage_data[type(key)(fqn=weight, offset=chunk.offsets, index=1)] = info

    def shape(table):
        import torch

        table.state_dict_metadata[weight].size = torch.Size([3, 8])

    def beyond_shape(table):
        import torch

        table.state_dict_metadata[weight].chunks[1].sizes = torch.Size([2, 7])

    def huge(table):
        import torch

        table.state_dict_metadata[weight].size = torch.Size([1 << 40, 1 << 40])

    def other_dtype(table):
        import torch

        table.state_dict_metadata[weight].properties.dtype = torch.float64

    def swapped(table):
        one, two = place(table, "model.1.bias")[1], place(table, "model.2.bias")[1]
        one.offset, two.offset = two.offset, one.offset
        one.length, two.length = two.length, one.length
        one.relative_path, two.relative_path = two.relative_path, one.relative_path

    change("overlapping-chunks", overlap)
    change("another-size", shape)
    change("a-chunk-beyond-its-tensor", beyond_shape)
    change("more-than-2-to-64", huge)
    change("another-dtype", other_dtype)
    change("two-places-swapped", swapped)
    change("transformed", lambda t: setattr(place(t, weight)[1], "transform_descriptors", ["zstd"]))
    change("unknown-tensor", lambda t: t.state_dict_metadata.pop(weight))
    change("no-storage-data", lambda t: t.__dict__.pop("storage_data"))
    write("a-list", [1, 2, 3])
    with open(os.path.join(out, "protocol-5"), "rb") as file:
        data = file.read()
    with open(os.path.join(out, "cut-off"), "wb") as file:
        file.write(data[: len(data) // 2])
    with open(os.path.join(out, "bytes-behind"), "wb") as file:
        file.write(data + b"x")
    # Releases before 2.3 keep one class elsewhere.
    old = pickle.dumps(good, protocol=2)
    old = old.replace(
        b"ctorch.distributed.checkpoint.metadata\nTensorProperties\n",
        b"ctorch.distributed._shard.sharded_tensor.metadata\nTensorProperties\n",
    )
    with open(os.path.join(out, "old-class-path"), "wb") as file:
        file.write(old)


def numbers():
    """Plain numbers, each an object of its own: an infinite learning rate and loss scale, and a best loss, which may be infinite."""
    import torch
    import torch.distributed.checkpoint as dcp

    infinite = float("inf")
    state = {"optim": {"param_groups": [{"lr": infinite}]}, "scaler": {"scale": infinite}, "best": infinite, "w": torch.ones(2)}
    dcp.save(state, checkpoint_id=fresh("dcp-numbers"), no_dist=True)


def fuzz_inputs():
    """Seeds of tests/fuzz/fuzz_dcp.c: u32 length of .metadata, .metadata, and __0_0.distcp."""
    import torch
    import torch.distributed.checkpoint as dcp

    out = os.path.join("..", "..", "fuzz", "corpus", "dcp")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    folder = fresh("seed")
    state = {"w": torch.arange(6.0).reshape(2, 3), "optim": {"state": {"w": {"step": torch.tensor(3.0)}}}, "lr": 0.1}
    state["w"][1, 1] = NAN
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    with open(os.path.join(folder, ".metadata"), "rb") as file:
        table = pickle.load(file)
    with open(os.path.join(folder, "__0_0.distcp"), "rb") as file:
        data = file.read()
    shutil.rmtree(folder)

    def write(name, table):
        table = table if isinstance(table, bytes) else pickle.dumps(table, protocol=4)
        with open(os.path.join(out, name), "wb") as file:
            file.write(len(table).to_bytes(4, "little") + table + data)

    write("whole", table)
    write("protocol-2", pickle.dumps(table, protocol=2))
    write("cut-off", pickle.dumps(table, protocol=4)[:-40])
    two = copy.deepcopy(table)
    tensor = two.state_dict_metadata["w"]
    first = tensor.chunks[0]
    first.sizes = torch.Size([1, 3])
    second = copy.deepcopy(first)
    second.offsets = torch.Size([1, 0])
    tensor.chunks.append(second)
    write("two-chunks", two)
    for info in table.storage_data.values():
        info.transform_descriptors = ["zstd"]
    write("transformed", table)


# ---- DeepSpeed --------------------------------------------------------------------------------------------------------------------


def zero(name, stage, steps):
    import deepspeed
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": int(stage)},
    }
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for _ in range(int(steps)):
        loss = engine(torch.randn(1, 5, dtype=torch.bfloat16)).float().sum()
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(name, tag="global_step3")
    for script in ("zero_to_fp32.py", "zero_to_torch.py"):
        if engine.global_rank == 0 and os.path.exists(os.path.join(name, script)):
            os.remove(os.path.join(name, script))


def plant_in_zero(name, change):
    import torch

    path = os.path.join(name, "global_step3", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt")
    with torch.no_grad():
        state = torch.load(path, weights_only=False)
        change(state["optimizer_state_dict"])
        torch.save(state, path)


def deepspeed_folders():
    for stage in "23":
        fresh("zero" + stage)
        two_processes("zero", "zero" + stage, stage, "3")
    fresh("zero2-later")
    two_processes("zero", "zero2-later", "2", "4")

    def two(optimizer):
        # 0.weight has 35 elements, 0.bias 7, 1.weight 21, 1.bias 3; rank 0 holds the first 34. 34 + 10 is element 2 of 1.weight.
        optimizer["single_partition_of_fp32_groups"][0][10] = NAN
        optimizer["base_optimizer_state"]["state"][0]["exp_avg"][0] = NAN  # element 34 of 0.weight

    def three(optimizer):
        # Parts of two ranks: 18, 4, 11, 2. Element 3 of rank 1's part of 1.weight is 11 + 3.
        optimizer["fp32_flat_groups"][0][18 + 4 + 3] = NAN
        optimizer["optimizer_state_dict"]["state"][0]["exp_avg_sq"][1] = NAN  # 18 + 1 of 0.weight

    shutil.copytree(os.path.join("zero2"), fresh("zero2-planted"))
    plant_in_zero("zero2-planted", two)
    shutil.copytree(os.path.join("zero3"), fresh("zero3-planted"))
    plant_in_zero("zero3-planted", three)
    shutil.copytree(os.path.join("zero2"), fresh("zero2-overflow"))
    plant_in_zero("zero2-overflow", lambda optimizer: optimizer.update(overflow=True))


# ---- transformers and accelerate --------------------------------------------------------------------------------------------------


def tiny():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=16, n_positions=8, bos_token_id=0, eos_token_id=0))


def trainer_folder():
    import torch
    from transformers import Trainer, TrainingArguments

    out = fresh("trainer")
    data = [{"input_ids": torch.arange(8) % 16, "labels": torch.arange(8) % 16} for _ in range(8)]
    arguments = TrainingArguments(
        out, per_device_train_batch_size=2, max_steps=4, save_steps=2, logging_steps=1, report_to=[], use_cpu=True, seed=1,
        disable_tqdm=True, save_strategy="steps",
    )
    Trainer(model=tiny(), args=arguments, train_dataset=data).train()


def accelerate_folder():
    import torch
    from accelerate import Accelerator

    out = fresh("accelerate")
    accelerator = Accelerator(cpu=True)
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    ids = torch.arange(8)[None]
    for _ in range(2):
        accelerator.backward(model(input_ids=ids, labels=ids).loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    accelerator.save_state(out)


def bin_index_folder():
    """Before safetensors: two files of torch.save and an index. By hand, since transformers no longer writes it."""
    import torch

    out = fresh("by-hand-bin-index")
    os.makedirs(out)
    parts = [{"h.0.weight": torch.ones(2, 3), "h.0.bias": torch.ones(2)}, {"h.1.weight": torch.ones(3)}]
    where = {}
    for number, part in enumerate(parts, 1):
        name = f"pytorch_model-{number:05}-of-00002.bin"
        torch.save(part, os.path.join(out, name))
        where.update({key: name for key in part})
    with open(os.path.join(out, "pytorch_model.bin.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": 44}, "weight_map": where}, file)


# ---- Megatron ---------------------------------------------------------------------------------------------------------------------


def megatron_folders():
    """megatron/training/checkpointing.py, save_checkpoint: the keys that it writes, over tiny tensors."""
    import argparse

    import torch

    def rank(iteration, bad=False):
        generator = torch.Generator().manual_seed(iteration)
        weight = torch.randn(4, 3, generator=generator)
        moment = torch.zeros(4, 3)
        if bad:
            moment[1, 2] = NAN
        return {
            "args": argparse.Namespace(tensor_model_parallel_size=2, iteration=iteration),
            "checkpoint_version": 3.0,
            "iteration": iteration,
            "model": {"language_model.encoder.weight": weight.bfloat16()},
            "optimizer": {
                "optimizer": {"state": {0: {"step": float(iteration), "exp_avg": moment, "exp_avg_sq": moment.abs()}},
                              "param_groups": [{"lr": 1e-4, "params": [0]}]},
                "grad_scaler": {"scale": torch.tensor([4096.0]), "growth_tracker": 0, "hysteresis_tracker": 2},
                "fp32_from_fp16_params": [[weight]],
            },
            "opt_param_scheduler": {"max_lr": 1e-4, "num_steps": iteration * 8},
            "rng_state": [{"random_rng_state": (3, (1, 2), None), "torch_rng_state": torch.zeros(8, dtype=torch.uint8)}],
        }

    def save(folder, number, state):
        path = os.path.join(folder, f"mp_rank_{number:02}")
        os.makedirs(path)
        torch.save(state, os.path.join(path, "model_optim_rng.pt"))

    out = fresh("by-hand-megatron")
    for iteration in (10, 20):
        folder = os.path.join(out, f"iter_{iteration:07}")
        save(folder, 0, rank(iteration))
        save(folder, 1, rank(iteration, bad=False))
    with open(os.path.join(out, "latest_checkpointed_iteration.txt"), "w") as file:
        file.write("20")
    out = fresh("by-hand-megatron-planted")
    folder = os.path.join(out, "iter_0000010")
    save(folder, 0, rank(10))
    save(folder, 1, rank(10, bad=True))
    out = fresh("by-hand-torch-dist")
    folder = os.path.join(out, "iter_0000003")
    shutil.copytree("fsdp", folder)
    with open(os.path.join(folder, "metadata.json"), "w") as file:
        json.dump({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch",
                   "common_backend_version": 1}, file)
    torch.save({"args": argparse.Namespace(a=1), "iteration": 3, "checkpoint_version": 3.0}, os.path.join(folder, "common.pt"))


def main():
    for name, steps, plant in (("fsdp", "3", ""), ("fsdp-later", "4", ""), ("fsdp-planted", "3", "plant")):
        fresh(name)
        two_processes("fsdp", name, steps, plant)
    hostile_tables()
    numbers()
    fuzz_inputs()
    deepspeed_folders()
    trainer_folder()
    accelerate_folder()
    bin_index_folder()
    megatron_folders()


if __name__ == "__main__":
    os.makedirs(ROOT, exist_ok=True)
    os.chdir(ROOT)  # paths get into the files: those of the machine that made them have no place there
    if len(sys.argv) > 1:
        {"fsdp": fsdp, "zero": zero}[sys.argv[1]](*sys.argv[2:])
    else:
        main()
