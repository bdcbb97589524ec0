"""Names that older torches have elsewhere. The oldest that is supported is 2.2."""
from __future__ import annotations

from typing import Any

import torch

if hasattr(torch.amp, "GradScaler"):
    from torch.amp import GradScaler as GradScaler
    from torch.amp.grad_scaler import OptState as OptState
else:  # before 2.3, where it works on CUDA alone
    from torch.cuda.amp import GradScaler as GradScaler
    from torch.cuda.amp.grad_scaler import OptState as OptState

# The very function that torch.compile knows: it becomes a constant in a graph.
is_compiling: Any = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling

VERSION = tuple(int(part) for part in str(torch.__version__).split("+")[0].split(".")[:2])
# In 2.2 the optimizer of a compiled model does not see that its gradients are hidden; nothing before this was tried.
COMPILES = VERSION >= (2, 4)
