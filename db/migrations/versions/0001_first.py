"""The first schema: devices, problems, candidates, searches, measurements, claims, winners."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "candidate",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("op", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=False),
        sa.Column("template_hash", sa.String(length=64), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_candidate"),
        sa.UniqueConstraint("op", "template_hash", "key", name="uq_candidate_op_template_hash_key"),
    )
    op.create_table(
        "device",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("arch", sa.String(length=16), nullable=False),
        sa.Column("compute_capability", sa.Integer(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_device"),
        sa.UniqueConstraint("name", name="uq_device_name"),
    )
    op.create_index("ix_device_compute_capability", "device", ["compute_capability"])
    op.create_table(
        "problem",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("op", sa.Text(), nullable=False),
        sa.Column("fields", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_problem"),
        sa.UniqueConstraint("key", name="uq_problem_key"),
    )
    op.create_index("ix_problem_op", "problem", ["op"])
    op.create_table(
        "claim",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("heartbeat", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidate.id"], name="fk_claim_candidate_id"),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name="fk_claim_device_id"),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_claim_problem_id"),
        sa.PrimaryKeyConstraint("id", name="pk_claim"),
        sa.UniqueConstraint(
            "problem_id", "device_id", "candidate_id", name="uq_claim_problem_id_device_id_candidate_id"
        ),
    )
    op.create_index("ix_claim_owner", "claim", ["owner"])
    op.create_table(
        "search",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("updated_at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name="fk_search_device_id"),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_search_problem_id"),
        sa.PrimaryKeyConstraint("id", name="pk_search"),
        sa.UniqueConstraint("key", name="uq_search_key"),
    )
    op.create_index("ix_search_problem_id", "search", ["problem_id"])
    op.create_table(
        "measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("search_id", sa.Integer(), nullable=True),
        sa.Column("stage", sa.String(length=8), nullable=False),
        sa.Column("source_hash", sa.String(length=64), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("compiler", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=True),
        sa.Column("ms", sa.Float(), nullable=True),
        sa.Column("package_version", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.CheckConstraint("outcome <> 'ok' OR ms IS NOT NULL", name=op.f("ck_measurement_ok_has_ms")),
        sa.CheckConstraint("stage IN ('trial', 'final')", name=op.f("ck_measurement_stage")),
        sa.CheckConstraint("(ms IS NULL) = (kind IS NULL)", name=op.f("ck_measurement_kind_with_ms")),
        sa.CheckConstraint("ms IS NULL OR ms > 0", name=op.f("ck_measurement_ms_positive")),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidate.id"], name="fk_measurement_candidate_id"),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name="fk_measurement_device_id"),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_measurement_problem_id"),
        sa.ForeignKeyConstraint(["search_id"], ["search.id"], name="fk_measurement_search_id"),
        sa.PrimaryKeyConstraint("id", name="pk_measurement"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_measurement_best",
        "measurement",
        ["problem_id", "device_id", "kind", "ms"],
        sqlite_where=sa.text("outcome = 'ok'"),
        postgresql_where=sa.text("outcome = 'ok'"),
    )
    op.create_index("ix_measurement_candidate_id", "measurement", ["candidate_id"])
    op.create_index("ix_measurement_problem_id_device_id_id", "measurement", ["problem_id", "device_id", "id"])
    op.create_index("ix_measurement_search_id", "measurement", ["search_id"])
    op.create_index(
        "uq_measurement_trial",
        "measurement",
        ["problem_id", "device_id", "candidate_id", "source_hash", "driver", "compiler"],
        unique=True,
        sqlite_where=sa.text("stage = 'trial'"),
        postgresql_where=sa.text("stage = 'trial'"),
    )
    op.create_table(
        "winner",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name="fk_winner_device_id"),
        sa.ForeignKeyConstraint(["measurement_id"], ["measurement.id"], name="fk_winner_measurement_id"),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_winner_problem_id"),
        sa.PrimaryKeyConstraint("id", name="pk_winner"),
        sa.UniqueConstraint("problem_id", "device_id", "kind", name="uq_winner_problem_id_device_id_kind"),
    )
    op.create_index("ix_winner_device_id", "winner", ["device_id"])
    op.create_index("ix_winner_measurement_id", "winner", ["measurement_id"])


def downgrade() -> None:
    op.drop_table("winner")
    op.drop_table("claim")
    op.drop_table("measurement")
    op.drop_table("search")
    op.drop_table("candidate")
    op.drop_table("problem")
    op.drop_table("device")
