"""mistnet as a service: the real commands, asked over HTTP, killed and started again."""

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
from contextlib import closing
from http.client import HTTPConnection
from http.cookiejar import CookieJar
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest

from tests.commands import DEADLINE_SECONDS, command_line
from tests.e2e.conftest import QUICK, RESTLESS, CommandLine, until
from tests.e2e.slips import is_one_line
from tests.simulated import list_handles
from tests.warm import WarmProcess

SETTINGS = {**QUICK, **RESTLESS}


class Service:
    """A running command and the address it printed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(r"http://\S+", first)
        assert found, (first, process.stderr.read() if process.stderr and process.poll() is not None else "")
        self.url = found[0]

    def ask(self, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, headers={"Content-Type": "application/json", **headers})
        try:
            with urlopen(request, timeout=DEADLINE_SECONDS) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refusal:
            return refusal.code, json.load(refusal)

    def stop(self) -> tuple[int, str, str]:
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, out, err


@pytest.fixture
def service(on_postgres: CommandLine, sim_url: str) -> CommandLine:
    on_postgres.settings |= {**SETTINGS, "MISTNET_X_BASE_URL": sim_url}
    return on_postgres


@pytest.fixture
def small(on_sqlite: CommandLine, sim_url: str) -> CommandLine:
    """On SQLite, for what does not depend on the database."""
    on_sqlite.settings |= {**SETTINGS, "MISTNET_X_BASE_URL": sim_url}
    return on_sqlite


def test_a_scrape_asked_of_up_is_done_and_reported(small: CommandLine, sim_url: str) -> None:
    handle, *_ = list_handles(sim_url)
    up = Service(small.start("up", "--port", "0"))
    status, begun = up.ask("/api/admin/scrape", {"usernames": f"{handle},nobody_at_all", "limit": 25})
    assert (status, set(begun)) == (202, {"task_id", "status"})
    until(lambda: up.ask(f"/api/admin/scrape/{begun['task_id']}")[1]["result"])
    _, done = up.ask(f"/api/admin/scrape/{begun['task_id']}")
    assert done["status"] == "completed"
    good, bad = done["result"]["accounts"]
    assert (good["status"], bad["status"]) == ("completed", "failed")
    assert 0 < good["total"] == good["new"] <= 25
    stored = small.sql("SELECT count(*) AS n FROM run_posts")[0]["n"]
    assert stored == good["new"]
    until(lambda: up.ask("/health")[1]["workers"] == 1)
    until(lambda: up.ask("/health")[1]["leader"])
    code, _, err = up.stop()
    assert (code, "Traceback" in err) == (0, False)
    assert err.count("X has no cap on spending. Set one, for example US$ 2 a day") == 1
    assert small.sql("SELECT name FROM workers") == []


def test_a_run_goes_on_after_the_service_was_killed(service: CommandLine, sim_url: str) -> None:
    handles = list_handles(sim_url)
    slow = {"MISTNET_X_RATE_PER_MINUTE": "120", "MISTNET_X_BURST": "1"}
    first = Service(service.start("up", "--port", "0", **slow))
    _, begun = first.ask("/api/admin/scrape", {"usernames": ",".join(handles), "limit": 1000})
    until(lambda: service.sql("SELECT 1 AS one FROM run_posts LIMIT 1"))
    first.process.kill()
    first.process.communicate()
    (run,) = service.sql("SELECT id, status FROM runs")
    assert (run["id"], run["status"]) == (begun["task_id"], "running")
    second = Service(service.start("up", "--port", "0"))
    status, refused = second.ask("/api/admin/scrape", {"usernames": "ann"})
    assert (status, begun["task_id"] in refused["error"]["message"]) == (409, True)
    until(lambda: second.ask(f"/api/admin/scrape/{begun['task_id']}")[1]["result"])
    result = second.ask(f"/api/admin/scrape/{begun['task_id']}")[1]["result"]
    assert {each["username"]: each["reason"] for each in result["accounts"] if each["status"] == "failed"} == {}
    assert result["total"] == result["new"] + result["skipped"] + result["failed"]
    assert result["new"] == service.sql("SELECT count(*) AS n FROM run_posts")[0]["n"] > 0
    assert second.stop()[0] == 0


def test_prometheus_reads_the_metrics_of_a_service_on_a_port_of_their_own(small: CommandLine) -> None:
    small.ok("tokens", "add", "ann")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve = Service(small.start("serve", "--port", "0", "--metrics-port", str(port)))
    assert serve.ask("/metrics")[0] == 401
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_SECONDS) as answer:
        assert "mistnet_build_info{" in answer.read().decode()
    assert serve.stop()[0] == 0


def test_serve_answers_and_leaves_the_work_to_others(small: CommandLine) -> None:
    served = Service(small.start("serve", "--port", "0", MISTNET_X_API_KEY=""))
    assert served.ask("/healthz") == (200, {"status": "ok"})
    status, tracked = served.ask("/api/accounts", {"handles": ["ann"]})
    assert (status, tracked["accounts"][0]["result"]) == (200, "added")
    assert small.sql("SELECT state FROM jobs") == [{"state": "pending"}]
    assert served.ask("/api/accounts?token=look-at-me")[0] == 200
    code, out, err = served.stop()
    assert (code, out) == (0, "")
    assert "look-at-me" not in err
    assert "SIGTERM" in err


def test_a_second_signal_stops_at_once(small: CommandLine) -> None:
    served = Service(small.start("up", "--port", "0"))
    with socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2]))) as held:
        held.sendall(b"POST /api/accounts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        served.process.send_signal(signal.SIGINT)
        until(lambda: _refuses(served.url))
        served.process.send_signal(signal.SIGINT)
        served.process.communicate(timeout=DEADLINE_SECONDS)
    assert served.process.returncode == 128 + signal.SIGINT


def _refuses(url: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=DEADLINE_SECONDS):
            return False
    except OSError:
        return True


def test_a_start_on_a_terminal_prints_a_link_that_logs_in_once(small: CommandLine) -> None:
    small.ok("tokens", "add", "ann")
    ours, theirs = pty.openpty()
    started = WarmProcess(
        command_line("up", "--port", "0"),
        cwd=small.folder,
        env=small.environment(TERM="xterm", COLUMNS="40"),
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
    )
    small.started.append(started)
    os.close(theirs)
    shown = b""
    while not (link := re.search(rb"(http://\S+)/login/[\w-]{43}\r\n", shown)):
        shown += os.read(ours, 65_536)
    opener = build_opener(HTTPCookieProcessor(CookieJar()))
    with opener.open(link[0].decode().strip(), timeout=DEADLINE_SECONDS) as answer:
        assert "Overview" in answer.read().decode()
    with opener.open(f"{link[1].decode()}/api/accounts", timeout=DEADLINE_SECONDS) as answer:
        assert answer.status == 200
    with pytest.raises(HTTPError, match="401") as refused:
        build_opener().open(link[0].decode().strip(), timeout=DEADLINE_SECONDS)
    refused.value.close()
    started.send_signal(signal.SIGTERM)
    _, err = started.communicate(timeout=DEADLINE_SECONDS)
    os.close(ours)
    assert (started.returncode, link[0].decode().strip().rpartition("/")[2] in err) == (0, False)


def test_a_unix_socket_serves_only_users_who_may_open_its_file(small: CommandLine) -> None:
    small.ok("tokens", "add", "ann")
    file = small.folder / "mistnet.sock"
    weak = {"MISTNET_ADMIN_TOKEN": "passwordpassword"}
    for arguments, settings in ((("--socket", str(file)), {}), ((), {"MISTNET_SOCKET": "mistnet.sock", **weak})):
        served = small.start("serve", *arguments, **settings)
        assert served.stdout is not None
        assert served.stdout.readline() == f"mistnet listens on {file}\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with closing(HTTPConnection("localhost")) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(file))
            connection.request("GET", "/api/accounts")
            assert connection.getresponse().status == 200
        served.send_signal(signal.SIGTERM)
        out, err = served.communicate(timeout=DEADLINE_SECONDS)
        assert (served.returncode, out, file.exists()) == (0, "", False)
        assert ("The admin token is easy to guess." in err) == bool(weak.items() & settings.items())
    by_port = Service(small.start("serve", "--port", "0", MISTNET_SOCKET=str(file)))
    assert (by_port.ask("/healthz")[0], file.exists()) == (200, False)
    assert by_port.stop()[0] == 0


def test_what_cannot_be_served_is_told_in_one_line(small: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, settings, said in (
            (("serve", "--port", port), {}, f"port {port} of 127.0.0.1 is in use"),
            (("up", "--port", port), {}, f"port {port} of 127.0.0.1 is in use"),
            (("up", "--port", "0"), {"MISTNET_X_API_KEY": ""}, "no key for X is configured"),
            (("serve", "--host", "0.0.0.0"), {}, "mistnet tokens add NAME"),
            (("up", "--host", "::"), {}, "mistnet tokens add NAME"),
            (
                ("serve",),
                {"MISTNET_TRUSTED_PROXIES": "127.0.0.1"},
                "through your trusted_proxies",
            ),
            (("serve", "--host", "192.0.2.1"), {"MISTNET_ADMIN_TOKEN": "x" * 16}, "cannot listen on"),
            (("serve", "--socket", "queue.db"), {}, "queue.db exists and is not a socket: name another file"),
            (("up", "--socket", "a.sock", "--port", "0"), {}, "give either --socket, or --host and --port"),
            (("tokens", "add", " "), {}, "who uses it"),
            (("tokens", "add", "ann", "--scope", "all"), {}, "read, operate, admin"),
            (("tokens", "revoke", "7"), {}, "there is no valid token 7; `mistnet tokens list` shows them all"),
        ):
            ran = small(*arguments, **settings)
            assert not ran.out
            assert is_one_line(ran, said), (arguments, ran)


def test_a_public_service_asks_for_the_token_it_was_given(small: CommandLine) -> None:
    made = small.ok("tokens", "add", "ann", "--scope", "operate", "--json").json
    assert re.fullmatch(r"mn_[\w-]{43}", made["token"])
    shown = small.ok("tokens", "list")
    assert "ann" in shown.out
    assert made["token"] not in shown.out
    assert made["token"] not in (small.folder / "queue.db").read_bytes().decode("latin-1")
    public = Service(small.start("serve", "--host", "0.0.0.0", "--port", "0"))
    assert public.url.startswith("http://127.0.0.1:")
    assert public.ask("/api/accounts")[0] == 401
    bearer = {"Authorization": f"Bearer {made['token']}"}
    assert public.ask("/api/accounts", **bearer)[0] == 200
    small.ok("tokens", "revoke", made["id"])
    assert public.ask("/api/accounts", **bearer)[0] == 401
    code, _, err = public.stop()
    assert (code, made["token"] in err) == (0, False)
