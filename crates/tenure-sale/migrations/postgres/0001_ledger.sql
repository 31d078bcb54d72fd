-- The ledger of the sale. docs/ledger.md explains each table.
--
-- Times are milliseconds since 1970. Words stand where a program or a person branches.
-- No foreign keys: every transaction holds the lock of the item's row, which nobody deletes, and a
-- key check for each row of a batch would cost as much as writing the row.
-- COLLATE "C": names are compared byte by byte, which is quick and the same on every machine.

CREATE TABLE sale_items (
    name            TEXT COLLATE "C" PRIMARY KEY,
    state           TEXT NOT NULL CHECK (state IN ('draft', 'open', 'paused', 'closed')),
    total           BIGINT NOT NULL CHECK (total >= 0),
    unlimited       BOOLEAN NOT NULL,
    sold            BIGINT NOT NULL DEFAULT 0 CHECK (sold >= 0),
    starts_at       BIGINT,
    ends_at         BIGINT,
    limit_per_buyer BIGINT,
    units_per_order BIGINT NOT NULL,
    pay_within      BIGINT,
    backlog_max     BIGINT NOT NULL,
    answers_kept    BIGINT NOT NULL,
    epoch           BIGINT NOT NULL DEFAULT 0,
    fence           BIGINT NOT NULL DEFAULT 0,
    change          BIGINT NOT NULL DEFAULT 0,
    CHECK (unlimited OR sold <= total)
) WITH (fillfactor = 50);

CREATE TABLE sale_orders (
    item         TEXT COLLATE "C" NOT NULL,
    epoch        BIGINT NOT NULL,
    number       BIGINT NOT NULL,
    buyer        TEXT COLLATE "C" NOT NULL,
    request      TEXT COLLATE "C" NOT NULL,
    units        BIGINT NOT NULL CHECK (units >= 0),
    state        TEXT NOT NULL CHECK (state IN ('reserved', 'paid', 'cancelled', 'expired', 'rejected',
                                                'lost', 'dead', 'paid-unfulfilled')),
    accepted_at  BIGINT NOT NULL,
    committed_at BIGINT NOT NULL,
    pay_by       BIGINT,
    round        BIGINT NOT NULL DEFAULT 1,
    note         TEXT,
    PRIMARY KEY (item, epoch, number)
);
-- A request is one order. Orders that never came to be do not stand in the way of another try.
CREATE UNIQUE INDEX sale_orders_request ON sale_orders (item, buyer, request)
    WHERE state NOT IN ('rejected', 'lost');
CREATE INDEX sale_orders_buyer ON sale_orders (buyer);
CREATE INDEX sale_orders_pay_by ON sale_orders (pay_by) WHERE state = 'reserved' AND pay_by IS NOT NULL;

CREATE TABLE sale_journal (
    item   TEXT COLLATE "C" NOT NULL,
    epoch  BIGINT NOT NULL,
    number BIGINT NOT NULL,
    kind   TEXT NOT NULL CHECK (kind IN ('reserve', 'release')),
    round  BIGINT NOT NULL,
    units  BIGINT NOT NULL CHECK (units > 0),
    at     BIGINT NOT NULL,
    PRIMARY KEY (item, epoch, number, kind, round)
);

CREATE TABLE sale_changes (
    item    TEXT COLLATE "C" NOT NULL,
    number  BIGINT NOT NULL,
    kind    TEXT NOT NULL,
    payload TEXT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (item, number)
);

CREATE TABLE sale_adjustments (
    item      TEXT COLLATE "C" NOT NULL,
    reference TEXT COLLATE "C" NOT NULL,
    kind      TEXT NOT NULL CHECK (kind IN ('add', 'withdraw')),
    units     BIGINT NOT NULL CHECK (units > 0),
    reason    TEXT NOT NULL,
    done      BOOLEAN NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (item, reference)
);

-- Entries of the queue that are no orders, so that each takes effect once.
CREATE TABLE sale_settled (
    item   TEXT COLLATE "C" NOT NULL,
    epoch  BIGINT NOT NULL,
    number BIGINT NOT NULL,
    kind   TEXT NOT NULL CHECK (kind IN ('withdrawal', 'again')),
    done   BOOLEAN NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (item, epoch, number)
);

CREATE TABLE sale_cancel_wishes (
    item   TEXT COLLATE "C" NOT NULL,
    epoch  BIGINT NOT NULL,
    number BIGINT NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (item, epoch, number)
);
