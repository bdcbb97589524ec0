"""python -m firstbad: the command-line tool."""
from __future__ import annotations

from ._cli import main

if __name__ == "__main__":
    main()
