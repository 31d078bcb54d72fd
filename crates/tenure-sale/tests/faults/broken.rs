//! An item that is broken from the beginning to the end: neither its gate nor its books can be used.
//! It must not keep the others from being cared for.

use crate::items::BROKEN;
use crate::stage::Stage;

const REFUSE: &str = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN RAISE EXCEPTION 'broken on purpose'; END $$; \
     CREATE TRIGGER broken BEFORE UPDATE ON sale_items FOR EACH ROW \
     WHEN (OLD.name = 'broken') EXECUTE FUNCTION refuse()";
const ALLOW: &str = "DROP TRIGGER broken ON sale_items";

/// Its gate is lost, and cannot be loaded again.
pub fn break_for_good(stage: &Stage) {
    stage.ledger.run_sql(REFUSE);
    let gate = format!("tenure:sale:{{{BROKEN}}}:gate");
    stage
        .server_of(&gate)
        .run(&["SET", &gate, "of another program"]);
}

pub fn heal(stage: &Stage) {
    stage.ledger.run_sql(ALLOW);
}
