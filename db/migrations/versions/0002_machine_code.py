"""Measurements tell the machine code that was executed. A column that may be empty: no table is made anew."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("measurement", sa.Column("machine_code", sa.String(length=64), nullable=True))


def downgrade() -> None:
    op.drop_column("measurement", "machine_code")
