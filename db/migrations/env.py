"""Alembic's entry: runs the migrations on the connection that autotune hands over."""

from alembic import context

from autotune.store.schema_version import VERSION_TABLE
from autotune.store.tables import Base

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("run `autotune db upgrade`: it opens the database as autotune does")

context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
