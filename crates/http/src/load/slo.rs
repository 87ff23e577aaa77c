//! Conditions on a load: whether it is to be called failed, what a rate must keep, and the search for the highest rate that does.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kelvin_core::load::{LatencySummary, LoadFigures, LoadResult};
use kelvin_core::quantity::parse_duration_within;
use kelvin_core::{Unit, units};

/// A figure of the response times: which one of `STATISTICS`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyStatistic(usize);

/// By its name: whether few requests decide it, and its value in nanoseconds.
type StatisticRow = (&'static str, bool, fn(&LatencySummary) -> f64);

const STATISTICS: [StatisticRow; 8] = [
    ("mean", false, |times| times.mean),
    ("p50", false, |times| times.p50),
    ("p90", false, |times| times.p90),
    ("p95", false, |times| times.p95),
    ("p99", true, |times| times.p99),
    ("p99.9", true, |times| times.p999),
    ("p99.99", true, |times| times.p9999),
    ("max", true, |times| times.max),
];

impl LatencyStatistic {
    fn parse(text: &str) -> Option<Self> {
        STATISTICS.iter().position(|(name, ..)| *name == text).map(Self)
    }

    /// Its value, in nanoseconds.
    pub fn value(&self, times: &LatencySummary) -> f64 {
        STATISTICS[self.0].2(times)
    }
}

impl fmt::Display for LatencyStatistic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(STATISTICS[self.0].0)
    }
}

/// What a condition is on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ThresholdFigure {
    Response(LatencyStatistic),
    Errors,
    /// Errors as a share of all requests.
    ErrorShare,
    Rate,
}

/// A condition under which a load has failed, such as `p99>50ms`, `errors>0` or `rate<1000`.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureThreshold {
    text: String,
    figure: ThresholdFigure,
    /// Whether a larger value fails; else a smaller one.
    larger_fails: bool,
    bound: f64,
}

impl FailureThreshold {
    /// Why the load has failed by it, if it has. A load without any right answer has no response times, and has failed.
    pub fn violation(&self, load: &LoadFigures<'_>) -> Option<String> {
        if load.response.count == 0 && matches!(self.figure, ThresholdFigure::Response(_)) {
            return Some(format!("{}: there was no correct answer", self.text));
        }
        let (value, description) = match self.figure {
            ThresholdFigure::Response(statistic) => {
                let value = statistic.value(&load.response);
                (value, format!("{statistic} is {}", units::value_text(value, Unit::Nanoseconds)))
            }
            ThresholdFigure::Errors => {
                let errors = load.failed_requests;
                (errors as f64, format!("errors are {}", units::count(errors)))
            }
            ThresholdFigure::ErrorShare => {
                let share = load.failed_share();
                (share, format!("errors are {} of all requests", units::percent(share)))
            }
            ThresholdFigure::Rate => {
                let Some(rate) = load.rate else { return Some(format!("{}: the rate is not known", self.text)) };
                (rate, format!("the rate is {}", units::value_text(rate, Unit::PerSecond)))
            }
        };
        let fails = if self.larger_fails { value > self.bound } else { value < self.bound };
        fails.then(|| format!("{}: {description}", self.text))
    }
}

impl FromStr for FailureThreshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMAT_HELP: &str = "give mean, p50, p90, p95, p99, p99.9, p99.99, max, errors or rate, then > or <, then a bound, \
                             such as p99>50ms, errors>0, errors>1% or rate<1000";
        let index = text.find(['<', '>']).ok_or(FORMAT_HELP)?;
        let (name, bound) = (text[..index].trim(), text[index + 1..].trim());
        let figure = match name {
            "errors" if bound.ends_with('%') => ThresholdFigure::ErrorShare,
            "errors" => ThresholdFigure::Errors,
            "rate" => ThresholdFigure::Rate,
            name => ThresholdFigure::Response(LatencyStatistic::parse(name).ok_or(FORMAT_HELP)?),
        };
        let bound = match figure {
            ThresholdFigure::Response(_) => parse_duration(bound)?.as_nanos() as f64,
            ThresholdFigure::ErrorShare => parse_share(bound).ok_or(FORMAT_HELP)?,
            _ => bound.parse().ok().filter(|bound: &f64| bound.is_finite() && *bound >= 0.0).ok_or(FORMAT_HELP)?,
        };
        Ok(Self { text: text.to_owned(), figure, larger_fails: text[index..].starts_with('>'), bound })
    }
}

/// A share such as `1%`, of at most all.
fn parse_share(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.trim_end().parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// A response time that a rate must keep, such as `p99:50ms`, and how many errors it may have, such as `p99:50ms,errors:1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyObjective {
    /// Which one.
    pub quantile: LatencyStatistic,
    /// At most, in nanoseconds.
    pub bound: f64,
    /// Most errors, as a share of all requests.
    pub errors: f64,
}

impl LatencyObjective {
    /// Whether a load kept it.
    pub fn is_met(&self, load: &LoadResult) -> bool {
        load.requests > 0 && load.failed_share() <= self.errors && self.quantile.value(&load.response) <= self.bound
    }

    /// Whether the generator, and not the server, may have missed it.
    pub fn may_be_generator_limited(&self, load: &LoadResult) -> bool {
        let is_tail = STATISTICS[self.quantile.0].1;
        let slow_share = if is_tail { load.generator.slow_tail } else { load.generator.slow_mean };
        load.generator.limit.is_some() || slow_share.is_some()
    }
}

impl FromStr for LatencyObjective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMAT_HELP: &str = "give mean, p50, p90, p95, p99, p99.9, p99.99 or max, a colon and a time, such as p99:50ms or \
                             p99:50ms,errors:1%";
        let (latency, errors) = text.split_once(',').map_or((text, None), |(time, errors)| (time, Some(errors)));
        let (name, bound) = latency.split_once(':').ok_or(FORMAT_HELP)?;
        let quantile = LatencyStatistic::parse(name.trim()).ok_or(FORMAT_HELP)?;
        let errors =
            errors.map(|errors| errors.trim().strip_prefix("errors:").and_then(parse_share).ok_or(FORMAT_HELP));
        Ok(Self {
            quantile,
            bound: parse_duration(bound.trim())?.as_nanos() as f64,
            errors: errors.transpose()?.unwrap_or(0.0),
        })
    }
}

impl fmt::Display for LatencyObjective {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of at most {}", self.quantile, units::value_text(self.bound, Unit::Nanoseconds))?;
        if self.errors > 0.0 { write!(out, " with at most {} errors", units::percent(self.errors)) } else { Ok(()) }
    }
}

/// The longest time that can be asked for: a week.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(7 * 86_400);

/// A time with its unit, such as `50ms`, from a microsecond to a week.
///
/// # Errors
/// What would be right, in words.
fn parse_duration(text: &str) -> Result<Duration, String> {
    // `p99>50` is as likely to mean milliseconds.
    if text.ends_with(|letter: char| letter.is_ascii_digit()) {
        return Err("expected a time with its unit, such as 50ms".into());
    }
    parse_duration_within(text, Duration::from_micros(1), MAX_DURATION)
}

/// Requests a second of the first try.
const INITIAL_RATE: f64 = 100.0;

/// The lowest and the highest rate that are tried.
const MIN_RATE: f64 = 0.1;
const MAX_RATE: f64 = 1_000_000.0;

/// The search ends when the lowest rate that missed is this many times the highest that kept: rates closer together differ less
/// than two measurements of one.
const STOP_RATIO: f64 = 1.05;

/// What is known so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateBisection {
    /// The highest rate that kept the objective.
    pub highest_met: Option<f64>,
    /// The lowest rate that missed it.
    pub lowest_missed: Option<f64>,
}

impl RateBisection {
    /// The rate to try next; `None` once the answer is known.
    pub fn next_rate(&self) -> Option<f64> {
        match (self.highest_met, self.lowest_missed) {
            (None, None) => Some(INITIAL_RATE),
            (Some(met), None) => Some(met * 2.0).filter(|&rate| rate <= MAX_RATE),
            (None, Some(missed)) => Some(missed / 2.0).filter(|&rate| rate >= MIN_RATE),
            (Some(met), Some(missed)) => (missed / met > STOP_RATIO).then(|| (met * missed).sqrt()),
        }
    }

    /// Whether this rate kept the objective.
    pub fn record(&mut self, rate: f64, is_met: bool) {
        *(if is_met { &mut self.highest_met } else { &mut self.lowest_missed }) = Some(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(p99: f64, errors: u64, requests: u64) -> LoadResult {
        let mut load = LoadResult { seconds: 2.0, requests, ..LoadResult::empty("http://a/") };
        load.response = LatencySummary { count: requests, p99, ..LatencySummary::default() };
        load.errors.connect = errors;
        load
    }

    #[test]
    fn threshold_violation_names_figure() {
        let missed =
            |gate: &str, load: &LoadResult| gate.parse::<FailureThreshold>().unwrap().violation(&load.figures());
        let slow_load = load(60e6, 0, 100);
        assert_eq!(missed("p99>50ms", &slow_load).as_deref(), Some("p99>50ms: p99 is 60.0 ms"));
        assert_eq!(missed("p99>60ms", &slow_load), None);
        assert_eq!(missed("errors>0", &slow_load), None);
        assert_eq!(missed("errors > 0", &load(1.0, 3, 1)).as_deref(), Some("errors > 0: errors are 3"));
        assert_eq!(missed("rate<51", &slow_load).as_deref(), Some("rate<51: the rate is 50.0 /s"));
        assert!(missed("p99>50ms", &load(0.0, 0, 0)).is_some(), "no answer is no good answer");
        assert_eq!(missed("p90>1ms", &slow_load), None);
        assert!(missed("p99.99<1ms", &slow_load).is_some());
        let failing_load = load(1.0, 3, 97);
        assert_eq!(
            missed("errors>2.5%", &failing_load).as_deref(),
            Some("errors>2.5%: errors are 3.0 % of all requests")
        );
        assert_eq!((missed("errors>3%", &failing_load), missed("errors>0%", &slow_load)), (None, None));
    }

    #[test]
    fn unanswered_request_counts_as_error() {
        let half_answered = LoadResult { unanswered: 50, ..load(1.0, 0, 50) };
        for gate in ["errors>0", "errors>49%"] {
            assert!(gate.parse::<FailureThreshold>().unwrap().violation(&half_answered.figures()).is_some(), "{gate}");
        }
        let is_met = |objective: &str| objective.parse::<LatencyObjective>().unwrap().is_met(&half_answered);
        assert!(!is_met("p99:1s") && !is_met("p99:1s,errors:49%") && is_met("p99:1s, errors:50%"));
    }

    #[test]
    fn errors_violate_objective() {
        let objective: LatencyObjective = "p99:50ms".parse().unwrap();
        assert!(objective.is_met(&load(50e6, 0, 10)));
        assert!(!objective.is_met(&load(51e6, 0, 10)));
        assert!(!objective.is_met(&load(1e6, 1, 10)) && !objective.is_met(&load(0.0, 0, 0)));
        assert_eq!(objective.to_string(), "p99 of at most 50.0 ms");
        let objective: LatencyObjective = "p99.99:50ms,errors:1%".parse().unwrap();
        assert_eq!(objective.to_string(), "p99.99 of at most 50.0 ms with at most 1.0 % errors");
    }

    #[test]
    fn generator_tail_is_not_a_miss() {
        let is_generator_limited = |objective: &str, load: &LoadResult| {
            objective.parse::<LatencyObjective>().unwrap().may_be_generator_limited(load)
        };
        let mut load = load(60e6, 0, 10);
        assert!(!is_generator_limited("p99:50ms", &load));
        load.generator.slow_tail = Some(0.5);
        assert!(is_generator_limited("p99:50ms", &load) && is_generator_limited("max:50ms", &load));
        assert!(!is_generator_limited("p50:50ms", &load) && !is_generator_limited("mean:50ms", &load));
        load.generator.slow_mean = Some(0.5);
        assert!(is_generator_limited("p90:50ms", &load) && is_generator_limited("mean:50ms", &load));
        load.generator.limit = Some(kelvin_core::load::GeneratorLimit::Late { share: 0.1 });
        assert!(is_generator_limited("p50:50ms", &load));
    }

    #[test]
    fn invalid_condition_is_refused() {
        for text in [
            "",
            "p99",
            "p98>5ms",
            "p99>5",
            "p99>x",
            "errors>many",
            "errors>-1",
            "errors>101%",
            "errors>%",
            "rate<nan",
            "p99=5ms",
        ] {
            assert!(text.parse::<FailureThreshold>().is_err(), "{text}");
        }
        for text in ["", "p99", "p99:", "p42:5ms", "p99:0ms", "p99:5", "p99:5ms,", "p99:5ms,errors:1", "errors:1%"] {
            assert!(text.parse::<LatencyObjective>().is_err(), "{text}");
        }
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["5", "", "ms", "-1s", "0s", "9000h", "8d", "nans"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    /// The answer on a server that keeps all rates up to a limit, and how many rates were tried.
    fn run_search(limit: f64) -> (RateBisection, usize) {
        let (mut search, mut tries) = (RateBisection::default(), 0);
        while let Some(rate) = search.next_rate() {
            search.record(rate, rate <= limit);
            tries += 1;
        }
        (search, tries)
    }

    #[test]
    fn result_is_within_five_percent() {
        for limit in [0.3, 7.0, 100.0, 5_600.0, 812_345.0] {
            let (search, tries) = run_search(limit);
            let (met, missed) = (search.highest_met.unwrap(), search.lowest_missed.unwrap());
            assert!(met <= limit && limit < missed && missed / met <= STOP_RATIO, "{limit}: {search:?}");
            assert!(tries <= 20, "{limit}: {tries}");
        }
    }

    #[test]
    fn unreachable_limit_ends_search() {
        assert_eq!(run_search(0.0).0.highest_met, None);
        assert_eq!(run_search(f64::INFINITY).0.lowest_missed, None);
    }
}
