//! Which figure of the screen is furthest beyond its prediction.

use kelvin_catalogue::Placement;
use kelvin_catalogue::net::{RTT_TCP, RTT_UDP, RTT_UNIX};
use kelvin_catalogue::os::{IPC_PIPE_LATENCY, SWITCH_CROSS_CPU, TokenMeans};
use kelvin_model::{AgainstPrediction, Metric, PredictedRange, ScreenFigure, Unit};

use super::{Amount, Answer, Says, Seen, Spot, Weight, Within};
use crate::levels::explanation;
use crate::result::{GapCauses, MetricResult};
use crate::screen::figure::SECOND;
use crate::words::screen::brief;

/// A figure, its name in a sentence, and its unit.
struct Named<'a> {
    figure: &'a ScreenFigure,
    named: String,
    is_time: bool,
    unit: Unit,
}

impl Named<'_> {
    /// How many times as slow as the nearest end of the predicted range; `None` if it is not slower.
    fn beyond(&self) -> Option<f64> {
        let (measured, predicted) = (self.figure.measured?, self.figure.predicted.as_ref()?);
        let beyond = if self.is_time { measured.value / predicted.high } else { predicted.low / measured.value };
        (self.figure.against == AgainstPrediction::Slower).then_some(beyond)
    }

    /// How many times as slow as predicted.
    fn factor(&self) -> Option<f64> {
        let ratio = self.figure.measured?.value / self.figure.predicted.as_ref()?.value;
        Some(if self.is_time { ratio } else { 1.0 / ratio })
    }

    /// The prediction in words, with as many digits as its range supports.
    fn predicted(&self) -> Option<String> {
        let PredictedRange { value, low, high, .. } = self.figure.predicted.as_ref()?;
        let (scale, unit) = if self.is_time { (SECOND, Unit::Nanoseconds) } else { (1.0, self.unit) };
        Some(brief(value * scale, (high - low) / 2.0 * scale, unit))
    }
}

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let times = seen.climbed.iter().map(|one| Named {
        figure: &one.rung.figure,
        named: one.named.to_owned(),
        is_time: true,
        unit: Unit::Nanoseconds,
    });
    let rates = seen.rates.iter().map(|(named, rate)| Named {
        figure: &rate.figure,
        named: (*named).to_owned(),
        is_time: false,
        unit: rate.unit,
    });
    let all = times.chain(rates).filter_map(|named| Some((named.beyond()?, named)));
    let (_, worst) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let place = worst.figure.place.as_ref()?;
    let result = seen.analysis.results.iter().find(|result| result.place() == *place)?;
    Some(Answer {
        weight: Weight::OfThisMachine,
        factor: worst.factor()?,
        sides: vec![seen.rounds_of(result)?.side()],
        ratio: None,
        says: Says::WorstTime {
            predicted: worst.predicted()?,
            figure: worst.figure.text.clone(),
            within: within(seen, result),
            named: worst.named,
        },
    })
}

/// Round trips of which each way wakes the other end.
const ROUND_TRIPS: [&Metric; 4] = [&IPC_PIPE_LATENCY, &RTT_TCP, &RTT_UDP, &RTT_UNIX];
/// Share of a round trip that its two wake-ups must be, to be worth a word.
const MOST_OF_IT: f64 = 0.5;

/// What else of this run tells why, if anything does.
fn within(seen: &Seen<'_>, result: &MetricResult) -> Option<Within> {
    let level = seen.analysis.levels.as_ref().and_then(|found| explanation(found, result));
    if let Some((level, ends)) = level.and_then(|level| Some((level, level.capacity?))) {
        return Some(Within::Cache { name: level.name.clone(), ends: [ends.low, ends.high] });
    }
    if let Some(causes) = GapCauses::tried(seen.run, &result.place()) {
        return Some(Within::Causes(causes));
    }
    let is_round_trip = ROUND_TRIPS.iter().any(|metric| metric.id == result.metric.id);
    if !is_round_trip || Placement::of(&result.case) != Some(Placement::TwoCpus) {
        return None;
    }
    let wake = Amount::of(&seen.rounds(&Spot::new(&SWITCH_CROSS_CPU).at(TokenMeans::Pipe.point()))?);
    let whole = result.outcome.summary()?.headline;
    (2.0 * wake.value > MOST_OF_IT * whole).then_some(Within::WakeUps(wake))
}
