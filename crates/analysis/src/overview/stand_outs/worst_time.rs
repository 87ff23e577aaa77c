//! Which figure of the screen is furthest beyond its prediction.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::net::{RTT_TCP, RTT_UDP, RTT_UNIX};
use kelvin_core::catalogue::os::{IPC_PIPE_LATENCY, SWITCH_CROSS_CPU, TokenChannel};
use kelvin_core::{Metric, OverviewFigure, PredictedRange, PredictionVerdict, Unit};

use super::{
    Consequence, MeasuredAmount, MetricSelector, SlownessReason, StandOutAnswer, StandOutContext, StandOutFacts,
};
use crate::levels::smaller_cache_level;
use crate::overview::figure::NANOSECONDS_PER_SECOND;
use crate::result::{GapCauses, MetricResult};
use crate::wording::overview::brief_text;

/// A figure, its name in a sentence, and its unit.
struct NamedFigure<'a> {
    figure: &'a OverviewFigure,
    named: String,
    is_time: bool,
    unit: Unit,
}

impl NamedFigure<'_> {
    /// How many times as slow as the nearest end of the predicted range; `None` if it is not slower.
    fn excess_ratio(&self) -> Option<f64> {
        let (measured, predicted) = (self.figure.measured?, self.figure.predicted.as_ref()?);
        let beyond = if self.is_time { measured.value / predicted.high } else { predicted.low / measured.value };
        (self.figure.against == PredictionVerdict::Slower).then_some(beyond)
    }

    /// How many times as slow as predicted.
    fn factor(&self) -> Option<f64> {
        let ratio = self.figure.measured?.value / self.figure.predicted.as_ref()?.value;
        Some(if self.is_time { ratio } else { 1.0 / ratio })
    }

    /// The prediction in words, with as many digits as its range supports.
    fn predicted(&self) -> Option<String> {
        let PredictedRange { value, low, high, .. } = self.figure.predicted.as_ref()?;
        let (scale, unit) = if self.is_time { (NANOSECONDS_PER_SECOND, Unit::Nanoseconds) } else { (1.0, self.unit) };
        Some(brief_text(value * scale, (high - low) / 2.0 * scale, unit))
    }
}

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let times = seen.rungs.iter().map(|one| NamedFigure {
        figure: &one.rung.figure,
        named: one.sentence_name.to_owned(),
        is_time: true,
        unit: Unit::Nanoseconds,
    });
    let rates = seen.rates.iter().map(|(named, rate)| NamedFigure {
        figure: &rate.figure,
        named: (*named).to_owned(),
        is_time: false,
        unit: rate.unit,
    });
    let all = times.chain(rates).filter_map(|named| Some((named.excess_ratio()?, named)));
    let (_, worst) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let place = worst.figure.place.as_ref()?;
    let result = seen.analysis.results.iter().find(|result| result.figure_source() == *place)?;
    Some(StandOutAnswer {
        weight: Consequence::OfThisMachine,
        factor: worst.factor()?,
        sides: vec![seen.result_rounds(result)?.metric_value()],
        ratio: None,
        facts: StandOutFacts::WorstTime {
            predicted: worst.predicted()?,
            figure: worst.figure.text.clone(),
            within: slowness_reason(seen, result),
            named: worst.named,
        },
    })
}

/// Round trips of which each way wakes the other end.
const WAKING_ROUND_TRIPS: [&Metric; 4] = [&IPC_PIPE_LATENCY, &RTT_TCP, &RTT_UDP, &RTT_UNIX];
/// Share of a round trip that its two wake-ups must be, to be worth a word.
const MIN_WAKE_UP_SHARE: f64 = 0.5;

/// What else of this run tells why, if anything does.
fn slowness_reason(seen: &StandOutContext<'_>, result: &MetricResult) -> Option<SlownessReason> {
    let level = seen.analysis.levels.as_ref().and_then(|found| smaller_cache_level(found, result));
    if let Some((level, ends)) = level.and_then(|level| Some((level, level.capacity?))) {
        return Some(SlownessReason::Cache { name: level.name.clone(), ends: [ends.low, ends.high] });
    }
    if let Some(causes) = GapCauses::from_run(seen.run, &result.figure_source()) {
        return Some(SlownessReason::Causes(causes));
    }
    let is_round_trip = WAKING_ROUND_TRIPS.iter().any(|metric| metric.id == result.metric.id);
    if !is_round_trip || PairPlacement::of(&result.case) != Some(PairPlacement::TwoCpus) {
        return None;
    }
    let wake = MeasuredAmount::from_rounds(
        &seen.rounds(&MetricSelector::new(&SWITCH_CROSS_CPU).with_word(TokenChannel::Pipe.point()))?,
    );
    let whole = result.outcome.summary()?.headline;
    (2.0 * wake.value > MIN_WAKE_UP_SHARE * whole).then_some(SlownessReason::WakeUps(wake))
}
