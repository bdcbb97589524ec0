"""What each function of the public headers takes and returns, for ctypes. python/tests/test_abi.py sees that none is missing."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, Tuple

from . import _abi as abi

_err = POINTER(abi.Error)
_run = c_void_p
_bundle = c_void_p
_handle_out = POINTER(c_void_p)
_views = POINTER(abi.View)
_words = POINTER(c_int64)
_options = POINTER(abi.ScanOptions)

# name: (result, arguments). A result of c_int32 with a last argument of _err is a status: firstbad._native.call raises for it.
PROTOTYPES: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    # firstbad.h
    "fb_status_name": (c_char_p, (c_int32,)),
    "fb_abi_version": (c_uint32, ()),
    "fb_version": (c_char_p, ()),
    "fb_dtype_name": (c_char_p, (c_int32,)),
    "fb_dtype_bytes": (c_uint64, (c_int32, c_uint64)),
    "fb_scan": (c_int32, (_views, POINTER(abi.ScanResult), _err)),
    "fb_scan_norm": (c_double, (POINTER(abi.ScanResult),)),
    "fb_run_open": (c_int32, (_handle_out, POINTER(abi.RunConfig), _err)),
    "fb_run_open_alone": (c_int32, (_handle_out, POINTER(abi.RunConfig), _err)),
    "fb_run_next_attempt": (c_int32, (c_char_p, c_char_p, POINTER(c_int32), _err)),
    "fb_run_new_id": (c_int32, (ctypes.c_char * 64,)),
    "fb_run_close": (None, (_run,)),
    "fb_run_evidence_lost": (c_uint64, (_run, _err)),
    "fb_run_folder": (c_char_p, (_run,)),
    "fb_run_left_out": (c_int, (_run, c_int64)),
    "fb_run_note_replay": (c_int32, (_run, c_int32, _err)),
    "fb_run_note_located": (c_int32, (_run, c_char_p, c_char_p, _err)),
    "fb_run_not_covered": (c_int32, (_run, c_char_p, _err)),
    "fb_run_loss_scale": (c_double, (_run,)),
    "fb_run_scaler_get": (c_int32, (_run, POINTER(abi.ScalerState), _err)),
    "fb_run_scaler_set": (c_int32, (_run, POINTER(abi.ScalerState), _err)),
    "fb_run_add_site": (c_int32, (_run, POINTER(abi.Site), POINTER(c_uint32), _err)),
    "fb_run_name_view": (c_int32, (_run, c_int32, c_char_p, c_char_p, _views, _err)),
    "fb_run_own": (c_int32, (_run, _views, c_size_t, _err)),
    "fb_step_begin": (c_int32, (_run, POINTER(abi.Step), _err)),
    "fb_step_micro": (c_int32, (_run, c_int32, _err)),
    "fb_step_check": (c_int32, (_run, c_int32, _views, c_size_t, _err)),
    "fb_step_check_sampled": (c_int32, (_run, c_int32, _views, c_size_t, c_int32, _err)),
    "fb_step_looked": (c_int32, (_run, c_int32, _views, c_size_t, _err)),
    "fb_step_check_tokens": (c_int32, (_run, POINTER(abi.Tokens), _err)),
    "fb_step_report": (c_int32, (_run, POINTER(abi.Finding), c_size_t, _err)),
    "fb_step_findings": (c_uint64, (_run,)),
    "fb_step_ballot": (c_int32, (_run, _words, _err)),
    "fb_step_settle": (c_int32, (_run, _words, POINTER(abi.Verdict), _err)),
    "fb_step_vote_alone": (c_int32, (_run, POINTER(abi.Verdict), _err)),
    "fb_step_unscale": (c_int32, (_run, _views, c_size_t, c_double, POINTER(c_double), _err)),
    "fb_step_apply": (c_int32, (_run, _err)),
    "fb_step_end": (c_int32, (_run, POINTER(abi.StepResult), _err)),
    "fb_step_abandon": (c_int32, (_run, _err)),
    "fb_step_forget": (c_int32, (_run, _err)),
    "fb_run_checkpoint": (c_int32, (_run, c_char_p, c_int64, POINTER(c_int32), _err)),
    "fb_run_checkpoint_begin": (c_int32, (_run, c_char_p, c_int64, _err)),
    "fb_run_checkpoint_verify": (c_int32, (_run, c_char_p, c_int64, _err)),
    "fb_run_checkpoint_poll": (c_int32, (_run, POINTER(abi.CheckpointResult), _err)),
    "fb_run_checkpoint_wait": (c_int32, (_run, c_int64, _err)),
    "fb_run_save_gate": (c_int32, (_run, c_int64, _views, c_size_t, POINTER(abi.SaveResult), _err)),
    # scan.h
    "fb_scan_first": (c_int32, (_views, POINTER(c_uint64), _err)),
    "fb_scan_first_with": (c_int32, (_views, _options, POINTER(c_uint64), _err)),
    "fb_scan_with": (c_int32, (_views, _options, POINTER(abi.ScanResult), POINTER(abi.Histogram), _err)),
    "fb_measure_norm": (c_double, (POINTER(abi.MeasureResult),)),
    "fb_measure": (c_int32, (_views, c_size_t, c_double, _options, POINTER(abi.MeasureResult), POINTER(abi.MeasureResult), _err)),
    "fb_unscale": (c_int32, (_views, _views, c_double, _options, POINTER(abi.MeasureResult), _err)),
    "fb_unscale_many": (c_int32, (_views, _views, c_size_t, c_double, _options, POINTER(abi.MeasureResult),
                                  POINTER(abi.MeasureResult), _err)),
    "fb_scan_kernel": (c_char_p, ()),
    "fb_scan_kernel_use": (c_int32, (c_char_p, _err)),
    "fb_scan_selftest": (c_int32, (_err,)),
    # ckpt.h
    "fb_ckpt_scan": (c_int32, (c_char_p, c_uint32, POINTER(abi.CkptResult), _err)),
    "fb_ckpt_may_load": (c_int32, (c_char_p, c_char_p, c_int32, POINTER(c_int32), _err)),
    "fb_ckpt_latest": (c_int32, (c_char_p, ctypes.c_void_p, POINTER(c_size_t), _err)),
    # bundle.h
    "fb_bundle_create": (c_int32, (_handle_out, POINTER(abi.BundleConfig), _err)),
    "fb_bundle_put": (c_int32, (_bundle, c_int32, c_char_p, c_int32, c_int32, _words, c_void_p, _err)),
    "fb_bundle_set_number": (c_int32, (_bundle, c_char_p, c_double, _err)),
    "fb_bundle_set_integer": (c_int32, (_bundle, c_char_p, c_int64, _err)),
    "fb_bundle_set_text": (c_int32, (_bundle, c_char_p, c_char_p, _err)),
    "fb_bundle_set_parent": (c_int32, (_bundle, c_char_p, c_int64, c_int32, _err)),
    "fb_bundle_set_command": (c_int32, (_bundle, POINTER(c_char_p), c_char_p, _err)),
    "fb_bundle_finish": (c_int32, (_bundle, _err)),
    "fb_bundle_abandon": (None, (_bundle,)),
    "fb_bundle_seal": (c_int32, (c_char_p, c_int32, _err)),
    "fb_bundle_open": (c_int32, (_handle_out, c_char_p, _err)),
    "fb_bundle_world": (c_int32, (_bundle,)),
    "fb_bundle_step": (c_int64, (_bundle,)),
    "fb_bundle_folder": (c_char_p, (_bundle,)),
    "fb_bundle_find": (c_int32, (_bundle, c_int32, c_int32, c_char_p, POINTER(c_int32), POINTER(c_int32), _words,
                                 POINTER(c_uint64), _err)),
    "fb_bundle_get": (c_int32, (_bundle, c_int32, c_int32, c_char_p, c_int32, c_uint64, c_void_p, _err)),
    "fb_bundle_number": (c_int32, (_bundle, c_int32, c_char_p, POINTER(c_double), _err)),
    "fb_bundle_integer": (c_int32, (_bundle, c_int32, c_char_p, _words, _err)),
    "fb_bundle_text": (c_char_p, (_bundle, c_int32, c_char_p)),
    "fb_bundle_run_id": (c_char_p, (_bundle,)),
    "fb_bundle_case_id": (c_char_p, (_bundle,)),
    "fb_bundle_has_rank": (c_int, (_bundle, c_int32)),
    "fb_bundle_command": (POINTER(c_char_p), (_bundle, POINTER(c_char_p))),
    "fb_bundle_left_out": (c_int32, (_bundle, c_int32, c_uint32, POINTER(c_int32), POINTER(c_char_p), POINTER(c_uint64), _err)),
    "fb_bundle_samples": (c_int32, (_bundle, _words, c_size_t, POINTER(c_size_t), _err)),
    "fb_bundle_parent": (c_int32, (_bundle, POINTER(c_char_p), _words, POINTER(c_int32), _err)),
    "fb_bundle_close": (None, (_bundle,)),
    "fb_replay_asked": (c_int32, (POINTER(abi.ReplayWanted), _err)),
    # locate.h
    "fb_tape_entry": (c_int32, (c_void_p, POINTER(abi.TapeValue), POINTER(c_uint32), _err)),
    "fb_tape_op_ran": (c_int32, (c_void_p, POINTER(abi.TapeOp), _err)),
    "fb_tape_done": (c_int, (c_void_p,)),
    "fb_locate_run": (c_int32, (POINTER(abi.LocateConfig), POINTER(abi.LocateResult), _err)),
    "fb_locate_release": (None, (POINTER(abi.LocateResult),)),
    "fb_locate_text": (c_int32, (POINTER(abi.LocateConfig), POINTER(abi.LocateResult), POINTER(abi.LocateWords), c_void_p,
                                 POINTER(c_size_t), _err)),
}
