"""The parts of crash tests that need no worker."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from horsies.testing.doomed import cut_off
from horsies.testing.moments import Doom, Moment


def test_x14_a_doom_strikes_once_and_only_its_task(tmp_path: Path) -> None:
    doom = Doom(Moment.RETURNED, "pay", str(tmp_path / "mark"), 1)
    assert Doom.from_json(doom.to_json()) == doom
    assert [doom.strikes(name) for name in ("mail", "pay", "pay")] == [False, True, False]
    any_task = Doom(Moment.RETURNED, None, str(tmp_path / "other"))
    assert any_task.strikes("mail") and not any_task.strikes("pay")


@pytest.mark.parametrize("is_ours", [True, False])
def test_x14_a_database_that_is_gone_is_that_of_the_worker_only(is_ours: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as accepted:
            cut_off(f"postgresql://a@127.0.0.1:{port if is_ours else 1}/b", seconds=0.0)
            accepted.setblocking(False)
            if is_ours:
                assert accepted.recv(1) == b"", "the other end has hung up"
            else:
                client.sendall(b"x")
                assert accepted.recv(1) == b"x"


@pytest.mark.parametrize("is_ours", [True, False])
def test_x14_of_the_sockets_in_directories_too(is_ours: bool, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / ".s.PGSQL.5432"))
        server.listen()
        client.connect(str(tmp_path / ".s.PGSQL.5432"))
        with server.accept()[0] as accepted:
            accepted.setblocking(False)
            cut_off(f"host={tmp_path if is_ours else tmp_path.parent} dbname=b", seconds=0.0)
            if is_ours:
                assert accepted.recv(1) == b""
            else:
                client.sendall(b"x")
                assert accepted.recv(1) == b"x"
