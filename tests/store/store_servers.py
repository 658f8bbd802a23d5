"""A PostgreSQL server for tests, where its programs are installed."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MISSING = "PostgreSQL's programs (initdb, pg_ctl) are not installed"
"""Why a test that needs them is skipped; `make test` says at the end how many were."""


@dataclass(frozen=True)
class Server:
    """A server on a socket in `folder`, which is also the `host` to connect to; its programs, and who runs them."""

    programs: Path
    folder: str
    user: str | None

    @property
    def url(self) -> str:
        """Its database, for its administrator."""
        return f"postgresql+psycopg://tester@/postgres?host={self.folder}"

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off -c max_connections=50"
        self.control("-o", options, "-l", f"{self.folder}/log", "-w", "start")

    def stop(self) -> None:
        self.control("-m", "immediate", "-w", "stop")

    def control(self, *words: str) -> None:
        self.run("pg_ctl", "-D", f"{self.folder}/data", *words)

    def run(self, program: str, *words: str) -> None:
        subprocess.run(
            [str(self.programs / program), *words], cwd=self.folder, check=True, stdout=subprocess.DEVNULL, timeout=120,
            user=self.user if os.geteuid() == 0 else None,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of its first process."""
        return int(Path(f"{self.folder}/data/postmaster.pid").read_text().splitlines()[0])


def server_programs() -> Path | None:
    """Folder with initdb and pg_ctl."""
    found = shutil.which("initdb")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    return Path(found).parent if found else (places[0].parent if places else None)


def server_user() -> str | None:
    """The server refuses to run as root: who runs it then."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    return next((user for user in ("postgres", "nobody") if _exists(user)), None)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


@contextmanager
def postgresql() -> Iterator[Server | None]:
    """A new server in a temporary folder; None where it cannot be had."""
    programs, user = server_programs(), server_user()
    if programs is None or user is None:
        yield None
        return
    folder = tempfile.mkdtemp(prefix="autotune-pg-", dir="/tmp")
    shutil.chown(folder, user)
    server = Server(programs, folder, user)
    try:
        server.run("initdb", "-D", f"{folder}/data", "-U", "tester", "-A", "trust", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
