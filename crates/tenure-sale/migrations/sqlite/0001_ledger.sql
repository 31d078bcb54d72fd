-- The ledger of the sale. docs/ledger.md explains each table.
--
-- Times are milliseconds since 1970. Words stand where a program or a person branches.
-- No foreign keys: every transaction reads the item first, which nobody deletes, and a
-- key check for each row of a batch would cost as much as writing the row.
-- WITHOUT ROWID: the primary key is the table, one tree less to write.
--: names are compared byte by byte, which is quick and the same on every machine.

CREATE TABLE sale_items (
    name            TEXT PRIMARY KEY,
    state           TEXT NOT NULL CHECK (state IN ('draft', 'open', 'paused', 'closed')),
    total           INTEGER NOT NULL CHECK (total >= 0),
    unlimited       INTEGER NOT NULL CHECK (unlimited IN (0, 1)),
    sold            INTEGER NOT NULL DEFAULT 0 CHECK (sold >= 0),
    starts_at       INTEGER,
    ends_at         INTEGER,
    limit_per_buyer INTEGER,
    units_per_order INTEGER NOT NULL,
    pay_within      INTEGER,
    backlog_max     INTEGER NOT NULL,
    answers_kept    INTEGER NOT NULL,
    epoch           INTEGER NOT NULL DEFAULT 0,
    fence           INTEGER NOT NULL DEFAULT 0,
    change          INTEGER NOT NULL DEFAULT 0,
    CHECK (unlimited OR sold <= total)
) STRICT, WITHOUT ROWID;

CREATE TABLE sale_orders (
    item         TEXT NOT NULL,
    epoch        INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    buyer        TEXT NOT NULL,
    request      TEXT NOT NULL,
    units        INTEGER NOT NULL CHECK (units >= 0),
    state        TEXT NOT NULL CHECK (state IN ('reserved', 'paid', 'cancelled', 'expired', 'rejected',
                                                'lost', 'dead', 'paid-unfulfilled')),
    accepted_at  INTEGER NOT NULL,
    committed_at INTEGER NOT NULL,
    pay_by       INTEGER,
    round        INTEGER NOT NULL DEFAULT 1,
    note         TEXT,
    PRIMARY KEY (item, epoch, number)
) STRICT, WITHOUT ROWID;
-- A request is one order. Orders that never came to be do not stand in the way of another try.
CREATE UNIQUE INDEX sale_orders_request ON sale_orders (item, buyer, request)
    WHERE state NOT IN ('rejected', 'lost');
CREATE INDEX sale_orders_buyer ON sale_orders (buyer);
CREATE INDEX sale_orders_pay_by ON sale_orders (pay_by) WHERE state = 'reserved' AND pay_by IS NOT NULL;

CREATE TABLE sale_journal (
    item   TEXT NOT NULL,
    epoch  INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind   TEXT NOT NULL CHECK (kind IN ('reserve', 'release')),
    round  INTEGER NOT NULL,
    units  INTEGER NOT NULL CHECK (units > 0),
    at     INTEGER NOT NULL,
    PRIMARY KEY (item, epoch, number, kind, round)
) STRICT, WITHOUT ROWID;

CREATE TABLE sale_changes (
    item    TEXT NOT NULL,
    number  INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    payload TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (item, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE sale_adjustments (
    item      TEXT NOT NULL,
    reference TEXT NOT NULL,
    kind      TEXT NOT NULL CHECK (kind IN ('add', 'withdraw')),
    units     INTEGER NOT NULL CHECK (units > 0),
    reason    TEXT NOT NULL,
    done      INTEGER NOT NULL CHECK (done IN (0, 1)),
    at        INTEGER NOT NULL,
    PRIMARY KEY (item, reference)
) STRICT, WITHOUT ROWID;

-- Entries of the queue that are no orders, so that each takes effect once.
CREATE TABLE sale_settled (
    item   TEXT NOT NULL,
    epoch  INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind   TEXT NOT NULL CHECK (kind IN ('withdrawal', 'again')),
    done   INTEGER NOT NULL CHECK (done IN (0, 1)),
    at     INTEGER NOT NULL,
    PRIMARY KEY (item, epoch, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE sale_cancel_wishes (
    item   TEXT NOT NULL,
    epoch  INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (item, epoch, number)
) STRICT, WITHOUT ROWID;
