//! How much of the reported last-level cache answers.

use kelvin_core::catalogue::mem::{BYTES, LATENCY, PageSize};

use super::{Consequence, MeasuredAmount, MetricSelector, StandOutAnswer, StandOutContext, StandOutFacts};

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let levels = &seen.analysis.levels.as_ref()?.levels;
    let at = levels.iter().rposition(|level| level.reported_bytes.is_some())?;
    let (level, beyond) = (&levels[at], levels.get(at + 1)?);
    let (reported, ends) = (level.reported_bytes?, level.capacity?);
    if level.agrees != Some(false) || reported <= ends.high {
        return None;
    }
    let spot = MetricSelector::new(&LATENCY).with_word(PageSize::Base.point());
    let of = |bytes: u64| {
        spot.find_all(&seen.analysis.results).find(move |result| BYTES.number_in(&result.case) == Some(bytes))
    };
    let sides =
        [ends.low, ends.high].into_iter().filter_map(|bytes| Some(seen.result_rounds(of(bytes)?)?.metric_value()));
    let latency = MeasuredAmount { value: beyond.latency, half_width: beyond.interval.half_width() };
    let says =
        StandOutFacts::CacheSize { ends: [ends.low, ends.high], reported, name: level.name.clone(), beyond: latency };
    Some(StandOutAnswer {
        weight: Consequence::OfThisMachine,
        factor: reported as f64 / ends.high as f64,
        sides: sides.collect(),
        ratio: None,
        facts: says,
    })
}
