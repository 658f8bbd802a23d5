"""Column types that behave alike on every database."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Dialect, String, Text
from sqlalchemy.types import TypeDecorator

from autotune.store.plain import dumps, loads
from autotune.store.soundness import readable


class PlainJson(TypeDecorator[Any]):
    """JSON as text: key order is kept (a configuration's order matters) and NaN survives."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else dumps(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        if value is None:
            return None
        with readable("of the database"):
            return loads(value)


class UtcTime(TypeDecorator[datetime]):
    """A moment as ISO text in UTC with microseconds: sorts by time, reads well in any SQL shell."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        with readable("of the database"):
            return datetime.fromisoformat(value)
