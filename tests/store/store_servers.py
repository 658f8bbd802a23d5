"""A PostgreSQL server for tests, where its programs are installed."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
def postgresql(programs: Path, user: str) -> Iterator[str]:
    """A server on a socket in a temporary folder; yields the folder, which is the `host` to connect to."""
    folder = tempfile.mkdtemp(prefix="autotune-pg-", dir="/tmp")
    shutil.chown(folder, user)
    data, run_as = f"{folder}/data", {"user": user} if os.geteuid() == 0 else {}
    options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=50"
    try:
        _run([programs / "initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync"], folder, run_as)
        _run([programs / "pg_ctl", "-D", data, "-o", options, "-l", f"{folder}/log", "-w", "start"], folder, run_as)
        try:
            yield folder
        finally:
            _run([programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"], folder, run_as)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[object], folder: str, run_as: dict[str, str]) -> None:
    subprocess.run(
        [str(word) for word in command], cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=60,
        user=run_as.get("user"),
    )  # fmt: skip
