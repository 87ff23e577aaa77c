//! How values change between two modes: in stretches, or from one to the next.

/// How values change between two modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModePattern {
    /// They stay in one for several, up to a whole sequence: what they are values of changes.
    Persistent,
    /// They are in either from one to the next, as if by lot or in turn: a pattern of the work itself.
    Alternating,
}

/// Part of the changes expected of a lot below which they are too few for one, ...
const MAX_CHANGE_RATIO: f64 = 0.5;
/// ... and by so many standard deviations at least: with fewer values half as many changes are no rarity.
const MIN_DEFICIT_STDS: f64 = 3.0;

/// How the values of sequences change across a bound, by the number of changes between neighbours: values that are drawn by lot change
/// twice the product of both shares of the time (the runs test of Wald and Wolfowitz, 1940). `None` where all are on one side.
pub fn mode_pattern(sequences: &[&[f64]], bound: f64) -> Option<ModePattern> {
    let pairs = || sequences.iter().flat_map(|sequence| sequence.windows(2));
    let all: usize = sequences.iter().map(|sequence| sequence.len()).sum();
    let below = sequences.iter().flat_map(|sequence| sequence.iter()).filter(|&&value| value < bound).count();
    if below == 0 || below == all {
        return None;
    }
    let share = below as f64 / all as f64;
    let by_lot = 2.0 * share * (1.0 - share);
    let expected = by_lot * pairs().count() as f64;
    let changes = pairs().filter(|pair| (pair[0] < bound) != (pair[1] < bound)).count() as f64;
    let deviation = (expected * (1.0 - by_lot)).sqrt();
    let is_few = changes < MAX_CHANGE_RATIO * expected && expected - changes > MIN_DEFICIT_STDS * deviation;
    Some(if is_few { ModePattern::Persistent } else { ModePattern::Alternating })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// Sequences of values near 1 or 2; a value stays in its mode with this chance, and else draws one anew.
    fn sequences(stays: f64, random: &mut Random) -> Vec<Vec<f64>> {
        let mut mode = 1.0;
        let mut value = || {
            if random.uniform() >= stays {
                mode = if random.uniform() < 0.3 { 2.0 } else { 1.0 };
            }
            mode * (0.05 * random.normal()).exp()
        };
        (0..8).map(|_| (0..40).map(|_| value()).collect()).collect()
    }

    fn pattern_of(sequences: &[Vec<f64>]) -> Option<ModePattern> {
        mode_pattern(&sequences.iter().map(Vec::as_slice).collect::<Vec<&[f64]>>(), 1.4)
    }

    #[test]
    fn persistent_modes_distinguished_from_random_changes() {
        let mut random = Random::new(9);
        let mut found = |stays| {
            let all = (0..200).map(|_| pattern_of(&sequences(stays, &mut random)));
            all.filter(|&found| found == Some(ModePattern::Persistent)).count()
        };
        assert_eq!([found(0.0), found(0.2)], [0, 0]);
        assert!(found(0.9) >= 190, "of stretches of ten values");
    }

    #[test]
    fn one_mode_per_sequence_is_persistent() {
        let rounds: Vec<Vec<f64>> = [1.0, 2.0, 1.0, 1.0, 2.0, 1.0].map(|mode| vec![mode; 30]).to_vec();
        assert_eq!(pattern_of(&rounds), Some(ModePattern::Persistent));
        let turns: Vec<f64> = (0..100).map(|at| f64::from(1 + at % 2)).collect();
        assert_eq!(pattern_of(&[turns]), Some(ModePattern::Alternating));
        assert_eq!(pattern_of(&[vec![1.0; 20]]), None);
        assert_eq!(pattern_of(&[]), None);
        // Too few to tell.
        assert_eq!(pattern_of(&[vec![1.0, 1.0, 2.0, 2.0]]), Some(ModePattern::Alternating));
    }
}
