//! Which file the next request asks for.

use std::str::FromStr;

use kelvin_stats::Random;

use crate::load::load_share::LoadShare;

/// The order in which files are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum AccessPattern {
    /// Any, each as likely as any other.
    #[default]
    Random,
    /// Always the first one.
    Fixed,
    /// One after the other, all users together, and again from the first.
    Sequence,
    /// The file of rank k with a probability that falls as 1 / k^exponent.
    Zipf(f64),
}

impl FromStr for AccessPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" => Ok(Self::Random),
            "fixed" => Ok(Self::Fixed),
            "sequence" => Ok(Self::Sequence),
            "zipf" => Ok(Self::Zipf(1.0)),
            text => {
                let exponent = text.strip_prefix("zipf:").and_then(|exponent| exponent.parse().ok());
                let exponent = exponent.filter(|exponent| (0.0..=10.0).contains(exponent));
                exponent.map(Self::Zipf).ok_or_else(|| {
                    "give random, fixed, sequence, zipf, or zipf: and an exponent from 0 to 10".to_owned()
                })
            }
        }
    }
}

/// Chooses files by a pattern.
#[derive(Debug)]
pub struct FileChooser {
    pattern: AccessPattern,
    files: usize,
    position: usize,
    /// For zipf and weights: the share of all requests that ask for files up to each one; none otherwise.
    shares: Vec<f64>,
    random: Random,
    /// Choices before the next one that belong to other threads.
    skipped_choices: u32,
    share: LoadShare,
}

impl FileChooser {
    /// Of this many files, at least one, for all requests.
    pub fn new(pattern: AccessPattern, files: usize, seed: u64) -> Self {
        let shares = match pattern {
            AccessPattern::Zipf(exponent) => cumulative_shares((1..=files).map(|rank| (rank as f64).powf(-exponent))),
            _ => Vec::new(),
        };
        let random = Random::new(seed);
        Self { pattern, files, position: 0, shares, random, skipped_choices: 0, share: LoadShare::WHOLE }
    }

    /// Of files with these weights, at least one of them above zero, at random.
    pub fn by_weights(weights: &[f64], seed: u64) -> Self {
        let shares = cumulative_shares(weights.iter().copied());
        Self { shares, ..Self::new(AccessPattern::Random, weights.len(), seed) }
    }

    /// For the requests of one part: those that all parts together choose are those of one.
    pub fn for_share(self, share: LoadShare) -> Self {
        Self { skipped_choices: share.number(), share, ..self }
    }

    /// The number of the next file.
    pub fn choose(&mut self) -> usize {
        for _ in 0..self.skipped_choices {
            self.draw();
        }
        self.skipped_choices = self.share.parts() - 1;
        self.draw()
    }

    fn draw(&mut self) -> usize {
        match self.pattern {
            _ if self.files == 1 => 0,
            _ if !self.shares.is_empty() => {
                let uniform = self.random.uniform();
                self.shares.partition_point(|&share| share <= uniform).min(self.files - 1)
            }
            AccessPattern::Fixed => 0,
            AccessPattern::Random | AccessPattern::Zipf(_) => self.random.index_below(self.files),
            AccessPattern::Sequence => {
                let position = self.position;
                self.position = (position + 1) % self.files;
                position
            }
        }
    }
}

/// The share of all weights that those up to each one have.
fn cumulative_shares(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let sums = weights.map(|weight| {
        sum += weight;
        sum
    });
    let mut shares: Vec<f64> = sums.collect();
    shares.iter_mut().for_each(|share| *share /= sum);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pattern: AccessPattern, files: usize, requests: usize) -> Vec<usize> {
        let mut chooser = FileChooser::new(pattern, files, 11);
        let mut counts = vec![0; files];
        (0..requests).for_each(|_| counts[chooser.choose()] += 1);
        counts
    }

    #[test]
    fn pattern_frequencies_match() {
        assert_eq!(counts(AccessPattern::Fixed, 3, 9), [9, 0, 0]);
        assert_eq!(counts(AccessPattern::Sequence, 3, 10), [4, 3, 3]);
        for count in counts(AccessPattern::Random, 4, 40_000) {
            // Four standard deviations of a binomial count.
            assert!(count.abs_diff(10_000) < 350, "{count}");
        }
        let zipf = counts(AccessPattern::Zipf(1.0), 4, 100_000);
        // 1, 1/2, 1/3, 1/4 of the sum 25/12.
        for (count, expected) in zipf.iter().zip([48_000usize, 24_000, 16_000, 12_000]) {
            assert!(count.abs_diff(expected) < 700, "{zipf:?}");
        }
    }

    #[test]
    fn threads_choose_the_files_of_one() {
        for pattern in [AccessPattern::Random, AccessPattern::Sequence, AccessPattern::Zipf(1.0)] {
            for threads in 1..=4 {
                let mut whole = FileChooser::new(pattern, 7, 11);
                let chooser = |share| FileChooser::new(pattern, 7, 11).for_share(share);
                let mut parts: Vec<FileChooser> = LoadShare::WHOLE.divide(threads).map(chooser).collect();
                for number in 0..100 {
                    let part = &mut parts[number % threads as usize];
                    assert_eq!(part.choose(), whole.choose(), "{pattern:?} {threads} {number}");
                }
            }
        }
    }

    #[test]
    fn weights_are_shares_of_requests() {
        let mut chooser = FileChooser::by_weights(&[3.0, 0.0, 1.0, 0.0], 5);
        let mut counts = [0_usize; 4];
        (0..40_000).for_each(|_| counts[chooser.choose()] += 1);
        assert_eq!((counts[1], counts[3]), (0, 0));
        // Six standard deviations of 40,000 draws with probability 1/4.
        assert!(counts[2].abs_diff(10_000) < 520, "{counts:?}");
    }

    #[test]
    fn zipf_with_exponent_zero_is_uniform() {
        for count in counts(AccessPattern::Zipf(0.0), 4, 40_000) {
            assert!(count.abs_diff(10_000) < 350, "{count}");
        }
    }

    #[test]
    fn pattern_parses_from_text() {
        assert_eq!("zipf".parse(), Ok(AccessPattern::Zipf(1.0)));
        assert_eq!("zipf:0.8".parse(), Ok(AccessPattern::Zipf(0.8)));
        for text in ["", "Random", "zipf:", "zipf:-1", "zipf:nan", "zipf:11"] {
            assert!(text.parse::<AccessPattern>().is_err(), "{text}");
        }
    }
}
