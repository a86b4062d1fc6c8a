"""The audit log and the revisions refuse changes in the database itself; PostgreSQL also refuses to empty them."""

from django.db import migrations

TABLES = ("control_auditevent", "control_policyrevision")


def protect(apps, schema_editor):
    vendor = schema_editor.connection.vendor
    if vendor == "postgresql":
        schema_editor.execute(
            "CREATE OR REPLACE FUNCTION sluicegate_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$",
            params=None,  # the % is PostgreSQL's
        )
    for table in TABLES:
        for verb in ("UPDATE", "DELETE"):
            name = f"{table}_no_{verb.lower()}"
            if vendor == "postgresql":
                schema_editor.execute(
                    f"CREATE TRIGGER {name} BEFORE {verb} ON {table} "
                    "FOR EACH ROW EXECUTE FUNCTION sluicegate_append_only()"
                )
            elif vendor == "sqlite":
                schema_editor.execute(
                    f"CREATE TRIGGER {name} BEFORE {verb} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
                )


def unprotect(apps, schema_editor):
    vendor = schema_editor.connection.vendor
    for table in TABLES:
        for verb in ("update", "delete"):
            on = f" ON {table}" if vendor == "postgresql" else ""
            schema_editor.execute(f"DROP TRIGGER IF EXISTS {table}_no_{verb}{on}")
    if vendor == "postgresql":
        schema_editor.execute("DROP FUNCTION IF EXISTS sluicegate_append_only()")


class Migration(migrations.Migration):
    dependencies = [("control", "0001_initial")]
    operations = [migrations.RunPython(protect, unprotect, elidable=False)]
