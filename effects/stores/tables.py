"""The tables of every store, their versions and their statements, once for SQLite and PostgreSQL.

SQLAlchemy Core writes each text once a dialect, the drivers run it (docs/decisions/0025). To change
a table, change it here and append the step that brings stored ones there to its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    ClauseElement,
    Column,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement, SchemaItem

from contract.errors import CutoverError, FaultCode

Dialect: TypeAlias = Literal["sqlite", "postgresql"]
Insert: TypeAlias = Callable[[Any], Any]
"""A dialect's own `insert`: what happens on a conflict is spelt apart."""

Value = TypeVar("Value")

_DIALECTS: Final = {
    "sqlite": sqlite.dialect(paramstyle="named"),
    "postgresql": psycopg.dialect(),  # type: ignore[no-untyped-call]
}


CALL_SECONDS = 5.0
"""How long a call waits for a server, and how long it may take, unless told otherwise."""
CHECK_SECONDS = 2.0
"""How long checking a store may take."""


@dataclass(frozen=True, slots=True)
class FaultCodes:
    """The codes of a store's faults: it does not answer, and a call failed."""

    unavailable: FaultCode
    failed: FaultCode


STORE_CODES = FaultCodes(unavailable="store_unavailable", failed="store_failed")
MEMORY_CODES = FaultCodes(unavailable="memory_unavailable", failed="memory_failed")
AUDIT_CODES = FaultCodes(unavailable="audit_unavailable", failed="audit_unavailable")
LOCK_CODES = FaultCodes(unavailable="lock_unavailable", failed="lock_unavailable")


class StoreNotOpened(CutoverError):
    """A store cannot be used: it is no database, out of reach, or newer than the code."""

    def __init__(self, where: str | Path, reason: str) -> None:
        super().__init__(f"cannot open the store {str(where)!r}: {reason}")


class StatementResult(NamedTuple):
    """The rows a statement returned, and how many rows it changed."""

    rows: Sequence[tuple[Any, ...]]
    changed: int


class Statement:
    """A statement, compiled once a dialect; call it with its values to get a `BoundStatement`."""

    def __init__(self, source: ClauseElement | Callable[[Insert], ClauseElement]) -> None:
        self._source = source

    def __call__(self, **values: object) -> BoundStatement:
        """Bind the values by their names."""
        return BoundStatement(self, values)

    @cached_property
    def sqlite(self) -> tuple[str, dict[str, Any]]:
        """The text, which names its values `:name`, and the values it always has."""
        return self._compiled("sqlite", sqlite.insert)

    @cached_property
    def postgresql(self) -> tuple[bytes, dict[str, Any]]:
        """The text, which names its values `%(name)s`, and the values it always has."""
        text, constants = self._compiled("postgresql", postgresql.insert)
        return text.encode(), constants

    def _compiled(self, dialect: Dialect, insert: Insert) -> tuple[str, dict[str, Any]]:
        source = self._source if isinstance(self._source, ClauseElement) else self._source(insert)
        compiled = source.compile(dialect=_DIALECTS[dialect])
        return str(compiled), {
            name: value for name, value in compiled.params.items() if value is not None
        }


class BoundStatement(NamedTuple):
    """A statement with its values."""

    statement: Statement
    values: dict[str, Any]


Transaction: TypeAlias = Generator[BoundStatement, StatementResult, Value]
"""Statements that are executed together: each is yielded, and its result is sent back."""

Step: TypeAlias = Mapping[Dialect, Sequence[str]]
"""The statements that lead from one version of a store's tables to the next."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one store, and the steps that bring older versions to them.

    `initial` is executed once the tables of a new store are made, and then `triggers`, which each
    dialect spells its own way.
    """

    name: str
    tables: tuple[Table, ...]
    steps: tuple[Step, ...] = ()
    initial: tuple[str, ...] = ()
    triggers: Step = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version of the tables as this code defines them."""
        return 1 + len(self.steps)

    def due(self, where: str | Path, dialect: Dialect, version: int) -> list[str]:
        """Return what brings stored tables of a version up to date; 0 where there are none.

        Raises `StoreNotOpened` for tables that are newer than this code.
        """
        if version > self.version:
            known = f"is version {version}, this code knows {self.version}"
            raise StoreNotOpened(where, f"its {self.name!r} {known}: open it with newer code")
        if version:
            return [one for step in self.steps[version - 1 :] for one in step.get(dialect, ())]
        made = (text for table in self.tables for text in creation(table, dialect))
        return [*made, *self.initial, *self.triggers.get(dialect, ())]


def creation(table: Table, dialect: Dialect, *, if_not_exists: bool = False) -> list[str]:
    """Return the statements that make a table and its indexes."""
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    elements: list[ExecutableDDLElement] = [CreateTable(table, if_not_exists=if_not_exists)]
    elements += [CreateIndex(index, if_not_exists=if_not_exists) for index in indexes]
    return [str(element.compile(dialect=_DIALECTS[dialect])).strip() for element in elements]


def bound(table: Table, *without: str) -> dict[str, Any]:
    """Return a value named like it for each column: what a whole row is inserted from."""
    return {column.name: bindparam(column.name) for column in table.c if column.name not in without}


def upsert(table: Table) -> Statement:
    """Insert a row, in the place of the one with its primary key."""

    def source(insert: Insert) -> ClauseElement:
        row = insert(table).values(bound(table))
        keys = [column.name for column in table.primary_key]
        others = {one.name: row.excluded[one.name] for one in table.c if one.name not in keys}
        statement: ClauseElement = row.on_conflict_do_update(index_elements=keys, set_=others)
        return statement

    return Statement(source)


_META: Final = MetaData()
WITHOUT_ROWID: Final[Any] = {"sqlite_with_rowid": False}


def texts(*names: str, nullable: bool = False, key: bool = False) -> list[Column[str]]:
    """Define columns of text, which may be NULL, or are (a part of) the primary key."""
    return [Column(name, Text, nullable=nullable, primary_key=key) for name in names]


def sequence(*constraints: SchemaItem) -> Column[int]:
    """Define the column `seq`, (a part of) the primary key."""
    # SQLite numbers rows by a column of the type INTEGER alone.
    number = BigInteger().with_variant(Integer(), "sqlite")
    return Column("seq", number, *constraints, primary_key=True)


def _doubles(*names: str) -> list[Column[float]]:
    return [Column(name, Double, nullable=False) for name in names]


SCHEMA_VERSIONS: Final = Table(
    "schema_versions",
    _META,
    *texts("store", key=True),
    Column("version", Integer, nullable=False),
)
READ_VERSION: Final = Statement(
    select(SCHEMA_VERSIONS.c.version).where(SCHEMA_VERSIONS.c.store == bindparam("store"))
)
WRITE_VERSION: Final = upsert(SCHEMA_VERSIONS)

TURNS: Final = Table(
    "turns",
    _META,
    sequence(Identity(always=True)),
    # "" in turns that were stored before flows had name spaces: every flow sees those.
    Column("flow", Text, nullable=False, server_default=""),
    *texts("message_id", "role", "content"),
    *texts("chat_id", "user_id", "user_name", "reply_to", "data", nullable=True),
    Column("at", BigInteger),
    Index("turns_by_id", "message_id", "flow", unique=True),
    Index("turns_of_a_chat", "chat_id", "seq"),
)
_IS_REPLY: Final[Any] = TURNS.c.reply_to.is_not(None)
Index("replies", TURNS.c.reply_to, TURNS.c.seq, sqlite_where=_IS_REPLY, postgresql_where=_IS_REPLY)

# The name is the one the original service's documents use.
PAUSES: Final = Table(
    "graph_checkpoints",
    _META,
    *texts("hitl_id", key=True),
    *texts("exchange", "flow", "stack"),
    *_doubles("created_at", "expires_at"),
    *texts("session_id", "user_id", nullable=True),
    *(Column(name, LargeBinary, nullable=False) for name in ("question", "tape", "answer")),
    *texts("answer_site", "answer_key", "state", "digest", "owner"),
    *_doubles("leased_until"),
    Column("continued", Boolean, nullable=False),
    Index("pauses_of_a_session", "session_id"),
    Index("pauses_by_expiry", "expires_at"),
)

LOCKS: Final = Table(
    "locks",
    _META,
    *texts("key", key=True),
    *texts("token"),
    *_doubles("expires"),
    **WITHOUT_ROWID,
)
PINS: Final = Table(
    "pins",
    _META,
    *texts("key", key=True),
    *texts("stack", "version"),
    Column("since", BigInteger, nullable=False),
    *_doubles("expires"),
    Index("pins_by_end", "expires"),
    **WITHOUT_ROWID,
)
PIN_RELEASES: Final = Table(
    "pin_releases", _META, *texts("flow", key=True), *texts("mark"), **WITHOUT_ROWID
)
BREAKER_NOTES: Final = Table(
    "board_notes",
    _META,
    *texts("key", key=True),
    *texts("mark", "phase"),
    *_doubles("until"),
    Column("well", Integer, nullable=False),
    **WITHOUT_ROWID,
)
SPENDING: Final = Table(
    "board_spent",
    _META,
    Column("day", Integer, primary_key=True, autoincrement=False),
    *texts("who", key=True),
    Column("tokens", BigInteger, nullable=False),
    *_doubles("cost"),
    Column("requests", BigInteger, nullable=False, server_default="0"),
    **WITHOUT_ROWID,
)

EXCHANGE_WRITES: Final = Table(
    "exchange_writes",
    _META,
    *texts("exchange", key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    *texts("flow", "what", "state"),
    *_doubles("began", "until"),
    **WITHOUT_ROWID,
)

AUDIT_ENTRIES: Final = Table(
    "audit_entries",
    _META,
    sequence(Identity(always=True)),
    *texts("entry_id", "at", "session", "event", "worker", "action", "args", "risk", "who", "code"),
    Column("ok", Boolean),
    Index("audit_entries_by_id", "entry_id", unique=True),
)
# The person a pseudonym stands for, known by its row alone: once it is deleted, nothing leads back.
AUDIT_PSEUDONYMS: Final = Table(
    "audit_pseudonyms",
    _META,
    *texts("kind", "name", key=True),
    *texts("pseudonym"),
    Index("audit_names", "pseudonym"),
    **WITHOUT_ROWID,
)

CONVERSATIONS: Final = Schema(
    "conversations",
    (TURNS,),
    steps=(
        {
            # SQLite cannot drop the constraint that an id is unique in all flows.
            "sqlite": (
                """CREATE TABLE new_turns (
                    seq INTEGER NOT NULL PRIMARY KEY, flow TEXT DEFAULT '' NOT NULL,
                    message_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL,
                    chat_id TEXT, user_id TEXT, user_name TEXT, reply_to TEXT
                )""",
                """INSERT INTO new_turns
                    SELECT seq, '', message_id, role, content, chat_id, user_id, user_name, reply_to
                    FROM turns""",
                "DROP TABLE turns",
                "ALTER TABLE new_turns RENAME TO turns",
                "CREATE UNIQUE INDEX turns_by_id ON turns (message_id, flow)",
                "CREATE INDEX turns_of_a_chat ON turns (chat_id, seq)",
                "CREATE INDEX replies ON turns (reply_to, seq) WHERE reply_to IS NOT NULL",
            ),
            "postgresql": (
                "ALTER TABLE turns ADD COLUMN flow TEXT DEFAULT '' NOT NULL",
                "ALTER TABLE turns DROP CONSTRAINT turns_message_id_key",
                "CREATE UNIQUE INDEX turns_by_id ON turns (message_id, flow)",
            ),
        },
        dict.fromkeys(
            ("sqlite", "postgresql"),
            ("ALTER TABLE turns ADD COLUMN data TEXT", "ALTER TABLE turns ADD COLUMN at BIGINT"),
        ),
    ),
)
PAUSE_STORE: Final = Schema(
    "pauses",
    (PAUSES,),
    steps=(
        # PostgreSQL's first version had both columns.
        {
            "sqlite": (
                "ALTER TABLE graph_checkpoints ADD COLUMN user_id TEXT",
                "ALTER TABLE graph_checkpoints ADD COLUMN continued INTEGER NOT NULL DEFAULT 0",
            )
        },
    ),
)
WRITE_JOURNAL: Final = Schema("exchange_writes", (EXCHANGE_WRITES,))
# `REPLACE` deletes a row in SQLite without the trigger on deleting.
_NO_REPLACED_ENTRY: Final = """CREATE TRIGGER audit_entries_REPLACE BEFORE INSERT ON audit_entries
    WHEN EXISTS (SELECT 1 FROM audit_entries WHERE entry_id = NEW.entry_id OR seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'audit_entries is append-only'); END"""
AUDIT_LOG: Final = Schema(
    "audit",
    (AUDIT_ENTRIES, AUDIT_PSEUDONYMS),
    steps=({"sqlite": (_NO_REPLACED_ENTRY,)},),
    triggers={
        "sqlite": (
            *(
                f"""CREATE TRIGGER audit_entries_{change} BEFORE {change} ON audit_entries
                    BEGIN SELECT RAISE(ABORT, 'audit_entries is append-only'); END"""
                for change in ("UPDATE", "DELETE")
            ),
            _NO_REPLACED_ENTRY,
        ),
        "postgresql": (
            """CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'audit_entries is append-only'; END $$""",
            """CREATE TRIGGER audit_entries_append_only
                BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_entries
                FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()""",
        ),
    },
)
LEASES: Final = Schema("locks", (LOCKS,))
PIN_STORE: Final = Schema(
    "pins",
    (PINS, PIN_RELEASES),
    steps=(
        {
            "sqlite": (
                """CREATE TABLE pin_releases (
                    flow TEXT NOT NULL, mark TEXT NOT NULL, PRIMARY KEY (flow)
                ) WITHOUT ROWID""",
            ),
            "postgresql": (
                "CREATE TABLE pin_releases (flow TEXT PRIMARY KEY, mark TEXT NOT NULL)",
            ),
        },
    ),
)
SHARED_STATE: Final = Schema(
    "board",
    (BREAKER_NOTES, SPENDING),
    steps=(
        dict.fromkeys(
            ("sqlite", "postgresql"),
            ("ALTER TABLE board_spent ADD COLUMN requests BIGINT DEFAULT 0 NOT NULL",),
        ),
    ),
)


class HealthCheck(NamedTuple):
    """Whether a dependency can be used, and why; no address or server text: both hold secrets."""

    ok: bool
    detail: str


def version_health(version: int, known: int) -> HealthCheck:
    """Judge the version of a store's tables, 0 without any; `known` is the code's, 0 for none."""
    if not known:
        return HealthCheck(ok=True, detail="opened")
    if version > known:
        detail = f"its tables are version {version}, this code knows {known}"
        return HealthCheck(ok=False, detail=detail)
    if not version:
        return HealthCheck(ok=True, detail="opened, without tables yet")
    detail = f"opened, tables of version {version}"
    if version < known:
        detail += f": the router will bring them to {known}"
    return HealthCheck(ok=True, detail=detail)
