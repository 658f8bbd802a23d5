"""Which schema version this package works with. Light: needs no SQLAlchemy."""

import shlex

from autotune.core.errors import StoreError

HEAD = "0004"
"""Newest migration in `db/migrations/versions`; kept here so that opening a database need not load Alembic."""

VERSION_TABLE = "autotune_version"
"""Not Alembic's default name: a database may hold an Optuna storage too, which owns that one."""


def check_version(version: str | None, where: str) -> None:
    """Raise unless `version` is the one this package works with.

    Raises:
        StoreError: it is not; the message says what to do.
    """
    number = 0 if version is None else version_number(version, where)
    if number > int(HEAD):
        raise StoreError(
            f"the database {where} has schema version {version}, this autotune knows {HEAD}: upgrade autotune, "
            "or name another database with --db"
        )
    if number < int(HEAD):
        raise StoreError(
            f"the database {where} has schema version {version}, older than {HEAD}: "
            f"run `autotune db upgrade --db {shlex.quote(where)}`"
        )


def version_number(version: str, where: str) -> int:
    """The number of a version.

    Raises:
        StoreError: it is no version of ours.
    """
    if not version.isdigit():
        raise StoreError(f"the database {where} has an unknown schema version {version!r}; name another with --db")
    return int(version)
