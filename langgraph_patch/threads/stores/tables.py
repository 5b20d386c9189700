"""Whether a database holds LangGraph's tables, as the version at hand knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from langgraph_patch.errors import ThreadError


def check_tables(
    database: str,
    needed: Mapping[str, Sequence[str]],
    columns_of: Callable[[str], set[str]],
    *,
    library: str,
    advice: str,
) -> None:
    """See that every table has every column.

    Args:
        database: What to call the database.
        needed: Each table with its columns.
        columns_of: Reads the columns of a table; none if there is no such table.
        library: Which library makes the tables.
        advice: How to bring older ones up to date.

    Raises:
        ThreadError: If one is missing.

    Example:
        >>> from langgraph_patch.threads.stores.tables import check_tables
        >>> check_tables("'x.db'", {"writes": ("idx",)}, lambda table: set(),
        ...              library="langgraph-checkpoint-sqlite", advice="Open it.")
        Traceback (most recent call last):
        langgraph_patch.errors.ThreadError: 'x.db' has no table 'writes': it holds no \
LangGraph threads.
    """
    for table, columns in needed.items():
        found = columns_of(table)
        if not found:
            raise ThreadError(f"{database} has no table {table!r}: it holds no LangGraph threads.")
        for column in columns:
            if column not in found:
                raise ThreadError(
                    f"{database}: table {table!r} has no column {column!r}: it was written by "
                    f"another version of {library}. {advice}"
                )
