"""The command that stores files of rows."""

from __future__ import annotations

import click

from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.terminal.output import show


@command
@click.argument("table", type=TABLE)
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--format", "asked", help="csv, tsv, ndjson or parquet; else the file's name or first bytes tell.")
@click.option("--schema", help='The columns, such as "sku:string,price:decimal(9,2)", or as JSON; else inferred.')
@click.option("--key", help="Identifies the upload of one file, so that it is stored once.")
@click.option("--create/--no-create", default=True, show_default=True, help="Create the table if it does not exist.")
@click.option("--evolve", is_flag=True, help="Add the columns that the table lacks.")
def upload(
    common: Common,
    table: str,
    files: tuple[str, ...],
    *,
    asked: str | None,
    schema: str | None,
    key: str | None,
    create: bool,
    evolve: bool,
) -> None:
    """Store files of rows: CSV and TSV with a header row, NDJSON, JSON, Parquet; gzip and zstd ("-" is standard input).

    Each file is one commit, or nothing of it is stored: what does not fit the table's columns is named by row and
    column. As POST /v1/upload does, without limits of size.
    """
    from alluvia.cli.commands.row_files import sent_file
    from alluvia.files.uploads.event_rows import StoredEvents
    from alluvia.files.uploads.schemas import declared_schema
    from alluvia.files.uploads.storing import Upload, store

    if key is not None and len(files) > 1:
        raise click.UsageError("--key stands for one file: upload each with a key of its own")
    lake = common.lake(new=create)
    declared = None if schema is None else declared_schema(schema)
    reports: list[dict[str, object]] = []
    for name in files:
        file = sent_file(name, asked)
        content = "" if key is None else file.digest()
        why = None if create else "--no-create forbids to create it"
        with common.progress(f"storing {name}"):
            done = store(lake, Upload(table, file, declared, key, content, why, evolve))
        if isinstance(done, StoredEvents):
            reports.append({"file": name, **done.counts()})
            continue
        said = {"file": name, "rows": done.rows, "version": done.version, "repeated": done.repeated}
        reports.append(said | ({"columns": dict(done.columns)} if done.columns else {}))
    show(reports, as_json=common.as_json)
