//! Conclusions from measures of files: whether a cache below the kernel answers, and which block and which number of requests
//! under way are enough.

use kelvin_model::units::{bytes, number, percent, plain};
use kelvin_model::{Case, Conclusion, Measurement, Metric, Name, Run, StudyResult, Unit};
use kelvin_stats::{headline, headline_interval, median_ratio};

use crate::gather::Gathered;
use crate::headlines::{Desk, Settled};

/// A part of the best rate that counts as enough.
const ENOUGH: f64 = 0.9;
/// Points of a curve that has a knee.
const FEWEST_POINTS: usize = 3;

/// A rate over one parameter, the other one held.
struct Curve {
    metric: &'static str,
    axis: &'static str,
    /// The unit of the parameter.
    unit: Unit,
    /// The parameter that is held.
    held: Option<(&'static str, &'static str)>,
    /// What is done: `reads from memory in blocks of`.
    what: &'static str,
}

const fn blocks(metric: &'static str, held: (&'static str, &'static str), what: &'static str) -> Curve {
    Curve { metric, axis: "block", unit: Unit::Bytes, held: Some(held), what }
}

static BLOCKS: [Curve; 5] = [
    blocks("file.blocksize.read", ("cache", "cached"), "reads from the page cache in blocks of"),
    blocks("file.blocksize.read", ("cache", "uncached"), "reads through an empty page cache in blocks of"),
    blocks("file.blocksize.read", ("cache", "direct"), "reads past the page cache in blocks of"),
    blocks("file.blocksize.write", ("sync", "buffered"), "writes into the page cache in blocks of"),
    blocks("file.blocksize.write", ("sync", "direct"), "writes past the page cache in blocks of"),
];

static DEPTHS: [Curve; 1] = [Curve {
    metric: "file.depth.rate",
    axis: "depth",
    unit: Unit::Count,
    held: None,
    what: "random reads of 4 KiB with a depth of",
}];

/// How much faster than the first pass a later one may be before a cache must have answered it.
const CACHE_FACTOR: f64 = 2.0;

/// Whether a cache below the kernel answers, from the metric `file.device.repeat`; `None` if it was not measured in two
/// rounds at least, or only as an input.
pub fn cache_below(run: &Run) -> Option<StudyResult> {
    const METRIC: &str = "file.device.repeat";
    let definition = run.metric(METRIC)?;
    let desk = Desk::of(run);
    let is_asked =
        |measurement: &&Measurement| !measurement.planned.only_input && measurement.readings(METRIC).next().is_some();
    let measurement = run.measurements.iter().find(is_asked)?;
    let gathered = Gathered::of(measurement, definition, &desk.references);
    let ratios = Settled::headline(&gathered, None)?.round_headlines;
    let interval = headline_interval(&ratios, None)?;
    let conclusion = Conclusion {
        text: format!(
            "a cache below the kernel (a hypervisor's, a controller's or a drive's) answers what was read before, for later \
             passes over a file are more than {CACHE_FACTOR} times as fast as the first: they are {} ({} to {}) times",
            number(headline(&ratios)),
            number(interval.lower),
            number(interval.upper)
        ),
        holds: match (interval.lower > CACHE_FACTOR, interval.upper < CACHE_FACTOR) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
        test: format!("median of {} rounds and its interval", ratios.len()),
    };
    let design =
        "A file was written, flushed, and read past the page cache once, and then again in several rounds. What was \
                  just written may lie in such a cache from the beginning: then no pass is slow, and nothing shows."
            .into();
    Some(StudyResult { id: Name::new("file.device"), design, conclusions: vec![conclusion] })
}

/// Conclusions about blocks, from the metrics `file.blocksize.*`; `None` without curves of three points at least.
pub fn block_sizes(run: &Run) -> Option<StudyResult> {
    let design = format!(
        "A file was read and written over by one thread in blocks of several sizes, one call a block, in several rounds. A \
         block is enough if it reaches {} of the rate of the best one.",
        percent(ENOUGH)
    );
    study(run, "file.blocksize", design, &BLOCKS)
}

/// Conclusions about requests under way, from the metrics `file.depth.*`; `None` without a curve of three points at least.
pub fn depths(run: &Run) -> Option<StudyResult> {
    let design = format!(
        "Blocks of 4 KiB were read in random order past the page cache with several numbers of requests under way, in \
         several rounds. A depth is enough if it reaches {} of the rate of the best one.",
        percent(ENOUGH)
    );
    study(run, "file.depth", design, &DEPTHS)
}

fn study(run: &Run, id: &'static str, design: String, curves: &[Curve]) -> Option<StudyResult> {
    let desk = Desk::of(run);
    let conclusions: Vec<Conclusion> = curves.iter().flat_map(|curve| curve.conclusions(run, &desk)).collect();
    (!conclusions.is_empty()).then_some(StudyResult { id: Name::new(id), design, conclusions })
}

/// A value of the parameter, and the headlines of its rounds.
struct Point {
    at: u64,
    rounds: Vec<f64>,
}

impl Curve {
    fn is_held(&self, case: &Case) -> bool {
        self.held.is_none_or(|(axis, word)| case.word(axis) == Some(word))
    }

    /// The parameter at a point, as it is written: a number of requests, or a power of two of bytes.
    fn value(&self, point: &Point) -> String {
        if self.unit == Unit::Bytes { bytes(point.at) } else { point.at.to_string() }
    }

    /// Its points, ascending.
    fn points(&self, run: &Run, desk: &Desk<'_>, definition: &Metric) -> Vec<Point> {
        let of = |measurement: &Measurement| {
            let case = &measurement.planned.case;
            measurement.readings(self.metric).next()?;
            let at = case.integer(self.axis).filter(|_| self.is_held(case))?;
            let gathered = Gathered::of(measurement, definition, &desk.references);
            let rounds = Settled::headline(&gathered, None)?.round_headlines;
            Some(Point { at, rounds })
        };
        let mut points: Vec<Point> = run.measurements.iter().filter_map(of).collect();
        points.sort_by_key(|point| point.at);
        points
    }

    /// That the first point which reaches enough of the best rate does so, and that the one before does not.
    fn conclusions(&self, run: &Run, desk: &Desk<'_>) -> Vec<Conclusion> {
        let Some(definition) = run.metric(self.metric) else { return Vec::new() };
        let points = self.points(run, desk, definition);
        let rate = |point: &Point| headline(&point.rounds);
        let Some(best) = points.iter().max_by(|one, other| rate(one).total_cmp(&rate(other))) else {
            return Vec::new();
        };
        let Some(knee) = points.iter().position(|point| rate(point) >= ENOUGH * rate(best)) else {
            return Vec::new();
        };
        if points.len() < FEWEST_POINTS {
            return Vec::new();
        }
        let beside = |point: &Point, enough: bool| self.beside(point, best, enough, (definition.unit, points.len()));
        let before = knee.checked_sub(1).and_then(|before| beside(&points[before], false));
        beside(&points[knee], true).into_iter().chain(before).collect()
    }

    /// Whether a point is enough, or is not, as the sentence claims.
    fn beside(&self, point: &Point, best: &Point, enough: bool, (unit, points): (Unit, usize)) -> Option<Conclusion> {
        let (what, here) = (self.what, self.value(point));
        let top = plain(headline(&best.rounds), unit);
        let chosen = format!("the point was chosen among {points} by the same rounds");
        if point.at == best.at {
            // Beside itself there is nothing to test; what the one before lacks says as much.
            return None;
        }
        let (ratio, low, high) = median_ratio(&best.rounds, &point.rounds)?;
        let holds = match (low > ENOUGH, high < ENOUGH) {
            (true, _) => Some(enough),
            (_, true) => Some(!enough),
            _ => None,
        };
        let claim = if enough { "are enough" } else { "are not enough" };
        Some(Conclusion {
            text: format!(
                "{what} {here} {claim}: they reach {} ({} to {}) of the rate with {}, {top}",
                percent(ratio),
                percent(low),
                percent(high),
                self.value(best)
            ),
            holds,
            test: format!(
                "ratio of median rates with its 95 % interval by Welch's test on logarithms, {} against {} rounds; {chosen}",
                point.rounds.len(),
                best.rounds.len()
            ),
        })
    }
}
