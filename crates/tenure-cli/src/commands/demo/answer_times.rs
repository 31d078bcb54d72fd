//! How long buyers waited for their answers.

use std::time::Duration;

/// The times of all answers of a sale, from the shortest on.
#[derive(Clone, Debug)]
pub struct AnswerTimes(Vec<Duration>);

impl AnswerTimes {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The time within which so many of a hundred had their answer; zero if nobody asked.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        let time = self.0.get(rank.saturating_sub(1));
        time.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_of_a_hundred_were_not_slower() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();
        let times = AnswerTimes::of(times);
        assert_eq!(times.count(), 200);
        assert_eq!(times.percentile(50), Duration::from_millis(100));
        assert_eq!(times.percentile(99), Duration::from_millis(198));
        assert_eq!(times.percentile(100), Duration::from_millis(200));
    }

    #[test]
    fn one_answer_is_all_of_them_and_none_is_zero() {
        let one = AnswerTimes::of(vec![Duration::from_millis(7)]);
        assert_eq!(one.percentile(50), Duration::from_millis(7));
        assert_eq!(one.percentile(99), Duration::from_millis(7));
        assert_eq!(AnswerTimes::of(Vec::new()).percentile(99), Duration::ZERO);
    }
}
