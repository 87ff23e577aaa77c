//! The same reading by kelvin and by programs that people read files with, in turn on one file: fio, dd, cat and lmbench's
//! bw_file_rd.
//!
//! It shows whether kelvin's own figures are limited by the machine or by kelvin. It must not be used to rank the programs,
//! which do other things beside reading.

mod programs;

use std::time::Duration;

use kelvin_catalogue::file::{
    AccessOrder, BESIDE_RIVALS_CACHED, BESIDE_RIVALS_DIRECT, BLOCK, BesideRivals, OWN_BLOCK, RIVALS_CACHED,
    RIVALS_CACHED_KELVIN, RIVALS_CACHED_OTHER, RIVALS_DIRECT, RIVALS_DIRECT_KELVIN, RIVALS_DIRECT_OTHER, Rival,
};
use kelvin_file::cache::{self, State};
use kelvin_file::job::{self, Job, Until};
use kelvin_file::{Engine, Order, Target};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Input, Machine, Metric, NoPrediction, Prediction, Unit};

use self::programs::Tool;
use super::cached::still;
use super::cases::{known, order, predictable};
use super::data::{self, KIB, MIB, SHARED_BYTES};
use super::proof::Counters;
use crate::os::syscall_work::{NANOSECONDS_AN_INSTRUCTION, WRITE};
use crate::predict::Predicting;

/// What is common to both probes' texts.
const PREDICTION: &str = "1, for the same calls read the same bytes; dd and cat write each block to /dev/null as well, and so \
    lack the time of os.syscall.write at each. Within a factor of 1.15; above that, up to 1000 instructions at each request \
    are allowed for, as what a program does for itself is not known. The rates themselves are not predicted here: \
    file.blocksize.read predicts kelvin's.";
const NOT_FOR: &str = "Ranking of programs: each does other things beside reading. Absolute rates, which differ from moment \
    to moment more than the two sides do.";
const PITFALLS: &[&str] = &[
    "One program after the other: a machine that slows down in between looks like a slow program. The sides follow one \
     another directly, change places from round to round, and only their ratio counts.",
    "A program's start taken for its reading: fio, dd and bw_file_rd are taken by their own clocks, which begin when they \
     have opened the file; cat by what so many times the file take longer than the file once.",
    "fio's clock has steps of a millisecond: its sides last 200 of them. Its latencies are switched off, as kelvin's are.",
    "fio drops the file from memory when it begins, unless told otherwise: --invalidate=0.",
    "A block that is not the same: cat chooses its own. It is seen from the calls that the kernel has counted, and kelvin \
     reads in the same.",
    "Direct requests of many scattered pages: a device is given them in as many pieces, and some are slower for it. kelvin's \
     buffer lies in huge pages, if the kernel gives them, fio's and dd's do not: of large blocks the ratio shows that too.",
    "bw_file_rd sums up what it reads, in blocks of 64 KiB: so does kelvin beside it.",
];
const SOURCES: &[&str] = &[
    "fio(1): terse output, version 3; dd(1); cat(1)",
    "lmbench bw_file_rd.c; bench.h: XFERSIZE, ENOUGH",
    "proc(5) on /proc/pid/io",
];

pub(crate) static CACHED_PROBE: Probe = Probe {
    id: RIVALS_CACHED.id.as_str(),
    summary: "Reading from the page cache beside fio, dd, cat and bw_file_rd, on the same file in turn (--rivals)",
    kind: ProbeKind::Study,
    method: Method {
        how: "A file of 64 MiB of noise, in memory as a whole, is read by kelvin and by another program, each for some 200 \
              ms on the same CPU, one right after the other; the one that begins is the other one in the next round. \
              kelvin reads by pread into one buffer, and times no requests. fio: --ioengine=psync, one thread, --direct=0; \
              dd: bs as given, to /dev/null, as often as it takes; cat and bw_file_rd: in the blocks that they choose, \
              and bw_file_rd sums up what it reads as kelvin then does. Before each side mincore and cachestat say that \
              all of the file is in memory, and after it that it still is. The ratio is that of the two rates of a round. \
              The program's version is noted. One that is not installed is skipped by its name, with the package of \
              Debian that has it.",
        prediction: PREDICTION,
        not_for: NOT_FOR,
        pitfalls: PITFALLS,
        sources: SOURCES,
    },
    metrics: &[&RIVALS_CACHED, &RIVALS_CACHED_KELVIN, &RIVALS_CACHED_OTHER],
    inputs: &[WRITE.id.as_str()],
    cases: cached_cases,
    run: |bench, case| run(bench, case, State::Cached, &BESIDE_RIVALS_CACHED),
    predict: |facts, metric, case| predict(facts, metric, case, &RIVALS_CACHED_KELVIN),
};

pub(crate) static DIRECT_PROBE: Probe = Probe {
    id: RIVALS_DIRECT.id.as_str(),
    summary: "Reading past the page cache beside fio and dd, on the same file in turn (--rivals)",
    kind: ProbeKind::Study,
    method: Method {
        how: "The first 32 MiB of a file of noise are read past the page cache (O_DIRECT) by kelvin and by another program, \
              each for some 200 ms on the same CPU, one request at a time, one right after the other; the one that begins \
              is the other one in the next round. kelvin reads by pread. fio: --ioengine=psync, one thread, --direct=1; \
              dd: iflag=direct, in order only. In random order both read each block once, in an order drawn anew. Before \
              each side mincore and cachestat say that nothing of the file is in memory; the device's own counters must \
              have moved with at least 95 % of the bytes of each side. The ratio is that of the two rates of a round.",
        prediction: PREDICTION,
        not_for: NOT_FOR,
        pitfalls: PITFALLS,
        sources: SOURCES,
    },
    metrics: &[&RIVALS_DIRECT, &RIVALS_DIRECT_KELVIN, &RIVALS_DIRECT_OTHER],
    inputs: &[WRITE.id.as_str()],
    cases: direct_cases,
    run: |bench, case| run(bench, case, State::Direct, &BESIDE_RIVALS_DIRECT),
    predict: |facts, metric, case| predict(facts, metric, case, &RIVALS_DIRECT_KELVIN),
};

/// What of it is read past the page cache: a pass of dd over it ends in time on slow disks too.
const DIRECT_PART: u64 = 32 * MIB;
/// A request that is one piece of memory wherever it lies, in bytes.
const SMALL: u64 = 4 * KIB;
/// Time of a side: two hundred steps of fio's clock, many times what starting a program takes.
const SIDE: Duration = Duration::from_millis(200);

/// A program that reads in blocks of so many bytes.
fn sized(rival: Rival, block: u64) -> Case {
    Case::new().at(rival).with(BLOCK, block)
}

fn cached_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let own = |rival: Rival| Case::new().at(rival).at(OWN_BLOCK);
    let (fio, dd) = (Rival::Fio, Rival::Dd);
    let mut cases = vec![sized(fio, 4 * KIB), sized(fio, 128 * KIB), sized(dd, 128 * KIB), own(Rival::Cat)];
    if effort > Effort::Quick {
        cases.extend([sized(fio, MIB), sized(dd, 4 * KIB), sized(dd, MIB), own(Rival::BwFileRd)]);
        cases.sort();
    }
    cases
}

fn direct_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let random = |block| sized(Rival::Fio, block).at(AccessOrder::Random);
    let in_order = |rival, block| sized(rival, block).at(AccessOrder::Sequential);
    let mut cases = vec![random(4 * KIB), in_order(Rival::Fio, MIB)];
    if effort > Effort::Quick {
        cases.extend([in_order(Rival::Fio, 4 * KIB), random(128 * KIB), in_order(Rival::Dd, MIB)]);
        cases.sort();
    }
    cases
}

/// What both sides do.
#[derive(Clone, Debug)]
struct Task {
    target: Target,
    /// The first bytes of the file, which are read.
    bytes: u64,
    block: u64,
    order: Order,
    state: State,
    /// Whether each word of what was read is looked at.
    summed: bool,
    time: Duration,
}

/// What one side did.
#[derive(Clone, Debug)]
struct Side {
    /// Bytes a second.
    rate: f64,
    /// Bytes that were read, if the program tells.
    bytes: Option<u64>,
    /// How it was timed, and what proves where the bytes came from.
    words: String,
}

fn run(bench: &mut Bench<'_>, case: &Case, state: State, metrics: &BesideRivals) -> Result<(), Stop> {
    let tool = Tool::find(known(Rival::of(case), case)?)?;
    let target = data::file(bench, SHARED_BYTES)?;
    let task = task(case, &tool, target, (state, bench.seed()))?;
    if state == State::Direct {
        data::can_be_direct(&task.target, task.block)?;
    }
    let (kelvin, other) = if bench.round().is_multiple_of(2) {
        let kelvin = proven(&task, ours)?;
        (kelvin, proven(&task, |task| tool.read(task))?)
    } else {
        let other = proven(&task, |task| tool.read(task))?;
        (proven(&task, ours)?, other)
    };
    bench.note(format!("{} against kelvin, in blocks of {} bytes", tool.words(), task.block));
    if task.state == State::Direct && task.block > SMALL {
        bench.note("kelvin's buffer lies in huge pages, if the kernel gives them; the program's does not");
    }
    bench.record(metrics.ratio, vec![kelvin.rate / other.rate]);
    for (metric, side) in [(metrics.kelvin, kelvin), (metrics.other, other)] {
        bench.note(side.words);
        bench.record(metric, vec![side.rate]);
    }
    Ok(())
}

fn task(case: &Case, tool: &Tool, target: Target, (state, seed): (State, u64)) -> Result<Task, Stop> {
    let direct = state == State::Direct;
    let block = match BLOCK.of(case) {
        Some(block) => block,
        None => tool.own_block(&target)?,
    };
    Ok(Task {
        bytes: if direct { DIRECT_PART } else { target.bytes() },
        target,
        block,
        order: if direct { order(case, seed)? } else { Order::Sequential },
        state,
        summed: tool.sums_up(),
        time: SIDE,
    })
}

/// A side, when the page cache is proven to be as it shall be, and with the proof that it was so to the end.
fn proven(task: &Task, read: impl FnOnce(&Task) -> Result<Side, Stop>) -> Result<Side, Stop> {
    let before = cache::bring(&task.target, task.state).map_err(data::stopped)?;
    let counters = Counters::look(&task.target);
    let side = read(task)?;
    let after = match (task.state, side.bytes) {
        (State::Direct, Some(bytes)) => counters.have_read(bytes)?,
        (State::Direct, None) => return Err(Stop::fail("the program does not tell how much it read")),
        _ => still(cache::residency(&task.target).map_err(data::stopped)?)?,
    };
    Ok(Side { words: format!("{}; before, {before}; {after}", side.words), ..side })
}

/// kelvin's own side.
fn ours(task: &Task) -> Result<Side, Stop> {
    let job = Job {
        order: task.order,
        state: task.state,
        range: 0..task.bytes,
        until: Until::Time(task.time),
        digest: task.summed,
        ..data::job(&task.target, Engine::Pread, task.block as usize)
    };
    let done = job::run(&job).map_err(data::stopped)?;
    let words = format!("{} requests in {:.3} s", done.total.requests, done.nanoseconds as f64 / 1e9);
    Ok(Side { rate: done.rate(), bytes: Some(done.total.bytes), words })
}

/// Factor either way within which the same work takes the same time.
const SPREAD: f64 = 1.15;
/// Instructions at each request that a program may do for itself: a few times what fio's accounting is known to take.
const ALLOWED: f64 = 1000.0;
/// What cat reads at a time, in bytes, where it is not seen: since 2014.
const CATS_BLOCK: u64 = 128 * KIB;
const CATS_SOURCE: &str = "coreutils 8.23 to 9.5, src/ioblksize.h: 128 KiB";

fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case, kelvin: &Metric) -> Result<Prediction, NoPrediction> {
    if metric.unit != Unit::Ratio {
        return Err(NoPrediction::because(
            "file.blocksize.read predicts what reading should give; here only the ratio of two programs counts",
        ));
    }
    let rival = predictable(Rival::of(case), case)?;
    let rate = facts.measured(kelvin, case)?;
    let block = BLOCK.of(case).unwrap_or(if rival == Rival::Cat { CATS_BLOCK } else { programs::XFERSIZE });
    let request = block as f64 * 1e9 / rate.value;
    let write = if programs::writes(rival) { Some(facts.measured(&WRITE, &Case::new())?) } else { None };
    let extra = write.as_ref().map_or(0.0, |write| write.value) / request;
    let allowed = ALLOWED * NANOSECONDS_AN_INSTRUCTION / request;
    let (value, most) = (1.0 + extra, (1.0 + extra + allowed) * SPREAD);
    let mut predicting = Predicting::between(Basis::Derived, value, value / SPREAD, most)
        .formula(if write.is_some() { "1 + a write to /dev/null / kelvin's time of a block" } else { "1" })
        .input(rate)
        .constant("instructions allowed for", ALLOWED, Unit::Count, "an allowance, at two a cycle and 3 GHz");
    if let Some(write) = write {
        predicting = predicting.input(write);
    }
    if rival == Rival::Cat {
        predicting = predicting.input(Input {
            name: "block of cat".into(),
            value: CATS_BLOCK as f64,
            unit: Unit::Bytes,
            source: CATS_SOURCE.into(),
        });
    }
    Ok(predicting.derived_as(format!(
        "a block takes kelvin {request:.0} ns, and the program {:.0} ns more for its writes: {value:.3}, and up to {most:.3}",
        extra * request
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{facts_about, machine};

    #[test]
    fn the_same_work_takes_the_same_time_but_for_what_is_written() {
        // 4 KiB at 4.096 GB/s take 1000 ns; 1000 instructions 166.7 ns.
        let known = [(RIVALS_CACHED_KELVIN.id.as_str(), Some(4.096e9)), (WRITE.id.as_str(), Some(100.0))];
        facts_about(&known, |facts| {
            let of = |case: Case| predict(facts, &RIVALS_CACHED, &case, &RIVALS_CACHED_KELVIN).unwrap();
            let fio = of(sized(Rival::Fio, 4096));
            assert_eq!((fio.value, fio.low), (1.0, 1.0 / 1.15));
            assert!((fio.high - (1.0 + 1.0 / 6.0) * 1.15).abs() < 1e-9, "{}", fio.high);
            assert!((of(sized(Rival::Dd, 4096)).value - 1.1).abs() < 1e-12);
            assert!((of(sized(Rival::Dd, 40_960)).value - 1.01).abs() < 1e-12);
            // 128 KiB take 32 us.
            let cat = of(Case::new().at(Rival::Cat).at(OWN_BLOCK));
            assert!((cat.value - 1.003_125).abs() < 1e-9, "{}", cat.value);
            assert!(cat.inputs.iter().any(|input| input.value == 131_072.0));
            assert!(predict(facts, &RIVALS_CACHED_OTHER, &sized(Rival::Fio, 4096), &RIVALS_CACHED_KELVIN).is_err());
        });
        facts_about(&[], |facts| {
            assert!(predict(facts, &RIVALS_CACHED, &sized(Rival::Dd, 4096), &RIVALS_CACHED_KELVIN).is_err())
        });
    }

    #[test]
    fn every_program_is_asked_and_a_quick_run_has_the_most_telling() {
        let all = cached_cases(&machine(), Effort::Default);
        assert!(Rival::ALL.iter().all(|rival| all.iter().any(|case| rival.point().is_of(case))), "{all:?}");
        let (small, large) = (sized(Rival::Fio, 4096), sized(Rival::Fio, MIB));
        assert_eq!(
            direct_cases(&machine(), Effort::Quick),
            [small.at(AccessOrder::Random), large.at(AccessOrder::Sequential)]
        );
        assert_eq!(cached_cases(&machine(), Effort::Quick).len(), 4);
    }
}
