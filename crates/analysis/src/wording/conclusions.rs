//! Conclusions in words: a sentence for each claim, and one for its evidence.

use kelvin_core::catalogue::file::{
    AccessOrder, BLOCK, CacheState, QUEUE_DEPTH, ReadEngine, SyncPolicy, THREAD_COUNT, TunedEngine,
};
use kelvin_core::catalogue::mem::{MappedPage, PAGE_FILE};
use kelvin_core::catalogue::net::{
    MESSAGE, OFFERED_RATE, RTT_TCP, RTT_UDP, STACK_TCP, STACK_UDP, STREAMS, SendMethod, StreamDirection, Transport,
};
use kelvin_core::catalogue::os::{TASK_COUNT, TaskKind};
use kelvin_core::catalogue::{PairPlacement, file};
use kelvin_core::units::{bytes, number, p_value, percent, value_text};
use kelvin_core::{
    BestQuestion, Case, Claim, Conclusion, Crossover, Estimate, LawDeviation, MemoryLevelClaim, MetricValue, Name,
    PValue, RatioQuestion, ScalabilityClaim, ShareQuestion, TestEvidence, Unit,
};

use kelvin_stats::MIN_INTERVAL_ROUNDS;

mod dependence;
mod reads;
mod system;

pub(crate) use dependence::{byte_call_title, file_size_text};

use super::{load, transfer};
use crate::studies::network::DOUBLED_TIME;

/// The sentence of a conclusion, without a full stop.
pub(crate) fn claim(conclusion: &Conclusion) -> String {
    match &conclusion.claim {
        Claim::Ratio { question, base, other, ratio, limit } => {
            ComparedText { base, other, ratio: *ratio, limit: *limit }.sentence(*question)
        }
        Claim::OrderConverges { remote, ratios, requests, .. } => convergence_sentence(remote, ratios, *requests),
        Claim::Share { question, of, share, limit } => share_sentence(*question, of, share, *limit, conclusion),
        Claim::Best { question, best, rivals, others, .. } => best_sentence(*question, best, rivals, *others),
        Claim::Tuned { best, setting, gain } => format!(
            "{}: {} (found most often: blocks of {}, threads: {}, queue depth per thread: {}) reads faster than one thread's pread of 128 KiB: {}, {}",
            cache_state(&best.case),
            engine(&best.case),
            value_text(setting.block, Unit::Bytes),
            number_text(setting.threads),
            number_text(setting.depth),
            ratio_text(gain, "as fast"),
            amount_text(best)
        ),
        Claim::Crossing { base, other, sizes, below, above, crossings } => match crossings.is_empty() {
            true => no_crossing_sentence(base, other, *sizes, below, above),
            false => crossing_sentence(base, other, crossings),
        },
        Claim::BytesOutweighCalls { smallest, from, shown_at, times: ratio } => {
            let where_from = match from {
                Some(found) => {
                    let [after, until] = [found.after, found.until].map(bytes);
                    format!(
                        " from messages of about {} up (between {after} and {until})",
                        value_text(found.near, Unit::Bytes)
                    )
                }
                // Of larger messages nothing is known.
                None => format!(" up to messages of {}", bytes(*shown_at)),
            };
            let as_long = format!("as long as one of {}", bytes(*smallest));
            let shown = format!("one of {} takes {}", bytes(*shown_at), ratio_text(ratio, &as_long));
            format!(
                "bytes cost more than calls in a TCP stream{where_from}, which doubles the time of a message: {shown}"
            )
        }
        Claim::MoreTasksThanCpus { other, longer, .. } => more_tasks_sentence(&other.case, longer, conclusion.holds),
        Claim::Law(law) => law_sentence(law),
        Claim::HostLimit { of, busy, full } => host_limit_sentence(of, busy, *full),
        Claim::Along(claim) => dependence::claim(claim),
        Claim::Pages { metric, case, all } => page_sentence(*metric, case, *all),
        Claim::Level(level) => level_sentence(level, conclusion.holds.is_some()),
        Claim::Transfer(claim) => transfer::claim(claim),
        Claim::Load(claim) => load::claim(claim, conclusion.holds),
    }
}

/// `3.61 times as long (95 %: 3.40 to 3.80)`.
fn ratio_text(ratio: &Estimate, as_what: &str) -> String {
    format!(
        "{} times {as_what} ({}: {} to {})",
        number(ratio.value),
        interval_label(ratio),
        number(ratio.low),
        number(ratio.high)
    )
}

/// What the two ends of an estimate are.
fn interval_label(estimate: &Estimate) -> &'static str {
    if estimate.is_range { "range" } else { "95 %" }
}

/// Names the ends of a range, where those of an interval go without.
pub(super) fn range_suffix(estimate: &Estimate) -> &'static str {
    if estimate.is_range { "range: " } else { "" }
}

/// `12 % (11 to 13)` as shares.
fn share_text(share: &Estimate) -> String {
    format!("{} ({}{} to {})", percent(share.value), range_suffix(share), percent(share.low), percent(share.high))
}

fn amount_text(side: &MetricValue) -> String {
    value_text(side.value, side.unit)
}

fn number_text(value: f64) -> String {
    format!("{value}")
}

/// `1 stream`, `4 streams`.
fn counted_text(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn placement_text(case: &Case) -> &'static str {
    match PairPlacement::of(case) {
        Some(PairPlacement::SameCpu) => "on one CPU",
        _ => "between two CPUs",
    }
}

fn message_text(case: &Case) -> String {
    bytes(MESSAGE.number_in(case).unwrap_or(0))
}

/// The protocol of a round trip or of its stack part.
fn protocol(metric: Name) -> &'static str {
    match metric {
        metric if metric == RTT_TCP.id || metric == STACK_TCP.id => "TCP",
        metric if metric == RTT_UDP.id || metric == STACK_UDP.id => "UDP",
        _ => "Unix sockets",
    }
}

/// A ratio with both of its sides.
struct ComparedText<'a> {
    base: &'a MetricValue,
    other: &'a MetricValue,
    ratio: Estimate,
    limit: f64,
}

impl ComparedText<'_> {
    fn sentence(&self, question: RatioQuestion) -> String {
        match question {
            RatioQuestion::TasksFaster | RatioQuestion::TasksEfficient | RatioQuestion::ProcessesBesideThreads => {
                self.task_sentence(question)
            }
            RatioQuestion::CacheBelowKernel => format!(
                "a cache below the kernel (hypervisor, controller or drive) serves repeated reads: later passes over a file are \
                 more than {} times as fast as the first: {}",
                self.limit,
                ratio_text(&self.ratio, "as fast")
            ),
            RatioQuestion::RandomBesideInOrder
            | RatioQuestion::TwoThreadsBesideOne
            | RatioQuestion::BeyondEqualShares
            | RatioQuestion::CachedBesideUncached
            | RatioQuestion::LargestBlock => self.read_sentence(question),
            RatioQuestion::SystemCallBesideCall
            | RatioQuestion::ForkBesideThread
            | RatioQuestion::ProcessSwitchBesideThread
            | RatioQuestion::ProcessWakeBesideThread => self.system_sentence(question),
            RatioQuestion::Enough => self.enough_sentence("is enough for"),
            RatioQuestion::NotEnough => self.enough_sentence("is not enough for"),
            RatioQuestion::MoreThreads => {
                let [few, many] = [self.base, self.other].map(|side| THREAD_COUNT.number_in(&side.case).unwrap_or(0));
                format!(
                    "{}: more than {} help by more than {}: {many} read {}, {}",
                    state_and_block(&self.base.case),
                    counted_text(few, "thread"),
                    percent(self.limit - 1.0),
                    ratio_text(&self.ratio, "as much"),
                    amount_text(self.other)
                )
            }
            _ => format!("{}: {}, {}", self.network_sentence(question), self.times_sentence(question), self.amounts()),
        }
    }

    /// `47.6 µs against 13.0 µs`.
    fn amounts(&self) -> String {
        format!("{} against {}", amount_text(self.other), amount_text(self.base))
    }

    fn times_sentence(&self, question: RatioQuestion) -> String {
        match question {
            RatioQuestion::ProtocolInRoundTrip => share_text(&self.ratio),
            _ if self.other.unit == Unit::Nanoseconds => ratio_text(&self.ratio, "as long"),
            _ => ratio_text(&self.ratio, "as much"),
        }
    }

    fn task_sentence(&self, question: RatioQuestion) -> String {
        let tasks = TASK_COUNT.number_in(&self.base.case).unwrap_or(1);
        let kind = TaskKind::of(&self.base.case).map_or("tasks", TaskKind::name);
        let efficiency = self.ratio.divided_by(tasks as f64);
        match question {
            RatioQuestion::TasksFaster => {
                format!("{tasks} {kind} finish the work earlier than one: {}", ratio_text(&self.ratio, "as fast"))
            }
            RatioQuestion::TasksEfficient => format!(
                "{tasks} {kind} use the CPUs with an efficiency of at least {}: {}",
                percent(self.limit / tasks as f64),
                share_text(&efficiency)
            ),
            _ => {
                let (processes, threads) = match tasks {
                    1 => ("1 process takes".to_owned(), "1 thread".to_owned()),
                    _ => (format!("{tasks} processes take"), format!("{tasks} threads")),
                };
                let times = ratio_text(&self.ratio, &format!("as long as {threads}"));
                format!("threads and processes differ: {processes} {times}: {}", self.amounts())
            }
        }
    }

    fn enough_sentence(&self, claim: &str) -> String {
        let (what, at) = curve_point(self.other);
        format!(
            "{what} {at} {claim} {} of the rate with {}, {}: it reaches {}",
            percent(self.limit),
            curve_point(self.base).1,
            amount_text(self.base),
            share_text(&self.ratio)
        )
    }

    fn network_sentence(&self, question: RatioQuestion) -> String {
        let (base, other) = (&self.base.case, &self.other.case);
        let streams = STREAMS.number_in(other).unwrap_or(1);
        match question {
            RatioQuestion::ProtocolInRoundTrip => format!(
                "more than half of a round trip of {} over {} on one CPU is sending and receiving, not switching",
                message_text(base),
                protocol(self.base.metric)
            ),
            RatioQuestion::RoundTripBetweenCpus => format!(
                "a round trip of {} over {} takes longer between two CPUs than on one",
                message_text(base),
                protocol(self.base.metric)
            ),
            RatioQuestion::RoundTripBesideTcp => format!(
                "a round trip of {} on one CPU takes less time over {} than over TCP",
                message_text(base),
                protocol(self.other.metric)
            ),
            RatioQuestion::ConnectBesideRoundTrip => "a TCP connect on one CPU costs more than a TCP round trip".into(),
            RatioQuestion::CloseBesideRoundTrip => "a TCP close on one CPU costs more than a TCP round trip".into(),
            RatioQuestion::MoreStreams => format!(
                "{streams} TCP streams in messages of {}, each {}, carry more than one",
                message_text(other),
                placement_text(other)
            ),
            RatioQuestion::StreamsOnOneCpu if streams == 1 => {
                format!("a TCP stream in messages of {} carries more on one CPU than between two", message_text(other))
            }
            RatioQuestion::StreamsOnOneCpu => format!(
                "{streams} TCP streams in messages of {} carry more each on one CPU than each between two",
                message_text(other)
            ),
            RatioQuestion::SendMethod => format!(
                "{} carries more than send in messages of {} {}",
                SendMethod::of(other).map_or("another method", SendMethod::name),
                message_text(other),
                placement_text(other)
            ),
            RatioQuestion::MoreStreamsToHost => format!("{} carry more than one", peer_streams(other)),
            RatioQuestion::ProgramBesideKernel => format!(
                "a round trip of {} over {} to a program on that host takes longer than an echo request to its kernel",
                message_text(base),
                if Transport::of(other) == Some(Transport::Udp) { "UDP" } else { "TCP" }
            ),
            _ => format!(
                "beside a saturating stream a round trip of {} queues in buffers and takes more than {} times as long",
                message_text(base),
                self.limit
            ),
        }
    }
}

/// `4 TCP streams to the agent`.
pub(super) fn peer_streams(case: &Case) -> String {
    let direction = match StreamDirection::of(case) {
        Some(StreamDirection::FromAgent) => "from the agent",
        _ => "to the agent",
    };
    format!("{} {direction}", counted_text(STREAMS.number_in(case).unwrap_or(1), "TCP stream"))
}

/// What a point of a file curve measures, and its position.
fn curve_point(side: &MetricValue) -> (&'static str, String) {
    let case = &side.case;
    let what = match (CacheState::of(case), SyncPolicy::of(case)) {
        _ if side.metric == file::DEPTH_RATE.id => {
            return ("random reads of 4 KiB: a queue depth of", QUEUE_DEPTH.number_in(case).unwrap_or(0).to_string());
        }
        (_, Some(SyncPolicy::Buffered)) => "buffered writes: a block size of",
        (_, Some(SyncPolicy::Direct)) => "direct writes: a block size of",
        (Some(CacheState::Cached), _) => "cached reads: a block size of",
        (Some(CacheState::Uncached), _) => "uncached reads: a block size of",
        _ => "direct reads: a block size of",
    };
    (what, bytes(BLOCK.number_in(case).unwrap_or(0)))
}

fn cache_state(case: &Case) -> &'static str {
    CacheState::of(case).map_or("as found", CacheState::name)
}

/// `direct, 8 MiB`.
fn state_and_file(case: &Case) -> String {
    file::BYTES
        .number_in(case)
        .map_or_else(|| cache_state(case).into(), |size| format!("{}, {}", cache_state(case), bytes(size)))
}

/// `cached, in blocks of 64 KiB`.
fn state_and_block(case: &Case) -> String {
    BLOCK.number_in(case).map_or_else(
        || cache_state(case).into(),
        |block| format!("{}, in blocks of {}", cache_state(case), bytes(block)),
    )
}

pub(super) fn engine(case: &Case) -> &'static str {
    TunedEngine::AXIS.word_in(case).or(ReadEngine::AXIS.word_in(case)).unwrap_or("unnamed engine")
}

fn share_sentence(
    question: ShareQuestion,
    of: &MetricValue,
    part: &Estimate,
    limit: f64,
    conclusion: &Conclusion,
) -> String {
    let (case, figures) = (&of.case, share_text(part));
    match question {
        ShareQuestion::UnseenTime => format!(
            "with {} {}, more than {} of the machine's CPU time is neither user nor system time of the work (waiting, steal, other \
             processes): {figures}, {} per round",
            TASK_COUNT.number_in(case).unwrap_or(1),
            TaskKind::of(case).map_or("tasks", TaskKind::name),
            percent(limit),
            amount_text(of)
        ),
        ShareQuestion::CpuOfStreams => {
            let cases = match conclusion.evidence {
                TestEvidence::CaseByCase { cases: 1, .. } => "the one case measured".into(),
                TestEvidence::CaseByCase { cases, .. } => format!("all {cases} cases"),
                _ => "this case".into(),
            };
            format!(
                "TCP streams on this machine are CPU-limited in {cases}, with a CPU busy for more than {} of the time: the busiest is busy \
                 for {} in the case with most idle time",
                percent(limit),
                percent(part.value)
            )
        }
        ShareQuestion::DatagramsLost => format!(
            "more than {} of datagrams of {} are lost {} of this machine if the sender does not wait: {figures}",
            percent(limit),
            message_text(case),
            placement_text(case)
        ),
        ShareQuestion::DatagramsLostToHost => format!(
            "more than {} of datagrams of {} to the agent are lost if the sender does not wait: {figures}",
            percent(limit),
            message_text(case)
        ),
        ShareQuestion::PacedDatagramsLost => format!(
            "of datagrams paced at {} ({} Mbit/s offered) at most {} are lost: {figures}",
            amount_text(of),
            number(OFFERED_RATE.number_in(case).unwrap_or(0) as f64 / 1e6),
            percent(limit)
        ),
        ShareQuestion::LinkUsed => format!(
            "{} used at least {} of the link: {figures}, {} of {}",
            peer_streams(case),
            percent(limit),
            amount_text(of),
            value_text(of.value / part.value, of.unit)
        ),
        ShareQuestion::RemoteWay => {
            let order = match AccessOrder::of(case) {
                Some(AccessOrder::Sequential) => "sequential",
                _ => "random",
            };
            let way = match conclusion.holds {
                Some(true) => format!("remote access is {figures} of its time"),
                Some(false) => format!("it takes {figures} less"),
                None => format!("remote access is {figures} of its time, possibly none"),
            };
            format!("{}, {order} reads: a remote block takes longer than a local one; {way}", state_and_file(case))
        }
    }
}

/// Sequential and random reads, remotely and locally, and why.
fn convergence_sentence(
    remote: &[MetricValue; 2],
    [there, here]: &[Estimate; 2],
    requests: Option<[f64; 2]>,
) -> String {
    let why = requests.map_or_else(String::new, |requests| format!("; {}", block_requests(requests)));
    format!(
        "{}: the order of reads matters less over the network: random ones take {}, on this machine {} times ({}{} to {}){why}",
        state_and_file(&remote[0].case),
        ratio_text(there, "as long as sequential ones"),
        number(here.value),
        range_suffix(here),
        number(here.low),
        number(here.high)
    )
}

/// How far two counts of requests may differ and count as the same: a few are for the file, not for a block.
const MAX_REQUEST_GAP: f64 = 0.1;

fn block_requests([in_order, at_random]: [f64; 2]) -> String {
    if (in_order - at_random).abs() <= MAX_REQUEST_GAP * at_random {
        return format!("a block is {} to the server in either order", requests(in_order));
    }
    format!("a block is {} to the server in order, and {} at random", requests(in_order), requests(at_random))
}

/// `1.00 requests`, `0.018 requests`.
fn requests(count: f64) -> String {
    format!("{} requests", number(count))
}

fn best_sentence(question: BestQuestion, best: &MetricValue, ties: &[Case], others: usize) -> String {
    let ties = |name: fn(&Case) -> String, words: &str| match ties {
        [] => String::new(),
        some => format!("; {words} {}", some.iter().map(name).collect::<Vec<String>>().join(", ")),
    };
    let named = |case: &Case| engine(case).to_owned();
    match question {
        BestQuestion::ThreadsAndBlocks => format!(
            "{}: {} read fastest, {}{}",
            cache_state(&best.case),
            cell_text(&best.case),
            amount_text(best),
            ties(cell_text, "no different from")
        ),
        BestQuestion::EngineAtSize => format!(
            "of {} engines {} is fastest at requests of {}{}",
            others + 1,
            engine(&best.case),
            bytes(BLOCK.number_in(&best.case).unwrap_or(0)),
            ties(named, "possibly as fast:")
        ),
        BestQuestion::TunedEngine => format!(
            "{}: {} is fastest of {} engines, each at its best setting{}",
            cache_state(&best.case),
            engine(&best.case),
            others + 1,
            ties(named, "possibly as fast:")
        ),
    }
}

/// `4 threads in blocks of 64 KiB`.
fn cell_text(case: &Case) -> String {
    let block = BLOCK.number_in(case).map(bytes).unwrap_or_default();
    format!("{} in blocks of {block}", counted_text(THREAD_COUNT.number_in(case).unwrap_or(0), "thread"))
}

/// One engine that beats another above some size, or below it.
fn crossing_sentence(base: &str, other: &str, crossings: &[Crossover]) -> String {
    let place = |change: &Crossover| {
        let side = if change.to_below { "above" } else { "below" };
        let near = value_text(change.near, Unit::Bytes);
        format!("{side} about {near} (between {} and {})", bytes(change.after), bytes(change.until))
    };
    let places: Vec<String> = crossings.iter().map(place).collect();
    format!("{other} beats {base} at requests {}", places.join(" and "))
}

fn no_crossing_sentence(base: &str, other: &str, all: usize, below: &[u64], above: &[u64]) -> String {
    let sizes = |sizes: &[u64]| sizes.iter().copied().map(bytes).collect::<Vec<String>>().join(", ");
    let at_all = |sizes: &[u64]| {
        let ends =
            sizes.first().zip(sizes.last()).map(|(first, last)| format!("{} to {}", bytes(*first), bytes(*last)));
        format!("at all {all} request sizes, {}", ends.unwrap_or_default())
    };
    let beats = format!("{other} beats {base} at some request size");
    match (below.len(), above.len()) {
        (0, 0) => format!("{other} and {base} differ at some request size: not certain at any of {all}"),
        (0, count) if count == all => format!("{beats}: {base} wins {}", at_all(above)),
        (0, _) => format!("{beats}: {base} wins at {}; elsewhere they may be equal", sizes(above)),
        (count, _) if count == all => format!("{other} beats {base} {}", at_all(below)),
        (_, 1..) => format!(
            "{other} beats {base} at requests of {}, and {base} wins at {}: too few sizes on one side to say where they cross",
            sizes(below),
            sizes(above)
        ),
        _ => format!("{other} beats {base} at requests of {}; elsewhere they may be equal", sizes(below)),
    }
}

fn more_tasks_sentence(more: &Case, longer: &Estimate, holds: Option<bool>) -> String {
    let tasks = TASK_COUNT.number_in(more).unwrap_or(0);
    let kind = TaskKind::of(more).map_or("tasks", TaskKind::name);
    let help = format!("more {kind} than CPUs help: {tasks}");
    match holds {
        Some(true) => format!("{help} finish {} earlier", percent(-longer.value)),
        Some(false) => format!("{help} finish {} later", percent(longer.value)),
        None => {
            let half = (longer.high - longer.low) / 2.0;
            format!("{help} differ by {} ± {}, possibly not at all", percent(longer.value), percent(half))
        }
    }
}

/// A coefficient as a percentage with three digits: coherency is small.
fn coefficient_text(value: f64) -> String {
    format!("{} %", number(100.0 * value))
}

/// The largest deviation of a law: `12 % below`.
fn deviation_text(furthest: &LawDeviation) -> String {
    let side = if furthest.ratio < 1.0 { "below" } else { "above" };
    format!("{} {side}", percent((furthest.ratio - 1.0).abs()))
}

fn law_sentence(law: &ScalabilityClaim) -> String {
    match law {
        ScalabilityClaim::Determined { held, points, rounds, needed } => {
            let counts = needed.checked_sub(*points).filter(|missing| *missing > 0);
            let counts = counts.map(|missing| counted_text(missing as u64, "more thread count"));
            let missing: Vec<String> =
                counts.into_iter().chain((*rounds < 2).then(|| "a second round".into())).collect();
            format!(
                "{}: contention by the universal scalability law: {} in {} each do not determine it; missing: {} (--thorough has more)",
                state_and_block(held),
                counted_text(*points as u64, "thread count"),
                counted_text(*rounds as u64, "round"),
                missing.join(", ")
            )
        }
        ScalabilityClaim::Describes { held, furthest } => format!(
            "{}: the universal scalability law describes the rates: at {} it is {} the measured one, so its coefficients mean \
             nothing here",
            state_and_block(held),
            counted_text(furthest.workers, "thread"),
            deviation_text(furthest)
        ),
        ScalabilityClaim::Contention { held, sigma, kappa, limit } => {
            let three = |of: &Estimate| {
                format!(
                    "{} ({} to {})",
                    coefficient_text(of.value),
                    coefficient_text(of.low),
                    coefficient_text(of.high)
                )
            };
            format!(
                "{}: contention takes more than {} of the work: the universal scalability law gives sigma {} and kappa \
                 (coherency) {}",
                state_and_block(held),
                percent(*limit),
                three(sigma),
                three(kappa)
            )
        }
        ScalabilityClaim::Peak { held, most, at, rate } => {
            let limit = match (at, rate) {
                ([Some(peak), low, high], Some(rate)) => format!(
                    "it peaks at {} with {peak}{} {}",
                    value_text(*rate, Unit::BytesPerSecond),
                    peak_interval(*low, *high, *most),
                    if *peak == 1.0 { "thread" } else { "threads" }
                ),
                ([_, Some(low), _], _) => {
                    format!("it does not fall up to there, or falls from {} up", counted_text(*low as u64, "thread"))
                }
                _ => "it does not fall up to there".into(),
            };
            format!(
                "{}: the rate falls before {most} threads: by the universal scalability law {limit}",
                state_and_block(held)
            )
        }
    }
}

/// The interval of a peak, where it is more than one number: ` (9 to 12)`, ` (9 to more than 32)`.
fn peak_interval(low: Option<f64>, high: Option<f64>, most: u64) -> String {
    match (low, high) {
        (Some(low), Some(high)) if low == high => String::new(),
        (Some(low), Some(high)) => format!(" ({low} to {high})"),
        (Some(low), None) => format!(" ({low} to more than {most})"),
        (None, _) => String::new(),
    }
}

fn host_limit_sentence(of: &MetricValue, busy: &[Estimate; 2], full: f64) -> String {
    let are = if STREAMS.number_in(&of.case) == Some(1) { "is" } else { "are" };
    let [here, there] = busy;
    format!(
        "{} {are} {}: the test uses {} of a CPU on this host, and {} of one on the agent's host",
        peer_streams(&of.case),
        limiting_host(busy, full),
        share_text(here),
        share_text(there)
    )
}

/// Which host's CPU limits streams.
pub(super) fn limiting_host(busy: &[Estimate; 2], full: f64) -> &'static str {
    match busy.map(|share| share.is_above(full)) {
        [Some(true), Some(true)] => "CPU-limited on both hosts",
        [Some(true), _] => "CPU-limited on this host",
        [_, Some(true)] => "CPU-limited on the agent's host",
        [Some(false), Some(false)] => "CPU-limited on neither host",
        _ => "CPU-limited on one of the hosts",
    }
}

fn page_sentence(metric: Name, case: &Case, all: bool) -> String {
    match MappedPage::of(case) {
        Some(MappedPage::Untouched) => "private memory that was never touched has no pages".into(),
        Some(MappedPage::Read) => "private memory that was only read maps the kernel's zero page".into(),
        Some(MappedPage::Written) => "private memory that was written is mapped by this process alone".into(),
        Some(MappedPage::Forked) => "while a forked child lives, every written page is shared with it".into(),
        Some(MappedPage::Shared) => "shared memory consists of file pages, though on no disk".into(),
        Some(MappedPage::File) if metric == PAGE_FILE.id => {
            "a mapped file that was read maps the file's own pages, not copies".into()
        }
        Some(MappedPage::Huge) => "memory that asked for huge pages and was written has them".into(),
        _ => format!("{} of the pages are that: {metric} at {case}", if all { "all" } else { "none" }),
    }
}

fn level_sentence(level: &MemoryLevelClaim, is_decided: bool) -> String {
    match level {
        MemoryLevelClaim::NotTold { span: [from, to] } => {
            format!("the curve from {} to {} shows no level of the memory hierarchy", bytes(*from), bytes(*to))
        }
        MemoryLevelClaim::Flat { latency, span: [from, to] } => format!(
            "the curve is flat from {} to {}, at {}: no change of level",
            bytes(*from),
            bytes(*to),
            value_text(*latency, Unit::Nanoseconds)
        ),
        MemoryLevelClaim::Found { .. } => found_level_sentence(level),
        MemoryLevelClaim::Unseen { level, bytes: size } => {
            let found = if is_decided { "none is seen" } else { "too few working sets of its size were measured" };
            format!(
                "L{level}, {} by what the machine reports, has a plateau of its own in the curve: {found}",
                bytes(*size)
            )
        }
        MemoryLevelClaim::Translation { bytes: set, latencies: [base, huge], shows_from, reach } => {
            let reaches =
                reach.map_or_else(String::new, |reach| format!("; the reported TLB reach is {}", bytes(reach)));
            let more = format!(
                "base pages cost {} more per load than huge pages at {} ({})",
                value_text(base - huge, Unit::Nanoseconds),
                bytes(*set),
                percent((base - huge) / huge)
            );
            match shows_from {
                Some(from) => format!("{more}, noticeable from {} up{reaches}", bytes(*from)),
                None if base > huge => format!("{more}, hardly noticeable{reaches}"),
                None => format!("base pages cost no more than huge pages up to {}{reaches}", bytes(*set)),
            }
        }
    }
}

fn found_level_sentence(level: &MemoryLevelClaim) -> String {
    let MemoryLevelClaim::Found { name, latency, ends, to_bytes, reported, is_memory } = level else {
        return String::new();
    };
    let nanoseconds = |value| value_text(value, Unit::Nanoseconds);
    let [value, low, high] = [latency.value, latency.low, latency.high].map(nanoseconds);
    let load = format!("{value} per load ({low} to {high})");
    let Some([from, to]) = *ends else {
        return format!("{name}: {load}, up to the largest working set, {}", bytes(*to_bytes));
    };
    let ending = format!("ending between {} and {}", bytes(from), bytes(to));
    match *reported {
        _ if *is_memory => format!("{name}: {load}, {ending}, beyond which address translation takes longer"),
        None => format!("{name}: {load}, {ending}; the machine reports no such cache"),
        Some(size) => {
            let differs = match size {
                size if size > to => ", less, as with a shared or partitioned cache",
                size if size < from => ", more",
                _ => "",
            };
            format!("{name} has the size that the machine reports, {}: {load}, {ending}{differs}", bytes(size))
        }
    }
}

/// The test that carries a conclusion, with its figures, and what it says among all tests of the report.
pub(crate) fn evidence(conclusion: &Conclusion) -> String {
    let of_test = test_sentence(conclusion);
    match test_outcome(conclusion) {
        Some(outcome) => format!("{of_test}; {outcome}"),
        None => of_test,
    }
}

/// How likely a conclusion is by accident, or what would decide where these rounds do not.
fn test_outcome(conclusion: &Conclusion) -> Option<String> {
    let Some(tested) = conclusion.tested else { return has_too_few_rounds(&conclusion.evidence).then(too_few_rounds) };
    let of_all = |chance: PValue| format!("{} among all conclusions", p_value(chance.joint));
    if conclusion.holds.is_some() {
        return Some(of_all(tested.differs));
    }
    if let Some(same) = tested.same.filter(|_| conclusion.same_within().is_some()) {
        return Some(format!("the same within {}, {}", percent(same.within), of_all(same.chance)));
    }
    match tested.rounds_to_decide {
        Some(rounds) if rounds <= MAX_NAMED_ROUNDS => Some(format!("about {rounds} rounds would decide")),
        Some(_) => Some(format!("more than {MAX_NAMED_ROUNDS} rounds would be needed to decide")),
        None => None,
    }
}

fn too_few_rounds() -> String {
    format!("nothing is tested with fewer than {MIN_INTERVAL_ROUNDS} rounds")
}

/// Whether a test of medians has too few rounds.
fn has_too_few_rounds(test: &TestEvidence) -> bool {
    match test {
        TestEvidence::RatioOfMedians { rounds: [other, base], .. } => *other.min(base) < MIN_INTERVAL_ROUNDS,
        TestEvidence::Together { ratios, .. } => ratios.iter().any(|(_, ratio)| ratio.is_range),
        TestEvidence::Median { rounds, .. }
        | TestEvidence::CaseByCase { rounds, .. }
        | TestEvidence::Ratios { rounds, .. }
        | TestEvidence::AtEachPoint { rounds, .. }
        | TestEvidence::Contrasts { rounds, .. }
        | TestEvidence::Search { rounds, .. } => *rounds < MIN_INTERVAL_ROUNDS,
        _ => false,
    }
}

/// Most rounds that are worth naming: a thorough run of an hour makes as many.
const MAX_NAMED_ROUNDS: u64 = 100;

fn test_sentence(conclusion: &Conclusion) -> String {
    match &conclusion.evidence {
        TestEvidence::RatioOfMedians { rounds: [other, base], chosen_among } => {
            let chosen = chosen_among
                .map_or_else(String::new, |all| format!("; the point was chosen among {all} from the same rounds"));
            format!("ratio of medians of {other} against {base} rounds{chosen}")
        }
        TestEvidence::Median { rounds, over } => {
            let over = over.as_ref().map_or_else(String::new, |over| format!(", over {over}"));
            format!("median of {rounds} rounds{over}")
        }
        TestEvidence::CaseByCase { rounds, .. } => format!("median of {rounds} rounds, case by case"),
        TestEvidence::Together { ratios, .. } => joint_comparison(conclusion, ratios),
        TestEvidence::Ratios { count, rounds } => format!(
            "median ratio within a pass, {rounds} passes or more, jointly at 95 % over {}",
            counted_text(*count as u64, "set")
        ),
        TestEvidence::AtEachPoint { points, rounds } => {
            let within = match &conclusion.claim {
                Claim::Along(claim) => percent(claim.within),
                _ => "a margin".into(),
            };
            format!(
                "each of {points} points against what the claim gives, pass by pass in {rounds} passes or more: true if all are certainly \
                 within {within}, false if one certainly is not"
            )
        }
        TestEvidence::Contrasts { cells, rounds } => {
            format!("effects on the logarithm over {cells} cells within a pass, {rounds} passes or more")
        }
        TestEvidence::Rounds { agreeing, rounds, range: [least, most], tolerance } => format!(
            "to within {} of all or none: {agreeing} of {rounds} rounds agree, with {} to {} of the pages",
            percent(*tolerance),
            percent(*least),
            percent(*most)
        ),
        TestEvidence::LeastSquares { points, furthest } => format!(
            "least squares on logarithms of the mean rates at {points} thread counts; intervals by a parametric bootstrap of the \
             rounds; the largest deviation is at {}: {} the measured rate",
            counted_text(furthest.workers, "thread"),
            deviation_text(furthest)
        ),
        TestEvidence::TooFewPoints => "three coefficients, and one more thread count to check them".into(),
        TestEvidence::Partitioning { points, span: [from, to], noise, step } => format!(
            "plateaus and ramps of log latency against log size by optimal partitioning, {points} points from {} to {}, {} off \
             the line between their neighbours; a level is a step of {step} times or more",
            bytes(*from),
            bytes(*to),
            percent(*noise)
        ),
        TestEvidence::Intervals { latencies: [base, huge], apart } => format!(
            "{} with base pages against {} with huge pages; {} by the ratio of their medians, {}",
            value_text(*base, Unit::Nanoseconds),
            value_text(*huge, Unit::Nanoseconds),
            if *apart { "apart" } else { "not apart" },
            number(base / huge)
        ),
        TestEvidence::Visits { loads, visits } => format!("{loads} numbers of users, {visits} visits or more to each"),
        TestEvidence::Saturated { visits } => format!("{visits} visits"),
        TestEvidence::Slope { visits, seconds } => {
            format!("{visits} visits in {}, compared at equal numbers of users", kelvin_core::units::seconds(*seconds))
        }
        TestEvidence::ClosedNetwork { capacities, think } => {
            let each: Vec<String> = capacities
                .iter()
                .map(|(resource, capacity)| format!("{} {}", load::resource_name(*resource), number(*capacity)))
                .collect();
            let think = match *think {
                0.0 => "no".to_owned(),
                seconds => format!("{} of", value_text(seconds * 1e9, Unit::Nanoseconds)),
            };
            format!(
                "asymptotic bounds and exact mean value analysis of a closed network from requests/s of each alone ({}) and {think} \
                 think time",
                each.join(", ")
            )
        }
        TestEvidence::Search { rounds, agreeing } => {
            let counts: Vec<String> = agreeing.iter().map(|count| format!("{count} of {rounds}")).collect();
            format!(
                "median gain of {rounds} rounds; rounds whose search found this block, thread count, depth: {}",
                counts.join(", ")
            )
        }
    }
}

/// Comparisons at several sizes or with several others, jointly at 95 %.
fn joint_comparison(conclusion: &Conclusion, ratios: &[(Option<u64>, Estimate)]) -> String {
    if let Claim::Best { next, others, question, .. } = &conclusion.claim {
        let nearest = ratios.first().map(|(_, ratio)| ratio_text(ratio, "as much")).unwrap_or_default();
        let next = if *question == BestQuestion::ThreadsAndBlocks { cell_text(next) } else { engine(next).to_owned() };
        return format!(
            "against {next}: {nearest}; ratios of medians against each of {others} others, jointly at 95 %"
        );
    }
    let of = if matches!(conclusion.claim, Claim::BytesOutweighCalls { .. }) {
        format!("time of a message against {DOUBLED_TIME} times that of the smallest")
    } else {
        "ratio of median times".into()
    };
    let figure = |(at, ratio): &(Option<u64>, Estimate)| {
        let at = at.map_or_else(String::new, |at| format!(" at {}", bytes(at)));
        let range = range_suffix(ratio);
        format!("{} ({range}{} to {}){at}", number(ratio.value), number(ratio.low), number(ratio.high))
    };
    let figures: Vec<String> = ratios.iter().map(figure).collect();
    format!("{of} at each of {} sizes, intervals jointly at 95 %: {}", ratios.len(), figures.join(", "))
}
