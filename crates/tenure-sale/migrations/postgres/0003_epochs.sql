-- How many entries the queue of each shelf was given in an epoch that has ended: ids from there on
-- were never given out. A shelf whose server lost what it knew has no row.
CREATE TABLE sale_epochs (
    item    TEXT COLLATE "C" NOT NULL,
    epoch   BIGINT NOT NULL,
    shelf   BIGINT NOT NULL,
    entries BIGINT NOT NULL CHECK (entries >= 0),
    PRIMARY KEY (item, epoch, shelf)
);
