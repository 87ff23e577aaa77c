//! How often odd hosts of made fleets are named, and how often alike ones: `rates FLEETS FIRST_SEED [HOSTS [RUNS [NOISE]]]`, of the
//! noise with this number alone.
//!
//! With one run of each host, each odd host is in a fleet of its own: other odd hosts would look like states of runs.

#[path = "../tests/made_fleet/mod.rs"]
mod made_fleet;

use std::io::Write;

use made_fleet::{Noise, Oddity, made_fleet, named_hosts};

/// The oddities, in the order of the columns.
const COLUMNS: [Oddity; 5] = [Oddity::Latency, Oddity::Governor, Oddity::Metric, Oddity::Figure, Oddity::Host];

fn main() -> std::io::Result<()> {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [fleets, first_seed] = [numbers.first().copied().unwrap_or(20), numbers.get(1).copied().unwrap_or(1)];
    let hosts = numbers.get(2).copied().unwrap_or(64) as usize;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| noise | runs | latency | governor | metric | figure | all figures | false hosts beside | alike fleets that name | distance |"
    )?;
    writeln!(out, "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for (_, noise) in
        Noise::ALL.into_iter().enumerate().filter(|(index, _)| numbers.get(4).is_none_or(|only| *only == *index as u64))
    {
        for runs in [1, 2, 3, 10].into_iter().filter(|runs| numbers.get(3).is_none_or(|only| *only == *runs as u64)) {
            let mut named = [0; COLUMNS.len()];
            let (mut false_hosts, mut false_fleets, mut distance) = (0, 0, 0.0);
            let planted: Vec<&[Oddity]> = if runs == 1 { COLUMNS.chunks(1).collect() } else { vec![&Oddity::ALL] };
            for seed in first_seed..first_seed + fleets {
                for oddities in &planted {
                    let (report, odd) = made_fleet((hosts, runs), noise, oddities, seed);
                    let labels = named_hosts(&report);
                    for (oddity, label) in &odd {
                        let index = COLUMNS.iter().position(|other| other == oddity).unwrap_or(0);
                        named[index] += usize::from(labels.contains(label));
                    }
                    false_hosts += labels.iter().filter(|label| odd.iter().all(|(_, odd)| odd != *label)).count();
                }
                let (alike, _) = made_fleet((hosts, runs), noise, &[], seed + 1_000_000);
                false_fleets += usize::from(!named_hosts(&alike).is_empty());
                distance += alike.groups[0].least_distance.unwrap_or(f64::INFINITY) / fleets as f64;
            }
            let [latency, governor, metric, figure, host] = named;
            writeln!(
                out,
                "| {noise:?} | {runs} | {latency} | {governor} | {metric} | {figure} | {host} | {false_hosts} | {false_fleets} | {distance:.1} |"
            )?;
        }
    }
    Ok(())
}
