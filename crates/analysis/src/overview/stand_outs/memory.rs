//! What stands out of memory: the cache that answers, the first touch of fresh memory, and what all CPUs draw from it.

use kelvin_core::catalogue::mem::*;

use super::*;

/// How much of the reported last-level cache answers.
pub(super) fn cache_size(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let levels = &context.analysis.levels.as_ref()?.levels;
    let index = levels.iter().rposition(|level| level.reported_bytes.is_some())?;
    let (level, next_level) = (&levels[index], levels.get(index + 1)?);
    let (reported, ends) = (level.reported_bytes?, level.capacity?);
    if level.matches_reported != Some(false) || reported <= ends.high {
        return None;
    }
    let sides = [ends.low, ends.high].into_iter().filter_map(|size| {
        let selector = select(&LATENCY).with_word(PageSize::Base.point()).with_number(BYTES, size);
        Some(context.rounds(&selector)?.metric_value())
    });
    let text = format!(
        "Only {} of the reported {} of {} are effective: loads of larger working sets take {}.",
        size_range(ends),
        bytes(reported),
        level.name,
        time_text(MeasuredValue { value: next_level.latency, half_width: next_level.interval.half_width() })
    );
    let answer = StandOutAnswer::new(Consequence::OfThisMachine, StandOutQuestion::CacheSize, sides.collect(), text);
    Some(answer.with_factor(reported as f64 / ends.high as f64))
}

/// Times the cost in huge pages from which on it stands out.
const MIN_COST_RATIO: f64 = 2.0;
/// Times the cost of memory just freed from which on fresh memory does: less is what colder caches cost.
const MIN_REUSED_COST_RATIO: f64 = 1.2;
/// Bytes of an entry of a page table: a huge page is what one table, itself a page, maps.
const PAGE_TABLE_ENTRY_BYTES: u64 = 8;

/// What the first touch of fresh memory costs, compared with memory just freed and huge pages.
pub(super) fn fresh_memory(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let page = *context.evidence.run.header.machine.memory.page_bytes.get()?;
    let reuse_ratio = context
        .figure_ratio(&select(&REPEATED_FIRST_TOUCH), &select(&FIRST_TOUCH))
        .filter(|ratio| ratio.is_above(MIN_REUSED_COST_RATIO));
    let fault = |page: FaultPage| context.rounds(&select(&FAULT_MINOR).with_word(page.point()));
    let huge_page = page * (page / PAGE_TABLE_ENTRY_BYTES);
    let huge = fault(FaultPage::Huge).map(|huge| huge.clone().scaled(page as f64 / huge_page as f64));
    let huge = huge.zip(fault(FaultPage::Anonymous)).and_then(|(huge, base)| FigureRatio::from_rounds(&huge, base));
    let huge = huge.filter(|ratio| ratio.is_above(MIN_COST_RATIO));
    let touch = reuse_ratio.as_ref().or(huge.as_ref())?.other;
    let huge_times = huge.as_ref().map(|huge| times_text(touch.value / huge.base.value));
    let first = format!("Fresh memory costs {} a page of {} at first touch", time_text(touch), bytes(page));
    let text = match (reuse_ratio.as_ref().map(|ratio| time_text(ratio.base)), huge_times) {
        (Some(reused_time), Some(huge)) => {
            format!("{first}, memory just freed {reused_time}; huge pages are {huge} times cheaper.")
        }
        (Some(reused_time), None) => format!("{first}, memory just freed only {reused_time}."),
        (None, Some(huge)) => format!("{first}, {huge} times as much as in huge pages."),
        (None, None) => return None,
    };
    Some(reuse_ratio.or(huge)?.into_answer(Consequence::Avoidable, StandOutQuestion::FreshMemory, text))
}

/// What all CPUs together draw from memory compared with one.
pub(super) fn memory_shared(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let [one_cpu, all_cpus] =
        [MemoryCpus::One, MemoryCpus::All].map(|cpus| select(&BANDWIDTH_READ).with_word(cpus.point()).furthest(BYTES));
    let cpus = context.evidence.run.header.machine.topology.allowed.get()?.len();
    let ratio = context.figure_ratio(&one_cpu, &all_cpus)?;
    let cpus_text = if cpus == 2 { "both".to_owned() } else { format!("all {cpus}") };
    let [one_rate, all_rate] = [ratio.base, ratio.other].map(rate_text);
    let text = format!("One CPU reads {one_rate} from memory, {cpus_text} together {all_rate}.");
    Some(ratio.into_answer(Consequence::Ability, StandOutQuestion::SharedMemoryBandwidth, text).with_factor(1.0))
}
