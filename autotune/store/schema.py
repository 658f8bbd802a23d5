"""The schema's version: made on first use, checked on every opening, upgraded on request."""

from typing import Any

from sqlalchemy import Connection, Engine, inspect, text

from autotune.core.errors import StoreError
from autotune.store.connections import migrating, reading
from autotune.store.location import shown
from autotune.store.schema_version import HEAD, VERSION_TABLE, check_version, version_number

_TABLES = {"device", "problem", "candidate", "search", "measurement", "claim", "winner"}


def ensure_schema(engine: Engine, *, create: bool) -> None:
    """Check the version of a database; make an empty one's tables when `create`.

    Raises:
        StoreError: newer than this package, older (the message names the command that upgrades it), empty
            without `create`, or holding another program's tables of the same names.
    """
    with reading(engine) as connection:
        version = current_version(connection)
    if version is None and not create:
        raise StoreError(f"{shown(engine.url)} holds no results yet; run `autotune search` first")
    if version is None:
        with migrating(engine) as connection:  # whoever comes second finds the tables made
            if current_version(connection) is None:
                _refuse_foreign(connection)
                migrate(connection)
            version = current_version(connection)
    check_version(version, shown(engine.url))


def upgrade(engine: Engine) -> tuple[str | None, str]:
    """Bring a database to the newest version, in one transaction; returns the versions before and after.

    Raises:
        StoreError: it is newer than this package, or the upgrade failed (and nothing has changed).
    """
    with migrating(engine) as connection:
        before = current_version(connection)
        if before is None:
            _refuse_foreign(connection)
        elif version_number(before, shown(engine.url)) > int(HEAD):
            check_version(before, shown(engine.url))
        migrate(connection)
    return before, HEAD


def current_version(connection: Connection) -> str | None:
    """The version a database says it has; None for one without our tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()


def migrate(connection: Connection, revision: str = "head") -> None:
    """Run the migrations up to `revision` within the transaction that `connection` has begun."""
    from alembic import command

    configuration = alembic_config()
    configuration.attributes["connection"] = connection
    command.upgrade(configuration, revision)


def alembic_config() -> Any:
    """Alembic's configuration for `db/migrations`."""
    from alembic.config import Config

    from autotune.core.resources import resource_root

    configuration = Config()
    configuration.set_main_option("script_location", str(resource_root("db") / "migrations").replace("%", "%%"))
    configuration.set_main_option("path_separator", "newline")
    return configuration


def _refuse_foreign(connection: Connection) -> None:
    taken = sorted(_TABLES & set(inspect(connection).get_table_names()))
    if taken:
        raise StoreError(
            f"the database {shown(connection.engine.url)} has tables of another program named {', '.join(taken)}; "
            "it was left untouched, name another with --db"
        )
