//! What it brings that rounds wait for an undisturbed core, by runs that did: how many figures are not known with the samples that were
//! waited for and without them, and whether those agree with the undisturbed ones of the rounds' own time.
//!
//! `cargo run --release -p kelvin-analysis --example awaited -- RUN.json...`, of `kelvin report RUN --format json`.

use std::io::Write;
use std::{env, fs};

use kelvin_analysis::{Analysis, Outcome, analyse};
use kelvin_core::{Batches, Readings, RoundOutcome, Run, SampleTags};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    let mut ratios = Vec::new();
    for file in env::args().skip(1) {
        let mut report: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
        let run: Run = serde_json::from_value(report["run"].take())?;
        let made = analyse(&run);
        let is_awaited = |tags: SampleTags| tags.intersects(SampleTags::AWAITED);
        let without = |tags| if is_awaited(tags) { SampleTags::WARM_UP } else { tags };
        let without = analyse(&with_tags(&run, without));
        let alone = |tags| if is_awaited(tags) { SampleTags::NONE } else { SampleTags::WARM_UP };
        let alone = analyse(&with_tags(&run, alone));
        writeln!(
            out,
            "{file}: {:.1} % undisturbed; of {} figures {} not known, {} without what was waited for",
            100.0 * made.undisturbed_share.unwrap_or(f64::NAN),
            made.results.len(),
            unknown_figures(&made),
            unknown_figures(&without)
        )?;
        for (own, awaited) in without.results.iter().zip(&alone.results) {
            if let (Outcome::Measured(own), Outcome::Measured(awaited)) = (&own.outcome, &awaited.outcome)
                && own.undisturbed.is_some()
                && own.headline > 0.0
            {
                ratios.push(awaited.headline / own.headline);
            }
        }
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| ratios.get((share * ratios.len() as f64) as usize).copied().unwrap_or(f64::NAN);
    writeln!(
        out,
        "awaited over the rounds' own undisturbed samples, {} figures: median {:.4}, half of them {:.3} to {:.3}, 80 % {:.3} to {:.3}",
        ratios.len(),
        at(0.5),
        at(0.25),
        at(0.75),
        at(0.1),
        at(0.9)
    )?;
    Ok(())
}

/// A run whose timed samples have other tags.
fn with_tags(run: &Run, tags: impl Fn(SampleTags) -> SampleTags) -> Run {
    let mut run = run.clone();
    let readings =
        run.measurements.iter_mut().flat_map(|one| &mut one.rounds).filter_map(|round| match &mut round.outcome {
            RoundOutcome::Measured(readings) => Some(readings),
            _ => None,
        });
    for reading in readings.flatten() {
        if let Readings::Batches(Batches { tags: all, .. }) = &mut reading.readings {
            all.iter_mut().for_each(|one| *one = tags(*one));
        }
    }
    run
}

fn unknown_figures(analysis: &Analysis) -> usize {
    analysis.results.iter().filter(|result| matches!(result.outcome, Outcome::NotKnown(_))).count()
}
