-- Lost orders are found by the ledger: numbers of an epoch that has ended, and that never arrived.
-- "open": the gate lost its data, so more entries than these may have been given out.
-- counted: the lost orders below `entries` were recorded.
ALTER TABLE sale_epochs ADD COLUMN open INTEGER NOT NULL DEFAULT 0 CHECK (open IN (0, 1));
ALTER TABLE sale_epochs ADD COLUMN counted INTEGER NOT NULL DEFAULT 0 CHECK (counted IN (0, 1));
CREATE INDEX sale_epochs_uncounted ON sale_epochs (item) WHERE NOT counted;
-- Epochs that ended before they were written down.
INSERT INTO sale_epochs (item, epoch, shelf, entries, open)
SELECT DISTINCT o.item, o.epoch, o.number % i.spread, 0, 1
FROM sale_orders AS o JOIN sale_items AS i ON i.name = o.item
WHERE o.epoch > 0 AND o.epoch < i.epoch
ON CONFLICT (item, epoch, shelf) DO NOTHING;
