//! The same small reads on a remote directory and on a local one, and the share of a remote read that is the network.
//!
//! It is the cost of a file behind a network, or behind another program. It must not be used as the speed of the server's disk,
//! which may not have been read: its memory answers first.

use std::path::Path;

use kelvin_catalogue::file::{
    AccessOrder, AskedDirectory, CacheState, REMOTE, REMOTE_LOCAL, REMOTE_ROUND_TRIP, REMOTE_SHARE,
};
use kelvin_file::cache::{self, State};
use kelvin_file::{Engine, How, Order, Reader, Requests, Tally, Target, noise};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Input, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::clock::Clock;
use kelvin_sys::fs::{kind, room};

use super::cases::{known, order, state};
use super::data;
use crate::advertised::fastest_link;
use crate::predict::Predicting;

pub(crate) static PROBE: Probe = Probe {
    id: REMOTE.id.as_str(),
    summary: "Small reads on a mounted directory of another machine beside the same on a local one (--remote DIR)",
    kind: ProbeKind::Study,
    method: Method {
        how: "A file of 8 MiB of noise is written to a fresh directory below the one that --remote names, and to the \
              scratch directory, and flushed. Blocks of 4 KiB of the two are read in turn by pread, a remote and a \
              local one per sample, in order or in an order drawn anew for each pass. cache=direct: past the page \
              cache, each block timed alone. cache=uncached: through it, after the file was dropped before each pass, \
              proven by mincore and cachestat; in random order (announced to the kernel) each block is timed alone, in \
              order 128 blocks are timed together, for one in many of them waits for read-ahead. The share is one less \
              the median local time over the median remote one of a round. A note names both file systems. The round \
              trip is lstat(2) of a name never used before, which must not exist: no cache can answer that.",
        prediction: "The local block as measured in turn with it, plus the measured round trip, plus the block over \
                     the fastest advertised link speed, if there is one. With read-ahead a round trip fetches 128 KiB \
                     and is shared by 32 blocks. Predicted range: a factor of 3 either way, as the other machine has \
                     its own disk, memory and load. The local block and the round trip themselves have no prediction.",
        not_for: "Throughput at higher queue depths; large blocks; the disk of the other machine.",
        pitfalls: &[
            "A client with its own cache (sshfs, some FUSE file systems) may answer a second read of a block: each \
             pass reads each block once, but passes repeat.",
            "Direct I/O on a network file system bypasses this machine's memory and not the server's.",
            "Attributes are cached for seconds: an lstat of a known name is no round trip.",
            "Both directories may be on one disk: a mount of this machine on itself shows the cost of the protocol \
             alone.",
        ],
        sources: &["nfs(5), sshfs(1): caching; Linux Documentation/filesystems/fuse-io.rst", READ_AHEAD_SOURCE, IOPING],
    },
    metrics: &[&REMOTE, &REMOTE_LOCAL, &REMOTE_SHARE],
    inputs: &[REMOTE_ROUND_TRIP.id.as_str()],
    cases,
    run,
    predict,
};

pub(crate) static ROUND_TRIP_PROBE: Probe = Probe {
    id: REMOTE_ROUND_TRIP.id.as_str(),
    summary: "A request to the server of a mounted directory and its answer, without data (--remote DIR)",
    kind: ProbeKind::Study,
    method: Method {
        how: "lstat(2) of a name never used before, in a fresh directory below the one that --remote names, and in the \
              scratch directory beside it; each timed alone. It must fail because there is no such file.",
        prediction: "None: the distance to a server is a fact of the network, which no figure of this machine gives.",
        not_for: "The network's own round trip: the server searches its directory, and the client may send several \
                  requests for one lstat.",
        pitfalls: &["A name looked up before may be answered from a cache of absent names: every name is new."],
        sources: &["lstat(2); Linux fs/namei.c: lookup_slow", IOPING],
    },
    metrics: &[&REMOTE_ROUND_TRIP],
    inputs: &[],
    cases: |_, _| AskedDirectory::ALL.iter().map(|&directory| Case::new().at(directory)).collect(),
    run: ask,
    predict: |_, _, _| Err(NoPrediction::because("the distance to a server is a fact of the network")),
};

const IOPING: &str = "ioping: a request at a time on any directory";

/// Bytes of a block, and of a file: some thousand blocks, written in seconds over a slow link.
const BLOCK: usize = 4096;
const FILE_BYTES: u64 = 8 << 20;
/// Blocks timed together where the kernel reads ahead: several windows of 128 KiB.
const TOGETHER: u64 = 128;
/// Bytes that are read ahead at a time.
const READ_AHEAD: f64 = (128 << 10) as f64;
const READ_AHEAD_SOURCE: &str = "Linux include/linux/pagemap.h: VM_READAHEAD_PAGES, 128 KiB";
const NAME: &str = "kelvin-remote-data";
/// Seed of the content.
const SEED: u64 = 1;
/// Free space that a directory must have, as a multiple of the file.
const ROOM: u64 = 2;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    use AccessOrder::{Random, Sequential};
    use CacheState::{Direct, Uncached};
    let all = [(Direct, Random), (Uncached, Sequential), (Direct, Sequential), (Uncached, Random)];
    let wanted = if effort == Effort::Quick { 2 } else { all.len() };
    all[..wanted].iter().map(|&(cache, order)| of(cache, order)).collect()
}

fn of(cache: CacheState, order: AccessOrder) -> Case {
    Case::new().at(cache).at(order)
}

/// Whether the kernel reads ahead for a case.
fn reads_ahead(case: &Case) -> bool {
    case == &of(CacheState::Uncached, AccessOrder::Sequential)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let (here, there) = (bench.scratch().to_owned(), bench.remote()?.to_owned());
    let together = if reads_ahead(case) { TOGETHER } else { 1 };
    let reading = Reading { state: state(case)?, order: order(case, bench.seed())?, together };
    let mut remote = Place::open(bench, &there, reading)?;
    let mut local = Place::open(bench, &here, reading)?;
    bench.note(format!("remote: {}; local: {}", remote.proof, local.proof));
    if !kind(&there)?.is_served() {
        bench.note("the remote directory is not on another machine or program: there is no network in the difference");
    }
    let (mut remotes, mut locals) = (Vec::new(), Vec::new());
    bench.time_each([&REMOTE, &REMOTE_LOCAL], |clock| {
        let times = [remote.read(clock)?, local.read(clock)?];
        remotes.push(times[0] as f64);
        locals.push(times[1] as f64);
        Ok(times)
    })?;
    let (remote, local) = (middle(remotes), middle(locals));
    if remote <= 0.0 {
        return Err(Stop::fail("the remote reads took no time at all"));
    }
    bench.record(&REMOTE_SHARE, vec![1.0 - local / remote]);
    Ok(())
}

/// The median, the upper one of two.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// How a file is read.
#[derive(Clone, Copy)]
struct Reading {
    state: State,
    order: Order,
    /// Blocks timed together.
    together: u64,
}

/// A file that is read pass by pass, of which nothing is in memory when a pass begins.
struct Place {
    target: Target,
    reading: Reading,
    reader: Reader,
    requests: Requests,
    /// Blocks left in this pass, and passes so far.
    left: u64,
    passes: u64,
    proof: String,
}

impl Place {
    fn open(bench: &Bench<'_>, directory: &Path, reading: Reading) -> Result<Self, Stop> {
        let target = file(bench, directory)?;
        if reading.state == State::Direct {
            let alignment = target.alignment().map_err(data::stopped)?;
            if !(BLOCK as u64).is_multiple_of(alignment) {
                return Err(Stop::skip(format!(
                    "needs direct I/O in blocks of {BLOCK} bytes, and {} requires multiples of {alignment}",
                    directory.display()
                )));
            }
        }
        let found = cache::bring(&target, reading.state).map_err(not_to_be_had)?;
        let proof = format!("{}, {found} before a pass", kind(directory)?.name());
        let (reader, requests) = pass(&target, reading, 0)?;
        let left = requests.blocks();
        Ok(Self { target, reading, reader, requests, left, passes: 0, proof })
    }

    /// The ticks of a block, the next one or the mean of the next few.
    fn read(&mut self, clock: Clock) -> Result<u64, Stop> {
        let blocks = self.reading.together;
        if self.left < blocks {
            self.passes += 1;
            cache::bring(&self.target, self.reading.state).map_err(not_to_be_had)?;
            (self.reader, self.requests) = pass(&self.target, self.reading, self.passes)?;
            self.left = self.requests.blocks();
        }
        let mut next = self.requests.clone().at_most(blocks);
        let mut tally = Tally::default();
        let begun = clock.start();
        let outcome = self.reader.read(&mut next, &mut tally);
        let ticks = clock.stop().wrapping_sub(begun);
        outcome.map_err(data::stopped)?;
        if tally != (Tally { bytes: blocks * BLOCK as u64, requests: blocks }) {
            return Err(Stop::fail(format!("{blocks} blocks of {BLOCK} bytes came to {tally:?}")));
        }
        self.requests = next;
        self.left -= blocks;
        Ok(ticks / blocks)
    }
}

/// A fresh descriptor, so that the kernel remembers nothing of earlier passes, and the requests of a pass.
fn pass(target: &Target, reading: Reading, passes: u64) -> Result<(Reader, Requests), Stop> {
    let order = match reading.order {
        Order::Sequential => Order::Sequential,
        Order::Random { seed } => Order::Random { seed: seed.wrapping_add(passes) },
    };
    let how = How { access: reading.state.access(), block: BLOCK, order };
    let reader = Engine::Pread.open(target, how).map_err(data::stopped)?;
    Ok((reader, Requests::new(0..target.bytes(), BLOCK, order)))
}

/// A file that cannot be mapped, as on some FUSE file systems, cannot be proven to be absent from memory.
fn not_to_be_had(error: kelvin_file::Error) -> Stop {
    match &error {
        kelvin_file::Error::Call { source, .. } if source.raw_os_error() == Some(NO_MAPPING) => {
            Stop::skip(format!("needs files that can be mapped, to prove that they are not in memory: {error}"))
        }
        _ => data::stopped(error),
    }
}

/// ENODEV of mmap(2): the file system has no mappings.
const NO_MAPPING: i32 = 19;

/// The file of a directory, written by the first round.
fn file(bench: &Bench<'_>, directory: &Path) -> Result<Target, Stop> {
    let path = directory.join(NAME);
    if !path.exists() {
        let available = room(directory)?.available_bytes;
        if available < ROOM * FILE_BYTES {
            return Err(Stop::skip(format!(
                "needs {} bytes free in {}, which has {available}",
                ROOM * FILE_BYTES,
                directory.display()
            )));
        }
        bench.may_write(FILE_BYTES)?;
        noise::file(&path, FILE_BYTES, SEED).map_err(|error| data::cannot("write", &path, &error))?;
    }
    Target::find(&path).map_err(data::stopped)
}

fn ask(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let directory = match known(AskedDirectory::of(case), case)? {
        AskedDirectory::Remote => bench.remote()?.to_owned(),
        AskedDirectory::Local => bench.scratch().to_owned(),
    };
    bench.note(kind(&directory)?.name());
    let mut asked = 0u64;
    let stem = format!("kelvin-none-{}-{:x}", std::process::id(), bench.seed());
    bench.time_each([&REMOTE_ROUND_TRIP], |clock| {
        asked += 1;
        let path = directory.join(format!("{stem}-{asked}"));
        let begun = clock.start();
        let outcome = path.symlink_metadata();
        let ticks = clock.stop().wrapping_sub(begun);
        match outcome {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok([ticks]),
            Err(error) => Err(Stop::fail(format!("cannot look for {}: {error}", path.display()))),
            Ok(_) => Err(Stop::fail(format!("{} exists, and kelvin did not make it", path.display()))),
        }
    })
}

/// The predicted range of a remote block, as a factor either way.
const SPREAD: f64 = 3.0;

fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if metric.id == REMOTE_LOCAL.id {
        return Err(NoPrediction::because("file.seqrand measures blocks of this machine's own device"));
    }
    if metric.id == REMOTE_SHARE.id {
        return Err(NoPrediction::because(
            "it follows from the remote and the local block, of which the first is predicted",
        ));
    }
    let local = facts.measured(&REMOTE_LOCAL, case)?;
    let round_trip = facts.measured(&REMOTE_ROUND_TRIP, &Case::new().at(AskedDirectory::Remote))?;
    let shared = if reads_ahead(case) { READ_AHEAD / BLOCK as f64 } else { 1.0 };
    let (wire, link) = wire(facts.machine());
    let value = local.value + round_trip.value / shared + wire;
    let mut predicting = Predicting::within_factor(Basis::Derived, value, SPREAD)
        .formula("local block + round trip / blocks per round trip + block / link rate")
        .input(local.clone())
        .input(round_trip.clone())
        .constant("blocks per round trip", shared, Unit::Count, READ_AHEAD_SOURCE);
    let mut words = String::from("; no interface advertises a speed, and the wire counts nothing");
    if let Some(link) = link {
        words = format!(" + {BLOCK} B / {:.0} MB/s", link.value / 1e6);
        predicting = predicting.input(link);
    }
    Ok(predicting.derived_as(format!(
        "{:.1} us + {:.1} us / {shared}{words} = {:.1} us",
        local.value / 1e3,
        round_trip.value / 1e3,
        value / 1e3
    )))
}

/// Nanoseconds of a block on the fastest advertised link, and that link.
fn wire(machine: &Machine) -> (f64, Option<Input>) {
    match fastest_link(machine) {
        Some((link, _)) => (BLOCK as f64 * 1e9 / link.value, Some(link)),
        None => (0.0, None),
    }
}

#[cfg(test)]
mod tests {
    use super::AccessOrder::{Random, Sequential};
    use super::CacheState::{Direct, Uncached};
    use super::*;
    use crate::testing::{facts_about, machine, nic};
    use kelvin_catalogue::file::SEQRAND;
    use kelvin_harness::MeasuredValue;
    use kelvin_model::Fact;

    #[test]
    fn a_remote_block_is_a_local_one_and_the_way() {
        let known = [(REMOTE_LOCAL.id.as_str(), Some(100_000.0)), (REMOTE_ROUND_TRIP.id.as_str(), Some(320_000.0))];
        facts_about(&known, |facts| {
            let value = |case: &Case| predict(facts, &REMOTE, case).unwrap().value;
            for &order in AccessOrder::ALL {
                assert_eq!(value(&of(Direct, order)), 420_000.0);
            }
            assert_eq!(value(&of(Uncached, Random)), 420_000.0);
            // A round trip fetches 32 blocks.
            assert_eq!(value(&of(Uncached, Sequential)), 110_000.0);
            let local = predict(facts, &REMOTE_LOCAL, &of(Direct, Random)).unwrap_err();
            assert!(local.0.contains(SEQRAND.id.as_str()), "{}", local.0);
        });
        facts_about(&[], |facts| assert!(predict(facts, &REMOTE, &of(Direct, Random)).is_err()));
    }

    #[test]
    fn the_wire_is_that_of_the_fastest_interface_that_claims_a_speed() {
        let mut machine = machine();
        assert_eq!(wire(&machine), (0.0, None));
        machine.nics = vec![
            nic("lo", Fact::unknown("has no speed")),
            nic("eth0", Fact::known(1e9, "ethtool")),
            nic("eth1", Fact::known(-1.0, "ethtool")),
        ];
        // 4096 bytes at 125 MB/s.
        let (nanoseconds, link) = wire(&machine);
        assert_eq!((nanoseconds, link.unwrap().name), (32_768.0, "rate of eth0".into()));
        let measured = |_: &str, _: &Case| Some(MeasuredValue { value: 1000.0, half_width: 0.0 });
        let facts = Facts::new(&machine, &measured);
        let prediction = predict(&facts, &REMOTE, &of(Direct, Random)).unwrap();
        assert_eq!(prediction.value, 34_768.0);
        assert!(prediction.derivation.contains("4096 B / 125 MB/s"), "{}", prediction.derivation);
    }

    #[test]
    fn a_quick_run_has_both_orders_and_both_ways_past_memory() {
        let quick = cases(&machine(), Effort::Quick);
        assert_eq!(quick, [of(Direct, Random), of(Uncached, Sequential)]);
        assert_eq!(cases(&machine(), Effort::Default).len(), 4);
    }
}
