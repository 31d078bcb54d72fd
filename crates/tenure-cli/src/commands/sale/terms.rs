//! The terms of a sale, as options.

use std::time::{Duration, SystemTime};

use tenure_sale::Terms;
use tenure_view::time;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Terms")]
pub struct TermsArgs {
    /// Maximum units per buyer; 0 for no limit
    #[arg(long, value_name = "UNITS")]
    limit: Option<u64>,

    /// Maximum units per order [default: 1]
    #[arg(long, value_name = "UNITS")]
    per_order: Option<u64>,

    /// Start of the sale: `2026-11-27T20:00:00Z`, or `+10m` from now; `-` for at once
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    starts: Option<Moment>,

    /// End of the sale; `-` for never
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    ends: Option<Moment>,

    /// Unpaid orders expire after this time and return their units; 0 for never
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pay_within: Option<Duration>,

    /// Refuse orders as busy while this many are queued [default: 100000]
    #[arg(long, value_name = "ORDERS")]
    backlog: Option<u64>,

    /// How long after the end the gate recognizes retries [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    keep_answers: Option<Duration>,
}

/// A point in time, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    None,
    At(SystemTime),
}

impl TermsArgs {
    /// These terms, with the changes that the options ask for.
    pub fn over(&self, terms: &Terms) -> Terms {
        let moment = |given: Option<Moment>, now| match given {
            None => now,
            Some(Moment::None) => None,
            Some(Moment::At(at)) => Some(at),
        };
        Terms {
            starts_at: moment(self.starts, terms.starts_at),
            ends_at: moment(self.ends, terms.ends_at),
            limit_per_buyer: match self.limit {
                None => terms.limit_per_buyer,
                Some(limit) => Some(limit).filter(|limit| *limit > 0),
            },
            units_per_order: self.per_order.unwrap_or(terms.units_per_order),
            pay_within: match self.pay_within {
                None => terms.pay_within,
                Some(within) => Some(within).filter(|within| !within.is_zero()),
            },
            backlog_max: self.backlog.unwrap_or(terms.backlog_max),
            answers_kept: self.keep_answers.unwrap_or(terms.answers_kept),
        }
    }
}

fn moment(text: &str) -> Result<Moment, String> {
    if text == "-" {
        return Ok(Moment::None);
    }
    let at = match text.strip_prefix('+') {
        Some(length) => SystemTime::now().checked_add(time::parse(length)?),
        None => humantime::parse_rfc3339_weak(text).ok(),
    };
    at.map(Moment::At).ok_or_else(|| {
        format!(
            "invalid time `{text}`: write `2026-11-27T20:00:00Z` (UTC), `+10m` from now, or `-`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_relative_or_none() {
        let day = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
        assert_eq!(moment("1970-01-02T00:00:00Z"), Ok(Moment::At(day)));
        assert_eq!(moment("1970-01-02 00:00:00"), Ok(Moment::At(day)));
        assert_eq!(moment("-"), Ok(Moment::None));
        assert!(matches!(moment("+10m"), Ok(Moment::At(at)) if at > SystemTime::now()));
        for wrong in ["", "+", "+soon", "tomorrow", "20:00"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
