"""firstbad._abi and firstbad._prototypes against the C compiler and the public headers."""
from __future__ import annotations

import ctypes
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
HEADERS = ("firstbad", "scan", "locate", "bundle", "ckpt")

import firstbad._abi as abi  # noqa: E402
from firstbad._prototypes import PROTOTYPES  # noqa: E402

STRUCTS = [value for value in vars(abi).values() if isinstance(value, type) and issubclass(value, abi.Struct) and value is not abi.Struct]
HEADER_TEXT = "\n".join((INCLUDE / "firstbad" / f"{name}.h").read_text() for name in HEADERS)
NOT_OURS = {"FB_VERSION_MAJOR", "FB_VERSION_MINOR", "FB_VERSION_PATCH"}


def c_name(struct):
    return "fb" + re.sub(r"(?=[A-Z])", "_", struct.__name__).lower()


def init_name(struct):
    return c_name(struct).upper() + "_INIT"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What the compiler says: sizes, offsets, INIT bytes, constants: {"sizeof fb_view": "64", ...}."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("there is no C compiler")
    lines = ["#include <stdio.h>", "#include <string.h>"] + [f'#include "firstbad/{name}.h"' for name in HEADERS]
    lines += ["static void hex(const char *name, const void *at, size_t bytes) { printf(\"%s \", name); for (size_t i = 0; i < bytes; i++)",
              'printf("%02x", ((const unsigned char *)at)[i]); printf("\\n"); }', "int main(void) {"]
    for struct in STRUCTS:
        name = c_name(struct)
        lines.append(f'printf("sizeof:{name} %zu\\n", sizeof({name}));')
        for field in struct._fields_:
            lines.append(f'printf("offset:{name}.{field[0]} %zu\\n", offsetof({name}, {field[0]}));')
            lines.append(f'printf("bytes:{name}.{field[0]} %zu\\n", sizeof((({name} *)0)->{field[0]}));')
        if f"#define {init_name(struct)} " in HEADER_TEXT:
            # Padding is not initialised by the initialiser; static memory is zero all over.
            lines.append(f"{{ static {name} it = {init_name(struct)}; hex(\"init:{name}\", &it, sizeof it); }}")
    for name in vars(abi):
        if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) and isinstance(getattr(abi, name), int) and f"FB_{name}" in HEADER_TEXT:
            lines.append(f'printf("constant:{name} %lld\\n", (long long)FB_{name});')
    folder = tmp_path_factory.mktemp("abi")
    (folder / "abi.c").write_text("\n".join(lines + ["return 0; }"]))
    subprocess.run([compiler, "-std=c11", "-I", str(INCLUDE), "-o", str(folder / "abi"), str(folder / "abi.c")], check=True)
    output = subprocess.run([str(folder / "abi")], check=True, stdout=subprocess.PIPE).stdout.decode()
    return dict(line.split(" ", 1) for line in output.splitlines())


@pytest.mark.parametrize("struct", STRUCTS, ids=c_name)
def test_abi__a_struct_is_laid_out_as_the_compiler_lays_it_out(struct, compiled):
    name = c_name(struct)
    ours = {f"sizeof:{name}": ctypes.sizeof(struct)}
    for field in struct._fields_:
        ours[f"offset:{name}.{field[0]}"] = getattr(struct, field[0]).offset
        ours[f"bytes:{name}.{field[0]}"] = getattr(struct, field[0]).size
    assert {key: int(compiled[key]) for key in ours} == ours


@pytest.mark.parametrize("struct", [s for s in STRUCTS if f"#define {init_name(s)} " in HEADER_TEXT and s is not abi.View], ids=c_name)
def test_abi__new_gives_what_the_header_initialises(struct, compiled):
    assert bytes(struct.new()).hex() == compiled[f"init:{c_name(struct)}"]


def test_abi__a_new_view_is_host_memory():
    view = abi.View.new(count=3, dtype=abi.F32)
    assert (view.device, view.count, view.data, bool(view.layout)) == (-1, 3, None, False)


def test_abi__constants_are_those_of_the_headers(compiled):
    ours = {key.split(":")[1]: int(value) for key, value in compiled.items() if key.startswith("constant:")}
    assert len(ours) > 150
    assert {name: getattr(abi, name) for name in ours} == {name: value % 2**64 if value == -1 and name == "NO_INDEX" else value
                                                           for name, value in ours.items()}


def test_abi__every_constant_of_the_headers_is_there():
    named = set(re.findall(r"^\s*(FB_[A-Z0-9_]+)\s*=", HEADER_TEXT, re.M)) | set(re.findall(r"^enum \{ (FB_[^}]*) \}", HEADER_TEXT, re.M))
    found = set()
    for piece in named:
        found |= set(re.findall(r"FB_[A-Z0-9_]+", piece))
    assert len(found) > 150
    assert sorted(name for name in found - NOT_OURS if not hasattr(abi, name[3:])) == []


def test_abi__every_struct_of_the_headers_is_there():
    found = set(re.findall(r"^typedef struct (fb_\w+) \{", HEADER_TEXT, re.M))
    assert sorted(found - {c_name(struct) for struct in STRUCTS}) == []


def test_abi__every_function_of_the_headers_has_a_prototype_with_as_many_arguments():
    declared = {}
    for name, arguments in re.findall(r"^FB_API [^;(]*?\b(fb_\w+)\(([^;]*)\);", HEADER_TEXT, re.M):
        arguments = arguments.strip()
        declared[name] = 0 if arguments == "void" else arguments.count(",") + 1
    assert len(declared) > 70
    assert {name: len(arguments) for name, (_, arguments) in PROTOTYPES.items()} == declared


def test_abi__a_field_that_a_struct_does_not_have_is_refused():
    with pytest.raises(TypeError, match="no field 'worlds'"):
        abi.RunConfig.new(worlds=2)


def test_native__a_failure_carries_the_library_s_sentence_and_code():
    from firstbad import LibraryError, _native
    import pickle

    lib = _native.lib()
    view = abi.View.new(count=1, dtype=99)
    with pytest.raises(LibraryError) as why:
        _native.call(lib.fb_scan, ctypes.byref(view), ctypes.byref(abi.ScanResult.new()))
    assert why.value.code in (abi.E_DTYPE, abi.E_USAGE) and str(why.value) == why.value.sentence and len(why.value.sentence) > 10
    again = pickle.loads(pickle.dumps(why.value))
    assert (again.code, str(again)) == (why.value.code, str(why.value))


def test_native__a_library_of_another_make_is_refused_by_name(tmp_path, monkeypatch):
    from firstbad import LibraryError, _native

    monkeypatch.setenv("FIRSTBAD_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(LibraryError, match="was not found .*none.so"):
        _native.path()
    (tmp_path / "other.c").write_text("unsigned fb_abi_version(void) { return 7; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "other.so"), str(tmp_path / "other.c")], check=True)
    with pytest.raises(LibraryError, match="ABI version 7"):
        _native._load(str(tmp_path / "other.so"))
    (tmp_path / "older.c").write_text("unsigned fb_abi_version(void) { return 1; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "older.so"), str(tmp_path / "older.c")], check=True)
    with pytest.raises(LibraryError, match="has no .*fb_run_open"):
        _native._load(str(tmp_path / "older.so"))
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(LibraryError, match="cannot be loaded"):
        _native._load(str(tmp_path / "text.so"))


def test_errors__what_is_known_of_a_bad_number_survives_a_pickle():
    import pickle

    from firstbad import Halted, NonFiniteError

    error = pickle.loads(pickle.dumps(Halted("the whole answer", step=5, rank=1, module="h.0", operator="softmax (forward)",
                                             source="train.py:8", cause="mask_full_row", case="runs/x/cases/a1-000005")))
    assert isinstance(error, NonFiniteError) and isinstance(error, FloatingPointError)
    assert (str(error), error.step, error.rank, error.module, error.source) == ("the whole answer", 5, 1, "h.0", "train.py:8")
