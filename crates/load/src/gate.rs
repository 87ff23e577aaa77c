//! Conditions on a load: whether it is to be called failed, and what a rate must keep.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kelvin_model::load::{Latency, Load};
use kelvin_model::quantity::duration_within;
use kelvin_model::{Unit, units};

/// A figure of the response times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// The mean.
    Mean,
    /// The median.
    P50,
    /// 90 % are at most this.
    P90,
    /// 95 % are at most this.
    P95,
    /// 99 % are at most this.
    P99,
    /// 99.9 % are at most this.
    P999,
    /// 99.99 % are at most this.
    P9999,
    /// The longest.
    Max,
}

impl Quantile {
    /// As they are written.
    const NAMES: [(&'static str, Self); 8] = [
        ("mean", Self::Mean),
        ("p50", Self::P50),
        ("p90", Self::P90),
        ("p95", Self::P95),
        ("p99", Self::P99),
        ("p99.9", Self::P999),
        ("p99.99", Self::P9999),
        ("max", Self::Max),
    ];

    fn named(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, quantile)| *quantile)
    }

    /// Its value, in nanoseconds.
    pub fn of(self, times: &Latency) -> f64 {
        match self {
            Self::Mean => times.mean,
            Self::P50 => times.p50,
            Self::P90 => times.p90,
            Self::P95 => times.p95,
            Self::P99 => times.p99,
            Self::P999 => times.p999,
            Self::P9999 => times.p9999,
            Self::Max => times.max,
        }
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(Self::NAMES.iter().find(|(_, quantile)| quantile == self).map_or("", |(name, _)| name))
    }
}

/// What a condition is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Response(Quantile),
    Errors,
    /// Errors as a share of all requests.
    ErrorShare,
    Rate,
}

impl Figure {
    fn of(self, load: &Load) -> f64 {
        match self {
            Self::Response(quantile) => quantile.of(&load.response),
            Self::Errors => load.failed() as f64,
            Self::ErrorShare => load.failed_share(),
            Self::Rate => load.rate(),
        }
    }

    fn shown(self, value: f64) -> String {
        match self {
            Self::Response(quantile) => format!("{quantile} is {}", units::plain(value, Unit::Nanoseconds)),
            Self::Errors => format!("errors are {}", units::count(value as u64)),
            Self::ErrorShare => format!("errors are {} of all requests", units::percent(value)),
            Self::Rate => format!("the rate is {}", units::plain(value, Unit::PerSecond)),
        }
    }
}

/// A condition under which a load has failed, such as `p99>50ms`, `errors>0` or `rate<1000`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    text: String,
    figure: Figure,
    /// Whether a larger value fails; else a smaller one.
    larger_fails: bool,
    bound: f64,
}

impl Gate {
    /// Why the load has failed by it, if it has. A load without any right answer has no response times, and has failed.
    pub fn missed(&self, load: &Load) -> Option<String> {
        if load.response.count == 0 && matches!(self.figure, Figure::Response(_)) {
            return Some(format!("{}: there was no right answer", self.text));
        }
        let value = self.figure.of(load);
        let fails = if self.larger_fails { value > self.bound } else { value < self.bound };
        fails.then(|| format!("{}: {}", self.text, self.figure.shown(value)))
    }
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRONG: &str = "give mean, p50, p90, p95, p99, p99.9, p99.99, max, errors or rate, then > or <, then a bound, \
                             such as p99>50ms, errors>0, errors>1% or rate<1000";
        let place = text.find(['<', '>']).ok_or(WRONG)?;
        let (name, bound) = (text[..place].trim(), text[place + 1..].trim());
        let figure = match name {
            "errors" if bound.ends_with('%') => Figure::ErrorShare,
            "errors" => Figure::Errors,
            "rate" => Figure::Rate,
            name => Figure::Response(Quantile::named(name).ok_or(WRONG)?),
        };
        let bound = match figure {
            Figure::Response(_) => time(bound)?.as_nanos() as f64,
            Figure::ErrorShare => share(bound).ok_or(WRONG)?,
            _ => bound.parse().ok().filter(|bound: &f64| bound.is_finite() && *bound >= 0.0).ok_or(WRONG)?,
        };
        Ok(Self { text: text.to_owned(), figure, larger_fails: text[place..].starts_with('>'), bound })
    }
}

/// A share such as `1%`, of at most all.
fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.trim_end().parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// A response time that a rate must keep, such as `p99:50ms`, and how many errors it may have, such as `p99:50ms,errors:1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Which one.
    pub quantile: Quantile,
    /// At most, in nanoseconds.
    pub bound: f64,
    /// Most errors, as a share of all requests.
    pub errors: f64,
}

impl Objective {
    /// Whether a load kept it.
    pub fn is_kept(&self, load: &Load) -> bool {
        load.requests > 0 && load.failed_share() <= self.errors && self.quantile.of(&load.response) <= self.bound
    }

    /// Whether the generator, and not the server, may have missed it.
    pub fn is_of_generator(&self, load: &Load) -> bool {
        let is_tail = matches!(self.quantile, Quantile::P99 | Quantile::P999 | Quantile::P9999 | Quantile::Max);
        let slow = if is_tail { load.generator.slow_tail } else { load.generator.slow_mean };
        load.generator.limit.is_some() || slow.is_some()
    }
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRONG: &str = "give mean, p50, p90, p95, p99, p99.9, p99.99 or max, a colon and a time, such as p99:50ms or \
                             p99:50ms,errors:1%";
        let (time_of, errors) = text.split_once(',').map_or((text, None), |(time, errors)| (time, Some(errors)));
        let (name, bound) = time_of.split_once(':').ok_or(WRONG)?;
        let quantile = Quantile::named(name.trim()).ok_or(WRONG)?;
        let errors = errors.map(|errors| errors.trim().strip_prefix("errors:").and_then(share).ok_or(WRONG));
        Ok(Self { quantile, bound: time(bound.trim())?.as_nanos() as f64, errors: errors.transpose()?.unwrap_or(0.0) })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of at most {}", self.quantile, units::plain(self.bound, Unit::Nanoseconds))?;
        if self.errors > 0.0 { write!(out, " with at most {} errors", units::percent(self.errors)) } else { Ok(()) }
    }
}

/// The longest time that can be asked for: a week.
pub(crate) const LONGEST_TIME: Duration = Duration::from_secs(7 * 86_400);

/// A time with its unit, such as `50ms`, from a microsecond to a week.
///
/// # Errors
/// What would be right, in words.
fn time(text: &str) -> Result<Duration, String> {
    // `p99>50` is as likely to mean milliseconds.
    if text.ends_with(|letter: char| letter.is_ascii_digit()) {
        return Err("a time with its unit is right, such as 50ms".into());
    }
    duration_within(text, Duration::from_micros(1), LONGEST_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(p99: f64, errors: u64, requests: u64) -> Load {
        let mut load = Load { seconds: 2.0, requests, ..Load::empty("http://a/") };
        load.response = Latency { count: requests, p99, ..Latency::default() };
        load.errors.connect = errors;
        load
    }

    #[test]
    fn a_gate_fails_a_load_beyond_its_bound_and_says_by_what() {
        let missed = |gate: &str, load: &Load| gate.parse::<Gate>().unwrap().missed(load);
        let slow = load(60e6, 0, 100);
        assert_eq!(missed("p99>50ms", &slow).as_deref(), Some("p99>50ms: p99 is 60.0 ms"));
        assert_eq!(missed("p99>60ms", &slow), None);
        assert_eq!(missed("errors>0", &slow), None);
        assert_eq!(missed("errors > 0", &load(1.0, 3, 1)).as_deref(), Some("errors > 0: errors are 3"));
        assert_eq!(missed("rate<51", &slow).as_deref(), Some("rate<51: the rate is 50.0 /s"));
        assert!(missed("p99>50ms", &load(0.0, 0, 0)).is_some(), "no answer is no good answer");
        assert_eq!(missed("p90>1ms", &slow), None);
        assert!(missed("p99.99<1ms", &slow).is_some());
        let some = load(1.0, 3, 97);
        assert_eq!(missed("errors>2.5%", &some).as_deref(), Some("errors>2.5%: errors are 3.0 % of all requests"));
        assert_eq!((missed("errors>3%", &some), missed("errors>0%", &slow)), (None, None));
    }

    #[test]
    fn a_request_without_an_answer_is_an_error() {
        let half = Load { unanswered: 50, ..load(1.0, 0, 50) };
        for gate in ["errors>0", "errors>49%"] {
            assert!(gate.parse::<Gate>().unwrap().missed(&half).is_some(), "{gate}");
        }
        let kept = |objective: &str| objective.parse::<Objective>().unwrap().is_kept(&half);
        assert!(!kept("p99:1s") && !kept("p99:1s,errors:49%") && kept("p99:1s, errors:50%"));
    }

    #[test]
    fn an_objective_is_kept_without_errors_only() {
        let objective: Objective = "p99:50ms".parse().unwrap();
        assert!(objective.is_kept(&load(50e6, 0, 10)));
        assert!(!objective.is_kept(&load(51e6, 0, 10)));
        assert!(!objective.is_kept(&load(1e6, 1, 10)) && !objective.is_kept(&load(0.0, 0, 0)));
        assert_eq!(objective.to_string(), "p99 of at most 50.0 ms");
        let objective: Objective = "p99.99:50ms,errors:1%".parse().unwrap();
        assert_eq!(objective.to_string(), "p99.99 of at most 50.0 ms with at most 1.0 % errors");
    }

    #[test]
    fn a_slow_tail_of_the_generator_is_no_miss_of_the_server() {
        let of_generator = |objective: &str, load: &Load| objective.parse::<Objective>().unwrap().is_of_generator(load);
        let mut load = load(60e6, 0, 10);
        assert!(!of_generator("p99:50ms", &load));
        load.generator.slow_tail = Some(0.5);
        assert!(of_generator("p99:50ms", &load) && of_generator("max:50ms", &load));
        assert!(!of_generator("p50:50ms", &load) && !of_generator("mean:50ms", &load));
        load.generator.slow_mean = Some(0.5);
        assert!(of_generator("p90:50ms", &load) && of_generator("mean:50ms", &load));
        load.generator.limit = Some(kelvin_model::load::GeneratorLimit::Late { share: 0.1 });
        assert!(of_generator("p50:50ms", &load));
    }

    #[test]
    fn what_is_no_condition_is_refused_with_what_would_be_right() {
        for wrong in [
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
            assert!(wrong.parse::<Gate>().is_err(), "{wrong}");
        }
        for wrong in ["", "p99", "p99:", "p42:5ms", "p99:0ms", "p99:5", "p99:5ms,", "p99:5ms,errors:1", "errors:1%"] {
            assert!(wrong.parse::<Objective>().is_err(), "{wrong}");
        }
        assert_eq!(time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["5", "", "ms", "-1s", "0s", "9000h", "8d", "nans"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
