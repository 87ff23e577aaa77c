//! How long the analysis of a large run takes: 150 cases, 20 rounds each, 400 batches a round with four canaries.
//!
//! `cargo run --release -p kelvin-analysis --example large`
use std::io::Write;
use std::time::Instant;

use kelvin_analysis::{Headlines, analyse, testing};
use kelvin_core::{Canaries, Canary, Case, Metric, Readings, Run, SpreadHistory};
use kelvin_stats::Random;

const METRIC: Metric = Metric::duration("test.call", "One call").canaries(Canaries::from_canaries(&Canary::ALL));

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for rounds in [6, 20] {
        let run = large_run(150, rounds, 400);
        let begun = Instant::now();
        let analysis = analyse(&run);
        let analysed = begun.elapsed();
        let begun = Instant::now();
        let headlines = Headlines::from_run(&run);
        let hertz = headlines.core_hertz().unwrap_or(f64::NAN);
        writeln!(
            out,
            "{rounds} rounds: {} results analysed in {analysed:?}, headlines in {:?}, undisturbed {:?}, {hertz:.3e} Hz",
            analysis.results.len(),
            begun.elapsed(),
            analysis.undisturbed_share
        )?;
    }
    Ok(())
}

fn large_run(cases: u64, rounds: usize, batches: usize) -> Run {
    let mut random = Random::new(1);
    let mut run = testing::empty_run(&[METRIC]);
    for case in 0..cases {
        let case = Case::new().with_number("size", case);
        let made = (0..rounds).map(|index| {
            let level = 100.0 + random.normal();
            let values: Vec<f64> = (0..batches).map(|_| level + (0.5 * random.normal()).exp()).collect();
            let mut batches = testing::batches(&values);
            for canary in Canary::ALL {
                let noise = (0..=values.len()).map(|_| {
                    let disturbed = if random.uniform() < 0.1 { 1.3 } else { 1.0 };
                    testing::CHAIN_NANOSECONDS * disturbed * (1.0 + 0.002 * random.normal() as f32)
                });
                batches.canaries.insert(canary, noise.collect());
            }
            testing::round(index, vec![testing::reading(&METRIC, Readings::Batches(batches))])
        });
        testing::add_measurement(&mut run, &METRIC, case.clone(), made.collect());
        let headlines = (0..20).map(|_| 101.0 + random.normal()).collect();
        run.header.spread_history.push(SpreadHistory {
            metric: METRIC.id,
            case,
            headlines,
            within_variances: vec![0.2; 20],
        });
    }
    run
}
