//! `kelvin report`: a stored run, or an exported one, in any format.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use kelvin_analysis::analyse_with_library;
use kelvin_report::cluster::{NetJob, write_page};
use kelvin_report::exports::{OmittedFigures, omitted};
use kelvin_report::{
    Bencher, Benchstat, CsvSamples, CsvSummary, GithubAction, Html, Influx, Json, Markdown, OpenMetrics, Parquet,
    ParquetSamples, Render, Report,
};

use crate::class_members::{ComparedMachines, build_library};
use crate::cli::{ReportArgs, ReportFormat};
use crate::cli_error::{CliError, Context};
use crate::commands::explain;
use crate::locale::write_in_locale;
use crate::output::{self, Outlet};
use crate::predict;
use crate::redact::Redaction;
use crate::stores::find_run;

/// `kelvin report`.
pub fn report(args: &ReportArgs) -> Result<(), CliError> {
    if args.full && args.output.format() != ReportFormat::Terminal {
        bail!("--full: every format but that of the terminal is in full: leave it out");
    }
    if args.with_samples && args.output.format() != ReportFormat::Json {
        bail!("--with-samples: only JSON may lack samples: leave it out, or give --format json");
    }
    let is_binary = matches!(args.output.format(), ReportFormat::Parquet | ReportFormat::ParquetSamples);
    if is_binary && args.output.path().is_none() && output::is_terminal() {
        bail!("--output: Parquet is no text for a terminal: name a file");
    }
    let outlet = Outlet::find(args.output.path())?;
    if let Some(file) = cluster_file(&args.run)? {
        return report_cluster_job(args, file, outlet);
    }
    let ComparedMachines { published: mut references, members } = ComparedMachines::from_names(&args.compare_with)?;
    if references.is_empty() && args.output.format() == ReportFormat::Html {
        references = kelvin_analysis::references().to_vec();
    }
    let (run, store) = find_run(&args.run, &args.store)?;
    let mut run = Redaction::from_flag(args.with_private).redact_run(run)?;
    let needs_samples =
        matches!(args.output.format(), ReportFormat::Samples | ReportFormat::ParquetSamples | ReportFormat::Benchstat)
            || args.with_samples;
    if needs_samples && run.is_kept_by_headlines() {
        bail!("{} was kept with --keep headlines: it has no samples and no rounds to write", run.header.id);
    }
    if args.repredict {
        predict::repredict(&mut run);
    }
    let analysis = analyse_with_library(&run, &build_library(&members, store.as_ref(), &run.header.machine));
    let probes = explain::probe_texts();
    let report = Report { run: &run, analysis: &analysis, references: &references, probes: &probes };
    let color = args.output.path().is_none() && output::uses_color();
    if let Some(directory) = &args.assets {
        write_assets(&report, directory)?;
    }
    let extent = ReportExtent { samples: args.with_samples, full: args.full, color };
    let run = args.run.to_string_lossy();
    let hints = [full_report_hint(&run), page_hint(&run), why_hint()];
    outlet.write_output(false, |out| write_report(args.output.format(), (&report, extent), &hints, out))?;
    let omitted =
        omitted_figures(args.output.format(), &report).filter(|omitted| *omitted != OmittedFigures::default());
    omitted.iter().for_each(|omitted| notice!("figures left out: {omitted}"));
    Ok(())
}

/// The file that the command line names, if kelvin-cluster wrote it.
fn cluster_file(name: &OsStr) -> Result<Option<BufReader<File>>, CliError> {
    let path = Path::new(name);
    if !path.is_file() {
        return Ok(None);
    }
    let context = || format!("cannot read {}", path.display());
    let mut file = BufReader::new(File::open(path).context(context())?);
    let is_cluster_file = kelvin_report::cluster::is_cluster_file(file.fill_buf().context(context())?);
    Ok(is_cluster_file.then_some(file))
}

/// The page of a job of `kelvin-cluster net`.
fn report_cluster_job(args: &ReportArgs, file: BufReader<File>, outlet: Outlet) -> Result<(), CliError> {
    let name = args.run.to_string_lossy();
    if args.output.format() != ReportFormat::Html {
        bail!(
            "{name}: results of kelvin-cluster are shown as a page: give -o FILE.html, or see \
             `kelvin-cluster report {name}`"
        );
    }
    let job = NetJob::read(file).context(&name)?;
    outlet.write_output(false, |out| write_page(&job, out))
}

/// How much of a run a format has, where it has a choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportExtent {
    /// In JSON: the samples too.
    pub samples: bool,
    /// For a terminal: all tables.
    pub full: bool,
    /// For a terminal: colours.
    pub color: bool,
}

/// Writes a run in a format. `hints` are the commands that lead from its first screen to more.
///
/// # Errors
/// Those of writing.
pub fn write_report(
    format: ReportFormat,
    (report, extent): (&Report<'_>, ReportExtent),
    hints: &[(String, String)],
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        ReportFormat::Terminal => write_in_locale(out, |out| match extent.full {
            true => output::terminal(extent.color).render(report, out),
            false => output::first_screen(extent.color, false, hints).render(report, out),
        }),
        ReportFormat::Html => Html.render(report, out),
        ReportFormat::Md => Markdown.render(report, out),
        ReportFormat::Json => Json { pretty: false, samples: extent.samples }.render(report, out),
        ReportFormat::Csv => CsvSummary.render(report, out),
        ReportFormat::Samples => CsvSamples.render(report, out),
        ReportFormat::Openmetrics => OpenMetrics.render(report, out),
        ReportFormat::CustomSmallerIsBetter => GithubAction::SmallerIsBetter.render(report, out),
        ReportFormat::CustomBiggerIsBetter => GithubAction::BiggerIsBetter.render(report, out),
        ReportFormat::Bencher => Bencher.render(report, out),
        ReportFormat::Benchstat => Benchstat.render(report, out),
        ReportFormat::Influx => Influx.render(report, out),
        ReportFormat::Parquet => Parquet.render(report, out),
        ReportFormat::ParquetSamples => ParquetSamples.render(report, out),
    }
}

/// The figures that a format does not hold, where that is not all of a run.
fn omitted_figures(format: ReportFormat, report: &Report<'_>) -> Option<OmittedFigures> {
    match format {
        ReportFormat::Openmetrics | ReportFormat::Bencher | ReportFormat::Benchstat | ReportFormat::Influx => {
            Some(omitted(report))
        }
        ReportFormat::CustomSmallerIsBetter => Some(GithubAction::SmallerIsBetter.omitted(report)),
        ReportFormat::CustomBiggerIsBetter => Some(GithubAction::BiggerIsBetter.omitted(report)),
        // These hold all of it.
        _ => None,
    }
}

/// The command that prints all of a run.
pub fn full_report_hint(run: &str) -> (String, String) {
    (format!("kelvin report {run} --full"), "all tables and conclusions".into())
}

/// The command that draws a run.
pub fn page_hint(run: &str) -> (String, String) {
    (format!("kelvin report {run} -o report.html"), "the same, drawn".into())
}

/// The command that explains one figure.
pub fn why_hint() -> (String, String) {
    ("kelvin why METRIC".into(), "one figure, broken down".into())
}

/// Every figure as SVG and CSV.
fn write_assets(report: &Report<'_>, directory: &Path) -> Result<(), CliError> {
    std::fs::create_dir_all(directory).context(format_args!("cannot make the directory {}", directory.display()))?;
    for asset in kelvin_report::assets::report_assets(report)? {
        output::write_file(&directory.join(&asset.name), |out| out.write_all(asset.contents.as_bytes()))?;
    }
    Ok(())
}
