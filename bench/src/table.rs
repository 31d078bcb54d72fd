//! The table: ours beside its reference, and whether that is what was aimed at.

use crate::stats::Samples;

/// What a figure should be.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Shown for comparison only.
    None,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Row {
    measure: String,
    ours: String,
    reference: String,
    ratio: String,
    target: String,
    met: String,
}

impl Row {
    /// Ours as a multiple of a reference of the same rounds.
    pub fn ratio(
        measure: &str,
        ours: (&Samples, Unit),
        reference: (&str, &Samples),
        target: Target,
    ) -> Self {
        let (samples, unit) = ours;
        let (name, its) = reference;
        let ratio = samples.per(its);
        Self {
            measure: measure.to_owned(),
            ours: unit.show(samples.median()),
            reference: format!("{name}: {}", unit.show(its.median())),
            ratio: format!(
                "{}× ({}–{})",
                number(ratio.median()),
                number(ratio.min()),
                number(ratio.max())
            ),
            target: target.show("×"),
            met: target.met(ratio.median()),
        }
    }

    /// A figure that stands for itself.
    pub fn figure(measure: &str, ours: (&Samples, Unit), target: Target) -> Self {
        let (samples, unit) = ours;
        let (low, high) = (unit.show(samples.min()), unit.show(samples.max()));
        let spread = format!("{low}–{high}");
        Self {
            measure: measure.to_owned(),
            ours: unit.show(samples.median()),
            reference: "–".to_owned(),
            ratio: if low == high {
                "–".to_owned()
            } else {
                spread
            },
            target: target.show_in(unit),
            met: target.met(samples.median()),
        }
    }

    /// A line without a figure, and why.
    pub fn missing(measure: &str, why: &str) -> Self {
        Self {
            measure: measure.to_owned(),
            ours: why.to_owned(),
            reference: "–".to_owned(),
            ratio: "–".to_owned(),
            target: "–".to_owned(),
            met: "–".to_owned(),
        }
    }

    fn cells(&self) -> [&str; 6] {
        [
            &self.measure,
            &self.ours,
            &self.reference,
            &self.ratio,
            &self.target,
            &self.met,
        ]
    }
}

impl Target {
    fn show(self, unit: &str) -> String {
        match self {
            Self::AtLeast(bound) => format!("≥ {}{unit}", number(bound)),
            Self::AtMost(bound) => format!("≤ {}{unit}", number(bound)),
            Self::None => "–".to_owned(),
        }
    }

    fn show_in(self, unit: Unit) -> String {
        match self {
            Self::AtLeast(bound) => format!("≥ {}", unit.show(bound)),
            Self::AtMost(bound) => format!("≤ {}", unit.show(bound)),
            Self::None => "–".to_owned(),
        }
    }

    fn met(self, value: f64) -> String {
        let (is_met, bound) = match self {
            Self::AtLeast(bound) => (value >= bound, bound),
            Self::AtMost(bound) => (value <= bound, bound),
            Self::None => return "–".to_owned(),
        };
        if is_met {
            "yes".to_owned()
        } else {
            format!("no: {} of {}", number(value), number(bound))
        }
    }
}

/// What a figure counts.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    PerSecond,
    Micros,
    Millis,
    Seconds,
    Percent,
    Bytes,
    Mebibytes,
    Times,
    Count,
}

impl Unit {
    pub fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond if value >= 1_000.0 => format!("{} k/s", number(value / 1_000.0)),
            Self::PerSecond => format!("{}/s", number(value)),
            Self::Micros => format!("{} µs", number(value)),
            Self::Millis => format!("{} ms", number(value)),
            Self::Seconds => format!("{} s", number(value)),
            Self::Percent => format!("{} %", number(value)),
            Self::Mebibytes => format!("{} MiB", number(value)),
            Self::Bytes => format!("{value:.0} B"),
            Self::Times => format!("{}×", number(value)),
            Self::Count => number(value),
        }
    }
}

/// Three digits that count; more would claim what no measurement here can.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The table in Markdown, aligned so that it can also be read as it is.
pub fn render(rows: &[Row]) -> String {
    let head = [
        "measure",
        "ours",
        "reference",
        "ratio (min–max)",
        "target",
        "met",
    ];
    let lines: Vec<[&str; 6]> = std::iter::once(head)
        .chain(rows.iter().map(Row::cells))
        .collect();
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let show = |line: &[&str; 6]| {
        let cells = line.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = widths.map(|width| "-".repeat(width));
    let mut table = show(&lines[0]);
    table += &show(&rule.each_ref().map(String::as_str));
    table.extend(lines[1..].iter().map(show));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_says_by_how_much() {
        assert_eq!(Target::AtLeast(0.85).met(0.9), "yes");
        assert_eq!(Target::AtLeast(0.85).met(0.71), "no: 0.71 of 0.85");
        assert_eq!(Target::AtMost(1.5).met(2.0), "no: 2.00 of 1.50");
    }

    #[test]
    fn a_figure_that_is_none_misses_every_target() {
        assert!(Target::AtLeast(1.0).met(f64::NAN).starts_with("no"));
        assert!(Target::AtMost(1.0).met(f64::NAN).starts_with("no"));
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [
            Row::missing("a", "not built yet"),
            Row::missing("longer", "x"),
        ];
        let table = render(&rows);
        let lengths = table.lines().map(|line| line.chars().count());
        let lengths: std::collections::BTreeSet<usize> = lengths.collect();
        assert_eq!(lengths.len(), 1, "{table}");
    }
}
