"""Measurements tell what energy a call takes. A column that may be empty: no table is made anew."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("measurement", sa.Column("energy_mj", sa.Float(), nullable=True))


def downgrade() -> None:
    op.drop_column("measurement", "energy_mj")
