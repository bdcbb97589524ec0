"""A collective failed: which rank did not answer?

What torch says then names a port at best. Two things are known: processes of this machine can be asked for (gone, stopped), and a
rank that met the same failure says so in the store. Only what was seen is claimed; a rank that is merely quiet is called that.
"""
from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

ANSWER_SECONDS = 1.0  # launchers end the survivors soon after the first death


class Process(NamedTuple):
    """A rank as a process: where it runs and since when, so that a number that was given out again is not taken for it."""

    place: str  # host and process namespace
    pid: int
    since: str


def me() -> Process:
    return Process(_place(), os.getpid(), _since(os.getpid())[1])


def _place() -> str:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {namespace}"


def _since(pid: int) -> Sequence[str]:
    """(state letter, start time) of a process from /proc; ("", "") when there is none, ("?", "") where there is no /proc."""
    if not os.path.isdir("/proc/self"):
        return "?", ""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()  # the name before may hold anything
        return words[0].decode(), words[19].decode()
    except (OSError, IndexError):
        return "", ""


def seen(process: Process) -> Optional[str]:
    """"ended", "stopped" (by a signal or a debugger) or "running"; None for a process of another machine."""
    if process.place != _place():
        return None
    state, since = _since(process.pid)
    if state == "?":
        return None
    if not state or state in "ZX" or since != process.since:
        return "ended"
    return "stopped" if state in "Tt" else "running"


class Silence(NamedTuple):
    """rank -> what is known of it. certain: these ranks ended or are stopped, which was seen; otherwise they only gave no
    answer."""

    ranks: Dict[int, str]
    certain: bool

    def text(self) -> str:
        """"rank 1 ended (process 4711 of node-3)"."""
        words = [f"rank {rank} {what}" for rank, what in sorted(self.ranks.items())]
        if len(words) > 8:
            words = words[:8] + [f"{len(words) - 8} more"]
        return " and ".join(", ".join(words).rsplit(", ", 1)) if words else "no rank is known to be silent"


def find(store: Any, name: str, rank: int, processes: Sequence[Process], seconds: float = ANSWER_SECONDS) -> Silence:
    """Look for ranks that do not answer. processes: of every rank, by rank; [] when they are not known.

    store, name  where ranks that met the same failure say so; store None: do not ask. Never raises; takes `seconds` at most.
    """
    posted = in_time(lambda: store.set(f"{name}/{rank}", "here"), seconds) if store is not None else False
    until = time.monotonic() + seconds
    while True:
        dead = {r: f"{state} (process {p.pid} of {p.place.split(' ')[0]})" for r, p in enumerate(processes)
                if r != rank and (state := seen(p)) in ("ended", "stopped")}
        if dead or time.monotonic() >= until or not processes:
            break
        time.sleep(0.05)
    if dead or not posted or not processes:
        return Silence(dead, True)
    quiet: Dict[int, str] = {}

    def ask() -> None:
        for r in range(len(processes)):
            if r != rank and not store.check([f"{name}/{r}"]):
                quiet[r] = f"gave no answer within {seconds:.0f} s"

    if not in_time(ask, seconds):
        return Silence({0: "holds the store of the job, and that does not answer"}, False)
    return Silence(quiet, False)


def in_time(what: Any, seconds: float) -> bool:
    """Call something that may hang; True when it came back without an error."""
    done: List[bool] = []

    def work() -> None:
        try:
            what()
        except Exception:  # of a store whose host is gone: that is an answer, and is told as one
            return
        done.append(True)

    thread = threading.Thread(target=work, daemon=True, name="firstbad-asks")
    thread.start()
    thread.join(seconds)
    return bool(done)
