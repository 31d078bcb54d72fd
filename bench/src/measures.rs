//! The measures, one file each: what is run, what is counted, what is aimed at.

pub mod pairs;

use crate::setting::Setting;
use crate::table::Row;

/// A measure and the name it is selected by.
pub struct Measure {
    pub name: &'static str,
    pub run: fn(&Setting) -> Vec<Row>,
}

/// In the order of the table.
pub const ALL: &[Measure] = &[Measure {
    name: "pairs",
    run: pairs::measure,
}];
