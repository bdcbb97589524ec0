"""Starts scripts quickly: torch is imported once, and each script runs in a fork.

A line of JSON a request on standard input: {script, cwd, env, out, err, seconds}; a line an answer: the exit code, or -9 when it ran
longer than that. Only scripts that firstbad does not guard are started like this: what firstbad does begins with the import of torch, so
its runs are processes of their own, and so is whatever is timed. Two ranks are started by their launcher.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import signal
import sys
import time
from typing import Any, Dict


def run(job: Dict[str, Any]) -> None:
    """The child: the script as __main__, with the bench's observer. Does not return."""
    for descriptor, path in ((1, job["out"]), (2, job["err"])):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, descriptor)
    os.chdir(job["cwd"])
    os.environ.update(job["env"])
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "inject"))
    import runpy

    import observer  # type: ignore[import-not-found]

    observer.install()
    sys.argv, sys.path[0] = [job["script"]], os.path.dirname(job["script"])
    code = 0
    try:
        runpy.run_path(job["script"], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        kind, value, trace = sys.exc_info()
        sys.excepthook(kind, value, trace)  # type: ignore[arg-type]
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    import torch  # noqa: F401

    if importlib.util.find_spec("transformers"):
        import transformers.debug_utils  # noqa: F401
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            run(job)
        end, code = time.monotonic() + job["seconds"], -9
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.02)
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        print(code, flush=True)


if __name__ == "__main__":
    main()
