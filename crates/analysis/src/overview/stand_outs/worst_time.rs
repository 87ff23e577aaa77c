//! Which figure of the screen is furthest beyond its prediction.

use kelvin_core::catalogue::net::{RTT_TCP, RTT_UDP, RTT_UNIX};
use kelvin_core::catalogue::os::{HandoffMechanism, IPC_LATENCY, SWITCH_CROSS_CPU};

use super::*;
use crate::explanation::cause_share;
use crate::levels::smaller_cache_level;

/// A figure, its name in a sentence, and its unit where it is a rate.
struct NamedFigure<'a> {
    figure: &'a OverviewFigure,
    name: &'static str,
    rate: Option<Unit>,
}

impl NamedFigure<'_> {
    /// How many times as slow as the nearest end of the predicted range; `None` if it is not slower.
    fn excess_ratio(&self) -> Option<f64> {
        let (measured, predicted) = (self.figure.measured?, self.figure.predicted.as_ref()?);
        let excess = if self.rate.is_none() { measured.value / predicted.high } else { predicted.low / measured.value };
        (self.figure.verdict == PredictionVerdict::Slower).then_some(excess)
    }
}

pub(super) fn answer(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let times = context.rungs.iter();
    let times = times.map(|rung| NamedFigure { figure: &rung.rung.figure, name: rung.sentence_name, rate: None });
    let rates = context.rates.iter();
    let rates = rates.map(|(name, rate)| NamedFigure { figure: &rate.figure, name, rate: Some(rate.unit) });
    let slow_figures = times.chain(rates).filter_map(|figure| Some((figure.excess_ratio()?, figure)));
    let (_, NamedFigure { figure, name, rate }) = slow_figures.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let place = figure.source.as_ref()?;
    let result = context.analysis.result_at(place)?;
    let PredictedRange { value, low, high, .. } = figure.predicted.as_ref()?;
    let (scale, unit) = rate.map_or((NANOSECONDS_PER_SECOND, Unit::Nanoseconds), |unit| (1.0, unit));
    let text = format!(
        "Furthest from its prediction: {name}, {} instead of {}; {}.",
        figure.text,
        brief_value(value * scale, Some((high - low) / 2.0 * scale), unit),
        slowness_reason(context, result).unwrap_or_else(|| "no cause of it was tried".into())
    );
    let ratio = figure.measured?.value / value;
    let sides = vec![context.result_rounds(result)?.metric_value()];
    let answer = StandOutAnswer::new(Consequence::OfThisMachine, StandOutQuestion::WorstTime, sides, text);
    Some(answer.with_factor(if rate.is_none() { ratio } else { 1.0 / ratio }))
}

/// Round trips of which each way wakes the other end.
const WAKING_ROUND_TRIPS: [&Metric; 4] = [&IPC_LATENCY, &RTT_TCP, &RTT_UDP, &RTT_UNIX];
/// Share of a round trip that its two wake-ups must be, to be worth a word.
const MIN_WAKE_UP_SHARE: f64 = 0.5;

/// A reason from the other figures of this run, if they have one.
fn slowness_reason(context: &StandOutContext<'_>, result: &MetricResult) -> Option<String> {
    let level = context.analysis.levels.as_ref().and_then(|hierarchy| smaller_cache_level(hierarchy, result));
    if let Some((level, ends)) = level.and_then(|level| Some((level, level.capacity?))) {
        return Some(format!("only {} of {} are effective", size_range(ends), level.name));
    }
    if let Some(causes) = GapCauses::from_run(context.evidence.run, &result.metric_case()) {
        return Some(match (causes.shown.first(), causes.ruled_out.first()) {
            (Some(cause), _) => cause_share(cause),
            (None, Some(ruled_out)) => format!("not explained; ruled out: {ruled_out}"),
            (None, None) => "not explained".into(),
        });
    }
    let is_round_trip = WAKING_ROUND_TRIPS.iter().any(|metric| metric.id == result.metric.id);
    if !is_round_trip || PairPlacement::of(&result.case) != Some(PairPlacement::TwoCpus) {
        return None;
    }
    let wake = select(&SWITCH_CROSS_CPU).with_word(HandoffMechanism::Pipe.point());
    let wake = context.rounds(&wake)?.measured_value();
    let time = result.outcome.summary()?.headline;
    (2.0 * wake.value > MIN_WAKE_UP_SHARE * time).then(|| format!("it includes two wake-ups of {}", time_text(wake)))
}
