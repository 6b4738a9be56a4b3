"""A private RabbitMQ for tests and benchmarks: own folder, own ports, own cookie, loopback only.

It takes seconds to start, so all processes of a test run share one.
"""

import base64
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote

from tests.services import debian
from tests.services.certificates import Certificates, make_certificates
from tests.services.postgres import PORTS, _end_with_parent
from tests.services.shared import Address, SharedServer, keep

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
START_SECONDS = 90
STOP_SECONDS = 40
USER, PASSWORD = "guest", "guest"


class RabbitMissing(Exception):
    """There is no RabbitMQ, and none could be put there or started."""


def find_server() -> Path:
    """The scripts of Debian's package, installed where that is allowed."""
    server = PROGRAMS / "rabbitmq-server"
    try:
        debian.ensure(server.name, is_there=server.exists, options=["--no-install-recommends"])
    except debian.CannotInstall as error:
        raise RabbitMissing(str(error)) from error
    return PROGRAMS


class RabbitNode:
    """One node, started on entry and removed on exit. It may be stopped and started again in between."""

    def __init__(self, *, parent: Path = Path("/tmp")) -> None:
        self._parent = parent
        self._node: subprocess.Popen[bytes] | None = None
        self._mapper: subprocess.Popen[bytes] | None = None
        self.folder = Path()
        self.port = self.tls_port = self.admin_port = self._mapper_port = self._peer_port = 0
        self.certificates: Certificates | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        programs = find_server()
        self.folder = Path(tempfile.mkdtemp(prefix="mistnet-mq-", dir=self._parent))
        try:
            self.certificates = make_certificates(self.folder / "tls")
            ports = _free_ports(5)
            self.port, self.tls_port, self.admin_port, self._mapper_port, self._peer_port = ports
            self._configure()
            self._mapper = self._launch(["epmd", "-port", str(self._mapper_port), "-address", "127.0.0.1"])
            self._programs = programs
            self.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.stop()
        if self._mapper is not None:
            _end(self._mapper)
            self._mapper = None
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Starts the node; what it stored before is there again."""
        self._node = self._launch([str(self._programs / "rabbitmq-server")])
        deadline = monotonic() + START_SECONDS
        while monotonic() < deadline:
            if self._node.poll() is not None:
                break
            with suppress(URLError, OSError, HTTPError):
                self.ask("GET", "/api/health/checks/port-listener/" + str(self.port))
                return
            sleep(0.1)
        raise RabbitMissing(f"RabbitMQ did not start:\n{self.log[-3000:]}")

    def stop(self) -> None:
        if self._node is not None:
            _end(self._node)
            self._node = None

    def kill(self) -> None:
        """End the node without a warning, as a crash of its machine does."""
        assert self._node is not None, "the node is not running"
        os.killpg(self._node.pid, signal.SIGKILL)
        self._node.wait()
        self._node = None

    @property
    def log(self) -> str:
        path = self.folder / "said"
        return path.read_text(errors="replace") if path.exists() else ""

    def vhost(self) -> str:
        """The URL of a new virtual host: queues of one test are not there for another."""
        return new_vhost(self.ask, self.port)

    def drop(self, url: str) -> None:
        self.ask("DELETE", f"/api/vhosts/{url.rpartition('/')[2]}")

    def ask(self, method: str, path: str, body: object | None = None) -> Any:
        """The management API of the node."""
        return ask(f"http://127.0.0.1:{self.admin_port}", method, path, body)

    def _configure(self) -> None:
        tls = self.certificates
        assert tls is not None
        (self.folder / "plugins").write_text("[rabbitmq_management].\n")
        (self.folder / "rabbitmq.conf").write_text(
            f"""
listeners.tcp.1 = 127.0.0.1:{self.port}
listeners.ssl.1 = 127.0.0.1:{self.tls_port}
ssl_options.cacertfile = {tls.authority}
ssl_options.certfile = {tls.server}
ssl_options.keyfile = {tls.server_key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
management.tcp.ip = 127.0.0.1
management.tcp.port = {self.admin_port}
management.rates_mode = none
collect_statistics_interval = 1000
log.console = true
log.console.level = warning
log.file = false
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
"""
        )

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                env=self._environment(),
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - only the child can do this, and it takes no lock
            )

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": folder,
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "mistnet@localhost",
            "RABBITMQ_DIST_PORT": str(self._peer_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/none",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{folder}/generated",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, so that signals reach it
        }


def ask(address: str, method: str, path: str, body: object | None = None) -> Any:
    """One question to the management API of a node, wherever this process learned of it."""
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    request = urllib.request.Request(
        address + path,
        method=method,
        data=json.dumps(body).encode() if body is not None else None,
        headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        said = answer.read()
    return json.loads(said) if said else None


def new_vhost(ask_node: Callable[..., Any], port: int) -> str:
    name = f"test-{secrets.token_hex(4)}"
    ask_node("PUT", f"/api/vhosts/{name}")
    ask_node("PUT", f"/api/permissions/{name}/{USER}", {"configure": ".*", "write": ".*", "read": ".*"})
    return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{port}/{name}"


class SharedNode(Address, frozen=True, kw_only=True):
    """The node of this run."""

    port: int = 0
    tls_port: int = 0
    admin_port: int = 0
    tls: str = ""

    def vhost(self) -> str:
        """The URL of a new virtual host: queues of one test are not there for another."""
        return new_vhost(self.ask, self.port)

    def drop(self, url: str) -> None:
        self.ask("DELETE", f"/api/vhosts/{url.rpartition('/')[2]}")

    def empty(self, url: str) -> None:
        """Remove what tests have declared in a virtual host, and make sure that nothing is left."""
        for path in self._declared(url):
            self.ask("DELETE", path)
        left = self._declared(url)
        assert not left, f"the reset left {left} behind"

    def _declared(self, url: str) -> list[str]:
        vhost = url.rpartition("/")[2]
        queues = [f"queues/{vhost}/{quote(each['name'], safe='')}" for each in self._names("queues", vhost)]
        exchanges = [
            f"exchanges/{vhost}/{quote(each['name'], safe='')}"
            for each in self._names("exchanges", vhost)
            if each["name"] and not each["name"].startswith("amq.")
        ]
        return [f"/api/{path}" for path in (*queues, *exchanges)]

    def _names(self, kind: str, vhost: str) -> Any:
        return self.ask("GET", f"/api/{kind}/{vhost}?disable_stats=true&enable_queue_totals=true")

    def ask(self, method: str, path: str, body: object | None = None) -> Any:
        return ask(f"http://127.0.0.1:{self.admin_port}", method, path, body)


SHARED = SharedServer("tests.services.rabbitmq", SharedNode)


@contextmanager
def _node() -> Iterator[SharedNode]:
    with RabbitNode() as node:
        tls = str(node.folder / "tls")
        yield SharedNode(port=node.port, tls_port=node.tls_port, admin_port=node.admin_port, tls=tls)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # helpers that the server leaves behind


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(PORTS, 400):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
        if len(found) == count:
            return found
    raise RabbitMissing(f"no free ports between {PORTS.start} and {PORTS.stop}")


if __name__ == "__main__":
    keep(_node, (RabbitMissing, OSError, subprocess.SubprocessError))
