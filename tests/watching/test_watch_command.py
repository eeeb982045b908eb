"""`fedsaddle watch`: what it prints, opens and refuses, and how it ends."""

from __future__ import annotations

import signal
import threading
from unittest import mock

import pytest
from watched_runs import ask, served, store

from fedsaddle.commands import watch as command
from fedsaddle.errors import BadInput, MissingData


def test_it_serves_until_ctrl_c_and_ends_well(tmp_path, capsys, monkeypatch):
    opened, answers = [], []
    monkeypatch.setattr("webbrowser.open", opened.append)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def serve(self, poll_interval):
        handler = threading.Thread(target=lambda: self.handle_request())
        handler.start()
        answers.append(ask(self)[0].status)
        handler.join(10)
        signal.raise_signal(signal.SIGINT)

    try:
        with mock.patch("fedsaddle.watching.server.WatchServer.serve_forever", serve):
            assert command.follow([str(store(tmp_path / "a")), str(tmp_path / "later")], 0, True) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    said = capsys.readouterr()
    assert said.out == f"watching at {opened[0]}\n"
    assert "later: not there yet" in said.err
    assert answers == [200]


def test_addresses_are_checked(tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with served(store(tmp_path)) as server:
        assert command.follow([server.address], 0, True) == 0
        assert opened == [server.address]
        with pytest.raises(MissingData, match="404"):
            command.follow([f"http://127.0.0.1:{server.port}/wrong/"], 0, False)
        closed = server.address
    with pytest.raises(MissingData, match="no page of runs answers"):
        command.follow([closed], 0, False)
    with pytest.raises(BadInput, match="one page"):
        command.follow([closed, str(tmp_path)], 0, False)


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="is a file"):
        command.follow([str(tmp_path / "file")], 0, False)
    with pytest.raises(BadInput, match=r"'.*file' is a file"):
        command.follow([str(tmp_path / "file" / "such")], 0, False)


def test_a_folder_whose_parents_are_not_there_yet_is_waited_for(tmp_path, capsys, monkeypatch):
    folder, states = tmp_path / "no" / "such", []

    def serve(self, poll_interval):
        self.watch.look = self.watch.pause = 0.0
        states.append(self.watch.states())
        store(folder)
        states.append(self.watch.states())

    with mock.patch("fedsaddle.watching.server.WatchServer.serve_forever", serve):
        assert command.follow([str(folder)], 0, False) == 0
    assert "such: not there yet; the page waits for it" in capsys.readouterr().err
    assert [list(one) for one in states] == [["such"], ["such"]]
    assert states[0] != states[1]


def test_a_browser_is_opened_for_people_only(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert not command._has_screen()
