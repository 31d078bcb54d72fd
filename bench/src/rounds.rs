//! Rounds: everybody runs once per round, one after the other, so that whatever else the machine
//! does meanwhile hits all of them.

use crate::progress;
use crate::stats::Samples;

/// Somebody who takes part in the rounds of a measure.
pub struct Entry<'a, T> {
    label: &'static str,
    run: Box<dyn FnMut() -> T + 'a>,
}

impl<'a, T> Entry<'a, T> {
    pub fn new(label: &'static str, run: impl FnMut() -> T + 'a) -> Self {
        let run = Box::new(run);
        Self { label, run }
    }
}

/// What everybody achieved in every round.
pub struct Results<T> {
    by_label: Vec<(&'static str, Vec<T>)>,
}

impl<T> Results<T> {
    /// One figure of one who took part; panics if nobody has that name.
    #[track_caller]
    pub fn samples(&self, label: &str, figure: impl Fn(&T) -> f64) -> Samples {
        let Some((_, rounds)) = self.by_label.iter().find(|(name, _)| *name == label) else {
            panic!("nobody called `{label}` took part");
        };
        Samples::new(rounds.iter().map(figure))
    }
}

/// Runs A B C, A B C, and so on, and tells how far it is.
pub fn interleave<T>(title: &str, rounds: usize, entries: Vec<Entry<'_, T>>) -> Results<T> {
    interleave_often(title, rounds, 1, entries)
}

/// The same for what is over at once: `times` times in every round, which gives as many results.
pub fn interleave_often<T>(
    title: &str,
    rounds: usize,
    times: usize,
    mut entries: Vec<Entry<'_, T>>,
) -> Results<T> {
    let by_label = entries.iter().map(|entry| (entry.label, Vec::new()));
    let mut by_label: Vec<(&'static str, Vec<T>)> = by_label.collect();
    for round in 1..=rounds {
        progress::tell(&format!("{title}: round {round} of {rounds}"));
        for _ in 0..times {
            for (entry, (_, results)) in entries.iter_mut().zip(&mut by_label) {
                results.push((entry.run)());
            }
        }
    }
    Results { by_label }
}
