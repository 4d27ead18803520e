"""Downloads against a server of our own that honours Range, ignores it, cuts off, or lies."""

import contextlib
import hashlib
import http.server
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from resnets.data import download as module
from resnets.data.download import download
from resnets.errors import UserError

BODY = bytes(range(256)) * 4000  # one megabyte
MD5 = hashlib.md5(BODY).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    body = BODY
    ranges = True  # whether Range is honoured
    cut = None  # bytes after which each answer breaks off
    length = True
    status = None

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/~someone/set.tar.gz"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if server.status:
            return self.send_error(server.status)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and server.ranges else 0
        if start and start >= len(server.body):
            return self.send_error(416)
        body = server.body[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.body) - 1}/{len(server.body)}")
        if server.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body[: server.cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("length", [True, False])
def test_gives_the_file_and_leaves_nothing(server, tmp_path, recorder, length):
    server.length = length
    with download(server.url, tmp_path / "new", MD5, recorder) as path:
        assert path.read_bytes() == BODY
    assert list((tmp_path / "new").iterdir()) == []
    assert recorder.tasks == [(server.url, len(BODY) if length else None)]


def test_goes_on_where_it_broke_off(server, tmp_path, recorder):
    server.cut = 600_000
    with download(server.url, tmp_path, MD5, recorder) as path:
        assert path.read_bytes() == BODY
    assert server.asked == [None, "bytes=600000-"]
    assert "cut off after 600,000 of 1,024,000 bytes" in recorder.notes[0]


def test_the_next_call_resumes_a_download(server, tmp_path, recorder):
    server.cut = 300_000
    with pytest.raises(UserError, match="cut off after 600,000"), download(server.url, tmp_path, MD5, recorder):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["set.tar.gz.part"]
    server.cut = None
    with download(server.url, tmp_path, MD5, recorder) as path:
        assert path.read_bytes() == BODY
    assert server.asked[-1] == "bytes=600000-"
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_download_is_kept(server, tmp_path, recorder, monkeypatch):
    def interrupt(url, file, progress):
        file.write(BODY[:1000])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_fill", interrupt)
        with pytest.raises(KeyboardInterrupt), download(server.url, tmp_path, MD5, recorder):
            pass
    with download(server.url, tmp_path, MD5, recorder):
        assert server.asked == ["bytes=1000-"]


def test_starts_over_where_the_server_knows_no_range(server, tmp_path, recorder):
    server.ranges = False
    (tmp_path / "set.tar.gz.part").write_bytes(BODY[:5000])
    with download(server.url, tmp_path, MD5, recorder) as path:
        assert path.read_bytes() == BODY


def test_stops_where_starting_over_brings_no_more(server, tmp_path, recorder):
    server.ranges, server.cut = False, 300_000
    with pytest.raises(UserError, match="could not be fetched: cut off"), download(server.url, tmp_path, MD5, recorder):
        pass
    assert len(server.asked) == 2


@pytest.mark.parametrize("left", [b"wrong" * 100, BODY[:-1] + b"!", BODY + b"more", BODY])
def test_a_wrong_part_costs_one_more_download(server, tmp_path, recorder, left):
    (tmp_path / "set.tar.gz.part").write_bytes(left)
    with download(server.url, tmp_path, MD5, recorder) as path:
        assert path.read_bytes() == BODY
    assert server.asked[1:] == ([] if left == BODY else [None])


def test_refuses_a_wrong_file_and_keeps_nothing_of_it(server, tmp_path, recorder):
    server.body = b"<html>log in first</html>"
    with (
        pytest.raises(UserError, match=f"gave a file with md5 .*, not {MD5}"),
        download(server.url, tmp_path, MD5, recorder),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [403, 404, 500])
def test_passes_a_refusal_on(server, tmp_path, recorder, status):
    server.status = status
    with (
        pytest.raises(UserError, match=r"set\.tar\.gz could not be fetched: ."),
        download(server.url, tmp_path, MD5, recorder),
    ):
        pass
    assert len(server.asked) == 1


def test_a_silent_server_is_left_soon(tmp_path, recorder, monkeypatch):
    import socket

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/set.tar.gz"
        with pytest.raises(UserError, match="timed out"), download(url, tmp_path, MD5, recorder):
            pass


def test_stops_at_a_file_far_too_large(server, tmp_path, recorder, monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 400_000)
    with pytest.raises(UserError, match="far larger"), download(server.url, tmp_path, MD5, recorder):
        pass


def test_several_at_once_do_not_meet(server, tmp_path, recorder):
    def fetch(_):
        with download(server.url, tmp_path, MD5, recorder) as path:
            return path.name, path.read_bytes() == BODY

    (tmp_path / "set.tar.gz.part").write_bytes(BODY[:5000])
    with ThreadPoolExecutor(4) as pool:
        assert all(right for _, right in pool.map(fetch, range(8)))
    assert list(tmp_path.iterdir()) == []


def test_a_killed_download_is_resumed_and_one_that_runs_is_left_alone(server, tmp_path, recorder):
    """A process holds its lock until it ends, also by kill -9."""
    script = """
import sys, time
from pathlib import Path
from resnets.data.download import _open_part
with _open_part(Path(sys.argv[1]), "set.tar.gz") as (file, part):
    file.write(bytes(range(256)) * 8)
    file.flush()
    print(part.name, flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "set.tar.gz.part\n"
        with download(server.url, tmp_path, MD5, recorder) as path:
            assert path.name != "set.tar.gz.part"
        process.kill()
    with download(server.url, tmp_path, MD5, recorder) as path:
        assert path.read_bytes() == BODY
    assert server.asked == [None, "bytes=2048-"]
    assert list(tmp_path.iterdir()) == []


# --- a folder that others can write -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["link", "hard link", "dead link"])
def test_a_part_that_leads_to_another_file_is_left_alone(server, tmp_path, recorder, kind):
    name = "set.tar.gz.part"
    dear, folder = tmp_path / "dear", tmp_path / "downloads"
    dear.write_bytes(b"dear" * 1000)
    os.utime(dear, (1, 1))
    folder.mkdir()
    if kind == "hard link":
        os.link(dear, folder / name)
    else:
        (folder / name).symlink_to(dear if kind == "link" else tmp_path / "nothing")
    for wrong in (False, True):
        server.body = b"wrong" if wrong else BODY
        with contextlib.suppress(UserError), download(server.url, folder, MD5, recorder) as path:
            assert path.read_bytes() == BODY
    assert dear.read_bytes() == b"dear" * 1000
    assert not (tmp_path / "nothing").exists()
    assert server.asked == [None, None]


def test_a_part_that_is_exchanged_meanwhile_is_not_written(server, tmp_path, recorder, monkeypatch):
    dear, part = tmp_path / "dear", tmp_path / "new" / "set.tar.gz.part"
    dear.write_bytes(b"dear")
    fill = module._fill

    def exchange(url, file, progress):
        part.unlink()
        part.symlink_to(dear)
        fill(url, file, progress)

    monkeypatch.setattr(module, "_fill", exchange)
    with (
        pytest.raises(UserError, match="gave a file with md5"),
        download(server.url, tmp_path / "new", MD5, recorder),
    ):
        pass
    assert dear.read_bytes() == b"dear"


@pytest.mark.parametrize("how", ["stranger's", "writable by all"])
def test_a_part_of_somebody_else_is_not_taken_up(server, tmp_path, recorder, how):
    part = tmp_path / "set.tar.gz.part"
    part.write_bytes(BODY[:5000])
    if how == "writable by all":
        part.chmod(0o666)
    elif os.getuid() == 0:
        os.chown(part, 12345, 12345)
    else:
        pytest.skip("only root can give a file away")
    with download(server.url, tmp_path, MD5, recorder) as path:
        assert path.read_bytes() == BODY
    assert server.asked == [None]
    assert part.read_bytes() == BODY[:5000]
