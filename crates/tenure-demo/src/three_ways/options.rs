//! The options of `tenure demo`.

/// The size of the sale and where it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it runs: one store or several independent servers; empty means inside this process.
    pub urls: Vec<String>,
    /// Units in stock.
    pub stock: u64,
    /// Number of buyers, one order each.
    pub buyers: u64,
    /// Number of shop instances, each with its own client.
    pub clients: u64,
}
