//! `kelvin file run`: the jobs of one of fio's job files, or of its command line.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use kelvin_core::Unit;
use kelvin_file::device::{Device, DeviceTraffic};
use kelvin_file::job_file::{self, JobFileError, MAX_FILE_BYTES};
use kelvin_file::workload::{self, Job, JobFiles, JobResult, Permissions, PlannedJob};
use kelvin_file::{Error, Result as FileResult};
use kelvin_report::{text, units};
use kelvin_sys::stop_signals;
use serde::Serialize;

use super::job_report::GroupReport;
use crate::answer::AnswerOutlet;
use crate::cli::JobsArgs;
use crate::cli_error::{CliError, CmdResult, Context};
use crate::output;
use crate::progress::show_time_progress;

/// Columns of a label.
const LABEL_WIDTH: usize = 12;

/// `kelvin file run`.
pub(super) fn run_jobs(args: &JobsArgs) -> CmdResult {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let (planned, job_file) = planned_jobs(args)?;
    let permissions = Permissions { overwrite: args.overwrite.clone(), destroy: args.destroy.clone(), trim: args.trim };
    let (planned, permissions) = (&planned, &permissions);
    run_planned(JobSource { planned, permissions, keeps_files: args.keep, job_file }, outlet)
}

/// The jobs, and the name of the file that they are from.
fn planned_jobs(args: &JobsArgs) -> Result<(Vec<PlannedJob>, Option<String>), CliError> {
    let options = args.job.options.as_slice();
    match &args.job_file {
        None if options.is_empty() => bail!("give a job file, or a job as to fio: --name=a --rw=randread --size=1g"),
        None => Ok((job_file::parse_options(options).map_err(|error| option_error(&error, options))?, None)),
        Some(path) => {
            let name = path.display().to_string();
            if let Some((option, _)) = options.first() {
                bail!("--{option}: options of jobs are given in place of a job file: write it into {name}");
            }
            let planned = job_file::parse(&read_job_file(path)?);
            Ok((planned.map_err(|error| CliError::msg(format!("{name}:{error}")))?, Some(name)))
        }
    }
}

/// A mistake in options of the command line, which are named as they are typed there.
fn option_error(JobFileError { line, message }: &JobFileError, options: &[(String, String)]) -> CliError {
    let option = line.checked_sub(1).and_then(|number| options.get(number));
    let is_about_option = option.is_some_and(|(name, _)| message.starts_with(name.as_str()));
    CliError::msg(if is_about_option { format!("--{message}") } else { message.clone() })
}

/// Jobs, where they come from, and what they may do.
pub(super) struct JobSource<'a> {
    pub(super) planned: &'a [PlannedJob],
    pub(super) permissions: &'a Permissions,
    pub(super) keeps_files: bool,
    /// The job file; `None` for flags.
    pub(super) job_file: Option<String>,
}

/// Runs jobs and reports them.
pub(super) fn run_planned(source: JobSource<'_>, outlet: AnswerOutlet) -> CmdResult {
    let report = JobsReport::run(&source).map_err(|error| to_cli_error(source.job_file.as_deref(), error))?;
    let is_sound = report.stages.iter().flat_map(|stage| &stage.groups).all(GroupReport::is_sound);
    outlet.write(&report, |out| {
        for (label, text) in report.lines() {
            match label {
                "" if text.is_empty() => writeln!(out)?,
                label => output::write_wrapped(out, output::width(), &format!("{label:LABEL_WIDTH$}"), &text)?,
            }
        }
        Ok(())
    })?;
    match report.failure {
        Some(failure) => bail!("stage {}: {failure}", report.stages.len() + 1),
        None => Ok(is_sound && report.interrupted.is_none()),
    }
}

/// Why jobs could not run, in the words of the command line.
fn to_cli_error(job_file: Option<&str>, error: Error) -> CliError {
    match error {
        Error::InvalidSetting { name: "overwrite" | "destroy", .. } => CliError::msg(format!("--{error}")),
        Error::InvalidSetting { .. } => match job_file {
            Some(job_file) => CliError::msg(format!("{job_file}: {error}")),
            None => CliError::msg(format!("--{error}")),
        },
        error => CliError::msg(error),
    }
}

/// The text of a job file. It is read no further than it may be long.
fn read_job_file(path: &Path) -> Result<String, CliError> {
    let name = path.display();
    let file = kelvin_sys::fs::open_to_read(path).context(format_args!("cannot open {name}"))?;
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).context(format_args!("cannot read {name}"))?;
    if content.len() as u64 > MAX_FILE_BYTES {
        bail!("{name}: a job file has at most {}", units::bytes(MAX_FILE_BYTES));
    }
    String::from_utf8(content).map_err(|_| CliError::msg(format!("{name}: a job file is text in UTF-8")))
}

/// The report, for JSON.
#[derive(Serialize)]
struct JobsReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    job_file: Option<String>,
    /// Files that were made for the jobs.
    files_made: usize,
    files_kept: bool,
    /// The signal that ended the last stage early.
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupted: Option<&'static str>,
    /// Why a later stage could not be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    stages: Vec<StageReport>,
}

/// Jobs that ran at once.
#[derive(Serialize)]
struct StageReport {
    groups: Vec<GroupReport>,
    /// All of them together, if they are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<GroupReport>,
    devices: Vec<DeviceReport>,
}

/// What a device moved while jobs ran, for all its users.
#[derive(Serialize)]
struct DeviceReport {
    name: String,
    bytes_read: u64,
    bytes_written: u64,
}

impl JobsReport {
    /// Runs stage by stage, until one fails or a signal comes. What was made is gone afterwards, unless it is kept.
    fn run(source: &JobSource<'_>) -> FileResult<Self> {
        let &JobSource { planned, permissions, keeps_files, .. } = source;
        let jobs: Vec<Job> = planned.iter().flat_map(PlannedJob::jobs).collect();
        let files = JobFiles::prepare(&jobs, permissions)?;
        let stages = stages(planned);
        // Before the first one has results that a mistake in the second would lose.
        for stage in &stages {
            workload::check_stage(&stage.iter().flat_map(PlannedJob::jobs).collect::<Vec<Job>>(), &files)?;
        }
        let work = || run_stages(&stages, &files);
        let (stages, failure) = match expected_time(planned) {
            Some(time) => show_time_progress(time, work),
            None => work(),
        };
        let interrupted = stop_signals::stop_signal();
        let failure = match (failure, interrupted) {
            (_, Some(signal)) if !stages.iter().any(StageReport::has_figures) => {
                return Err(Error::Interrupted(signal));
            }
            (Some(failure), None) if stages.is_empty() => return Err(failure),
            (failure, _) => failure,
        };
        let files_made = files.made();
        if keeps_files {
            files.keep()?;
        }
        let failure = failure.map(|failure| to_cli_error(source.job_file.as_deref(), failure).to_string());
        Ok(Self {
            job_file: source.job_file.clone(),
            files_made,
            files_kept: keeps_files,
            interrupted,
            failure,
            stages,
        })
    }

    /// The labelled lines for people; an empty one between groups.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        for (number, stage) in (1..).zip(&self.stages) {
            let groups = stage.groups.iter().chain(&stage.total);
            for group in groups {
                if !lines.is_empty() {
                    lines.push(("", String::new()));
                }
                let place = if self.stages.len() > 1 { format!(" (stage {number})") } else { String::new() };
                lines.push(("job", format!("{}{place}", text::clean(&group.name))));
                lines.extend(group.lines());
            }
            for DeviceReport { name, bytes_read, bytes_written } in &stage.devices {
                let [read, written] = [*bytes_read, *bytes_written].map(units::bytes);
                lines.push((
                    "device",
                    format!("{name} read {read} and wrote {written} meanwhile, ramps included, for all its users"),
                ));
            }
        }
        let made = units::plural(self.files_made as u64, "file");
        match (self.files_made, self.files_kept) {
            (0, _) => {}
            (_, true) => lines.push(("files", format!("{made} made and kept"))),
            (_, false) => lines.push(("files", format!("{made} made, and removed; --keep keeps them"))),
        }
        lines.extend(
            self.interrupted.map(|signal| ("ended", format!("early, by {signal}: figures are of the time until then"))),
        );
        lines
    }
}

/// The reports of stages up to one that fails, and why it does, or to one that a signal ends.
fn run_stages(stages: &[&[PlannedJob]], files: &JobFiles) -> (Vec<StageReport>, Option<Error>) {
    let mut reports = Vec::new();
    for stage in stages {
        match StageReport::run(stage, files) {
            Ok(report) => reports.push(report),
            Err(failure) => return (reports, Some(failure)),
        }
        if stop_signals::stop_signal().is_some() {
            break;
        }
    }
    (reports, None)
}

/// The jobs from one that waits for others to the next.
fn stages(planned: &[PlannedJob]) -> Vec<&[PlannedJob]> {
    let begins: Vec<usize> = (0..planned.len()).filter(|&number| number == 0 || planned[number].waits).collect();
    let ends = begins[1..].iter().copied().chain([planned.len()]);
    begins.iter().zip(ends).map(|(&begin, end)| &planned[begin..end]).collect()
}

/// How long all take at most, where every job has a time.
fn expected_time(planned: &[PlannedJob]) -> Option<Duration> {
    let job_time = |planned: &PlannedJob| Some(planned.job.ramp + planned.job.end.runtime?);
    let stage_time = |stage: &[PlannedJob]| stage.iter().map(job_time).collect::<Option<Vec<_>>>()?.into_iter().max();
    stages(planned).into_iter().map(stage_time).sum()
}

impl StageReport {
    /// Whether anything was measured.
    fn has_figures(&self) -> bool {
        self.groups.iter().any(GroupReport::has_figures)
    }

    fn run(planned: &[PlannedJob], files: &JobFiles) -> FileResult<Self> {
        let jobs: Vec<Job> = planned.iter().flat_map(PlannedJob::jobs).collect();
        let devices: Vec<(Device, DeviceTraffic)> = files.devices(&jobs).into_iter().filter_map(with_traffic).collect();
        let results = workload::run_stage(&jobs, files)?;
        let devices = devices.into_iter().filter_map(|(device, before)| {
            let moved = device.traffic().ok()?.since(before);
            Some(DeviceReport { name: device.name, bytes_read: moved.read, bytes_written: moved.written })
        });
        let devices = devices.collect();
        let total = (results.len() > 1).then(|| merged(&results)).flatten();
        let shortest = results.iter().map(JobResult::seconds).fold(f64::INFINITY, f64::min);
        let groups = group_results(planned, results);
        let has_several = groups.len() > 1;
        let total = total.filter(|_| has_several).map(|result| GroupReport::of_stage(&jobs, &result, shortest));
        Ok(Self { groups, total, devices })
    }
}

fn with_traffic(device: Device) -> Option<(Device, DeviceTraffic)> {
    let traffic = device.traffic().ok()?;
    Some((device, traffic))
}

/// All results as one.
fn merged(results: &[JobResult]) -> Option<JobResult> {
    results.iter().cloned().reduce(|mut all, other| {
        all.merge(other);
        all
    })
}

/// Results by group: each copy of a job for itself, or all copies of neighbours that are to be reported together.
fn group_results(planned: &[PlannedJob], results: Vec<JobResult>) -> Vec<GroupReport> {
    let mut results = results.into_iter();
    let mut groups: Vec<(Vec<&PlannedJob>, String, JobResult)> = Vec::new();
    for planned in planned {
        for (copy, result) in (1..=planned.copies).zip(results.by_ref()) {
            match groups.last_mut() {
                Some((members, name, all))
                    if planned.is_grouped && members.last().is_some_and(|last| last.is_grouped) =>
                {
                    if !members.iter().any(|member| std::ptr::eq(*member, planned)) {
                        members.push(planned);
                        *name = format!("{name}, {}", planned.name);
                    }
                    all.merge(result);
                }
                _ => {
                    let is_one_of_many = planned.copies > 1 && !planned.is_grouped;
                    let place = if is_one_of_many { format!(" {copy} of {}", planned.copies) } else { String::new() };
                    groups.push((vec![planned], format!("{}{place}", planned.name), result));
                }
            }
        }
    }
    groups.into_iter().map(|(members, name, result)| GroupReport::new(name, &members, &result)).collect()
}

/// The text of a figure in this unit.
pub(super) fn figure_text(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond => units::value_text(value, unit).replace("/s", " requests/s"),
        unit => units::value_text(value, unit),
    }
}
