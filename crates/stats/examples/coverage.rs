//! How often intervals cover the truth and the next run, and how many conclusions of a report are false: Markdown tables.
//!
//! `cargo run --release -p kelvin-stats --example coverage`. The truth is the median of the headlines of very many runs
//! of the same model; widths are half-widths over the standard deviation of the headline.
use std::io::{self, Write};

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use simulation::report::{CorrectionRule, TruthScenario, ratio_coverage, simulate_reports};
use simulation::{MODELS, Method, Model, simulate};

const RUNS: usize = 1500;
const ROUNDS: [usize; 9] = [2, 3, 4, 5, 6, 8, 10, 12, 20];
const UNEQUAL_ROUNDS: [(usize, usize); 7] = [(4, 4), (4, 8), (5, 5), (5, 20), (8, 8), (12, 12), (20, 20)];

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    print_estimators(&mut out)?;
    print_intervals(&mut out)?;
    print_ratios(&mut out)?;
    print_reports(&mut out)
}

fn print_estimators(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "| rounds | model | estimator: mean / median / interquartile mean, std |")?;
    writeln!(out, "|---|---|---|")?;
    for rounds in [3, 6, 10, 20] {
        for model in MODELS {
            let [mean, median, interquartile_mean] = simulation::repeatability(model, rounds, RUNS);
            writeln!(out, "| {rounds} | {} | {mean:.3} / {median:.3} / {interquartile_mean:.3} |", model.name())?;
        }
    }
    Ok(())
}

fn print_intervals(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\ncoverage of the long-run median, (of one single repeat), relative half-width\n")?;
    let names: Vec<&str> = Method::ALL.iter().map(|method| method.name()).collect();
    writeln!(out, "| rounds | model | {} |", names.join(" | "))?;
    writeln!(out, "|---|---|{}", "---|".repeat(names.len()))?;
    for rounds in ROUNDS {
        for model in MODELS {
            let cells: Vec<String> = simulate(model, rounds, RUNS, &Method::ALL)
                .iter()
                .map(|cell| {
                    format!("{:.1} % ({:.0} %) {:.2}", 100.0 * cell.coverage, 100.0 * cell.next, cell.half_width)
                })
                .collect();
            writeln!(out, "| {rounds} | {} | {} |", model.name(), cells.join(" | "))?;
        }
    }
    Ok(())
}

fn print_ratios(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\ncoverage of ratios: kelvin's, and Welch's error of means around a ratio of medians\n")?;
    writeln!(out, "| rounds | model | kelvin | Welch |\n|---|---|---|---|")?;
    for rounds in UNEQUAL_ROUNDS {
        for model in MODELS {
            let [kelvin, welch] = ratio_coverage(model, rounds, 4 * RUNS);
            let (base, other) = rounds;
            writeln!(
                out,
                "| {base} : {other} | {} | {:.1} % | {:.1} % |",
                model.name(),
                100.0 * kelvin,
                100.0 * welch
            )?;
        }
    }
    Ok(())
}

fn print_reports(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nfifty conclusions of a report: share of false ones / reports with any / decided ones\n")?;
    let names: Vec<String> = CorrectionRule::ALL.iter().map(|rule| format!("{rule:?}")).collect();
    writeln!(out, "| rounds | model | truths | {} |\n|---|---|---|{}", names.join(" | "), "---|".repeat(names.len()))?;
    for rounds in [4, 5, 8, 20] {
        for model in
            [Model::Normal, Model::HeavyTails, Model::WildRounds, Model::Drift, Model::TwoModes, Model::UnequalRounds]
        {
            for truths in TruthScenario::ALL {
                let cell = |&rule: &CorrectionRule| {
                    let tally = simulate_reports(model, truths, rounds, (rule, RUNS / 3));
                    let [false_share, any_false] = [tally.false_share, tally.any_false].map(|share| 100.0 * share);
                    format!("{false_share:.1} % / {any_false:.0} % / {:.1}", tally.decided)
                };
                let cells: Vec<String> = CorrectionRule::ALL.iter().map(cell).collect();
                writeln!(out, "| {rounds} | {} | {truths:?} | {} |", model.name(), cells.join(" | "))?;
            }
        }
    }
    Ok(())
}
