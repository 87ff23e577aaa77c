//! What stands out of memory: the cache that answers, the first touch of fresh memory, the way to the farthest node, and what all CPUs draw
//! from it.

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

/// Times the latency of a CPU's own node from which on that of the farthest stands out: between nodes of one socket it is a tenth more, which
/// moves few programs.
const MIN_NODE_RATIO: f64 = 1.3;

/// How much longer a load from memory of the farthest node takes than from a CPU's own: of the pairs of nodes at each distance, the one in
/// the middle.
pub(super) fn node_distance(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let nodes = context.evidence.run.header.machine.topology.nodes.get()?;
    // Where the firmware states no distances, all other nodes are equally far.
    let distance = |from: u64, to: u64| {
        let node = |number| nodes.iter().position(|node| u64::from(node.id) == number);
        nodes[node(from)?].distances.get(node(to)?).copied()
    };
    let selector = select(&NODE_LATENCY);
    let pairs = selector.find_all(&context.analysis.results).filter_map(|result| {
        let (from, to) = (FROM_NODE.number_in(&result.case)?, TO_NODE.number_in(&result.case)?);
        Some(((from != to, distance(from, to)), context.result_rounds(result)?))
    });
    let mut medians = middle_of_each(pairs);
    let (((false, _), own), ((true, _), farthest)) = (medians.next()?, medians.next_back()?) else { return None };
    let ratio = FigureRatio::from_rounds(own, farthest).filter(|ratio| ratio.is_above(MIN_NODE_RATIO))?;
    let text = format!(
        "A load from the memory of the farthest node takes {}, {} times as long as from a CPU's own node.",
        time_text(ratio.other),
        times_text(ratio.ratio.value)
    );
    Some(ratio.into_answer(Consequence::Avoidable, StandOutQuestion::NodeDistance, text))
}

/// What all CPUs together draw from memory compared with one, where the curve to them has no knee that says more.
pub(super) fn memory_shared(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    if scaling::memory_bandwidth(context).is_some() {
        return None;
    }
    let [one_cpu, all_cpus] =
        [MemoryCpus::One, MemoryCpus::All].map(|cpus| select(&BANDWIDTH_READ).with_word(cpus.point()).furthest(BYTES));
    let cpus = context.evidence.run.header.machine.topology.allowed.get()?.len();
    let ratio = context.figure_ratio(&one_cpu, &all_cpus)?;
    let cpus_text = if cpus == 2 { "both".to_owned() } else { format!("all {cpus}") };
    let [one_rate, all_rate] = [ratio.base, ratio.other].map(rate_text);
    let text = format!("One CPU reads {one_rate} from memory, {cpus_text} together {all_rate}.");
    Some(ratio.into_answer(Consequence::Ability, StandOutQuestion::SharedMemoryBandwidth, text).with_factor(1.0))
}
