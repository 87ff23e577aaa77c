//! The time to read a block of 4 KiB in order and in random order, in files of several sizes.
//!
//! It shows the effect of order, read-ahead and page cache. It must not be used for higher queue depths: here it is 1.

use kelvin_catalogue::file::{AccessOrder, BYTES, CacheState, DEVICE, PAGE_READ, READ_AHEAD, SEQRAND, SEQRAND_P99};
use kelvin_catalogue::mem::{BANDWIDTH, LATENCY};
use kelvin_file::cache::{self, State};
use kelvin_file::{Engine, How, Latencies, Order, Pages, Requests, Tally, Target, recording_cost};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Input, Machine, Metric, NoPrediction, Prediction};

use super::ahead::{self, Ahead};
use super::cases::{known, order, predictable, state};
use super::data::{self, MIB};
use super::expected::{self, Expected, Transfer, time};
use super::proof::Counters;
use crate::memory::{allowance, latency};
use crate::predict::Predicting;

pub(super) static PROBE: Probe = Probe {
    id: SEQRAND.id.as_str(),
    summary: "Reading blocks of 4 KiB in order and in random order, through an empty page cache and past it",
    kind: ProbeKind::Measure,
    method: Method {
        how: "One thread reads a file of noise in blocks of 4 KiB by pread, in order or each block once in random \
              order, for the round's time. uncached: before each pass the file is dropped by posix_fadvise until \
              mincore and cachestat find no page of it, and opened afresh; the order is announced \
              (POSIX_FADV_SEQUENTIAL, POSIX_FADV_RANDOM), and the kernel reads ahead accordingly. direct: O_DIRECT, \
              with none of it in memory. The mean is the time of all reads over their number. Each read is timed as \
              well, into a histogram of 0.1 % resolution; its quantiles and the cost of timing are noted. An uncached \
              pass in order is read to its end, or for a second, as what is read ahead must count too; an untimed pass \
              precedes it, so that the memory for its pages has been touched. The device's own counters must show 95 % \
              of the bytes.",
        prediction: "direct: file.device.mean_latency, in either order: a drive that seeks, or reads ahead by itself, \
                     is faster in order. Predicted range: a factor of 1.5 either way, as it is the same request at \
                     another time. uncached, random: the same, plus a call that allocates a page (file.page_read), and \
                     a copy; a factor of two either way. uncached, sequential: allocating all pages of the file, and \
                     the longer of all calls and copies, and of the device's time for the read-ahead windows, shared \
                     by all blocks, as in file.blocksize.read; a factor of two either way. The tail of direct reads in \
                     random order of 16 MiB has no prediction. All other direct reads and uncached ones in random \
                     order are requests of the same kind, and have the same tail (file.seqrand.p99). So have uncached \
                     reads in order of a file so small that more than one in a hundred waits for a window that is read \
                     ahead, as the windows grow in the kernel. In a larger file one in a hundred is found in memory: a \
                     call that finds a page (file.page_read), a copy, and two more loads from memory (mem.latency), as \
                     the slowest of those reads are the first to meet their folio: the slot that leads to it, and its \
                     header. A factor of two either way.",
        not_for: "A device with many requests in flight: see file.depth.",
        pitfalls: &[
            "Random offsets with repetition meet what is cached: each block is read once.",
            "The median of reads in order is that of a copy, since most find their page read ahead: the mean counts.",
            "Read-ahead of an earlier pass: each pass begins with an empty cache and a file opened afresh.",
            "Free memory that a virtual machine returned to its host: whoever fills it first waits for the host, which \
             was seen to make a first pass five times as long as later ones.",
        ],
        sources: &["fio --rw=read and --rw=randread", "posix_fadvise(2)", "Gil Tene: HdrHistogram"],
    },
    metrics: &[&SEQRAND, &SEQRAND_P99],
    inputs: &[BANDWIDTH.as_str(), LATENCY.id.as_str(), DEVICE.as_str(), PAGE_READ.id.as_str(), READ_AHEAD.id.as_str()],
    cases,
    run,
    predict,
};

const BLOCK: usize = 4096;
/// Reads between two checks of the time.
const CHUNK: u64 = 16;
/// Reads for a 99th percentile, for which a round is made longer, up to so many nanoseconds.
const ENOUGH: u64 = 100;
const LONGEST: f64 = 100e6;
/// Nanoseconds after which a pass with read-ahead is broken off: what is read ahead is little of it by then.
const PATIENCE: f64 = 1e9;

/// MiB of the files of an older study.
const PUBLISHED: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let sizes: Vec<u64> = match effort {
        Effort::Quick => vec![16],
        Effort::Default => vec![1, 16, 128],
        Effort::Thorough => PUBLISHED.into_iter().chain(beyond_memory(machine)).collect(),
    };
    let of_size = |size: u64| {
        [CacheState::Direct, CacheState::Uncached].into_iter().flat_map(move |cache| {
            AccessOrder::ALL.iter().map(move |&order| Case::new().with(BYTES, size * MIB).at(order).at(cache))
        })
    };
    sizes.into_iter().flat_map(of_size).collect()
}

/// MiB of the largest file beyond memory that is made without being asked for: half of what a run may write.
const MOST_BEYOND: u64 = 2048;

/// MiB of a file that no file cache of this machine holds: a quarter more than its memory, or than its control group may use. None on a
/// machine where that takes long to write.
fn beyond_memory(machine: &Machine) -> Option<u64> {
    let limit = machine.limits.memory_bytes.get().copied().flatten().unwrap_or(u64::MAX);
    let memory = limit.min(*machine.memory.total_bytes.get()?);
    let largest = PUBLISHED[PUBLISHED.len() - 1];
    let size = (memory + memory / 4).div_ceil(largest * MIB) * largest;
    (largest + 1..=MOST_BEYOND).contains(&size).then_some(size)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let state = state(case)?;
    let target = data::file(bench, known(BYTES.of(case), case)?)?;
    if state == State::Direct {
        data::can_be_direct(&target, BLOCK as u64)?;
    }
    if state == State::Uncached {
        // An untimed pass first, to touch the memory of its pages.
        Round::new(bench).pass(bench, &target, state, order(case, bench.seed())?)?;
    }
    let counters = Counters::look(&target);
    let (mut round, mut passes) = (Round::new(bench), 0);
    while !round.is_over(bench.slice()) {
        let order = order(case, bench.seed().wrapping_add(passes))?;
        round.pass(bench, &target, state, order)?;
        passes += 1;
    }
    let Round { reads, spent } = round;
    // From memory it is a control: what the same reads take without the device.
    if state != State::Cached {
        bench.note(counters.have_read(reads.inner.bytes)?);
    }
    bench.note(distribution(&reads, recording_cost(bench.clock(), bench.hertz())));
    bench.record(&SEQRAND, vec![spent / reads.inner.requests as f64]);
    if reads.histogram.count() >= ENOUGH {
        bench.record(&SEQRAND_P99, reads.histogram.quantile(0.99).into_iter().collect());
    }
    Ok(())
}

/// The reads so far, and their nanoseconds.
struct Round {
    reads: Latencies<Tally>,
    spent: f64,
}

impl Round {
    fn new(bench: &Bench<'_>) -> Self {
        Self { reads: Latencies::new(Tally::default(), bench.clock(), bench.hertz()), spent: 0.0 }
    }

    fn is_over(&self, slice: f64) -> bool {
        self.spent >= slice && (self.reads.histogram.count() >= ENOUGH || self.spent >= LONGEST)
    }

    /// One pass over a file, or as much of it as there is time for: all of it where the kernel reads ahead, since what is read
    /// ahead must count too.
    fn pass(&mut self, bench: &Bench<'_>, target: &Target, state: State, order: Order) -> Result<(), Stop> {
        cache::bring(target, state).map_err(data::stopped)?;
        let how = How { access: state.access(), block: BLOCK, order, pages: Pages::Base };
        let mut reader = Engine::Pread.open(target, how).map_err(data::stopped)?;
        let mut requests = Requests::new(0..target.bytes(), BLOCK, order);
        let (clock, ahead) = (bench.clock(), state == State::Uncached && order == Order::Sequential);
        while requests.complete_passes() == 0 && (ahead && self.spent < PATIENCE || !self.is_over(bench.slice())) {
            requests.allow(CHUNK);
            let begun = clock.start();
            reader.read(&mut requests, &mut self.reads).map_err(data::stopped)?;
            self.spent += bench.nanoseconds(clock.stop().wrapping_sub(begun));
        }
        Ok(())
    }
}

/// The quantiles of a round's reads, in words.
fn distribution(reads: &Latencies<Tally>, cost: f64) -> String {
    let at = |share: f64| time(reads.histogram.quantile(share).unwrap_or_default());
    format!(
        "of {} reads half took at most {}, 90 % {}, 99 % {}, the longest {}; timing one costs {}",
        reads.histogram.count(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
        time(cost)
    )
}

fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if metric.id == SEQRAND_P99.id {
        return tail(facts, case);
    }
    let block = BLOCK as u64;
    match (CacheState::of(case), AccessOrder::of(case)) {
        (Some(CacheState::Direct), _) => {
            Ok(expected::direct(facts, block, Transfer::Read)?.into_time_within(expected::SAME_REQUESTS))
        }
        (Some(CacheState::Uncached), Some(AccessOrder::Random)) => Ok(ahead::anywhere(facts, block)?.into_time()),
        (Some(CacheState::Uncached), _) => {
            let whole = predictable(BYTES.of(case), case)?;
            Ok(Ahead::of(facts, whole, block)?.whole().shared_by(whole / block, "blocks").into_time())
        }
        (Some(CacheState::Cached) | None, _) => predictable(None, case),
    }
}

/// The case of the tail from which all others follow: one request of the device after another.
fn of_requests() -> Case {
    Case::new().with(BYTES, 16 * MIB).at(AccessOrder::Random).at(CacheState::Direct)
}

/// What one in a hundred reads exceeds.
fn tail(facts: &Facts<'_>, case: &Case) -> Result<Prediction, NoPrediction> {
    let in_order = AccessOrder::of(case) == Some(AccessOrder::Sequential);
    match predictable(CacheState::of(case), case)? {
        CacheState::Direct if *case == of_requests() => {
            Err(NoPrediction::because("the tail of a device's latency does not follow from its mean"))
        }
        CacheState::Uncached if in_order => tail_ahead(facts, predictable(BYTES.of(case), case)?),
        CacheState::Direct | CacheState::Uncached => {
            Ok(same_tail(facts.measured(&SEQRAND_P99, &of_requests())?, String::new()))
        }
        CacheState::Cached => predictable(None, case),
    }
}

/// Loads, one after another, of what nobody has read yet when a folio is met first: its slot in the page cache, and its header
/// (Linux mm/filemap.c: `filemap_get_read_batch`).
const FOLIO_LOADS: f64 = 2.0;

/// The same where the kernel reads ahead: what matters is how many reads wait for a window.
fn tail_ahead(facts: &Facts<'_>, whole: u64) -> Result<Prediction, NoPrediction> {
    let block = BLOCK as u64;
    let page = allowance::page_bytes(facts.machine());
    let most = facts.measured(&READ_AHEAD, &Case::new())?;
    // All that either way may need is asked for: a plan does not know the size of windows.
    let (found, load) = (expected::cached(facts, block), latency::of_memory(facts));
    let (reads, waits) = (whole / block, ahead::windows(whole, block, most.value as u64, page));
    if 100 * waits > reads {
        let why = format!(", for which {waits} of {reads} reads wait");
        return Ok(same_tail(facts.measured(&SEQRAND_P99, &of_requests())?, why));
    }
    let (found, load) = (found?, load?);
    let first = Expected {
        nanoseconds: FOLIO_LOADS * load.value,
        name: "first of a folio".into(),
        formula: format!("{FOLIO_LOADS} x {}", load.name),
        derivation: format!("{FOLIO_LOADS} x {} for the first of a folio", time(load.value)),
        inputs: vec![load],
    };
    Ok(expected::one_by_one(found, first).into_time())
}

/// The tail of requests to the device, as measured elsewhere in the same run.
fn same_tail(of: Input, why: String) -> Prediction {
    let value = of.value;
    // Another formula where few of the reads are requests.
    let (name, formula) = match why.is_empty() {
        true => ("requests", of.name.clone()),
        false => ("reads that wait for windows", format!("{}: reads wait for windows", of.name)),
    };
    Predicting::within_factor(Basis::Derived, value, expected::FACTOR)
        .formula(name, formula)
        .input(of)
        .derived_as(format!("{}, as other requests to the device{why}", time(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;
    use kelvin_catalogue::file::{DEVICE_MEAN_LATENCY, DEVICE_READ};
    use kelvin_catalogue::mem::BANDWIDTH_COPY;
    use kelvin_model::Fact;

    #[test]
    fn times_are_those_worked_out_by_hand() {
        let known = [
            (BANDWIDTH_COPY.id.as_str(), Some(8.192e9)),
            (PAGE_READ.id.as_str(), Some(1000.0)),
            (READ_AHEAD.id.as_str(), Some(262_144.0)),
            (DEVICE_READ.id.as_str(), Some(409.6e6)),
            (DEVICE_MEAN_LATENCY.id.as_str(), Some(80_000.0)),
        ];
        facts_about(&known, |facts| {
            let time = |order: AccessOrder, cache: CacheState| {
                predict(facts, &SEQRAND, &Case::new().with(BYTES, MIB).at(order).at(cache)).unwrap().value
            };
            assert_eq!(time(AccessOrder::Random, CacheState::Direct), 80_000.0);
            assert_eq!(time(AccessOrder::Sequential, CacheState::Direct), 80_000.0);
            // 1 us of call and page, and 4096 bytes at 4.096 a nanosecond.
            assert!((time(AccessOrder::Random, CacheState::Uncached) - 82_000.0).abs() < 1e-6);
            // 256 pages in 8 windows of 80 us, and 10 us for each page beyond the first one of each. Pages cost nothing to
            // allocate only because the test makes the two figures equal.
            let in_order = time(AccessOrder::Sequential, CacheState::Uncached);
            assert!((in_order - (8.0 * 80_000.0 + 248.0 * 10_000.0) / 256.0).abs() < 1e-6);
        });
    }

    #[test]
    fn the_tail_is_that_of_requests_or_of_what_was_read_ahead() {
        let known = [
            (SEQRAND_P99.id.as_str(), Some(150_000.0)),
            (READ_AHEAD.id.as_str(), Some(131_072.0)),
            (PAGE_READ.id.as_str(), Some(400.0)),
            (BANDWIDTH_COPY.id.as_str(), Some(8.192e9)),
            (LATENCY.id.as_str(), Some(100.0)),
        ];
        facts_about(&known, |facts| {
            let of = |mib: u64, order: AccessOrder, cache: CacheState| {
                predict(facts, &SEQRAND_P99, &Case::new().with(BYTES, mib * MIB).at(order).at(cache))
            };
            for (mib, order, cache) in [
                (128, AccessOrder::Random, CacheState::Direct),
                (16, AccessOrder::Sequential, CacheState::Direct),
                (16, AccessOrder::Random, CacheState::Uncached),
                // Windows of 32 pages at most: one of 32 reads waits.
                (16, AccessOrder::Sequential, CacheState::Uncached),
            ] {
                let tail = of(mib, order, cache).unwrap();
                assert_eq!((tail.value, tail.low, tail.high), (150_000.0, 75_000.0, 300_000.0));
            }
            assert!(of(16, AccessOrder::Random, CacheState::Direct).is_err());
        });
        let far = [&known[..1], &[(READ_AHEAD.id.as_str(), Some(16.0 * MIB as f64))], &known[2..]].concat();
        facts_about(&far, |facts| {
            let of = |mib: u64| {
                let case = Case::new().with(BYTES, mib * MIB).at(AccessOrder::Sequential).at(CacheState::Uncached);
                predict(facts, &SEQRAND_P99, &case).unwrap()
            };
            // 4 windows of 256 reads; 8 of 4096, of which most find their page: 400 ns, 1 us of copy, 200 ns.
            assert_eq!(of(1).value, 150_000.0);
            assert!((of(16).value - 1600.0).abs() < 1e-9, "{}", of(16).value);
        });
    }

    #[test]
    fn every_size_is_read_in_both_orders_and_both_states() {
        let cases = cases(&crate::testing::machine(), Effort::Default);
        assert_eq!(cases.len(), 12);
        let large = Case::new().with(BYTES, 128 * MIB);
        assert!(cases.contains(&large.at(AccessOrder::Random).at(CacheState::Uncached)));
        let study = super::cases(&crate::testing::machine(), Effort::Thorough);
        let sizes: std::collections::BTreeSet<u64> = study.iter().filter_map(|case| BYTES.of(case)).collect();
        assert_eq!((study.len(), sizes), (32, PUBLISHED.map(|size| size * MIB).into()));
    }

    #[test]
    fn one_file_is_larger_than_the_memory_that_is_allowed() {
        let mut machine = crate::testing::machine();
        assert_eq!(beyond_memory(&machine), None);
        machine.memory.total_bytes = Fact::known(1600 * MIB, "a test");
        assert_eq!(beyond_memory(&machine), Some(2048));
        machine.memory.total_bytes = Fact::known(16384 * MIB, "a test");
        assert_eq!(beyond_memory(&machine), None);
        machine.limits.memory_bytes = Fact::known(Some(1000 * MIB), "a test");
        // 1250 are ten times 128.
        assert_eq!(beyond_memory(&machine), Some(1280));
        assert_eq!(super::cases(&machine, Effort::Thorough).len(), 36);
        assert_eq!(super::cases(&machine, Effort::Default).len(), 12);
        // All of such a limit is within the sizes of the older study.
        machine.limits.memory_bytes = Fact::known(Some(64 * MIB), "a test");
        assert_eq!(beyond_memory(&machine), None);
    }
}
