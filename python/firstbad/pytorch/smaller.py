"""The batch of one micro-step, made smaller or another rank's: which tensors have rows, and what takes the place of what is left
out.

A row that is left out becomes a copy of one that is kept, so that shapes, places and random numbers stay those they were: with
fewer rows torch would run other operators, and the replay could not be compared. A token that is left out becomes the first token
of its row that stays, and its label -100.
"""
from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .program import External, Program, RootCall, refs_in
from .replay import Change

IGNORED = -100  # of PyTorch's losses, unless they were told otherwise


class Batch(NamedTuple):
    """rows: 0 where the batch has none. columns: tokens of a row; 0 where tokens cannot be left out.

    of_rows: (external, how many of its rows make one of the batch's). tokens, labels: externals that are token ids, labels.
    """

    rows: int
    columns: int
    of_rows: List[Tuple[int, int]]
    tokens: List[int]
    labels: List[int]


NO_BATCH = Batch(0, 0, [], [], [])


def batch_of(program: Program, micro: int) -> Batch:
    """The batch of a micro-step: the externals that it was the first to read."""
    mine = [(number, e) for number, e in enumerate(program.externals)
            if e.batch and e.micro == micro and not e.live() and e.tensor.dim() >= 1 and e.tensor.layout == torch.strided]
    handed = {ref.number for step in program.steps if isinstance(step, RootCall) and step.micro == micro
              for ref in refs_in((step.args, step.kwargs)) if ref.external}
    first = next((e for number, e in mine if number in handed), None)
    rows = int(first.tensor.shape[0]) if first is not None else 0
    if rows < 1:
        return NO_BATCH
    columns = next((int(e.tensor.shape[1]) for number, e in mine if number in handed and _is_ids(e) and e.tensor.dim() == 2
                    and e.tensor.shape[0] == rows and not _is_label(e)), 0)
    of_rows = []
    for number, e in mine:
        leading = int(e.tensor.shape[0])
        if leading == rows:
            of_rows.append((number, 1))
        elif columns and leading == rows * columns:
            of_rows.append((number, columns))
    tokens = [number for number, e in mine if _is_ids(e) and e.tensor.shape == (rows, columns) and not _is_label(e)
              and not any(word in e.name for word in ("position", "type", "mask"))]
    labels = [
        number for number, e in mine if _is_label(e) and e.tensor.numel() == rows * columns and not e.tensor.is_floating_point()
    ]
    if not tokens or not labels:
        columns = 0  # which tokens count cannot be told, so none is left out
    return Batch(rows, columns, of_rows, tokens, labels)


def _is_ids(e: External) -> bool:
    return e.tensor.dtype in (torch.int64, torch.int32)


def _is_label(e: External) -> bool:
    return any(word in e.name.lower() for word in ("label", "target", "y_true")) or e.name in ("y", "tgt")


def without(program: Program, batch: Batch, rows: Sequence[int], keep: Optional[torch.Tensor]) -> Dict[int, torch.Tensor]:
    """What takes the place of the externals. rows: that are kept, rising. keep: [rows, columns] bool, tokens of them that stay."""
    kept = set(rows)
    source = [row if row in kept else rows[0] for row in range(batch.rows)]
    out: Dict[int, torch.Tensor] = {}
    for number, group in batch.of_rows:
        external = program.externals[number]
        data = (external.before if external.before is not None else external.tensor).detach()
        index = torch.tensor([row * group + k for row in source for k in range(group)], device=data.device)
        out[number] = data.index_select(0, index)
    if keep is not None:
        at = {row: i for i, row in enumerate(rows)}
        stays = torch.stack([keep[at[row]] for row in source])  # (rows, columns)
        for number in batch.tokens:
            tokens = out[number].clone()
            for row in range(batch.rows):
                where = stays[row].nonzero().reshape(-1)
                if len(where):
                    tokens[row][~stays[row].to(tokens.device)] = tokens[row, int(where[0])]
            out[number] = tokens
        for number in batch.labels:
            labels = out[number].clone()
            labels.reshape(batch.rows, -1)[~stays.to(labels.device)] = IGNORED
            out[number] = labels
    return out


def change_of(program: Program, batch: Batch, rows: Sequence[int], keep: Optional[torch.Tensor]) -> Change:
    """The same as what a replay is told. Lists with one item a row, lengths or names, are put in the same order."""
    kept = set(rows)
    return Change(externals=without(program, batch, rows, keep),
                  rows=tuple(row if row in kept else rows[0] for row in range(batch.rows)))


def alike(program: Program) -> int:
    """A number that ranks have in common where their batches have the same shapes; 31 bits."""
    import zlib
    text = ";".join(f"{e.name} {tuple(e.tensor.shape)} {e.tensor.dtype} {e.micro}" for e in program.externals
                    if e.batch and not e.live())
    return zlib.crc32(text.encode()) & 0x7FFFFFFF
