"""Claims are leases, and tell where their owner runs. The table is made anew: a claim of an older version, whose
process can use this database no more, says nothing that anybody waits for."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("claim")
    op.create_table(
        "claim",
        *_keys(candidate_missing=True),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.Float(), nullable=False),
        *_constraints(),
    )
    op.create_index("ix_claim_owner", "claim", ["owner"])


def downgrade() -> None:
    op.drop_table("claim")
    op.create_table("claim", *_keys(candidate_missing=False), sa.Column("heartbeat", sa.Float(), nullable=False), *_constraints())
    op.create_index("ix_claim_owner", "claim", ["owner"])


def _keys(*, candidate_missing: bool) -> list[sa.Column]:
    return [
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=candidate_missing),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
    ]


def _constraints() -> list[sa.Constraint]:
    return [
        sa.PrimaryKeyConstraint("id", name="pk_claim"),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name="fk_claim_device_id"),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_claim_problem_id"),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidate.id"], name="fk_claim_candidate_id"),
        sa.UniqueConstraint("problem_id", "device_id", "candidate_id", name="uq_claim_problem_id_device_id_candidate_id"),
    ]
