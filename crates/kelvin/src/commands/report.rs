//! `kelvin report`: a stored run, or an exported one, in any format.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use kelvin_analysis::analyse_among;
use kelvin_model::Run;
use kelvin_report::exports::LeftOut;
use kelvin_report::{
    Bencher, Benchstat, CsvSamples, CsvSummary, GithubAction, Html, Json, Markdown, OpenMetrics, Parquet,
    ParquetSamples, Render, Report,
};
use kelvin_store::Store;

use crate::cli::{Format, ReportArgs, StoreArgs};
use crate::commands::{explain, store_to_read};
use crate::fault::{Done, Fault};
use crate::members::{Beside, library_with};
use crate::output::{self, Outlet};
use crate::predict;
use crate::private::Told;

/// `kelvin report`.
pub fn report(args: &ReportArgs) -> Done {
    if args.full && args.format() != Format::Terminal {
        return Err(Fault::new("--full", "every format but that of the terminal is in full: leave it out"));
    }
    if args.with_samples && args.format() != Format::Json {
        return Err(Fault::new("--with-samples", "only JSON may lack samples: leave it out, or give --format json"));
    }
    let is_binary = matches!(args.format(), Format::Parquet | Format::ParquetSamples);
    if is_binary && args.output.is_none() && output::is_terminal() {
        return Err(Fault::new("--output", "Parquet is no text for a terminal: name a file"));
    }
    let outlet = Outlet::find(args.output.as_deref())?;
    let Beside { published: mut chosen, members } = Beside::named(&args.beside)?;
    if chosen.is_empty() && args.format() == Format::Html {
        chosen = kelvin_analysis::references().to_vec();
    }
    let (run, store) = found(&args.run, &args.store)?;
    let mut run = Told::with(args.with_private).run(run)?;
    if args.repredict {
        predict::anew(&mut run);
    }
    let analysis = analyse_among(&run, &library_with(&members, store.as_ref(), &run.outline.machine));
    let probes = explain::texts();
    let report = Report { run: &run, analysis: &analysis, references: &chosen, probes: &probes };
    let to_terminal = args.output.is_none();
    if let Some(directory) = &args.assets {
        write_assets(&report, directory)?;
    }
    outlet.deliver(false, |out| render(args, &report, to_terminal, out))?;
    if let Some(left_out) = left_out(args.format(), &report).filter(|left_out| *left_out != LeftOut::default()) {
        output::remark(format_args!("kelvin: figures left out: {left_out}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// A run by its name in the store, or from the file that it names.
pub fn run_of(name: &OsStr, store: &StoreArgs) -> Result<Run, Fault> {
    Ok(found(name, store)?.0)
}

/// The same with the store that it is from, or that an option names.
fn found(name: &OsStr, args: &StoreArgs) -> Result<(Run, Option<Store>), Fault> {
    let path = Path::new(name);
    if path.is_file() {
        let file = File::open(path).map_err(|error| Fault::new(format!("cannot open {}", path.display()), error))?;
        let run = kelvin_store::import(file).map_err(|error| Fault::new(path.display(), error))?;
        return Ok((run, if args.store.is_some() { Some(store_to_read(args)?) } else { None }));
    }
    let store = store_to_read(args)?;
    Ok((store.load(&name.to_string_lossy()).map_err(Fault::because)?, Some(store)))
}

fn render(args: &ReportArgs, report: &Report<'_>, to_terminal: bool, out: &mut dyn Write) -> io::Result<()> {
    let color = || to_terminal && output::color();
    match args.format() {
        Format::Terminal if args.full => output::terminal(color()).render(report, out),
        Format::Terminal => {
            let run = args.run.to_string_lossy();
            output::first_screen(color(), false, &[in_full(&run), drawn(&run), why()]).render(report, out)
        }
        Format::Html => Html.render(report, out),
        Format::Md => Markdown.render(report, out),
        Format::Json => Json { pretty: false, samples: args.with_samples }.render(report, out),
        Format::Csv => CsvSummary.render(report, out),
        Format::Samples => CsvSamples.render(report, out),
        Format::Openmetrics => OpenMetrics.render(report, out),
        Format::CustomSmallerIsBetter => GithubAction::SmallerIsBetter.render(report, out),
        Format::CustomBiggerIsBetter => GithubAction::BiggerIsBetter.render(report, out),
        Format::Bencher => Bencher.render(report, out),
        Format::Benchstat => Benchstat.render(report, out),
        Format::Parquet => Parquet.render(report, out),
        Format::ParquetSamples => ParquetSamples.render(report, out),
    }
}

/// The figures that a format does not hold, where that is not all of a run.
fn left_out(format: Format, report: &Report<'_>) -> Option<LeftOut> {
    match format {
        Format::Terminal | Format::Html | Format::Md | Format::Json | Format::Csv | Format::Samples => None,
        Format::Parquet | Format::ParquetSamples => None,
        Format::Openmetrics => Some(OpenMetrics::left_out(report)),
        Format::CustomSmallerIsBetter => Some(GithubAction::SmallerIsBetter.left_out(report)),
        Format::CustomBiggerIsBetter => Some(GithubAction::BiggerIsBetter.left_out(report)),
        Format::Bencher => Some(Bencher::left_out(report)),
        Format::Benchstat => Some(Benchstat::left_out(report)),
    }
}

/// The command that prints all of a run.
pub fn in_full(run: &str) -> (String, String) {
    (format!("kelvin report {run} --full"), "all tables and conclusions".into())
}

/// The command that explains one figure.
pub fn why() -> (String, String) {
    ("kelvin why METRIC".into(), "one figure, broken down".into())
}

/// The command that draws all of it.
fn drawn(run: &str) -> (String, String) {
    (format!("kelvin report {run} --format html -o report.html"), "the same, drawn".into())
}

/// Every figure as SVG and CSV.
fn write_assets(report: &Report<'_>, directory: &Path) -> Result<(), Fault> {
    std::fs::create_dir_all(directory)
        .map_err(|error| Fault::new(format!("cannot make the directory {}", directory.display()), error))?;
    for asset in kelvin_report::assets::assets(report)? {
        output::write_file(&directory.join(&asset.name), |out| out.write_all(asset.contents.as_bytes()))?;
    }
    Ok(())
}
