//! How much of the reported last-level cache answers.

use kelvin_core::catalogue::mem::{BYTES, LATENCY, PageSize};

use super::*;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let levels = &seen.analysis.levels.as_ref()?.levels;
    let index = levels.iter().rposition(|level| level.reported_bytes.is_some())?;
    let (level, beyond) = (&levels[index], levels.get(index + 1)?);
    let (reported, ends) = (level.reported_bytes?, level.capacity?);
    if level.matches_reported != Some(false) || reported <= ends.high {
        return None;
    }
    let sides = [ends.low, ends.high].into_iter().filter_map(|size| {
        let selector = select(&LATENCY).with_word(PageSize::Base.point()).with_number(BYTES, size);
        Some(seen.rounds(&selector)?.metric_value())
    });
    let text = format!(
        "Only {} of the reported {} of {} are effective: loads of larger working sets take {}.",
        size_range(ends),
        bytes(reported),
        level.name,
        time_text(MeasuredValue { value: beyond.latency, half_width: beyond.interval.half_width() })
    );
    let answer = StandOutAnswer::new(Consequence::OfThisMachine, StandOutQuestion::CacheSize, sides.collect(), text);
    Some(answer.with_factor(reported as f64 / ends.high as f64))
}
