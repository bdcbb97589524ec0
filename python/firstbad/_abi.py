"""The public headers for ctypes: their constants without the prefix FB_, and their structs.

`X.new(**fields)` is the FB_*_INIT of the header: `size` is set, fields have the header's defaults, those given win. A name that the
struct does not have is a TypeError, since ctypes would quietly make it an attribute. Text may be given as str.
ctypes keeps alive what was assigned to a pointer field (byref() apart) as long as the struct lives.
python/tests/test_abi.py compares sizes, offsets, defaults and constants with what the C compiler says.
"""
from __future__ import annotations

import ctypes
from ctypes import c_char, c_char_p, c_double, c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, ClassVar, Dict, TypeVar

ABI_VERSION = 1
DIMS_MAX = 8
NO_INDEX = 2**64 - 1
UINT32_MAX = 2**32 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# ---- firstbad.h: constants -----------------------------------------------------------------------------------------------------

OK, E_USAGE, E_NOMEM, E_DTYPE, E_IO, E_CORRUPT, E_EXISTS, E_LIMIT = 0, -1, -2, -3, -4, -5, -6, -7
E_UNSUPPORTED, E_ORDER, E_FORKED, E_SITE, E_HALTED, E_SELFTEST, E_NOTFOUND, E_WITHHELD = -8, -9, -10, -11, -12, -13, -14, -15

F64, F32, F16, BF16, F8_E4M3FN, F8_E5M2, F8_E4M3FNUZ, F8_E5M2FNUZ, F8_E8M0, C64, C128 = range(1, 12)
I8, U8, I16, U16, I32, U32, I64, U64, BOOL, F4_E2M1, F6_E2M3, F6_E3M2 = range(16, 28)

KIND_NONE, KIND_NAN, KIND_POS_INF, KIND_NEG_INF, KIND_OUT_OF_RANGE, KIND_ALL_IGNORED, KIND_DOMAIN = range(7)
ENTRY, INPUT, FORWARD, LOSS, LOCAL_GRAD, REDUCED_GRAD, UPDATE, CHECKPOINT = range(1, 9)
PROCEED, SKIP, SKIP_FREEZE, REPLAY, DEGRADE, HALT = range(6)
AGREE_NONE, AGREE_NORM, AGREE_VOTE = range(3)
ON_BAD_SKIP, ON_BAD_HALT, ON_BAD_OBSERVE = range(3)
(ROLE_ACTIVATION, ROLE_INPUT, ROLE_LOSS, ROLE_GRADIENT, ROLE_PARAMETER, ROLE_MOMENT, ROLE_EMA, ROLE_BUFFER,
 ROLE_COUNTER) = range(1, 10)
LEGAL_NEG_INF, LEGAL_PADDING, LEGAL_EXEMPT = 1, 2, 4
DOMAIN_ANY, DOMAIN_NONZERO, DOMAIN_POSITIVE, DOMAIN_NONNEGATIVE, DOMAIN_PROBABILITY = range(5)
KNOWN_BATCH_ID, KNOWN_LEARNING_RATE, KNOWN_LOSS_SCALE, KNOWN_BATCH_FINGERPRINT, KNOWN_RNG_HASH = 1, 2, 4, 8, 16
KNOWN_CHECKPOINT_PARENT, KNOWN_LOSS, KNOWN_GRAD_NORM = 32, 64, 128
FIELD_TENSOR, FIELD_TOKENS, FIELD_LABELS, FIELD_POSITIONS, FIELD_MASK, FIELD_WEIGHTS, FIELD_LENGTHS = range(7)
CKPT_SUSPECT, CKPT_COMMITTED, CKPT_QUARANTINED = 1, 2, 3
CHECKPOINTS_QUEUED_MAX = 8
NOT_COVERED_MAX = 64

# ---- scan.h, ckpt.h, bundle.h, locate.h: constants -----------------------------------------------------------------------------

HISTOGRAM_NONE, HISTOGRAM_SAMPLED, HISTOGRAM_EXACT = range(3)

(CKPT_OUTCOME_CLEAN, CKPT_OUTCOME_UNSUPPORTED, CKPT_OUTCOME_LIMIT, CKPT_OUTCOME_UNREADABLE, CKPT_OUTCOME_NON_FINITE) = range(5)
CKPT_SCAN_NO_DIGEST, CKPT_SCAN_FIRST = 1, 2
CKPT_CHECK_SIZE, CKPT_CHECK_BYTES = 0, 1

BUNDLE_BATCH, BUNDLE_RNG, BUNDLE_STATE, BUNDLE_PARTS = 1, 2, 3, 4

TAPE_STATE, TAPE_MASK, TAPE_BATCH, TAPE_SCALAR, TAPE_UNSEEN = 1, 2, 4, 8, 16
TAPE_COLLECTIVE = 1
TAPE_ATTRIBUTES_MAX = 6
REPLAY_AGAIN, REPLAY_PRECISION, REPLAY_OTHER, REPLAY_SMALLER = 1, 2, 3, 4
LOCATE_REPLAY, LOCATE_SEARCH, LOCATE_CAUSE, LOCATE_OTHER_RANK, LOCATE_MINIMISE, LOCATE_EVIDENCE = 1, 2, 4, 8, 16, 32
LOCATE_ALL = 63
LOCATE_SWEEP, LOCATE_BISECT = 0, 1
(LOCATED_NOTHING, LOCATED_OPERATOR, LOCATED_SET, LOCATED_INTERVAL, LOCATED_ENTRY, LOCATED_NOT_REPRODUCED, LOCATED_NOT_STEADY,
 LOCATED_UNDECIDED) = range(8)
(RULE_NONE, RULE_RANGE, RULE_ROUNDING, RULE_ROUNDING_UPSTREAM, RULE_DOMAIN, RULE_STATE, RULE_BATCH,
 RULE_NOT_REPRODUCIBLE) = range(8)

# ---- structs -------------------------------------------------------------------------------------------------------------------

_S = TypeVar("_S", bound="Struct")


def _fields(**types: Any) -> Any:
    """ctypes wants pairs; keywords read as the header does."""
    return list(types.items())


class Struct(ctypes.Structure):
    """A struct of the headers."""

    _defaults_: ClassVar[Dict[str, Any]] = {}  # of FB_*_INIT, where they are not zero

    @classmethod
    def new(cls: type[_S], **fields: Any) -> _S:
        """An FB_*_INIT with `fields` set. Raises TypeError for a field that is not there, or a value that does not fit it."""
        out = cls()
        names = [entry[0] for entry in cls._fields_]
        if names[0] == "size":
            out.size = ctypes.sizeof(cls)
        for name, default in cls._defaults_.items():
            setattr(out, name, default.new() if isinstance(default, type) and issubclass(default, Struct) else default)
        for name, value in fields.items():
            if name not in names:
                raise TypeError(f"{cls.__name__} has no field {name!r}")
            setattr(out, name, value.encode() if isinstance(value, str) else value)
        return out


class Error(Struct):
    _fields_ = _fields(code=c_int32, os_errno=c_int32, offset_bytes=c_uint64, message=c_char * 1024)

    @property
    def text(self) -> str:
        """The sentence."""
        return bytes(self.message).decode("utf-8", "replace")


class Layout(Struct):
    _fields_ = _fields(ndim=c_int32, reserved=c_int32, shape=c_int64 * DIMS_MAX, strides=c_int64 * DIMS_MAX)


class View(Struct):
    _fields_ = _fields(data=c_void_p, count=c_uint64, dtype=c_int32, site=c_uint32, layout=ctypes.POINTER(Layout), device=c_int32,
                       flags=c_uint32, stream=c_void_p, reserved=c_uint64 * 2)
    _defaults_ = {"device": -1}


class ScanResult(Struct):
    _fields_ = _fields(size=c_uint32, dtype=c_int32, elements=c_uint64, nan=c_uint64, pos_inf=c_uint64, neg_inf=c_uint64,
                       zero=c_uint64, subnormal=c_uint64, at_max=c_uint64, first_index=c_uint64, first_bits=c_uint64,
                       first_kind=c_int32, checked=c_int32, abs_min=c_double, abs_max=c_double, sum_sq=c_double,
                       sum_sq_exponent=c_int32, reserved=c_int32)


class ScalerConfig(Struct):
    _fields_ = _fields(size=c_uint32, enabled=c_int32, init_scale=c_double, growth_factor=c_double, backoff_factor=c_double,
                       growth_interval=c_int32, hysteresis=c_int32, scale_min=c_double)
    _defaults_ = {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "hysteresis": 1}


class Pair(Struct):
    _fields_ = _fields(key=c_char_p, value=c_char_p)


class RunConfig(Struct):
    _fields_ = _fields(size=c_uint32, rank=c_int32, world=c_int32, dp_rank=c_int32, tp_rank=c_int32, pp_rank=c_int32,
                       device=c_int32, attempt=c_int32, dir=c_char_p, run_id=c_char_p, host=c_char_p, precision=c_char_p,
                       on_bad=c_int32, max_skips=c_int32, agreement=c_int32, threads=c_int32, scaler=ScalerConfig,
                       meta=ctypes.POINTER(Pair), meta_count=c_uint64, inject=c_char_p, sites_max=c_uint64,
                       findings_max=c_uint64, replicated=c_int32, replica_period=c_int32)
    _defaults_ = {"world": 1, "dp_rank": -1, "tp_rank": -1, "pp_rank": -1, "device": -1, "attempt": 1, "on_bad": ON_BAD_SKIP,
                  "max_skips": 3, "agreement": AGREE_VOTE, "threads": 1, "scaler": ScalerConfig, "replica_period": 100}


class ScalerState(Struct):
    _fields_ = _fields(scale=c_double, growth_tracker=c_int32, hysteresis_left=c_int32)


class Site(Struct):
    _fields_ = _fields(size=c_uint32, role=c_int32, module=c_char_p, tensor=c_char_p, group=c_char_p, bucket=c_int32,
                       domain=c_int32, position=c_int64, legal=c_uint32, ndim=c_int32, shape=c_int64 * DIMS_MAX)
    _defaults_ = {"bucket": -1, "position": -1}


class Step(Struct):
    _fields_ = _fields(size=c_uint32, known=c_uint32, step=c_int64, micro_steps=c_int32, reserved=c_int32,
                       global_batch_id=c_int64, sample_ids=ctypes.POINTER(c_int64), sample_count=c_uint64,
                       learning_rate=c_double, loss_scale=c_double, batch_fingerprint=c_uint64, rng_state_hash=c_uint64,
                       checkpoint_parent=c_int64)
    _defaults_ = {"micro_steps": 1}


class Tokens(Struct):
    _fields_ = _fields(size=c_uint32, site=c_uint32, rows=c_uint64, cols=c_uint64, tokens=c_void_p, labels=c_void_p,
                       positions=c_void_p, mask=c_void_p, weights=c_void_p, lengths=ctypes.POINTER(c_int64),
                       token_dtype=c_int32, label_dtype=c_int32, position_dtype=c_int32, mask_dtype=c_int32,
                       weight_dtype=c_int32, weight_site=c_uint32, vocab=c_int64, classes=c_int64, ignore_index=c_int64,
                       positions_max=c_int64, length_min=c_int64, length_max=c_int64, valid_tokens=c_int64)
    _defaults_ = {"token_dtype": I32, "label_dtype": I32, "position_dtype": I32, "mask_dtype": BOOL, "weight_dtype": F32,
                  "weight_site": UINT32_MAX, "ignore_index": -100, "length_min": 1, "length_max": INT64_MAX,
                  "valid_tokens": -1}


class Finding(Struct):
    _fields_ = _fields(size=c_uint32, site=c_uint32, boundary=c_int32, micro_step=c_int32, kind=c_int32, field=c_int32,
                       count=c_uint64, first_index=c_uint64, value=c_int64, low=c_int64, high=c_int64, stats=ScanResult)
    _defaults_ = {"stats": ScanResult}


class Verdict(Struct):
    _fields_ = _fields(size=c_uint32, action=c_int32, agreement=c_int32, unanimous=c_int32, clean=c_int32, fault=c_int32,
                       first_rank=c_int32, first_boundary=c_int32, first_micro_step=c_int32, consecutive_skips=c_int32,
                       first_position=c_int64, local_findings=c_uint64, step=c_int64, case_id=c_char * 32)


class StepResult(Struct):
    _fields_ = _fields(size=c_uint32, known=c_uint32, loss=c_double, grad_norm=c_double)


class CheckpointResult(Struct):
    _fields_ = _fields(size=c_uint32, state=c_int32, status=c_int32, again=c_int32, first_kind=c_int32, reserved=c_int32,
                       step=c_int64, bytes=c_uint64, elements=c_uint64, bad=c_uint64, digest=c_uint64, first_index=c_uint64,
                       first_bits=c_uint64, tensor=c_char * 256, reason=c_char * 512, path=c_char * 4096)


class SaveResult(Struct):
    _fields_ = _fields(size=c_uint32, first_site=c_uint32, tensors=c_uint64, elements=c_uint64, passed_over=c_uint64,
                       bad=c_uint64, bad_tensors=c_uint64, first_index=c_uint64, first_bits=c_uint64, first_kind=c_int32,
                       reserved=c_int32, first_tensor=c_char * 256)
    _defaults_ = {"first_site": UINT32_MAX}


class ScanOptions(Struct):
    _fields_ = _fields(size=c_uint32, threads=c_int32, histogram=c_int32, reserved=c_int32)


class Histogram(Struct):
    _fields_ = _fields(size=c_uint32, mode=c_int32, scale=c_uint64, counted=c_uint64, bins=c_uint64 * 256)


class MeasureResult(Struct):
    _fields_ = _fields(size=c_uint32, dtype=c_int32, elements=c_uint64, bad=c_uint64, first_view=c_uint64,
                       first_index=c_uint64, first_bits=c_uint64, first_kind=c_int32, checked=c_int32, source_bad=c_uint64,
                       source_first_index=c_uint64, source_first_view=c_uint64, abs_max=c_double, sum_sq=c_double,
                       sum_sq_exponent=c_int32, reserved=c_int32)


class CkptResult(Struct):
    _fields_ = _fields(size=c_uint32, outcome=c_int32, files=c_uint64, tensors=c_uint64, elements=c_uint64, bytes=c_uint64,
                       checked=c_uint64, unscanned=c_uint64, bad=c_uint64, bad_tensors=c_uint64, digest=c_uint64,
                       first_index=c_uint64, first_bits=c_uint64, step=c_int64, first_kind=c_int32, reserved=c_int32,
                       first_tensor=c_char * 1024, first_file=c_char * 1024, format=c_char * 64, reason=c_char * 1024)


class BundleConfig(Struct):
    _fields_ = _fields(size=c_uint32, rank=c_int32, world=c_int32, folder=c_char_p, run_id=c_char_p, case_id=c_char_p,
                       step=c_int64, bytes_max=c_uint64)
    _defaults_ = {"world": 1}


class ReplayWanted(Struct):
    _fields_ = _fields(size=c_uint32, parts=c_uint32, times=c_uint32, strategy=c_int32, probes_max=c_uint32,
                       reserved=c_uint32, bundle=c_char * 4096, out=c_char * 4096)


class TapeValue(Struct):
    _fields_ = _fields(size=c_uint32, flags=c_uint32, module=c_char_p, name=c_char_p, data=c_void_p, count=c_uint64,
                       dtype=c_int32, format=c_int32, ndim=c_int32, reserved=c_int32, shape=c_int64 * DIMS_MAX)


class TapeAttribute(Struct):
    _fields_ = _fields(name=c_char_p, value=c_double)


class TapeOp(Struct):
    _fields_ = _fields(size=c_uint32, flags=c_uint32, op=c_char_p, module=c_char_p, source=c_char_p, boundary=c_int32,
                       micro_step=c_int32, token=c_uint32, input_count=c_uint32, output_count=c_uint32,
                       attribute_count=c_uint32, inputs=ctypes.POINTER(c_uint32), outputs=ctypes.POINTER(TapeValue),
                       output_ids=ctypes.POINTER(c_uint32), attributes=ctypes.POINTER(TapeAttribute), node=c_char_p)
    _defaults_ = {"boundary": FORWARD}


class ReplayRequest(Struct):
    _fields_ = _fields(size=c_uint32, purpose=c_int32, number=c_uint32, as_rank=c_int32, precision=c_char_p,
                       rows=ctypes.POINTER(c_uint32), row_count=c_uint32, column_count=c_uint32, keep=ctypes.POINTER(c_uint8),
                       rows_rank=c_int32)


class Rerun(Struct):
    _fields_ = _fields(size=c_uint32, token=c_uint32, input_count=c_uint32, output_count=c_uint32,
                       inputs=ctypes.POINTER(ctypes.POINTER(c_double)), input_counts=ctypes.POINTER(c_uint64),
                       outputs=ctypes.POINTER(ctypes.POINTER(c_double)), output_counts=ctypes.POINTER(c_uint64),
                       attributes=ctypes.POINTER(TapeAttribute), attribute_count=c_uint32)


# Callbacks: keep the object alive as long as C may call it; an exception must not leave it (ctypes would print and drop it).
REPLAY_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, ctypes.POINTER(ReplayRequest), ctypes.POINTER(Error))
RERUN_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, ctypes.POINTER(Rerun), ctypes.POINTER(Error))
REDUCE_MAX_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, ctypes.POINTER(c_int32), ctypes.c_size_t, ctypes.POINTER(Error))


class LocateConfig(Struct):
    _fields_ = _fields(size=c_uint32, parts=c_uint32, rank=c_int32, world=c_int32, finding_rank=c_int32,
                       finding_boundary=c_int32, finding_micro_step=c_int32, finding_kind=c_int32, finding_module=c_char_p,
                       finding_tensor=c_char_p, strategy=c_int32, probes_max=c_uint32, replays_max=c_uint32, times=c_uint32,
                       tests_max=c_uint32, evidence_bytes_max=c_uint64, folder=c_char_p, precision=c_char_p, rows=c_uint32,
                       columns=c_uint32, sample_ids=ctypes.POINTER(c_int64), step=c_int64, first_step_of_attempt=c_int32,
                       reserved=c_uint32, ctx=c_void_p, replay=REPLAY_FN, rerun=RERUN_FN, max=REDUCE_MAX_FN,
                       differences=ctypes.POINTER(c_char_p), difference_count=c_uint32, finding_injected=c_int32,
                       run_id=c_char_p, case_id=c_char_p)
    _defaults_ = {"world": 1}


class LocateResult(Struct):
    _fields_ = _fields(size=c_uint32, found=c_int32, rule=c_int32, owner=c_int32, boundary=c_int32, micro_step=c_int32,
                       persists=c_int32, faithful=c_int32, reproduced=c_uint32, tried=c_uint32, candidates=c_uint32,
                       replays=c_uint32, search_replays=c_uint32, rows_needed=c_uint32, tokens_needed=c_uint32,
                       other_ranks_bad=c_uint32, other_ranks_tried=c_uint32, rows_alone=c_int32, nanoseconds=c_uint64,
                       module=c_char * 128, op=c_char * 64, tensor=c_char * 128, source=c_char * 256, cause_class=c_char * 48,
                       sentence=c_char * 1024, rows=ctypes.POINTER(c_uint32), keep=ctypes.POINTER(c_uint8),
                       rows_rank=c_int32, later=c_uint32, node=c_char * 64)
    _defaults_ = {"owner": -1, "persists": -1, "rows_rank": -1}


class LocateWords(Struct):
    _fields_ = _fields(size=c_uint32, rank=c_int32, headline=c_char_p, spread=c_char_p, next=c_char_p, case_line=c_char_p,
                       seconds=c_double)
