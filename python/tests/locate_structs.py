"""firstbad/locate.h for ctypes: its numbers, its structs, and the library. Called as any program without our headers would."""
import ctypes

import torch

STATE, MASK, BATCH, SCALAR = 1, 2, 4, 8
ENTRY, INPUT, FORWARD, LOSS, LOCAL_GRAD, UPDATE = 1, 2, 3, 4, 5, 7
SWEEP, BISECT = 0, 1
OK, E_USAGE, E_UNSUPPORTED = 0, -1, -8
AGAIN, PRECISION, OTHER, SMALLER = 1, 2, 3, 4
FOUND = ("nothing", "operator", "set", "interval", "entry", "not_reproduced", "not_steady", "undecided")
RULES = ("none", "range", "rounding", "rounding_upstream", "domain", "state", "batch", "not_reproducible")
DTYPES = {torch.float64: 1, torch.float32: 2, torch.float16: 3, torch.bfloat16: 4, torch.complex64: 10, torch.complex128: 11,
          torch.int8: 16, torch.uint8: 17, torch.int16: 18, torch.int32: 20, torch.int64: 22, torch.bool: 24}


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("os_errno", ctypes.c_int32), ("offset_bytes", ctypes.c_uint64),
                ("message", ctypes.c_char * 1024)]


class Value(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("module", ctypes.c_char_p), ("name", ctypes.c_char_p),
                ("data", ctypes.c_void_p), ("count", ctypes.c_uint64), ("dtype", ctypes.c_int32), ("format", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("reserved", ctypes.c_int32), ("shape", ctypes.c_int64 * 8)]


class Attribute(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


class Op(ctypes.Structure):
    _fields_ = ([("size", ctypes.c_uint32), ("flags", ctypes.c_uint32)]
                + [(name, ctypes.c_char_p) for name in ("op", "module", "source")]
                + [("boundary", ctypes.c_int32), ("micro_step", ctypes.c_int32)]
                + [(name, ctypes.c_uint32) for name in ("token", "input_count", "output_count", "attribute_count")]
                + [("inputs", ctypes.POINTER(ctypes.c_uint32)), ("outputs", ctypes.POINTER(Value)),
                   ("output_ids", ctypes.POINTER(ctypes.c_uint32)), ("attributes", ctypes.POINTER(Attribute)),
                   ("node", ctypes.c_char_p)])


class Request(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("purpose", ctypes.c_int32), ("number", ctypes.c_uint32), ("as_rank", ctypes.c_int32),
                ("precision", ctypes.c_char_p), ("rows", ctypes.POINTER(ctypes.c_uint32)), ("row_count", ctypes.c_uint32),
                ("column_count", ctypes.c_uint32), ("keep", ctypes.POINTER(ctypes.c_uint8)), ("rows_rank", ctypes.c_int32)]


class Rerun(ctypes.Structure):
    _fields_ = ([(name, ctypes.c_uint32) for name in ("size", "token", "input_count", "output_count")]
                + [("inputs", ctypes.POINTER(ctypes.POINTER(ctypes.c_double))), ("input_counts", ctypes.POINTER(ctypes.c_uint64)),
                   ("outputs", ctypes.POINTER(ctypes.POINTER(ctypes.c_double))), ("output_counts", ctypes.POINTER(ctypes.c_uint64)),
                   ("attributes", ctypes.POINTER(Attribute)), ("attribute_count", ctypes.c_uint32)])


REPLAY_FN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(Request), ctypes.POINTER(Error))
RERUN_FN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Rerun), ctypes.POINTER(Error))


class Config(ctypes.Structure):
    _fields_ = ([("size", ctypes.c_uint32), ("parts", ctypes.c_uint32)]
                + [(name, ctypes.c_int32) for name in ("rank", "world", "finding_rank", "finding_boundary", "finding_micro_step",
                                                       "finding_kind")]
                + [("finding_module", ctypes.c_char_p), ("finding_tensor", ctypes.c_char_p), ("strategy", ctypes.c_int32)]
                + [(name, ctypes.c_uint32) for name in ("probes_max", "replays_max", "times", "tests_max")]
                + [("evidence_bytes_max", ctypes.c_uint64), ("folder", ctypes.c_char_p), ("precision", ctypes.c_char_p),
                   ("rows", ctypes.c_uint32), ("columns", ctypes.c_uint32), ("sample_ids", ctypes.c_void_p),
                   ("step", ctypes.c_int64), ("first_step_of_attempt", ctypes.c_int32), ("reserved", ctypes.c_uint32),
                   ("ctx", ctypes.c_void_p), ("replay", REPLAY_FN), ("rerun", RERUN_FN), ("max", ctypes.c_void_p),
                   ("differences", ctypes.c_void_p), ("difference_count", ctypes.c_uint32), ("finding_injected", ctypes.c_int32),
                   ("run_id", ctypes.c_char_p), ("case_id", ctypes.c_char_p)])


class Result(ctypes.Structure):
    _fields_ = ([("size", ctypes.c_uint32)]
                + [(name, ctypes.c_int32) for name in ("found", "rule", "owner", "boundary", "micro_step", "persists", "faithful")]
                + [(name, ctypes.c_uint32) for name in ("reproduced", "tried", "candidates", "replays", "search_replays",
                                                        "rows_needed", "tokens_needed", "other_ranks_bad", "other_ranks_tried")]
                + [("rows_alone", ctypes.c_int32)]
                + [("nanoseconds", ctypes.c_uint64), ("module", ctypes.c_char * 128), ("op", ctypes.c_char * 64),
                   ("tensor", ctypes.c_char * 128), ("source", ctypes.c_char * 256), ("cause_class", ctypes.c_char * 48),
                   ("sentence", ctypes.c_char * 1024), ("rows", ctypes.POINTER(ctypes.c_uint32)),
                   ("keep", ctypes.POINTER(ctypes.c_uint8)), ("rows_rank", ctypes.c_int32), ("later", ctypes.c_uint32),
                   ("node", ctypes.c_char * 64)])


def load(path):
    lib = ctypes.CDLL(str(path))
    lib.fb_tape_entry.argtypes = [ctypes.c_void_p, ctypes.POINTER(Value), ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(Error)]
    lib.fb_tape_op_ran.argtypes = [ctypes.c_void_p, ctypes.POINTER(Op), ctypes.POINTER(Error)]
    return lib
