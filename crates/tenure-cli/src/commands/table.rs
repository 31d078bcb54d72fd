//! Plain aligned columns, the same on a terminal and in a pipe.

use std::fmt;

/// Rows under a heading. Nothing is truncated.
pub struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub fn new(heading: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![heading.map(ToOwned::to_owned)],
        }
    }

    pub fn push(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row);
    }
}

/// Without a line end after the last row.
impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths);
            let cells: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            let end = if number == 0 { "" } else { "\n" };
            write!(f, "{end}{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "LEFT"]);
        table.push(["é".to_owned(), "1.0s".to_owned()]);
        table.push(["a long name".to_owned(), String::new()]);
        assert_eq!(
            table.to_string(),
            "NAME         LEFT\né            1.0s\na long name"
        );
    }
}
