//! What is reported of a job, or of several together.

use kelvin_core::Unit;
use kelvin_file::Access;
use kelvin_file::workload::{BlockSizes, Estimate, Flush, Job, JobOrder, JobResult, Mix, PlannedJob, Verification};
use kelvin_report::units;
use kelvin_stats::Histogram;
use kelvin_sys::uring::IoDirection;
use serde::Serialize;

use super::figures::Lines;
use super::job_limit::{JobLimit, RateDemand};
use super::run_jobs::figure_text;

/// A job, or several together, for JSON.
#[derive(Serialize)]
pub(super) struct GroupReport {
    pub(super) name: String,
    threads: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    settings: Vec<String>,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<DirectionReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write: Option<DirectionReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flush: Option<FlushReport>,
    achieved_depth: f64,
    cpu_seconds: f64,
    /// Of the file, before.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_share: Option<f64>,
    limit: JobLimit,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<VerificationReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// A figure with its interval.
#[derive(Serialize)]
struct Figure {
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lower: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper: Option<f64>,
}

impl From<Estimate> for Figure {
    fn from(estimate: Estimate) -> Self {
        let (lower, upper) = estimate.interval.unzip();
        Self { value: estimate.value, lower, upper }
    }
}

impl Figure {
    /// `30.1k/s (29.8k/s to 30.4k/s)`.
    fn text(&self, unit: Unit) -> String {
        let value = figure_text(self.value, unit);
        match (self.lower, self.upper) {
            (Some(lower), Some(upper)) => format!("{value} ({})", units::span(lower, upper, unit)),
            _ => value,
        }
    }
}

/// Reads or writes.
#[derive(Serialize)]
struct DirectionReport {
    bytes: u64,
    requests: u64,
    bytes_per_second: Figure,
    requests_per_second: Figure,
    latency: LatencyReport,
    /// From when each request was due, of jobs with a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<LatencyReport>,
}

/// Times of requests, in nanoseconds.
#[derive(Serialize)]
struct LatencyReport {
    mean: f64,
    p50: Figure,
    p90: Figure,
    p99: Figure,
    p999: Figure,
    max: f64,
}

impl LatencyReport {
    fn new(histogram: &Histogram, quantile: impl Fn(f64) -> Option<Estimate>) -> Option<Self> {
        let figure = |share| quantile(share).map(Figure::from);
        let [p50, p90, p99, p999] = [figure(0.5)?, figure(0.9)?, figure(0.99)?, figure(0.999)?];
        Some(Self { mean: histogram.mean()?, p50, p90, p99, p999, max: histogram.max()? })
    }

    /// Quantiles of a histogram alone, without intervals.
    fn of_histogram(histogram: &Histogram) -> Option<Self> {
        Self::new(histogram, |share| histogram.quantile(share).map(|value| Estimate { value, interval: None }))
    }

    fn text(&self) -> String {
        let [p50, p90, p99, p999] =
            [&self.p50, &self.p90, &self.p99, &self.p999].map(|figure| figure.text(Unit::Nanoseconds));
        let longest = units::value_text(self.max, Unit::Nanoseconds);
        format!("median {p50}, 90 % {p90}, 99 % {p99}, 99.9 % {p999}, longest {longest}")
    }
}

impl DirectionReport {
    fn new(result: &JobResult, direction: IoDirection) -> Option<Self> {
        let directed = result.directions.of(direction);
        let latency = LatencyReport::new(&directed.latencies, |share| result.latency(direction, share))?;
        Some(Self {
            bytes: directed.tally.bytes,
            requests: directed.tally.requests,
            bytes_per_second: result.bytes_per_second(direction).into(),
            requests_per_second: result.requests_per_second(direction).into(),
            latency,
            response: directed.responses.as_ref().and_then(LatencyReport::of_histogram),
        })
    }

    fn lines(&self, label: &'static str) -> Lines {
        let rates = [self.bytes_per_second.text(Unit::BytesPerSecond), self.requests_per_second.text(Unit::PerSecond)];
        let amount = format!("{} in {}", units::bytes(self.bytes), units::plural(self.requests, "request"));
        let mut lines =
            vec![(label, format!("{}, {}; {amount}", rates[0], rates[1])), ("  latency", self.latency.text())];
        lines.extend(self.response.as_ref().map(|response| ("  from due", response.text())));
        lines
    }
}

/// Flushes, in nanoseconds.
#[derive(Serialize)]
struct FlushReport {
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<LatencyReport>,
    /// The one at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
}

impl FlushReport {
    fn new(result: &JobResult) -> Option<Self> {
        let count = result.flushes.count();
        let latency = LatencyReport::of_histogram(&result.flushes);
        (count > 0 || result.end_flush.is_some()).then_some(Self { count, latency, end: result.end_flush })
    }

    fn text(&self) -> String {
        let each =
            self.latency.as_ref().map(|latency| format!("{}: {}", units::plural(self.count, "call"), latency.text()));
        let end =
            self.end.map(|end| format!("the one at the end took {}", units::value_text(end as f64, Unit::Nanoseconds)));
        each.into_iter().chain(end).collect::<Vec<String>>().join("; ")
    }
}

/// What a check of blocks found.
#[derive(Serialize)]
struct VerificationReport {
    blocks: u64,
    mismatches: u64,
    first: Vec<String>,
}

impl VerificationReport {
    fn new(Verification { blocks, mismatches, first }: &Verification) -> Self {
        Self { blocks: *blocks, mismatches: *mismatches, first: first.clone() }
    }

    fn text(&self) -> String {
        let blocks = units::plural(self.blocks, "block");
        match self.mismatches {
            0 => format!("{blocks}, all as written"),
            mismatches => {
                let more = mismatches - self.first.len() as u64;
                let more = if more > 0 { format!("; and {} more", units::count(more)) } else { String::new() };
                format!("{} of {blocks} MISMATCH: {}{more}", units::count(mismatches), self.first.join("; "))
            }
        }
    }
}

/// The share of a stage's time from which on a job counts as long as the stage.
const SAME_TIME_SHARE: f64 = 0.95;

impl GroupReport {
    /// Of jobs that are reported together.
    pub(super) fn new(name: String, members: &[&PlannedJob], result: &JobResult) -> Self {
        let mut notes: Vec<String> = Vec::new();
        for note in members.iter().flat_map(|planned| &planned.notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        let settings = members.iter().map(|planned| settings_text(&planned.job)).collect();
        // One copy of a job, or all copies of all members.
        let copies = |planned: &PlannedJob| if result.threads == 1 { 1 } else { planned.copies as usize };
        let jobs: Vec<&Job> =
            members.iter().flat_map(|planned| std::iter::repeat_n(&planned.job, copies(planned))).collect();
        Self { settings, notes, ..Self::figures(name, &jobs, result) }
    }

    /// Of all jobs of a stage, of which the shortest counted for so many seconds.
    pub(super) fn of_stage(jobs: &[Job], result: &JobResult, shortest: f64) -> Self {
        let mut report = Self::figures("all together".to_owned(), &jobs.iter().collect::<Vec<&Job>>(), result);
        if shortest < SAME_TIME_SHARE * report.seconds {
            let [shortest, all] = [shortest, report.seconds].map(units::seconds);
            report.notes.push(format!(
                "jobs counted at different times, one of them for {shortest}: rates are totals over {all}, and below what all did at once"
            ));
        }
        report
    }

    fn figures(name: String, jobs: &[&Job], result: &JobResult) -> Self {
        Self {
            name,
            threads: result.threads,
            settings: Vec::new(),
            seconds: result.seconds(),
            read: DirectionReport::new(result, IoDirection::Read),
            write: DirectionReport::new(result, IoDirection::Write),
            flush: FlushReport::new(result),
            achieved_depth: result.achieved_depth,
            cpu_seconds: result.cpu_time as f64 / 1e9,
            cached_share: result.cached_share,
            limit: JobLimit::find(result, RateDemand::of(jobs)),
            verification: result.verification.as_ref().map(VerificationReport::new),
            notes: Vec::new(),
        }
    }

    /// Whether all that was verified was as written.
    pub(super) fn is_sound(&self) -> bool {
        self.verification.as_ref().is_none_or(|verification| verification.mismatches == 0)
    }

    /// Whether anything was measured.
    pub(super) fn has_figures(&self) -> bool {
        self.read.is_some() || self.write.is_some()
    }

    /// The labelled lines for people.
    pub(super) fn lines(&self) -> Lines {
        let mut lines: Lines = self.settings.iter().map(|settings| ("way", settings.clone())).collect();
        let threads = units::plural(u64::from(self.threads), "thread");
        let depth = format!("{:.1} in flight on average", self.achieved_depth);
        let cpu = units::share(self.cpu_seconds / self.seconds.max(1e-9));
        lines.push(("time", format!("{}, {threads}, {depth}; {cpu} of a CPU", units::seconds(self.seconds))));
        lines.extend(
            self.cached_share.map(|share| ("cache", format!("{} of the file in memory before", units::share(share)))),
        );
        lines.extend(self.read.iter().flat_map(|read| read.lines("read")));
        lines.extend(self.write.iter().flat_map(|write| write.lines("write")));
        lines.extend(self.flush.as_ref().map(|flush| ("flush", flush.text())));
        lines.push(("limit", self.limit.text.clone()));
        lines.extend(self.verification.as_ref().map(|verification| ("verified", verification.text())));
        lines.extend(self.notes.iter().map(|note| ("note", note.clone())));
        lines
    }
}

/// `random reads 70 %, writes 30 %, blocks of 4 KiB, io_uring, depth 16, past the page cache`.
fn settings_text(job: &Job) -> String {
    let order = if job.order.is_random() { "random" } else { "sequential" };
    let repeats = if job.order == JobOrder::RandomIndependent { " with replacement" } else { "" };
    let mix = match job.mix {
        Mix::Reads => "reads".to_owned(),
        Mix::Writes => "writes".to_owned(),
        Mix::Both { read_percent } => format!("reads {read_percent} %, writes {} %", 100 - read_percent),
    };
    let (read, write) = (sizes_text(&job.blocks.read), sizes_text(&job.blocks.write));
    let blocks =
        if read == write { format!("blocks of {read}") } else { format!("reads of {read}, writes of {write}") };
    let depth = if job.depth > 1 { format!(", depth {}", job.depth) } else { String::new() };
    let access = if job.access == Access::Direct { "past the page cache" } else { "through the page cache" };
    let flush_text =
        |(count, flush): (u64, Flush)| format!(", {} every {}", flush.name(), units::plural(count, "write"));
    let flush = job.flush_every.map(flush_text).unwrap_or_default();
    format!("{order} {mix}{repeats}, {blocks}, {}{depth}, {access}{flush}", job.engine.name())
}

/// `4 KiB`, or `4 KiB (50 %) or 8 KiB (50 %)`.
fn sizes_text(sizes: &BlockSizes) -> String {
    let shares = sizes.shares();
    let text = |&(bytes, share): &(usize, f64)| match shares.len() {
        1 => units::exact_bytes(bytes as u64),
        _ => format!("{} ({})", units::exact_bytes(bytes as u64), units::share(share)),
    };
    shares.iter().map(text).collect::<Vec<String>>().join(" or ")
}
