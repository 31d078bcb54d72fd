-- Over how many shelves the stock of an item is spread at the gate.
ALTER TABLE sale_items ADD COLUMN spread INTEGER NOT NULL DEFAULT 1 CHECK (spread >= 1);
