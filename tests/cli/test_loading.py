"""Imports of commands: garbage is looked for again afterwards."""

from __future__ import annotations

import gc
import signal
import sys

import pytest

from fedsaddle.processes import loading


@pytest.fixture(autouse=True)
def as_it_was():
    on = gc.isenabled()
    yield
    gc.unfreeze()
    (gc.enable if on else gc.disable)()


@pytest.mark.parametrize("before", [True, False])
def test_no_garbage_is_looked_for_meanwhile(before, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    (gc.enable if before else gc.disable)()
    gc.unfreeze()
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled() == before
    assert gc.get_freeze_count() > 0


def test_with_torch_nothing_is_kept(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", gc)
    gc.enable()
    gc.unfreeze()
    with loading():
        assert gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_module_that_cannot_be_imported_changes_nothing_else(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    gc.enable()
    with pytest.raises(ImportError), loading():
        raise ImportError("no such module")
    assert gc.isenabled()


def test_ctrl_c_ends_the_process_at_once_while_modules_load():
    """An exception in the middle of an import gets lost, or makes torch abort."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with loading():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
