//! The block, threads and queue depth that read a file fastest, by each way of reading.
//!
//! It is the setting to start from for a program that reads whole files on this machine. It must not be used for random access,
//! nor for another device than that of the scratch directory.

use kelvin_core::catalogue::file::{TUNE_BLOCK, TUNE_DEPTH, TUNE_GAIN, TUNE_RATE, TUNE_THREADS, TunedEngine};
use kelvin_file::successive_halving;

use super::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "The block, threads and queue depth that read a file fastest, by successive halving, for each way of \
              reading",
    method: include_str!("engine_tuning.md"),
    cases,
    run,
    predict: |_, _, _| Err(NoPrediction::new("a search takes the best of what other measures explain one by one")),
    ..Probe::study(&[&TUNE_RATE, &TUNE_GAIN, &TUNE_BLOCK, &TUNE_THREADS, &TUNE_DEPTH])
};

const KIB: usize = 1 << 10;
const BLOCKS: [usize; 5] = [4 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB];
const MAX_THREADS: u32 = 16;
/// Threads where each has many requests in flight.
const MAX_URING_THREADS: u32 = 4;
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
/// How many of them where nothing waits for a device: requests in flight are then done one after another.
const CACHED_DEPTHS: usize = 2;
/// Bytes in flight at most: their buffers are touched anew for each trial.
const MAX_BYTES_IN_FLIGHT: usize = 16 << 20;
/// Nanoseconds of the first trial of a setting at least: some requests of any device.
const MIN_TRIAL_NANOSECONDS: f64 = 1e6;
/// Measurements of the winner, and how many times as long as a first trial each is.
const FINAL_RUNS: usize = 5;
const FINAL_RUN_FACTOR: f64 = 8.0;

/// The ways that are tuned in each state of the page cache: a mapping does not bypass it.
const TUNED_ENGINES: [(CacheState, &[TunedEngine]); 2] =
    [(CacheState::Cached, TunedEngine::ALL), (CacheState::Direct, &[TunedEngine::Pread, TunedEngine::Uring])];

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let is_selected = |engine: &&TunedEngine| effort > Effort::Quick || **engine == TunedEngine::Pread;
    let cases_of = |(cache, engines): (CacheState, &'static [TunedEngine])| {
        words(&[cache]).words(&engines.iter().filter(is_selected).copied().collect::<Vec<_>>())
    };
    TUNED_ENGINES.into_iter().flat_map(cases_of).collect()
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ReadConfig {
    engine: Engine,
    block: usize,
    threads: u32,
}

/// A plain program's setting.
const BASELINE_CONFIG: ReadConfig = ReadConfig { engine: Engine::Pread, block: 128 * KIB, threads: 1 };

/// Every setting of a way that makes sense with this many CPUs.
fn candidate_configs(engine: Engine, state: PageCacheState, cpus: u32) -> Vec<ReadConfig> {
    // A thread that waits for a device needs no CPU meanwhile.
    let max_threads = if state == PageCacheState::Direct { MAX_THREADS } else { (2 * cpus).min(MAX_THREADS) };
    let (max_threads, depths) = match engine {
        Engine::Uring { .. } if state == PageCacheState::Cached => {
            (max_threads.min(MAX_URING_THREADS), &DEPTHS[..CACHED_DEPTHS])
        }
        Engine::Uring { .. } => (max_threads.min(MAX_URING_THREADS), &DEPTHS[..]),
        _ => (max_threads, &DEPTHS[..1]),
    };
    let threads: Vec<u32> = (0..).map(|power| 1 << power).take_while(|&threads| threads <= max_threads).collect();
    let mut configs = Vec::new();
    for &threads in &threads {
        for &block in &BLOCKS {
            for &depth in depths {
                let is_within_limit = block * threads as usize * depth as usize <= MAX_BYTES_IN_FLIGHT;
                if let (true, Ok(engine)) = (is_within_limit, engine.with_depth(depth)) {
                    configs.push(ReadConfig { engine, block, threads });
                }
            }
        }
    }
    configs
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let state = cache_state(case)?;
    let engine = match required(TunedEngine::of(case), case)? {
        TunedEngine::Pread => Engine::Pread,
        TunedEngine::MmapPopulate => Engine::MmapPopulate,
        TunedEngine::Uring => Engine::Uring { depth: 1, registered: false },
    };
    let target = test_files::shared_file(bench, SHARED_BYTES)?;
    // The threads of the jobs inherit it.
    kelvin_sys::cpu::pin(bench.allowed_cpus())?;
    let candidates = candidate_configs(engine, state, bench.allowed_cpus().len() as u32);
    let count = candidates.len();
    let trials = successive_halving::budget_shares(count) as f64 + 2.0 * FINAL_RUNS as f64 * FINAL_RUN_FACTOR;
    let trial = (bench.slice() / trials).max(MIN_TRIAL_NANOSECONDS);
    let run_config = |&ReadConfig { engine, block, threads }: &ReadConfig, nanoseconds: f64| {
        let (job, pages) = (test_files::direct_read_job(&target, engine, block), PagePolicy::for_buffer(block));
        test_files::run_job(&ReadJob { state, threads, until: test_files::time_limit(nanoseconds), pages, ..job })
    };
    let winner = successive_halving::find_best(candidates, |setting, doublings| {
        match run_config(setting, trial * f64::from(1u32 << doublings)) {
            Ok(result) => Ok(Some(result.rate())),
            // A block that is not aligned, a ring that needs more memory than may be locked.
            Err(ProbeError::Skip(_)) => Ok(None),
            Err(error) => Err(error),
        }
    })?;
    let Some((best, _)) = winner else {
        // What keeps the plain setting from being read keeps all of them.
        run_config(&BASELINE_CONFIG, trial)?;
        return Err(ProbeError::skip(format!("needs a way of reading that works here: none of {count} settings does")));
    };
    let (mut tuned_rates, mut baseline_rates) = (Vec::new(), Vec::new());
    let mut device_note = String::new();
    for _ in 0..FINAL_RUNS {
        let result = run_config(&best, FINAL_RUN_FACTOR * trial)?;
        device_note = match &result.device {
            Ok((name, traffic)) => {
                format!("{name} counted {} bytes for {} bytes read", traffic.read, result.total.bytes)
            }
            Err(reason) => format!("no device counters: {reason}"),
        };
        device_note = format!("before: {}; {device_note}", result.before);
        tuned_rates.push(result.rate());
        baseline_rates.push(run_config(&BASELINE_CONFIG, FINAL_RUN_FACTOR * trial)?.rate());
    }
    bench.note(format!(
        "the best of {count} settings: {}, blocks of {} bytes, {} threads; {device_note}",
        best.engine, best.block, best.threads
    ));
    let gains = tuned_rates.iter().zip(&baseline_rates).map(|(rate, baseline_rate)| rate / baseline_rate).collect();
    bench.record(&TUNE_RATE, tuned_rates);
    bench.record(&TUNE_GAIN, gains);
    bench.record(&TUNE_BLOCK, vec![best.block as f64]);
    bench.record(&TUNE_THREADS, vec![f64::from(best.threads)]);
    bench.record(&TUNE_DEPTH, vec![f64::from(best.engine.depth())]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;

    #[test]
    fn candidate_configs_are_valid() {
        let direct_configs = candidate_configs(Engine::Pread, PageCacheState::Direct, 2);
        // Five numbers of threads and five blocks, but for sixteen and eight threads with 4 MiB each.
        assert_eq!(direct_configs.len(), 5 * 5 - 2);
        let cached_configs = candidate_configs(Engine::Pread, PageCacheState::Cached, 2);
        assert!(cached_configs.iter().all(|setting| setting.threads <= 4) && cached_configs.len() == 3 * 5);
        let ring_configs = candidate_configs(Engine::Uring { depth: 1, registered: false }, PageCacheState::Direct, 2);
        let in_flight = |setting: &ReadConfig| setting.block * (setting.threads * setting.engine.depth()) as usize;
        assert!(ring_configs.iter().all(|setting| in_flight(setting) <= MAX_BYTES_IN_FLIGHT));
        assert!(ring_configs.iter().any(|setting| setting.engine.depth() == 64 && setting.threads == 4));
    }

    #[test]
    fn every_tuned_engine_is_a_case() {
        assert_eq!(cases(&machine(), Effort::Default).len(), 5);
        assert_eq!(cases(&machine(), Effort::Quick).len(), 2);
    }
}
