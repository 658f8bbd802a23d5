"""Databases of every kind that can be had here."""

import uuid
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.store.store_servers import Server


@pytest.fixture
def postgres(server: Server) -> str:
    """The URL of an empty schema of its own on a real PostgreSQL."""
    name = f"t{uuid.uuid4().hex}"
    admin = create_engine(server.url)
    with admin.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    admin.dispose()
    return f"{server.url}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A path, and the URL of a server where there is one."""
    if request.param == "sqlite":
        return str(tmp_path / "a.db")
    found: str = request.getfixturevalue("postgres")
    return found
