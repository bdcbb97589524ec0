"""The package as such: lazy, typed, for Python 3.9 and newer, of one version; runs and checkpoints read without torch."""
from __future__ import annotations

import glob
import importlib.util
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import pytest

import firstbad
from firstbad import FirstbadError, LibraryError, LoadRefused, _cli

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "firstbad"
BUILD = pathlib.Path(os.environ.get("FIRSTBAD_BUILD", ROOT / "build"))
WITHOUT_TORCH = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem not in ("__init__", "__main__"))


def python(code, interpreter=sys.executable, **env):
    full = dict(os.environ, PYTHONPATH=str(ROOT / "python"), PYTHONDONTWRITEBYTECODE="1", **env)
    return subprocess.run([str(interpreter), "-c", code], env=full, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def make_run(folder, run_id, scenario):
    tool = BUILD / "tests" / "make-run"
    if not tool.exists():
        pytest.skip(f"{tool} is not built")
    subprocess.run([str(tool), str(folder), run_id, scenario], check=True, stdout=subprocess.DEVNULL)


# ---- importing ---------------------------------------------------------------------------------------------------------------------

def test_import__brings_nothing_with_it():
    code = ("import sys; before = set(sys.modules); import firstbad\n"
            "print(sorted(m for m in set(sys.modules) - before if not m.startswith(('firstbad', '_'))))")
    done = python(code)
    modules = set(eval(done.stdout))  # our own output
    assert not {"torch", "numpy", "ctypes", "json", "subprocess", "dataclasses", "importlib.util", "inspect"} & modules, modules
    # typing is the heaviest of what is left, and Python's own start often has it already.
    assert len(modules) < 40, modules


def test_import__every_public_name_is_there_and_no_other():
    for name in firstbad.__all__:
        assert getattr(firstbad, name) is not None and name in dir(firstbad)
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        firstbad.chekc


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_import__all_that_needs_no_torch_on_other_pythons(version):
    places = [*glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python")), shutil.which(f"python{version}")]
    found = next((place for place in places if place and subprocess.run([place, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0), None)
    if not found:
        pytest.skip(f"there is no Python {version}")
    code = f"import importlib, firstbad\nfor m in {WITHOUT_TORCH}: importlib.import_module('firstbad.' + m)\n" \
           "assert firstbad.check([1.0]).finite\nprint('fine')"
    done = python(code, found)
    assert done.stdout == b"fine\n", done.stderr.decode()
    # What needs torch must at least be readable to it.
    files = [str(path) for path in PACKAGE.rglob("*.py")]
    done = python(f"import ast, sys\nfor f in {files}: ast.parse(open(f, encoding='utf-8').read(), f)", found)
    assert done.returncode == 0, done.stderr.decode()


def test_package__is_typed_strictly():
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    done = subprocess.run([sys.executable, "-m", "mypy", "--no-incremental", "--cache-dir", os.devnull], cwd=str(ROOT), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout.decode()


def test_package__all_say_the_same_version():
    header = re.search(r'FB_VERSION_TEXT "(.*)"', (ROOT / "include/firstbad/firstbad.h").read_text()).group(1)
    project = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M).group(1)
    from firstbad import _native

    assert firstbad.__version__ == header == project == _native.text(_native.lib().fb_version())


def test_package__files_stay_short():
    assert {path: n for path in PACKAGE.rglob("*.py") for n in [len(path.read_text().splitlines())] if n > 500} == {}


# ---- the console script ------------------------------------------------------------------------------------------------------------

def test_cli__becomes_the_tool_and_passes_words_and_exit_code_on():
    env = {"FIRSTBAD_BUILD": str(BUILD)}
    done = python("from firstbad._cli import main; main(['--version'])", **env)
    assert done.stdout.decode().strip() == f"firstbad {firstbad.__version__}", done.stderr.decode()
    assert python("from firstbad._cli import main; main(['scan', '/no/such/file'])", **env).returncode == 3


def test_cli__imports_no_more_than_python_itself():
    code = ("import os, sys\nos.execv = lambda path, words: print(sorted({'torch', 'ctypes', 'json', 'subprocess', 'numpy'} & set(sys.modules)))\n"
            "from firstbad import _cli\n_cli.main(['--version'])")
    assert python(code, FIRSTBAD_BUILD=str(BUILD)).stdout.decode().strip() == "[]"


def test_cli__never_becomes_itself(tmp_path, monkeypatch):
    script = tmp_path / "firstbad"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    monkeypatch.setenv("FIRSTBAD_BUILD", str(tmp_path))
    assert _cli.executable() != str(script)


def test_cli__says_where_it_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(_cli, "executable", lambda: None)
    with pytest.raises(SystemExit) as ended:
        _cli.main([])
    assert ended.value.code == 3 and "not part of this installation" in capsys.readouterr().err


# ---- runs --------------------------------------------------------------------------------------------------------------------------

def test_runs__why_and_ledger_are_what_the_tool_says(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTBAD_BUILD", str(BUILD))
    make_run(tmp_path, "good", "clean")
    make_run(tmp_path, "bad", "grad-nan")
    assert firstbad.why("good", runs_dir=tmp_path)["status"] == "clean"
    answer = firstbad.why(tmp_path / "bad")
    assert (answer["status"], answer["case"]["step"]) == ("case", 3)
    assert firstbad.why(tmp_path / "bad" / "cases" / "a1-000003")["case"]["id"] == "a1-000003"
    rows = list(firstbad.ledger("bad", runs_dir=tmp_path))
    done = subprocess.run([str(BUILD / "firstbad"), "export", "--jsonl", "-", str(tmp_path / "bad")], stdout=subprocess.PIPE, check=True)
    assert rows == [json.loads(line) for line in done.stdout.splitlines()] and {row["table"] for row in rows} >= {"findings", "steps"}
    assert list(firstbad.ledger("bad", attempt=1, runs_dir=tmp_path)) == rows
    with pytest.raises(FirstbadError, match="no-such-run"):
        firstbad.why("no-such-run", runs_dir=tmp_path)
    with pytest.raises(FirstbadError, match="no-such-run"):
        list(firstbad.ledger("no-such-run", runs_dir=tmp_path))


def test_runs__a_ledger_may_be_left_half_read(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTBAD_BUILD", str(BUILD))
    make_run(tmp_path, "good", "clean")
    rows = firstbad.ledger("good", runs_dir=tmp_path)
    assert "table" in next(rows)
    rows.close()


# ---- checkpoints -------------------------------------------------------------------------------------------------------------------

def safetensors(path, values):
    data = struct.pack(f"<{len(values)}f", *values)
    header = json.dumps({"w": {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def test_checkpoints__a_scan_tells_what_is_in_a_file(tmp_path):
    report = firstbad.scan_checkpoint(safetensors(tmp_path / "a.safetensors", [1.0, 2.0]))
    assert (report.outcome, report.finite, report.tensors, report.elements, report.bad, report.first_index) == ("clean", True, 1, 2, 0, None)
    report = firstbad.scan_checkpoint(safetensors(tmp_path / "b.safetensors", [1.0, float("-inf"), float("nan")]))
    assert (report.outcome, report.finite, report.bad, report.first_tensor) == ("non_finite", False, 2, "w")
    assert (report.first_index, report.first_kind) == (1, "-Inf")
    (tmp_path / "c.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{")
    report = firstbad.scan_checkpoint(tmp_path / "c.safetensors")
    assert report.outcome == "unreadable" and report.reason
    with pytest.raises(LibraryError):
        firstbad.scan_checkpoint(tmp_path / "none")


def test_checkpoints__a_bad_one_is_refused_and_a_finite_one_that_nobody_vouches_for_is_suspect(tmp_path):
    good, bad = safetensors(tmp_path / "good.safetensors", [1.0]), safetensors(tmp_path / "bad.safetensors", [float("nan")])
    assert firstbad.may_load(good, runs_dir=tmp_path / "runs") == "suspect"
    with pytest.raises(LoadRefused, match="bad.safetensors"):
        firstbad.may_load(bad, runs_dir=tmp_path / "runs")
    with pytest.raises(LibraryError):
        firstbad.may_load(tmp_path / "none", runs_dir=tmp_path / "runs")
    with pytest.raises(LibraryError) as why:
        firstbad.latest_committed(tmp_path)
    assert why.value.sentence


def test_checkpoints__the_latest_committed_one_is_given(tmp_path, monkeypatch):
    import ctypes

    from firstbad import _abi, _native

    for name in [name for name in os.environ if name.startswith("FIRSTBAD_") and name not in ("FIRSTBAD_BUILD", "FIRSTBAD_LIBRARY")]:
        monkeypatch.delenv(name)
    lib, run = _native.lib(), ctypes.c_void_p()
    config = _abi.RunConfig.new(dir=str(tmp_path / "runs"), run_id="r")
    _native.call(lib.fb_run_open_alone, ctypes.byref(run), ctypes.byref(config))
    memory = (ctypes.c_float * 2)(1.0, 2.0)
    view = _abi.View.new(data=ctypes.addressof(memory), count=2, dtype=_abi.F32)
    try:
        _native.call(lib.fb_run_name_view, run, _abi.ROLE_GRADIENT, b"", b"w.grad", ctypes.byref(view))
        for step in range(3):
            _native.call(lib.fb_step_begin, run, ctypes.byref(_abi.Step.new(step=step)))
            _native.call(lib.fb_step_check, run, _abi.LOCAL_GRAD, ctypes.byref(view), 1)
            _native.call(lib.fb_step_vote_alone, run, ctypes.byref(_abi.Verdict.new()))
            _native.call(lib.fb_step_apply, run)
            _native.call(lib.fb_step_end, run, ctypes.byref(_abi.StepResult.new()))
        path = safetensors(tmp_path / "ckpt-2.safetensors", [1.0, 2.0])
        state = ctypes.c_int32()
        _native.call(lib.fb_run_checkpoint, run, os.fsencode(path), 2, ctypes.byref(state))
    finally:
        lib.fb_run_close(run)
    assert state.value == _abi.CKPT_COMMITTED
    assert firstbad.latest_committed(tmp_path) == str(path)
    assert firstbad.may_load(path, runs_dir=tmp_path / "runs") == "committed"
    # Other bytes of the same size under its name: finite, and not what was committed.
    safetensors(path, [1.0, 3.0])
    for read in (False, True):
        assert firstbad.may_load(path, runs_dir=tmp_path / "runs", read=read) == "suspect"
