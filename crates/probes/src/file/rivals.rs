//! Reading by kelvin and by other programs, interleaved on one file: fio, dd, cat and lmbench's bw_file_rd.
//!
//! It shows whether kelvin's own figures are limited by the machine or by kelvin. It must not be used to rank the programs,
//! which do other work besides reading.

mod programs;

use kelvin_core::IndirectSort;
use std::time::Duration;

use kelvin_core::catalogue::file::{
    PROGRAM_BLOCK, RIVAL_COMPARISON_CACHED, RIVAL_COMPARISON_DIRECT, RIVALS_CACHED, RIVALS_CACHED_KELVIN,
    RIVALS_CACHED_OTHER, RIVALS_DIRECT, RIVALS_DIRECT_KELVIN, RIVALS_DIRECT_OTHER,
};
use kelvin_core::catalogue::os::SYSCALL_WRITE;
use kelvin_core::catalogue::{Rival, RivalComparison};

use super::prelude::*;
use crate::os::syscall_work::NANOSECONDS_PER_INSTRUCTION;
use crate::program::{Program, run_alternating};

pub(crate) static CACHED_PROBE: Probe = Probe {
    summary: "Reading from the page cache compared with fio, dd, cat and bw_file_rd, interleaved on the same file (--rivals)",
    method: include_str!("rivals_cached.md"),
    cases: cached_cases,
    run: |bench, case| run(bench, case, PageCacheState::Cached, &RIVAL_COMPARISON_CACHED),
    predict: |facts, metric, case| predict(facts, metric, case, &RIVALS_CACHED_KELVIN),
    ..Probe::study(&[&RIVALS_CACHED, &RIVALS_CACHED_KELVIN, &RIVALS_CACHED_OTHER])
};

pub(crate) static DIRECT_PROBE: Probe = Probe {
    summary: "Reading past the page cache compared with fio and dd, interleaved on the same file (--rivals)",
    method: include_str!("rivals_direct.md"),
    cases: direct_cases,
    run: |bench, case| run(bench, case, PageCacheState::Direct, &RIVAL_COMPARISON_DIRECT),
    predict: |facts, metric, case| predict(facts, metric, case, &RIVALS_DIRECT_KELVIN),
    ..Probe::study(&[&RIVALS_DIRECT, &RIVALS_DIRECT_KELVIN, &RIVALS_DIRECT_OTHER])
};

/// Bytes read past the page cache: few enough that a pass of dd ends in time on slow disks.
const DIRECT_BYTES: u64 = 32 * MIB;
/// Time of a side: two hundred steps of fio's clock, many times a program's start.
const SIDE_TIME: Duration = Duration::from_millis(200);

/// A program that reads in blocks of this many bytes.
fn block_case(rival: Rival, block: u64) -> Case {
    Case::new().with_word(rival).with_number(BLOCK, block)
}

fn cached_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let fixed_block_case = |rival: Rival| Case::new().with_word(rival).with_word(PROGRAM_BLOCK);
    let (fio, dd) = (Rival::Fio, Rival::Dd);
    let mut cases = vec![
        block_case(fio, 4 * KIB),
        block_case(fio, 128 * KIB),
        block_case(dd, 128 * KIB),
        fixed_block_case(Rival::Cat),
    ];
    if effort > Effort::Quick {
        cases.extend([
            block_case(fio, MIB),
            block_case(dd, 4 * KIB),
            block_case(dd, MIB),
            fixed_block_case(Rival::BwFileRd),
        ]);
        cases.indirect_sort();
    }
    cases
}

fn direct_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let random = |block| block_case(Rival::Fio, block).with_word(AccessOrder::Random);
    let sequential = |rival, block| block_case(rival, block).with_word(AccessOrder::Sequential);
    let mut cases = vec![random(4 * KIB), sequential(Rival::Fio, MIB)];
    if effort > Effort::Quick {
        cases.extend([sequential(Rival::Fio, 4 * KIB), random(128 * KIB), sequential(Rival::Dd, MIB)]);
        cases.indirect_sort();
    }
    cases
}

/// The work of both sides.
#[derive(Clone, Debug)]
struct RivalTask {
    target: Target,
    /// Bytes from the beginning of the file to read.
    bytes: u64,
    block: u64,
    order: BlockOrder,
    state: PageCacheState,
    /// Whether each word read is also summed.
    computes_digest: bool,
    time: Duration,
}

/// The result of one side.
#[derive(Clone, Debug)]
struct SideResult {
    /// Bytes a second.
    rate: f64,
    /// Bytes read, if the program reports them.
    bytes: Option<u64>,
    /// How it was timed, and the proof of where the bytes came from.
    words: String,
}

fn run(bench: &mut Bench<'_>, case: &Case, state: PageCacheState, metrics: &RivalComparison) -> ProbeResult {
    let tool = Program::find(required(Rival::of(case), case)?)?;
    let target = test_files::shared_file(bench, SHARED_BYTES)?;
    let block = match BLOCK.number_in(case) {
        Some(block) => block,
        None => tool.fixed_block(&target)?,
    };
    let (bytes, order) = match state {
        PageCacheState::Direct => (DIRECT_BYTES, block_order(case, bench.seed())?),
        _ => (target.bytes(), BlockOrder::Sequential),
    };
    let computes_digest = tool.computes_digest();
    let task = RivalTask { target, bytes, block, order, state, computes_digest, time: SIDE_TIME };
    test_files::check_block(&task.target, state, block)?;
    let [kelvin, rival] = run_alternating(
        bench,
        || with_cache_proof(&task, run_kelvin),
        || with_cache_proof(&task, |task| tool.read(task)),
    )?;
    bench.note(format!("{} against kelvin, in blocks of {} bytes", tool.describe(), task.block));
    bench.record(metrics.ratio, vec![kelvin.rate / rival.rate]);
    for (metric, side) in [(metrics.kelvin, kelvin), (metrics.other, rival)] {
        bench.note(side.words);
        bench.record(metric, vec![side.rate]);
    }
    Ok(())
}

/// A side, with the page cache proven to be in the case's state before and after.
fn with_cache_proof(
    task: &RivalTask,
    read: impl FnOnce(&RivalTask) -> ProbeResult<SideResult>,
) -> ProbeResult<SideResult> {
    let before = set_cache_state(&task.target, task.state)?;
    let counters = DeviceCounters::now(&task.target);
    let side = read(task)?;
    let proof = match (task.state, side.bytes) {
        (PageCacheState::Direct, Some(bytes)) => counters.prove_read(bytes)?,
        (PageCacheState::Direct, None) => return Err(ProbeError::fail("the program does not report how much it read")),
        _ => prove_resident(&task.target)?,
    };
    Ok(SideResult { words: format!("{}; before, {before}; {proof}", side.words), ..side })
}

/// kelvin's own side.
fn run_kelvin(task: &RivalTask) -> ProbeResult<SideResult> {
    let job = ReadJob {
        order: task.order,
        state: task.state,
        range: 0..task.bytes,
        until: EndCondition::Time(task.time),
        digest: task.computes_digest,
        ..test_files::direct_read_job(&task.target, Engine::Pread, task.block as usize)
    };
    let result = test_files::run_job(&job)?;
    let words = format!("{} requests in {:.3} s", result.total.requests, result.nanoseconds as f64 / 1e9);
    Ok(SideResult { rate: result.rate(), bytes: Some(result.total.bytes), words })
}

/// Factor either way within which the same work takes the same time.
const SPREAD: f64 = 1.15;
/// Instructions per request that a program may add: a few times fio's known accounting.
const ALLOWED_INSTRUCTIONS: f64 = 1000.0;
/// Bytes of cat's reads where they are not observed: since 2014.
const CAT_BLOCK: u64 = 128 * KIB;
const CAT_BLOCK_SOURCE: &str = "coreutils 8.23 to 9.5, src/ioblksize.h: 128 KiB";

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case, kelvin: &Metric) -> Predicted {
    let reason = "file.blocksize.read predicts the rate; here only the ratio of two programs counts";
    unpredicted_if(metric.unit != Unit::Ratio, reason)?;
    let rival = required(Rival::of(case), case)?;
    let rate = measured(facts, kelvin, case)?;
    let block = match rival {
        Rival::Cat => fact("block of cat", CAT_BLOCK as f64, Unit::Bytes, CAT_BLOCK_SOURCE),
        _ => bytes_of("block", BLOCK.number_in(case).unwrap_or(programs::XFERSIZE)),
    };
    let request = block / rate;
    let (ratio, name) = match rival {
        Rival::Cat | Rival::Dd => {
            let ratio = 1.0 + measured(facts, &SYSCALL_WRITE, &Case::new())? / request.clone();
            (ratio, if rival == Rival::Cat { "a write of cat's block as well" } else { "a write as well" })
        }
        _ => (Expr::from(1.0), "as fast"),
    };
    let allowance =
        fact("instructions allowed for", ALLOWED_INSTRUCTIONS, Unit::Count, "an allowance, at two per cycle and 3 GHz");
    let instruction = quantity("time of an instruction", NANOSECONDS_PER_INSTRUCTION, Unit::Nanoseconds);
    let upper = ratio.clone() + allowance * instruction / request;
    Ok(ratio.clone().with_bounds(&ratio, &upper).widen(SPREAD).derived(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{machine, with_facts};

    #[test]
    fn ratio_is_one_except_for_output() {
        // 4 KiB at 4.096 GB/s take 1000 ns; 1000 instructions 166.7 ns.
        let values = [(RIVALS_CACHED_KELVIN.id.as_str(), Some(4.096e9)), (SYSCALL_WRITE.id.as_str(), Some(100.0))];
        with_facts(&values, |facts| {
            let predicted = |case: Case| predict(facts, &RIVALS_CACHED, &case, &RIVALS_CACHED_KELVIN).unwrap();
            let fio = predicted(block_case(Rival::Fio, 4096));
            assert_eq!((fio.value, fio.low), (1.0, 1.0 / 1.15));
            assert!((fio.high - (1.0 + 1.0 / 6.0) * 1.15).abs() < 1e-9, "{}", fio.high);
            assert!((predicted(block_case(Rival::Dd, 4096)).value - 1.1).abs() < 1e-12);
            assert!((predicted(block_case(Rival::Dd, 40_960)).value - 1.01).abs() < 1e-12);
            // 128 KiB take 32 us.
            let cat = predicted(Case::new().with_word(Rival::Cat).with_word(PROGRAM_BLOCK));
            assert!((cat.value - 1.003_125).abs() < 1e-9, "{}", cat.value);
            assert!(cat.inputs.iter().any(|input| input.value == 131_072.0));
            assert!(
                predict(facts, &RIVALS_CACHED_OTHER, &block_case(Rival::Fio, 4096), &RIVALS_CACHED_KELVIN).is_err()
            );
        });
        with_facts(&[], |facts| {
            assert!(predict(facts, &RIVALS_CACHED, &block_case(Rival::Dd, 4096), &RIVALS_CACHED_KELVIN).is_err())
        });
    }

    #[test]
    fn quick_run_has_selected_programs() {
        let default_cases = cached_cases(&machine(), Effort::Default);
        let reads_files = |rival: &&Rival| !matches!(rival, Rival::Perf | Rival::Iperf3);
        assert!(
            Rival::ALL
                .iter()
                .filter(reads_files)
                .all(|rival| default_cases.iter().any(|case| rival.point().is_in_case(case))),
            "{default_cases:?}"
        );
        let (small_case, large_case) = (block_case(Rival::Fio, 4096), block_case(Rival::Fio, MIB));
        assert_eq!(
            direct_cases(&machine(), Effort::Quick),
            [small_case.with_word(AccessOrder::Random), large_case.with_word(AccessOrder::Sequential)]
        );
        assert_eq!(cached_cases(&machine(), Effort::Quick).len(), 4);
    }
}
