"""The console script `firstbad`: becomes the tool that came with the package. Imports nothing heavy."""
from __future__ import annotations

import os
import sys
from typing import List, NoReturn, Optional

_HERE = os.path.dirname(os.path.abspath(__file__))


def executable() -> Optional[str]:
    """The tool: FIRSTBAD_BUILD's, the wheel's, that of an install prefix, that of a build tree. None where there is none."""
    places = [os.path.join(_HERE, "_native"), os.path.join(_HERE, "..", "..", "..", "..", "bin"),
              os.path.join(_HERE, "..", "..", "..", "..", "..", "bin"), os.path.join(_HERE, "..", "..", "build")]
    if os.environ.get("FIRSTBAD_BUILD"):
        places.insert(0, os.environ["FIRSTBAD_BUILD"])
    for place in places:
        path = os.path.normpath(os.path.join(place, "firstbad"))
        # A console script of that name may lie in one of them (PREFIX/bin): it would start itself for ever.
        if os.path.isfile(path) and os.access(path, os.X_OK) and _is_program(path):
            return path
    return None


def _is_program(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) != b"#!"


def main(arguments: Optional[List[str]] = None) -> NoReturn:
    """Replace this process by the tool. Exit code 3 where it is not there or cannot run; the sentence says what is missing."""
    path = executable()
    words = sys.argv[1:] if arguments is None else arguments
    if path is None:
        sys.stderr.write("firstbad: the tool is not part of this installation: install firstbad with pip, or run make\n")
        sys.exit(3)
    try:
        os.execv(path, [path, *words])
    except OSError as why:
        sys.stderr.write(f"firstbad: {path} cannot be started: {why}\n")
        sys.exit(3)
