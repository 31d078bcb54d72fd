-- Which ledger this is, and which gate it has. The gate's database knows both ids, too.
CREATE TABLE sale_ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL,
    gate TEXT,
    gate_seen_at BIGINT NOT NULL DEFAULT 0
);
