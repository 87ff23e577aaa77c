//! How often the interval of a headline covers repeated runs, and how wide it is: a Markdown table.
//!
//! `cargo run --release -p kelvin-stats --example coverage`. The truth is the median of the headlines of very many runs
//! of the same model; widths are half-widths over the standard deviation of the headline. `next` is how often the
//! headline of one single repeat falls inside.
use std::io::Write;

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use simulation::{MODELS, Method, simulate};

const RUNS: usize = 1500;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "| rounds | model | estimator: mean / median / interquartile mean, std |")?;
    writeln!(out, "|---|---|---|")?;
    for rounds in [3, 6, 10, 20] {
        for model in MODELS {
            let [mean, median, middle] = simulation::repeatability(model, rounds, RUNS);
            writeln!(out, "| {rounds} | {} | {mean:.3} / {median:.3} / {middle:.3} |", model.name())?;
        }
    }
    writeln!(out, "\ncoverage of the long-run median, (of one single repeat), relative half-width\n")?;
    let names: Vec<&str> = Method::ALL.iter().map(|method| method.name()).collect();
    writeln!(out, "| rounds | model | {} |", names.join(" | "))?;
    writeln!(out, "|---|---|{}", "---|".repeat(names.len()))?;
    for rounds in [3, 5, 6, 10, 20] {
        for model in MODELS {
            let cells: Vec<String> = simulate(model, rounds, RUNS, &Method::ALL)
                .iter()
                .map(|cell| format!("{:.1} % ({:.0} %) {:.2}", 100.0 * cell.covers, 100.0 * cell.next, cell.half_width))
                .collect();
            writeln!(out, "| {rounds} | {} | {} |", model.name(), cells.join(" | "))?;
        }
    }
    Ok(())
}
