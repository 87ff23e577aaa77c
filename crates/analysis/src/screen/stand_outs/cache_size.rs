//! How much of the reported last-level cache answers.

use kelvin_catalogue::mem::{BYTES, LATENCY, PageSize};

use super::{Amount, Answer, Says, Seen, Spot, Weight};

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let levels = &seen.analysis.levels.as_ref()?.levels;
    let at = levels.iter().rposition(|level| level.reported_bytes.is_some())?;
    let (level, beyond) = (&levels[at], levels.get(at + 1)?);
    let (reported, ends) = (level.reported_bytes?, level.capacity?);
    if level.agrees != Some(false) || reported <= ends.high {
        return None;
    }
    let spot = Spot::new(&LATENCY).at(PageSize::Base.point());
    let of = |bytes: u64| spot.all(&seen.analysis.results).find(move |result| BYTES.of(&result.case) == Some(bytes));
    let sides = [ends.low, ends.high].into_iter().filter_map(|bytes| Some(seen.rounds_of(of(bytes)?)?.side()));
    let latency = Amount { value: beyond.latency, half_width: beyond.interval.half_width() };
    let says = Says::CacheSize { ends: [ends.low, ends.high], reported, name: level.name.clone(), beyond: latency };
    Some(Answer {
        weight: Weight::OfThisMachine,
        factor: reported as f64 / ends.high as f64,
        sides: sides.collect(),
        ratio: None,
        says,
    })
}
