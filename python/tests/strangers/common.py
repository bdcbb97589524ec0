"""What the scripts here share: a checksum of a model, to compare runs by."""
import hashlib

import torch


def checksum(model):
    """Of every parameter and buffer, and whether all of them are finite."""
    digest, finite = hashlib.sha256(), True
    for name, tensor in sorted(model.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):
            continue
        if hasattr(tensor, "full_tensor"):
            tensor = tensor.full_tensor()
        tensor = tensor.detach().cpu().contiguous()
        if tensor.is_floating_point():
            finite = finite and bool(torch.isfinite(tensor).all())
        digest.update(name.encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16] + ("" if finite else " NOT FINITE")
