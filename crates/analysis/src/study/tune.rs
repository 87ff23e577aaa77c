//! Conclusions on the search for the best setting: what it is for each state of the page cache, what it gains, and
//! whether another way is as good.

use std::cmp::Ordering;

use kelvin_model::units::{number, plain};
use kelvin_model::{Case, Conclusion, Name, Run, StudyResult, Unit};
use kelvin_stats::{headline, headline_interval, median};

use super::beyond;
use super::crossing::{rounds, standing};
use crate::headlines::Desk;

const RATE: &str = "file.tune";
/// What a search found in a round: metric, words before and behind it, unit.
const FOUND: [(&str, &str, Unit); 3] = [
    ("file.tune.block", "blocks of", Unit::Bytes),
    ("file.tune.threads", "threads:", Unit::Count),
    ("file.tune.depth", "requests under way in each:", Unit::Count),
];

/// Conclusions on the best settings, from the metrics `file.tune.*`; `None` if the run has not searched.
pub fn tune(run: &Run) -> Option<StudyResult> {
    run.metric(RATE)?;
    let search = Search { run, desk: Desk::of(run) };
    let rates = search.rounds(RATE);
    let mut caches: Vec<&'static str> = rates.iter().filter_map(|(case, _)| case.word("cache")).collect();
    caches.sort_unstable();
    caches.dedup();
    let conclusions: Vec<Conclusion> = caches.into_iter().flat_map(|cache| search.of(cache, &rates)).collect();
    let design =
        "For each way of reading, the best block, number of threads and depth were searched for by successive \
                  halving in every round anew, and what was found was measured again, in turn with pread of 128 KiB by \
                  one thread."
            .into();
    (!conclusions.is_empty()).then_some(StudyResult { id: Name::new(RATE), design, conclusions })
}

struct Search<'r> {
    run: &'r Run,
    desk: Desk<'r>,
}

impl<'r> Search<'r> {
    fn rounds(&self, metric: &str) -> Vec<(&'r Case, Vec<f64>)> {
        rounds(self.run, &self.desk, metric)
    }

    /// The rounds of a metric at a case.
    fn at(&self, metric: &str, case: &Case) -> Option<Vec<f64>> {
        self.rounds(metric).into_iter().find(|(known, _)| *known == case).map(|(_, rounds)| rounds)
    }

    /// What is to be said of one state of the page cache.
    fn of(&self, cache: &str, rates: &[(&'r Case, Vec<f64>)]) -> Vec<Conclusion> {
        let mut ways: Vec<&(&Case, Vec<f64>)> =
            rates.iter().filter(|(case, _)| case.word("cache") == Some(cache)).collect();
        ways.sort_by(|left, right| median(&right.1).total_cmp(&median(&left.1)));
        let Some(((best, rounds), others)) = ways.split_first() else { return Vec::new() };
        [self.gain(cache, best, rounds), fastest(cache, best, rounds, others)].into_iter().flatten().collect()
    }

    /// What the best setting is, and how much it gains.
    fn gain(&self, cache: &str, best: &Case, rates: &[f64]) -> Option<Conclusion> {
        let gains = self.at("file.tune.gain", best)?;
        let interval = headline_interval(&gains, None)?;
        let (low, high) = (interval.lower, interval.upper);
        let (setting, agreement) = self.setting(best)?;
        let rate = plain(headline(rates), Unit::BytesPerSecond);
        Some(Conclusion {
            text: format!(
                "{cache}: {} ({setting}) reads faster than pread of 128 KiB by one thread: {} times as fast ({} to {}), \
                 {rate}",
                way(best),
                number(headline(&gains)),
                number(low),
                number(high)
            ),
            holds: beyond(low, high, 1.0),
            test: format!("median gain of {} rounds and its interval; {agreement}", gains.len()),
        })
    }

    /// The setting that most rounds found, and how many found each part of it.
    fn setting(&self, case: &Case) -> Option<(String, String)> {
        let mut parts = Vec::new();
        let mut agreement = Vec::new();
        for (metric, words, unit) in FOUND {
            let found = self.at(metric, case)?;
            let (value, count) = most_frequent(&found)?;
            let value = if unit == Unit::Count { format!("{value}") } else { plain(value, unit) };
            parts.push(format!("{words} {value}"));
            agreement.push(format!("{count} of {}", found.len()));
        }
        Some((
            parts.join(", "),
            format!("rounds whose search found that block, those threads, that depth: {}", agreement.join(", ")),
        ))
    }
}

fn way(case: &Case) -> &'static str {
    case.word("engine").unwrap_or("a way without a name")
}

/// Whether the best way of a state is surely better than all others, each by its own best setting.
fn fastest(cache: &str, best: &Case, rounds: &[f64], others: &[&(&Case, Vec<f64>)]) -> Option<Conclusion> {
    let all = others.len() as f64;
    let compared: Vec<_> = others
        .iter()
        .filter(|(_, other)| other.iter().chain(rounds).all(|&rate| rate > 0.0))
        .filter_map(|(case, other)| Some((way(case), standing(0, other, rounds, all)?)))
        .collect();
    let rivals: Vec<&str> =
        compared.iter().filter(|(_, standing)| standing.side() != Ordering::Greater).map(|&(name, _)| name).collect();
    let (next, nearest) = compared.first()?;
    let claim =
        format!("{cache}: {} is the fastest of {} ways, each by its best setting", way(best), compared.len() + 1);
    let text = if rivals.is_empty() { claim } else { format!("{claim}; as fast may be {}", rivals.join(", ")) };
    Some(Conclusion {
        text,
        holds: rivals.is_empty().then_some(true),
        test: format!(
            "{} times the rate of {next} ({} to {}), by Welch's test on logarithms of {} rounds at a level at which \
             the comparisons with all ways hold together with 95 %",
            number(nearest.ratio),
            number(nearest.low),
            number(nearest.high),
            rounds.len()
        ),
    })
}

/// The value that occurs most often, and how often; of several the smallest.
fn most_frequent(values: &[f64]) -> Option<(f64, usize)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let groups = sorted.chunk_by(|left, right| left == right).map(|group| (group[0], group.len()));
    groups.reduce(|best, next| if next.1 > best.1 { next } else { best })
}
