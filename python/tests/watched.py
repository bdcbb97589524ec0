"""A guard within the test's own process: `watched` is a fixture that hooks in, and leaves nothing behind."""
from __future__ import annotations

import json
import pathlib

import pytest

torch = pytest.importorskip("torch")

import guarded  # noqa: E402


class Watched:
    """The guard of one test."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    @property
    def session(self):
        from firstbad.pytorch import session

        return session.current()

    def end(self):
        """End what is open; returns the session."""
        session = self.session
        session.end_update()
        return session

    def cases(self):
        return sorted(path.name for path in self.folder.glob("*/cases/*"))

    def first_bad(self):
        """first_bad.json of the newest case."""
        return json.loads(sorted(self.folder.glob("*/cases/*/first_bad.json"))[-1].read_text())


@pytest.fixture
def watched(tmp_path, monkeypatch):
    guarded.build()
    for name in ("FIRSTBAD_RUN_ID", "FIRSTBAD_ATTEMPT", "FIRSTBAD_OFF", "FIRSTBAD_ON_BAD", "FIRSTBAD_MAX_SKIPS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FIRSTBAD_DIR", str(tmp_path))
    monkeypatch.setenv("FIRSTBAD_LOCATE", "none")
    import firstbad.pytorch
    from firstbad.pytorch import patch, registry, session

    torch.set_num_threads(1)
    torch.manual_seed(0)
    session.close()
    session.Session.settings = {}
    registry.optimizers._held.clear()
    registry.scalers._held.clear()
    patch.reset()
    firstbad.pytorch.install()
    yield Watched(tmp_path)
    broken = patch.broken()
    firstbad.pytorch.uninstall()
    patch.reset()
    assert not broken, broken
