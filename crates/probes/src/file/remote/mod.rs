//! Small reads on a remote directory and the same on a local one, and the share of a remote read that is the network.
//!
//! It is the cost of a file behind a network, or behind another program. It must not be used as the speed of the server's disk,
//! which may not have been read: its memory answers first.

mod directory_reader;
mod nfs_requests;
mod server;

use std::path::Path;

use kelvin_core::catalogue::file::{
    LOCAL_BLOCK, LookupDirectory, REMOTE_ATTRIBUTES, REMOTE_BLOCK, REMOTE_RATE, REMOTE_READ_AHEAD, REMOTE_REQUESTS,
    REMOTE_ROUND_TRIP, REMOTE_SHARE,
};
use kelvin_core::{Input, Nic};
use kelvin_harness::Setup;
use kelvin_sys::fs::kind;

use self::directory_reader::{BLOCK, DirectoryReader, ReadSpec};
use super::prelude::*;
use super::read_ahead_model;

pub(super) use self::server::{RATE_PROBE, READ_AHEAD_PROBE, ROUND_TRIP_PROBE};

pub(crate) static PROBE: Probe = Probe {
    summary: "Small reads on a mounted directory of another machine and on a local one (--remote DIR)",
    method: include_str!("remote.md"),
    cases,
    run,
    predict,
    ..Probe::study(&[&REMOTE_BLOCK, &LOCAL_BLOCK, &REMOTE_SHARE, &REMOTE_REQUESTS])
};

/// Blocks of a file in memory that are timed together.
const CACHED_BATCH: u64 = 16;
/// Blocks between two looks at the time where the kernel reads ahead.
const TIME_CHECK_BLOCKS: u64 = 16;
/// Nanoseconds after which a round with read-ahead is broken off: what is read ahead is little of it by then.
const MAX_PASS_NANOSECONDS: f64 = 1e9;

/// Sizes of the files, in MiB: the published ones; fewer by default, since each is written twice, perhaps over a slow link.
const FILE_SIZES: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const DEFAULT_SIZES: [u64; 3] = [1, 8, 128];
/// The size of a quick run.
const QUICK_SIZE: u64 = 8;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    use AccessOrder::{Random, Sequential};
    use CacheState::{Cached, Direct, Uncached};
    const SERVER_STATES: [(CacheState, AccessOrder); 4] =
        [(Direct, Random), (Uncached, Sequential), (Direct, Sequential), (Uncached, Random)];
    const CACHED_STATES: [(CacheState, AccessOrder); 2] = [(Cached, Random), (Cached, Sequential)];
    let cases_of = |states: &[(CacheState, AccessOrder)], sizes: &[u64]| {
        let of_size = |&size: &u64| states.iter().map(move |&(cache, order)| case(cache, order, size));
        sizes.iter().flat_map(of_size).collect::<Vec<_>>()
    };
    let quick = [cases_of(&SERVER_STATES[..2], &[QUICK_SIZE]), cases_of(&CACHED_STATES[..1], &[QUICK_SIZE])];
    let default = [cases_of(&SERVER_STATES, &DEFAULT_SIZES), cases_of(&CACHED_STATES, &[QUICK_SIZE])];
    let thorough = [cases_of(&SERVER_STATES, &FILE_SIZES), cases_of(&CACHED_STATES, &FILE_SIZES)];
    by_effort(effort, [quick, default, thorough]).concat()
}

fn case(cache: CacheState, order: AccessOrder, size: u64) -> Case {
    Case::new().with_word(cache).with_word(order).with_number(BYTES, size * MIB)
}

/// The case of a file of this many bytes, where its blocks come from the server; one whose blocks are in memory stays as it is.
pub(crate) fn case_at_size(case: &Case, bytes: u64) -> Case {
    if CacheState::of(case) == Some(CacheState::Cached) { case.clone() } else { case.clone().with_number(BYTES, bytes) }
}

/// Writes the files of this many bytes to both directories before the first round: over a slow link that takes longer than a round may.
pub(crate) fn write_files(setup: &Setup, bytes: u64) -> ProbeResult {
    let directories = [setup.remote_directory.as_deref(), Some(setup.scratch.as_os_str())];
    directories
        .into_iter()
        .flatten()
        .try_for_each(|directory| directory_reader::write_file(setup, Path::new(directory), bytes))
}

/// Blocks of a round that the kernel reads ahead, of a file of this many bytes: some tens of the windows that most mounts have.
fn read_ahead_blocks(bytes: u64) -> u64 {
    bytes.min(QUICK_SIZE * MIB) / BLOCK as u64
}

/// Whether the kernel reads ahead for a case.
fn has_read_ahead(case: &Case) -> bool {
    (CacheState::of(case), AccessOrder::of(case)) == (Some(CacheState::Uncached), Some(AccessOrder::Sequential))
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (local_directory, remote_directory) = (bench.scratch().to_owned(), bench.remote()?.to_owned());
    if !kind(&remote_directory)?.is_served() {
        bench.note("the remote directory is not on another machine or program: there is no network in the difference");
    }
    let batch = match CacheState::of(case) {
        _ if has_read_ahead(case) => TIME_CHECK_BLOCKS,
        Some(CacheState::Cached) => CACHED_BATCH,
        _ => 1,
    };
    let (state, order) = (cache_state(case)?, block_order(case, bench.seed())?);
    let spec = ReadSpec { bytes: required_number(BYTES, case)?, state, order, batch };
    let (remote, local) =
        (DirectoryReader::open(bench, &remote_directory, spec)?, DirectoryReader::open(bench, &local_directory, spec)?);
    bench.note(format!("remote: {}; local: {}", remote.proof, local.proof));
    let mut readers = [remote, local];
    let [remote, local] = match has_read_ahead(case) {
        true => sample_means(bench, &mut readers, read_ahead_blocks(spec.bytes))?,
        false => sample_medians(bench, &mut readers, spec.batch)?,
    };
    fail_if(remote <= 0.0, "the remote reads took no time at all")?;
    bench.record(&REMOTE_SHARE, vec![1.0 - local / remote]);
    let [remote, _] = readers;
    if let Some(requests) = remote.requests_per_block()? {
        bench.record(&REMOTE_REQUESTS, vec![requests]);
    }
    Ok(())
}

/// The figures of the remote reader and of the local one, whose reads are interleaved.
const METRICS: [&Metric; 2] = [&REMOTE_BLOCK, &LOCAL_BLOCK];

/// Samples of this many blocks each; the medians of remote and local ones.
fn sample_medians(
    bench: &mut Bench<'_>,
    [remote, local]: &mut [DirectoryReader; 2],
    batch: u64,
) -> ProbeResult<[f64; 2]> {
    let mut samples = [Vec::new(), Vec::new()];
    bench.time_each(METRICS, |clock| {
        let times = [remote.time_batch(clock)? / batch, local.time_batch(clock)? / batch];
        samples.iter_mut().zip(times).for_each(|(samples, time)| samples.push(time as f64));
        Ok(times)
    })?;
    Ok(samples.map(upper_median))
}

/// This many blocks and as many more as there is time for; the means of remote and local ones.
fn sample_means(bench: &mut Bench<'_>, readers: &mut [DirectoryReader; 2], min_blocks: u64) -> ProbeResult<[f64; 2]> {
    let (mut times, mut blocks) = ([0.0; 2], 0);
    while times[0] + times[1] < bench.slice() || blocks < min_blocks && times[0] + times[1] < MAX_PASS_NANOSECONDS {
        for (reader, time) in readers.iter_mut().zip(&mut times) {
            *time += bench.nanoseconds(reader.time_batch(bench.clock())?);
        }
        blocks += TIME_CHECK_BLOCKS;
    }
    let means = times.map(|time| time / blocks as f64);
    METRICS.iter().zip(means).for_each(|(metric, mean)| bench.record(metric, vec![mean]));
    bench.note_last_reading(format!("{blocks} blocks of {BLOCK} bytes of each"));
    Ok(means)
}

/// The median, the upper one of two.
fn upper_median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The predicted range of a remote block, as a factor either way.
const SPREAD: f64 = 3.0;

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let reason = match metric.id {
        id if id == LOCAL_BLOCK.id => "file.seqrand measures blocks of this machine's own device",
        id if id == REMOTE_ATTRIBUTES.id => "whether attributes are asked for is a setting of the mount",
        _ => "it follows from the remote and the local block, of which the first is predicted",
    };
    unpredicted_if(metric.id != REMOTE_BLOCK.id, reason)?;
    let cache = required(CacheState::of(case), case)?;
    let mut time = measured(facts, &LOCAL_BLOCK, case)?;
    if cache != CacheState::Direct {
        // A read through the page cache asks first whether the file is still as it was.
        let [remote, local] = [LookupDirectory::Remote, LookupDirectory::Local]
            .map(|place| measured(facts, &REMOTE_ATTRIBUTES, &Case::new().with_word(place)));
        // Noise may reverse the order of two figures.
        time = time + (remote?.variant("attributes") - local?).at_least_zero();
    }
    if cache != CacheState::Cached {
        time = time + round_trip_time(facts, case)?;
        // The server's rate; without one, that of the fastest advertised link; without that, nothing.
        let server = measured(facts, &REMOTE_RATE, &Case::new()).map(|rate| rate.variant("server")).ok();
        let link = || fastest_link(facts.machine()).map(|(link, _)| Expr::from(link).variant("link"));
        if let Some(rate) = server.or_else(link) {
            time = time + bytes_of("block", BLOCK as u64) / rate;
        }
    }
    Ok(time.widen(SPREAD).derived("parts"))
}

/// Round trips of a block: one, or its share of the windows that are read ahead.
fn round_trip_time(facts: &PredictionInputs<'_>, case: &Case) -> Predicted<Expr> {
    let round_trip = measured(facts, &REMOTE_ROUND_TRIP, &Case::new().with_word(LookupDirectory::Remote))?;
    if !has_read_ahead(case) {
        return Ok(round_trip.variant("round trip"));
    }
    let window = measured(facts, &REMOTE_READ_AHEAD, &Case::new())?;
    let file_bytes = required_number(BYTES, case)?;
    let page = memory_budget::page_bytes(facts.machine());
    let blocks = read_ahead_blocks(file_bytes);
    let windows = read_ahead_model::window_count(blocks * BLOCK as u64, BLOCK as u64, window.value() as u64, page);
    // The first window comes alone. After that, touching the first page of a window requests the next one, before the
    // page itself is waited for (Linux mm/filemap.c: `filemap_get_pages`): two are in flight.
    let trips = (count_of("windows", windows).variant("windows") + 1.0) / 2.0;
    Ok((trips * round_trip / count_of("blocks", blocks)).with_input(&window))
}

/// The fastest advertised link speed, in bytes per second, and its interface; `None` if no interface advertises one.
fn fastest_link(machine: &Machine) -> Option<(Input, &Nic)> {
    let claims = machine.nics.iter().filter_map(|nic| {
        let bits = *nic.bits_per_second.get().filter(|bits| **bits > 0.0)?;
        let source = nic.bits_per_second.source_or_reason().to_owned();
        let name = format!("rate of {}", nic.name);
        Some((Input { name, value: bits / 8.0, unit: Unit::BytesPerSecond, source }, nic))
    });
    claims.max_by(|(left, _), (right, _)| left.value.total_cmp(&right.value))
}

#[cfg(test)]
mod tests {
    use super::AccessOrder::{Random, Sequential};
    use super::CacheState::{Cached, Direct, Uncached};
    use super::*;
    use crate::testing::{machine, nic};
    use kelvin_core::Fact;
    use kelvin_core::catalogue::file::REMOTE_SHARE;
    use kelvin_harness::MeasuredValue;

    #[test]
    fn quick_run_has_all_orders_and_states() {
        let quick = cases(&machine(), Effort::Quick);
        assert_eq!(quick, [case(Direct, Random, 8), case(Uncached, Sequential, 8), case(Cached, Random, 8)]);
    }

    #[test]
    fn size_changes_only_remote_cases() {
        let sizes =
            |effort| cases(&machine(), effort).iter().map(|case| case_at_size(case, 100 * MIB)).collect::<Vec<_>>();
        let quick = sizes(Effort::Quick);
        assert_eq!(quick, [case(Direct, Random, 100), case(Uncached, Sequential, 100), case(Cached, Random, 8)]);
    }

    #[test]
    fn thorough_run_has_published_sizes() {
        let thorough_cases = cases(&machine(), Effort::Thorough);
        assert_eq!(thorough_cases.len(), 8 * 3 * 2);
        for (cache, order, size) in [(Direct, Sequential, 1), (Cached, Random, 64), (Uncached, Random, 128)] {
            assert!(thorough_cases.contains(&case(cache, order, size)));
        }
        assert_eq!(cases(&machine(), Effort::Default).len(), 3 * 4 + 2);
    }

    #[test]
    fn only_uncached_sequential_reads_ahead() {
        assert!(has_read_ahead(&case(Uncached, Sequential, 1)));
        assert_eq!([1, 8, 128].map(|size| read_ahead_blocks(size * MIB)), [256, 2048, 2048]);
        for (cache, order) in [(Uncached, Random), (Direct, Sequential), (Cached, Sequential)] {
            assert!(!has_read_ahead(&case(cache, order, 1)));
        }
    }

    #[test]
    fn upper_median_of_two_is_larger() {
        assert_eq!(
            [upper_median(vec![3.0, 1.0, 2.0]), upper_median(vec![1.0, 2.0]), upper_median(vec![])],
            [2.0, 2.0, 0.0]
        );
    }

    const KIB: u64 = 1 << 10;

    fn remote_case(cache: CacheState, order: AccessOrder) -> Case {
        Case::new().with_word(cache).with_word(order).with_number(BYTES, 8192 * KIB)
    }

    /// Local blocks of 10 us, round trips of 1 ms, attributes of 1 ms compared with 300 ns, windows of 256 KiB, and this rate.
    fn measured_values(rate: Option<f64>) -> impl Fn(&str, &Case) -> Option<MeasuredValue> {
        move |id, case| {
            let is_remote = LookupDirectory::of(case) == Some(LookupDirectory::Remote);
            let value = match id {
                id if LOCAL_BLOCK.id == *id => 10_000.0,
                id if REMOTE_ROUND_TRIP.id == *id => 1e6,
                id if REMOTE_ATTRIBUTES.id == *id => {
                    if is_remote {
                        1_000_300.0
                    } else {
                        300.0
                    }
                }
                id if REMOTE_READ_AHEAD.id == *id => 262_144.0,
                id if REMOTE_RATE.id == *id => rate?,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        }
    }

    #[test]
    fn remote_block_adds_network_time() {
        let (machine, measured) = (machine(), measured_values(Some(40.96e6)));
        let facts = PredictionInputs::new(&machine, &measured);
        let time = |cache, order| predict(&facts, &REMOTE_BLOCK, &remote_case(cache, order)).unwrap().value;
        // 10 us, 1 ms, and 4096 bytes at 40.96 MB/s.
        assert_eq!(time(Direct, Random), 1_110_000.0);
        assert_eq!(time(Direct, Sequential), time(Direct, Random));
        assert_eq!(time(Uncached, Random), 2_110_000.0, "attributes as well");
        assert_eq!(time(Cached, Random), 1_010_000.0, "only attributes");
        // 36 windows, as an NFS client of Linux 6.1 requested 8 MiB, two at a time.
        assert!((time(Uncached, Sequential) - (1_110_000.0 + 18.5e6 / 2048.0)).abs() < 1e-6);
        let prediction = predict(&facts, &REMOTE_BLOCK, &remote_case(Uncached, Sequential)).unwrap();
        assert_eq!(
            prediction.derivation,
            "10.0 µs + 1.00 ms - 300 ns + (36 + 1) / 2 x 1.00 ms / 2048 + 4.00 KiB / 41.0 MB/s = 1.12 ms"
        );
        assert_eq!((prediction.inputs.len(), prediction.high / prediction.low), (6, 9.0));
    }

    #[test]
    fn missing_server_rate_uses_link_speed() {
        let (mut machine, measured) = (machine(), measured_values(None));
        let time = |machine: &_| {
            predict(&PredictionInputs::new(machine, &measured), &REMOTE_BLOCK, &remote_case(Direct, Random)).unwrap()
        };
        assert_eq!(time(&machine).value, 1_010_000.0);
        machine.nics = vec![nic("lo", Fact::unknown("has no speed")), nic("eth0", Fact::known(1e9, "ethtool"))];
        // 4096 bytes at 125 MB/s.
        assert_eq!(time(&machine).value, 1_042_768.0);
        assert!(time(&machine).derivation.contains("4.00 KiB / 125 MB/s"), "{}", time(&machine).derivation);
    }

    #[test]
    fn only_the_remote_block_is_predicted() {
        let (machine, measured) = (machine(), measured_values(None));
        let facts = PredictionInputs::new(&machine, &measured);
        for metric in [&LOCAL_BLOCK, &REMOTE_SHARE] {
            assert!(predict(&facts, metric, &remote_case(Direct, Random)).is_err(), "{}", metric.id);
        }
        let no_value = |_: &str, _: &Case| None;
        let reason = predict(&PredictionInputs::new(&machine, &no_value), &REMOTE_BLOCK, &remote_case(Direct, Random))
            .unwrap_err();
        assert!(reason.0.contains(LOCAL_BLOCK.id.as_str()), "{}", reason.0);
    }

    #[test]
    fn fastest_advertised_link_speed_is_used() {
        let mut machine = machine();
        assert!(fastest_link(&machine).is_none());
        machine.nics = vec![
            nic("lo", Fact::unknown("has no speed")),
            nic("eth0", Fact::known(1e9, "ethtool")),
            nic("eth1", Fact::known(1e8, "ethtool")),
            nic("eth2", Fact::known(-1.0, "ethtool")),
        ];
        let (rate, nic) = fastest_link(&machine).unwrap();
        assert_eq!((rate.name.as_str(), rate.value, nic.name.as_str()), ("rate of eth0", 125e6, "eth0"));
        assert_eq!(rate.source, "ethtool");
    }
}
