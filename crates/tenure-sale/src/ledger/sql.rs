//! Statements, their parameters and their rows, the same for both databases.

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Decode, Postgres, Row as _, Sqlite, Type};

/// A statement. Parameters are `$1`, `$2`, ... in both dialects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sql {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

impl Sql {
    /// The same text for both databases.
    pub(super) const fn same(text: &'static str) -> Self {
        Self::each(text, text)
    }

    /// One text for each.
    pub(super) const fn each(sqlite: &'static str, postgres: &'static str) -> Self {
        Self { sqlite, postgres }
    }
}

/// A parameter value.
#[derive(Debug)]
pub(super) enum Param<'a> {
    Int(i64),
    MaybeInt(Option<i64>),
    Bool(bool),
    Text(&'a str),
    /// Many rows at once: on PostgreSQL one array parameter per column, on SQLite one JSON array of
    /// rows.
    Bulk(&'a [Column<'a>]),
}

/// One column of many rows. All columns of a bulk have the same length.
#[derive(Debug)]
pub(super) enum Column<'a> {
    Ints(Vec<i64>),
    MaybeInts(Vec<Option<i64>>),
    Texts(Vec<&'a str>),
    MaybeTexts(Vec<Option<&'a str>>),
}

impl Column<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Ints(values) => values.len(),
            Self::MaybeInts(values) => values.len(),
            Self::Texts(values) => values.len(),
            Self::MaybeTexts(values) => values.len(),
        }
    }

    fn write_json(&self, row: usize, text: &mut String) {
        let string = |value: &str| serde_json::Value::from(value).to_string();
        match self {
            Self::Ints(values) => text.push_str(&values[row].to_string()),
            Self::MaybeInts(values) => match values[row] {
                Some(value) => text.push_str(&value.to_string()),
                None => text.push_str("null"),
            },
            Self::Texts(values) => text.push_str(&string(values[row])),
            Self::MaybeTexts(values) => match values[row] {
                Some(value) => text.push_str(&string(value)),
                None => text.push_str("null"),
            },
        }
    }
}

pub(super) fn sqlite_arguments(params: &[Param<'_>]) -> Result<SqliteArguments, sqlx::Error> {
    let mut arguments = SqliteArguments::default();
    for param in params {
        match param {
            Param::Int(value) => arguments.add(*value),
            Param::MaybeInt(value) => arguments.add(*value),
            Param::Bool(value) => arguments.add(*value),
            Param::Text(value) => arguments.add(*value),
            Param::Bulk(columns) => arguments.add(json_rows(columns)),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

pub(super) fn postgres_arguments(params: &[Param<'_>]) -> Result<PgArguments, sqlx::Error> {
    let mut arguments = PgArguments::default();
    for param in params {
        match param {
            Param::Int(value) => arguments.add(*value),
            Param::MaybeInt(value) => arguments.add(*value),
            Param::Bool(value) => arguments.add(*value),
            Param::Text(value) => arguments.add(*value),
            Param::Bulk(columns) => columns.iter().try_for_each(|column| match column {
                Column::Ints(values) => arguments.add(values),
                Column::MaybeInts(values) => arguments.add(values),
                Column::Texts(values) => arguments.add(values),
                Column::MaybeTexts(values) => arguments.add(values),
            }),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// `[[1,"a"],[2,"b"]]`, for `json_each`.
fn json_rows(columns: &[Column<'_>]) -> String {
    let rows = columns.first().map_or(0, Column::len);
    let mut text = String::with_capacity(2 + rows * columns.len() * 16);
    text.push('[');
    for row in 0..rows {
        text.push_str(if row == 0 { "[" } else { ",[" });
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            column.write_json(row, &mut text);
        }
        text.push(']');
    }
    text.push(']');
    text
}

/// One row of a result.
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// The value in a column, starting at zero.
    pub(super) fn get<T>(&self, column: usize) -> Result<T, sqlx::Error>
    where
        T: for<'r> Decode<'r, Sqlite> + Type<Sqlite>,
        T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
    {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }

    /// A non-negative number.
    pub(super) fn number(&self, column: usize) -> Result<u64, sqlx::Error> {
        let number: i64 = self.get(column)?;
        u64::try_from(number).map_err(|error| sqlx::Error::Decode(error.into()))
    }

    /// The same, if there is one.
    pub(super) fn maybe_number(&self, column: usize) -> Result<Option<u64>, sqlx::Error> {
        let number: Option<i64> = self.get(column)?;
        let number = number.map(u64::try_from).transpose();
        number.map_err(|error| sqlx::Error::Decode(error.into()))
    }

    /// A word from a closed set.
    pub(super) fn word<T>(
        &self,
        column: usize,
        of_word: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, sqlx::Error> {
        let word: String = self.get(column)?;
        of_word(&word).ok_or_else(|| foreign(format!("unknown word `{word}` in the ledger")))
    }
}

/// The database contains something that this program did not write.
pub(super) fn foreign(message: String) -> sqlx::Error {
    sqlx::Error::Decode(message.into())
}

/// A number in the database's type. All external input is checked before.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
