//! Statistics: few, and the same for every measure.

/// One figure per round, in the order of the rounds.
#[derive(Clone, Debug)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        Self(values.into_iter().collect())
    }

    /// Figures of the same rounds, divided one by one: what disturbed a round disturbed both, so
    /// their ratio suffers less than either.
    pub fn per(&self, reference: &Self) -> Self {
        Self::new(
            self.0
                .iter()
                .zip(&reference.0)
                .map(|(ours, its)| ours / its),
        )
    }

    /// How much greater these are, one by one.
    pub fn less(&self, reference: &Self) -> Self {
        let pairs = self.0.iter().zip(&reference.0);
        Self::new(pairs.map(|(ours, its)| ours - its))
    }

    /// The median of every `size` figures that follow each other.
    pub fn median_of(&self, size: usize) -> Self {
        let median = |figures: &[f64]| Self(figures.to_vec()).median();
        Self::new(self.0.chunks(size).map(median))
    }

    /// The least of every `size` figures that follow each other.
    pub fn least_of(&self, size: usize) -> Self {
        let least = |figures: &[f64]| figures.iter().copied().fold(f64::INFINITY, f64::min);
        Self::new(self.0.chunks(size).map(least))
    }

    /// The mean of every `size` figures that follow each other.
    pub fn mean_of(&self, size: usize) -> Self {
        let mean = |figures: &[f64]| figures.iter().sum::<f64>() / figures.len() as f64;
        Self::new(self.0.chunks(size).map(mean))
    }

    /// The middle one, or the mean of the two middle ones.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            length if length % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    /// The figure below which so great a part of them lies.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place in a list"
        )]
        let place = (sorted.len() as f64 * part) as usize;
        let last = sorted.len().saturating_sub(1);
        sorted.get(place.min(last)).copied().unwrap_or(f64::NAN)
    }

    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;

    #[track_caller]
    fn check_median(values: &[f64], expected: f64) {
        let median = Samples::new(values.iter().copied()).median();
        assert!((median - expected).abs() < 1e-9, "{median}");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        check_median(&[3.0], 3.0);
        check_median(&[9.0, 1.0, 2.0], 2.0);
        check_median(&[4.0, 1.0, 3.0, 100.0], 3.5);
    }

    #[test]
    fn the_least_is_taken_group_by_group() {
        let least = Samples::new([3.0, 1.0, 5.0, 4.0]).least_of(2);
        assert!((least.min() - 1.0).abs() < 1e-9 && (least.max() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn the_mean_is_taken_group_by_group() {
        let mean = Samples::new([3.0, 1.0, 5.0, 4.0]).mean_of(2);
        assert!((mean.min() - 2.0).abs() < 1e-9 && (mean.max() - 4.5).abs() < 1e-9);
    }

    #[test]
    fn differences_and_medians_are_taken_where_they_belong() {
        let median = Samples::new([3.0, 1.0, 9.0, 4.0, 5.0, 6.0]).median_of(3);
        assert!((median.min() - 3.0).abs() < 1e-9 && (median.max() - 5.0).abs() < 1e-9);
        let more = median.less(&Samples::new([1.0, 1.0]));
        assert!((more.min() - 2.0).abs() < 1e-9 && (more.max() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let ratio = Samples::new([2.0, 30.0]).per(&Samples::new([1.0, 10.0]));
        assert!((ratio.min() - 2.0).abs() < 1e-9 && (ratio.max() - 3.0).abs() < 1e-9);
    }
}
