//! How much of the time each of several CPUs is left alone: a short look at all of them before a run.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use kelvin_core::Canary;
use kelvin_stats::{Sorted, fastest_mode};
use kelvin_sys::cpu;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::canary::CanaryReader;
use crate::clock::best_clock;

/// How long a CPU is looked at in one pass, after a time in which it wakes up.
const CPU_SAMPLE_TIME: Duration = Duration::from_millis(8);
const CPU_WAKE_TIME: Duration = Duration::from_millis(1);
/// Passes: a neighbour comes and goes within tens of milliseconds.
const MAX_PASSES: u32 = 5;
const MIN_PASSES: u32 = 2;
/// Width of the state of an undisturbed core among the readings, and how near to it a reading is undisturbed.
const QUIET_MODE_WIDTH: f64 = 0.02;
/// Least share of all readings that is a state.
const MIN_MODE_SHARE: f64 = 0.02;

/// How many CPUs can be looked at within so long.
pub fn max_sampled_cpus(limit: Duration) -> usize {
    (limit.as_secs_f64() / ((CPU_SAMPLE_TIME + CPU_WAKE_TIME) * MIN_PASSES).as_secs_f64()) as usize
}

/// The share of the time in which each of these CPUs is left alone by a sibling thread, by canaries over at most so long; `None` where
/// that is too short for all of them, or no state of theirs is steady.
///
/// # Errors
/// If a CPU cannot be used, or no thread can be started.
pub fn undisturbed_shares(cpus: &[u32], limit: Duration) -> io::Result<Option<Vec<f64>>> {
    let pass = (CPU_SAMPLE_TIME + CPU_WAKE_TIME) * cpus.len() as u32;
    let passes = (limit.as_secs_f64() / pass.as_secs_f64().max(1e-9)).min(f64::from(MAX_PASSES)) as u32;
    if passes < MIN_PASSES {
        return Ok(None);
    }
    let cpus = cpus.to_vec();
    let until = Instant::now() + limit;
    // In a separate thread, so that this process keeps all its CPUs.
    let result = ThreadBuilder::named("canaries").start(move || sample_canary_ratios(&cpus, passes, until))?.join();
    let readings = result.map_err(|_| io::Error::other("reading canaries panicked"))??;
    Ok(shares_in_fastest_mode(&readings))
}

/// For each CPU its block canaries as multiples of the chain canaries read just before them, which a busy sibling raises at any
/// frequency.
fn sample_canary_ratios(cpus: &[u32], passes: u32, until: Instant) -> io::Result<Vec<Vec<f64>>> {
    let (_, clock, _) = best_clock();
    let canaries = CanaryReader::new(clock, 1.0, true);
    let mut columns_by_cpu = vec![BTreeMap::new(); cpus.len()];
    'passes: for pass in 0..passes {
        for (&cpu, columns) in cpus.iter().zip(&mut columns_by_cpu) {
            // Under a quota a pass takes longer than it should.
            if pass > 0 && Instant::now() >= until {
                break 'passes;
            }
            cpu::pin(&[cpu])?;
            sample_canaries(canaries, CPU_WAKE_TIME, &mut BTreeMap::new());
            sample_canaries(canaries, CPU_SAMPLE_TIME, columns);
        }
    }
    let ratios = |columns: &BTreeMap<Canary, Vec<f32>>| {
        let [chain, block] = [Canary::Chain, Canary::Block].map(|canary| columns.get(&canary).into_iter().flatten());
        chain.zip(block).map(|(&chain, &block)| f64::from(block) / f64::from(chain)).collect()
    };
    Ok(columns_by_cpu.iter().map(ratios).collect())
}

fn sample_canaries(canaries: CanaryReader, time: Duration, columns: &mut BTreeMap<Canary, Vec<f32>>) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        canaries.read(kelvin_core::Canaries::CORE, columns);
    }
}

/// The share of the readings of each CPU in the fastest state of all.
fn shares_in_fastest_mode(readings: &[Vec<f64>]) -> Option<Vec<f64>> {
    let finite = readings.iter().flatten().copied().filter(|ratio| ratio.is_finite());
    let sorted = Sorted::new(finite.collect())?;
    let (fastest, _) = fastest_mode(&sorted, QUIET_MODE_WIDTH, MIN_MODE_SHARE)?;
    let share = |ratios: &Vec<f64>| {
        let undisturbed = ratios.iter().filter(|&&ratio| (ratio / fastest - 1.0).abs() <= QUIET_MODE_WIDTH).count();
        undisturbed as f64 / ratios.len().max(1) as f64
    };
    Some(readings.iter().map(share).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_sibling_lowers_undisturbed_share() {
        let jitter = |index: usize| 1.0 + 0.004 * ((index * 7 % 11) as f64 / 11.0);
        let cpu = |disturbed: usize| {
            (0..1000)
                .map(|index| 0.43 * jitter(index) * if index * 13 % 1000 < disturbed { 1.6 } else { 1.0 })
                .collect::<Vec<f64>>()
        };
        assert_eq!(shares_in_fastest_mode(&[cpu(0), cpu(900), cpu(1000)]), Some(vec![1.0, 0.1, 0.0]));
        assert_eq!(shares_in_fastest_mode(&[cpu(950), cpu(950)]), Some(vec![0.05, 0.05]));
        assert_eq!(shares_in_fastest_mode(&[]), None);
    }

    #[test]
    fn cpu_sampling_keeps_time_limit() {
        let cpus = cpu::affinity().unwrap();
        let shares = undisturbed_shares(&cpus[..1], Duration::from_millis(30)).unwrap().unwrap();
        assert!(shares.len() == 1 && (0.0..=1.0).contains(&shares[0]), "{shares:?}");
        assert_eq!(undisturbed_shares(&cpus[..1], Duration::from_millis(10)).unwrap(), None);
        assert_eq!(undisturbed_shares(&cpus[..1], Duration::ZERO).unwrap(), None);
    }
}
