"""The input gate: what reached the model, which of it is evidence when something is bad, and ids that an embedding does not have.

    enter(root, name, args, kwargs)    at each root forward of an update; before fb_step_begin or after it
    left(outputs)                      that forward ended
    before_step()                      right before fb_step_begin: sites are added, which is allowed between steps only
    in_step()                          at each backward, once the step has begun: token ids are compared with their embedding
    evidence(update)                   at the gate, before the ballot, when the loss or a gradient is bad
    forget(healthy)                    when the update is over, after fb_step_end

A healthy step pays for names, shapes and a fingerprint, and one pass over the token ids; no float field is read. An anomaly of the
input alone stops nothing: missing values and padding are legal, so it becomes a finding only beside a bad loss or gradient, and
only where healthy updates did not have it too (`usual`). The exception is an id that its embedding does not have: torch would
raise, or read out of bounds, so it is a finding at once: the step is begun (session.need_step), the finding reported, and
session.input_fault(evidence) told, all before torch's exception goes on its way. Without input_fault the sentence goes to stderr.
"""
from __future__ import annotations

import ctypes
import re
import sys
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _abi as abi
from .. import _native
from ..errors import LibraryError
from . import anomalies, labels, loader
from .anomalies import Evidence
from .batch import IDS, LABELS, POSITIONS, Field, fields_of, fingerprint, innermost
from .patch import guest

SITES_MAX = 512
SPARE = "unnamed"  # what has no site: it was not known before its step began
LEARNT_FIRST, LEARNT_EVERY = 16, 64  # healthy updates whose anomalies are learnt: the first, and then one in so many
_TOKEN_DTYPES = {torch.int64: abi.I64, torch.int32: abi.I32}
_BESIDE_TOKENS = re.compile(r"pos|wpe|type|segment")  # embeddings that are looked up beside the one of the tokens


class InputGate(labels.Watcher):
    """One for a session."""

    def __init__(self, session: Any) -> None:
        self.session = session
        if getattr(session, "checkpoint_parent", None) is None:
            session.checkpoint_parent = _parent_of_what_was_loaded()
        self.batch_id: Optional[int] = None  # running number of the batch that a DataLoader gave last
        self.samples: Dict[int, List[int]] = {}  # micro -> dataset index of each row, where known
        self.fields: Dict[int, List[Field]] = {}  # micro -> fields, of all roots
        self.roots: Dict[int, List[str]] = {}  # micro -> class names of the roots
        self.seen: List[labels.Seen] = []
        self.micro = 0
        self.usual: Set[Tuple[str, int]] = set()
        self._updates = 0
        self._sites: Dict[Tuple[str, Tuple[int, ...]], int] = {}
        self._wanted: Dict[Tuple[str, Tuple[int, ...]], None] = {}
        self._tokens: Dict[int, Tuple[torch.Tensor, int, Field]] = {}  # micro -> token ids, rows of their embedding, the field
        self._checked: Set[int] = set()
        self._told: Set[Tuple[int, str]] = set()
        self._given: Set[Tuple[int, str]] = set()  # evidence of this update: the gate may ask twice
        self._outputs: Dict[int, StorageWeakRef] = {}  # storages that roots of this update gave out
        self._storages: Dict[int, Field] = {}

    # ---- one update --------------------------------------------------------------------------------------------------------------

    @guest("inputs", (None, None))
    def enter(self, root: Any, name: str, args: Any, kwargs: Any) -> Tuple[Optional[int], Optional[List[int]]]:
        """A root forward begins. Returns (fingerprint of its batch, dataset indices of its rows), each None where it is not known.

        Cost: 20 us and the fingerprint (batch.fingerprint).
        """
        update = self.session.update
        self.micro = micro = int(update.micro) if update is not None else 0
        if not self.fields and (update is None or not getattr(update, "open", False)):
            self._flush_saves()
        fields = [field for field in fields_of(root, args, kwargs, micro) if _storage(field.tensor) not in self._outputs]
        self.fields.setdefault(micro, []).extend(fields)
        self.roots.setdefault(micro, []).append(type(innermost(root)).__name__)
        for field in fields:
            self._wanted[field.name, ()] = None
            self._wanted[field.name, tuple(field.tensor.shape)] = None
            key = _storage(field.tensor)
            if key:
                self._storages.setdefault(key, field)
        known = loader.match(fields)
        if known is not None:
            self.batch_id = known.number
            if known.indices is not None and micro not in self.samples:
                self.samples[micro] = known.indices
        labels.watcher = self
        return fingerprint(fields), self.samples.get(micro)

    def _flush_saves(self) -> None:
        """What was saved since the last update is complete now: nobody saves in the forward of the next."""
        saves = sys.modules.get(__package__ + ".saves")
        if saves is not None:
            saves.flush(self.session)

    @guest("inputs")
    def left(self, outputs: Any) -> None:
        """A root forward ended: what it gave out is no batch of another root (a generator's images, a teacher's logits)."""
        from .trees import tensors

        for tensor in tensors(outputs)[:256]:
            key = _storage(tensor)
            if key:  # the weak reference keeps this address from being given to the next batch, not the memory
                self._outputs[key] = StorageWeakRef(tensor.untyped_storage())

    @guest("inputs", [])
    def evidence(self, update: Any = None) -> List[Evidence]:
        """The loss or a gradient is bad: judge the batch, and report what is bad in it at the boundary INPUT. Before the ballot.

        What is not certain (NaN that lies under padding only, what healthy updates had too) is in the list and was not reported.
        Cost: a few passes over the batch.
        """
        self._stop_watching()
        update = update if update is not None else self.session.update
        bad_losses = {int(loss.micro) for loss in update.losses if not loss.finite} if update is not None else set()
        found = [evidence for evidence in self._anomalies() if (evidence.micro, evidence.text) not in self._given]
        for evidence in found:
            self._given.add((evidence.micro, evidence.text))
            if evidence.key in self.usual:
                evidence.certain = False
                evidence.text += "; healthy updates before had that too"
            elif evidence.needs_bad_loss and evidence.micro not in bad_losses:
                evidence.certain = False
            elif not evidence.needs_bad_loss and evidence.what == abi.FIELD_TENSOR and self._on_device(evidence):
                evidence.certain = False  # healthy updates may have had it as well: they were not read for it
            if evidence.certain:
                self._report(evidence)
        if update is not None:
            update.findings.extend(found)
        return found

    @guest("inputs")
    def forget(self, healthy: Optional[bool] = None) -> None:
        """The update is over; between steps. healthy: it was applied, and nothing in it was bad: its oddities are legal ones. None:
        the verdict of session.last says so."""
        self._stop_watching()
        if healthy is None:
            last = getattr(self.session, "last", None)
            healthy = last is not None and last.verdict is not None and bool(last.verdict.clean) and not last.skipped
        if healthy:
            if self._updates < LEARNT_FIRST or self._updates % LEARNT_EVERY == 0:
                self.usual.update(evidence.key for evidence in self._anomalies(host_only=True))
            self._updates += 1
            if self._updates == 1:
                self._note_what_was_not_seen()
        for call in self.seen:
            name, shape = anomalies.place(call, self._label_field(call))
            self._wanted[name.partition(" as ")[0], ()] = None
            self._wanted[name, shape] = None
        self._add_sites()
        self.fields.clear()
        self.roots.clear()
        self.samples = {}
        self.seen = []
        self._given.clear()
        self._told.clear()
        self._tokens.clear()
        self._checked.clear()
        self._outputs.clear()
        self._storages.clear()
        self.batch_id = None

    def _stop_watching(self) -> None:
        if labels.watcher is self:
            labels.watcher = None

    def _anomalies(self, host_only: bool = False) -> List[Evidence]:
        """host_only: what lies on a device is passed over, since a healthy update must not wait for it."""
        found: List[Evidence] = []
        for micro, fields in sorted(self.fields.items()):
            calls = [call for call in self.seen if call.micro == micro]
            if host_only:
                fields = [field for field in fields if field.tensor.device.type == "cpu"]
                calls = [call for call in calls if call.target.device.type == "cpu"]
            found += anomalies.of(fields, calls, self.roots.get(micro, []), self.samples.get(micro), self._field_of)
        return found

    def _on_device(self, evidence: Evidence) -> bool:
        fields = self.fields.get(evidence.micro, [])
        return any(field.name == evidence.field and field.tensor.device.type != "cpu" for field in fields)

    def _note_what_was_not_seen(self) -> None:
        unseen = sorted({field.name for fields in self.fields.values() for field in fields
                         if field.role == IDS and field.tensor.dtype in _TOKEN_DTYPES and field.micro not in self._tokens})
        if unseen:
            self._note(f"token ids ({', '.join(unseen[:4])}): no embedding was seen to look them up in host memory, "
                       f"so their range is not checked")

    def _note(self, line: str) -> None:
        coverage = getattr(self.session, "coverage", None)
        if coverage is not None:
            coverage.note(line)

    # ---- sites -------------------------------------------------------------------------------------------------------------------

    def _add_sites(self) -> None:
        if not self.session.run:
            return
        self._add_sites_now()

    def _add_sites_now(self) -> None:
        """Sites can be added between steps only; what entered inside of a step waits. A shape that keeps changing has one site
        without a shape, so that an index is never printed in another tensor's."""
        spare: Tuple[str, Tuple[int, ...]] = (SPARE, ())
        wanted = [key for key in self._wanted if key not in self._sites]
        if spare not in self._sites:
            wanted.insert(0, spare)
        for name, shape in wanted:
            if sum(1 for known, _ in self._sites if known == name) >= 8 or len(self._sites) >= SITES_MAX:
                shape = ()
                if (name, shape) in self._sites:
                    continue
            site = abi.Site.new(role=abi.ROLE_INPUT, module="batch", tensor=name, position=0)
            if 0 < len(shape) <= abi.DIMS_MAX:
                site.ndim = len(shape)
                site.shape[:len(shape)] = list(shape)
            number = ctypes.c_uint32()
            error = abi.Error()
            status = _native.lib().fb_run_add_site(self.session.run, ctypes.byref(site), ctypes.byref(number), ctypes.byref(error))
            if status == abi.E_ORDER:
                return  # inside a step
            _native.raise_for(status, error)
            self._sites[name, shape] = number.value
        self._wanted.clear()

    def site(self, name: str, shape: Tuple[int, ...]) -> int:
        """The site of a field: with its shape where that is known, else one without, else that of any input."""
        plain = name.partition(" as ")[0]
        return self._sites.get((name, shape), self._sites.get((plain, ()), self._sites.get((SPARE, ()), abi.UINT32_MAX)))

    def _field_of(self, tensor: torch.Tensor) -> Optional[Field]:
        """The field that a tensor is, or is a part or another shape of; None for none."""
        return self._storages.get(_storage(tensor))

    def _table_of(self, weight: Any) -> str:
        names = getattr(self.session, "names", None)
        name = names.of(weight) if names is not None and isinstance(weight, torch.Tensor) else ""
        return name[:-len(".weight")] if name.endswith(".weight") else name

    def _report(self, evidence: Evidence) -> None:
        finding = evidence.finding(self.site(evidence.field, evidence.shape))
        if finding.site == abi.UINT32_MAX or not self.session.run:
            return
        try:
            _native.call(_native.lib().fb_step_report, self.session.run, ctypes.byref(finding), 1)
            evidence.reported = True
        except LibraryError as why:
            if why.code != abi.E_ORDER:  # the ballot is out, or no step is open: it stays in the message
                raise

    # ---- ids ---------------------------------------------------------------------------------------------------------------------

    @guest("inputs")
    def look_up(self, ids: Any, weight: Any) -> None:
        """An embedding is about to read: remember the token ids of the batch, once a micro-step. torch compares them on its own."""
        if self.micro in self._tokens or not labels.plain(ids) or ids.dtype not in _TOKEN_DTYPES or not 1 <= ids.dim() <= 2:
            return
        if not isinstance(weight, torch.Tensor):
            return
        field = self._storages.get(_storage(ids))
        if field is None or field.role == POSITIONS or ids.device.type != "cpu" or not ids.is_contiguous() or not ids.numel():
            return
        if _BESIDE_TOKENS.search(self._table_of(weight).rpartition(".")[2]):
            return
        self._tokens[self.micro] = (ids, int(weight.shape[0]), field)

    @guest("inputs")
    def in_step(self) -> None:
        """The step has begun: the library reads the token ids of this micro-step once. The ledger has their number, the smallest
        and the largest. Cost: one pass over them."""
        known = self._tokens.get(self.micro)
        if known is None or self.micro in self._checked:
            return
        self._checked.add(self.micro)
        ids, vocabulary, field = known
        site = self.site(field.name, tuple(field.tensor.shape))
        if site == abi.UINT32_MAX:
            return
        shape = (1, *ids.shape) if ids.dim() == 1 else tuple(ids.shape)
        tokens = abi.Tokens.new(site=site, rows=shape[0], cols=shape[1], tokens=ids.data_ptr(), vocab=vocabulary,
                                token_dtype=_TOKEN_DTYPES[ids.dtype])
        error = abi.Error()
        status = _native.lib().fb_step_check_tokens(self.session.run, ctypes.byref(tokens), ctypes.byref(error))
        if status != abi.E_ORDER:  # its ballot is out
            _native.raise_for(status, error)

    @guest("inputs")
    def before_step(self) -> None:
        """The run is open, and no step is."""
        self._add_sites()

    @guest("inputs")
    def refused_ids(self, ids: Any, weight: Any) -> None:
        """torch refused a lookup."""
        if not labels.plain(ids) or not isinstance(weight, torch.Tensor) or ids.is_floating_point():
            return
        table = self._table_of(weight) or "an embedding"
        evidence = anomalies.ids_outside(ids, int(weight.shape[0]), self._field_of(ids), table, self.micro,
                                         self.samples.get(self.micro))
        if evidence is not None:
            self._tell(evidence)

    @guest("inputs")
    def refused_labels(self, call: labels.Seen) -> None:
        """torch refused a target."""
        evidence = anomalies.labels_outside(call, self._label_field(call), self.samples.get(self.micro))
        if evidence is not None:
            self._tell(evidence)

    def _label_field(self, call: labels.Seen) -> Optional[Field]:
        """The field that its target is or was made of."""
        labelled = [field for field in self.fields.get(call.micro, []) if field.role == LABELS]
        return self._field_of(call.target) or (labelled[0] if len(labelled) == 1 else None)

    def _tell(self, evidence: Evidence) -> None:
        key = (evidence.micro, evidence.field)
        if key in self._told:
            return
        self._told.add(key)
        need = getattr(self.session, "need_step", None)
        if need is not None:
            need()
        self._report(evidence)
        update = self.session.update
        if update is not None:
            update.findings.append(evidence)
        fault = getattr(self.session, "input_fault", None)
        if fault is not None:
            fault(evidence)
        else:
            number = "" if update is None else f"step {update.number}: "
            sys.stderr.write(f"firstbad: {number}{evidence.text}\n")


def _parent_of_what_was_loaded() -> Optional[int]:
    loads = sys.modules.get(__package__ + ".loads")
    return loads.parent if loads is not None else None


def _storage(tensor: torch.Tensor) -> int:
    """What tells one memory from another while it lives; 0 where a tensor has none of its own."""
    if not labels.plain(tensor) or tensor.layout != torch.strided:
        return 0
    return int(tensor.untyped_storage()._cdata)
