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
        let analysis = analyse(&run);
        let is_awaited = |tags: SampleTags| tags.intersects(SampleTags::AWAITED);
        let drop_awaited = |tags| if is_awaited(tags) { SampleTags::WARM_UP } else { tags };
        let without_awaited = analyse(&with_tags(&run, drop_awaited));
        let keep_awaited = |tags| if is_awaited(tags) { SampleTags::NONE } else { SampleTags::WARM_UP };
        let awaited_only = analyse(&with_tags(&run, keep_awaited));
        writeln!(
            out,
            "{file}: {:.1} % undisturbed; of {} figures {} not known, {} without what was waited for",
            100.0 * analysis.undisturbed_share.unwrap_or(f64::NAN),
            analysis.results.len(),
            unknown_figures(&analysis),
            unknown_figures(&without_awaited)
        )?;
        for (result, awaited_result) in without_awaited.results.iter().zip(&awaited_only.results) {
            if let (Outcome::Measured(summary), Outcome::Measured(awaited_summary)) =
                (&result.outcome, &awaited_result.outcome)
                && summary.undisturbed.is_some()
                && summary.headline > 0.0
            {
                ratios.push(awaited_summary.headline / summary.headline);
            }
        }
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let quantile = |share: f64| ratios.get((share * ratios.len() as f64) as usize).copied().unwrap_or(f64::NAN);
    writeln!(
        out,
        "awaited over the rounds' own undisturbed samples, {} figures: median {:.4}, half of them {:.3} to {:.3}, 80 % {:.3} to {:.3}",
        ratios.len(),
        quantile(0.5),
        quantile(0.25),
        quantile(0.75),
        quantile(0.1),
        quantile(0.9)
    )?;
    Ok(())
}

/// A run whose timed samples have other tags.
fn with_tags(run: &Run, tags: impl Fn(SampleTags) -> SampleTags) -> Run {
    let mut run = run.clone();
    let readings =
        run.measurements.iter_mut().flat_map(|measurement| &mut measurement.rounds).filter_map(
            |round| match &mut round.outcome {
                RoundOutcome::Measured(readings) => Some(readings),
                _ => None,
            },
        );
    for reading in readings.flatten() {
        if let Readings::Batches(Batches { tags: tag_list, .. }) = &mut reading.readings {
            tag_list.iter_mut().for_each(|tag| *tag = tags(*tag));
        }
    }
    run
}

fn unknown_figures(analysis: &Analysis) -> usize {
    analysis.results.iter().filter(|result| matches!(result.outcome, Outcome::NotKnown(_))).count()
}
