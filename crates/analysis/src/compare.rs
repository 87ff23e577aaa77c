//! Two sides compared, each of one run or several: what differs, figure by figure and besides.
//!
//! A verdict holds for the whole report: that any figure of an unchanged machine is called better or worse is rare, however many
//! figures there are. For that, the error of a ratio has what differs from run to run, learned from earlier runs or else assumed;
//! what the core's frequency explains is no difference of a figure; and errors are widened where most figures differ by more than
//! theirs.

mod cause_of_change;
mod differences;
mod gate;
mod interleaved;
mod judgement;
mod ladder;
mod series;
mod text;
mod verdicts;

use kelvin_core::*;
use kelvin_stats::median;

use self::differences::SideFacts;
pub use self::differences::fact_differences;
pub use self::gate::Gate;
pub use self::interleaved::{InterleavedCase, InterleavedSettings, compare_interleaved};
use self::judgement::ComparisonJudge;
use self::series::{SideSeries, figure_pairs, rescale_to_base_frequency};
pub use self::text::*;
use crate::headlines::Headlines;

/// One side of a comparison.
#[derive(Clone, Debug)]
pub struct SideInput<'a> {
    /// As it was requested.
    pub name: String,
    /// What it is.
    pub subject: ComparisonSubject<'a>,
}

/// What can be compared.
#[derive(Clone, Copy, Debug)]
pub enum ComparisonSubject<'a> {
    /// Runs, oldest first, at least one.
    Runs(&'a [Run]),
    /// A published machine.
    Published(&'a Reference),
    /// A run that another program made, and what [`foreign_reference`] makes of it.
    Foreign(&'a Run, &'a Reference),
}

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct ComparisonRequest<'a> {
    /// What is compared with.
    pub base: SideInput<'a>,
    /// What is compared.
    pub other: SideInput<'a>,
    /// The spread from run to run by other runs of the machine. It takes precedence over the histories of the runs themselves, which may
    /// have been made before there were any, and may include one another.
    pub spread_histories: &'a [SpreadHistory],
    /// The spread of the headlines over [`STEADY_CHAIN`](crate::STEADY_CHAIN) in each of those runs, for what is a fixed number of core cycles.
    pub cycle_spread_histories: &'a [SpreadHistory],
    /// Share by which a figure must differ to be better or worse.
    pub threshold: f64,
}

impl ComparisonRequest<'_> {
    /// Compares them.
    pub fn compare(&self) -> Comparison {
        let sides = [&self.base, &self.other];
        let mut series = sides.map(|side| SideSeries::from_side(side.subject));
        // Of another machine the frequency is part of what makes it faster or slower.
        let frequency = if self.is_same_machine() { rescale_to_base_frequency(&mut series) } else { None };
        let clocks = series[0].hertz.zip(series[1].hertz).map(<[f64; 2]>::from);
        let (pairs, mut not_compared) = figure_pairs(&series);
        let judge = ComparisonJudge::new(self, clocks);
        let (figures, interval_inflation) = judge.judge(&series, &pairs, &mut not_compared);
        let log_slowdowns = series.each_ref().map(|side| side.log_slowdown);
        let differences = differences::differences_between(&sides.map(|side| side.subject.facts()), log_slowdowns);
        let comparison = new_comparison(sides.map(to_compared_side), self.threshold, figures, not_compared);
        Comparison { differences, clocks, frequency, interval_inflation, ..comparison }
    }

    fn subjects(&self) -> [ComparisonSubject<'_>; 2] {
        [self.base.subject, self.other.subject]
    }

    /// Whether all runs of both sides are of one machine.
    fn is_same_machine(&self) -> bool {
        let runs = self.subjects().into_iter().flat_map(ComparisonSubject::runs);
        let machines: Vec<&str> = runs.map(|run| run.header.machine.identity.as_str()).collect();
        machines.windows(2).all(|pair| pair[0] == pair[1])
    }
}

impl<'a> ComparisonSubject<'a> {
    /// What is known of it besides its figures.
    fn facts(self) -> SideFacts {
        match self {
            Self::Runs(runs) => SideFacts::from_runs(&runs.iter().map(|run| &run.header).collect::<Vec<_>>()),
            Self::Published(reference) => SideFacts::from_reference(reference),
            Self::Foreign(run, _) => SideFacts::from_foreign(&run.header),
        }
    }

    /// Its runs that kelvin made; none of a published machine.
    fn runs(self) -> &'a [Run] {
        match self {
            Self::Runs(runs) => runs,
            Self::Published(_) | Self::Foreign(..) => &[],
        }
    }

    /// Its values where they have no spread, because kelvin did not measure them.
    fn published(self) -> Option<&'a Reference> {
        match self {
            Self::Runs(_) => None,
            Self::Published(reference) | Self::Foreign(_, reference) => Some(reference),
        }
    }
}

/// A comparison of figures, of which nothing else is known.
fn new_comparison(
    [base, other]: [ComparedSide; 2],
    threshold: f64,
    figures: Vec<ComparedFigure>,
    not_compared: Vec<NotCompared>,
) -> Comparison {
    let goodness_ratios: Vec<f64> = figures.iter().filter_map(verdicts::goodness_ratio).collect();
    Comparison {
        compare_format: COMPARE_FORMAT,
        base,
        other,
        threshold,
        median_ratio: (!goodness_ratios.is_empty()).then(|| median(&goodness_ratios)),
        interval_inflation: 1.0,
        figures,
        not_compared,
        ..Comparison::default()
    }
}

fn to_compared_side(side: &SideInput<'_>) -> ComparedSide {
    let run = |run: &Run| ComparedRun {
        id: run.header.id.clone(),
        started: run.header.started.clone(),
        seconds: run.seconds,
        is_partial: run.status != RunStatus::Complete,
        foreign: run.header.foreign.clone(),
    };
    let runs = match side.subject {
        ComparisonSubject::Foreign(run, _) => std::slice::from_ref(run),
        subject => subject.runs(),
    };
    ComparedSide { name: side.name.clone(), runs: runs.iter().map(run).collect() }
}

/// A foreign run as what it can be compared as: values without their spread, as those of a published machine. `None` of a run that
/// kelvin measured.
pub fn foreign_reference(run: &Run) -> Option<Reference> {
    let title = program_text(run.header.foreign.as_ref()?);
    let headlines = Headlines::from_run(run);
    let value = |metric: &Metric, case: &Case, value: f64| ReferenceValue {
        metric: metric.id,
        case: case.clone(),
        value,
        cycles: None,
        std: None,
        n: None,
        predicted: None,
        unit: metric.unit,
        range: None,
        note: None,
        other_values: Vec::new(),
    };
    let values = run.header.metrics.iter().flat_map(|metric| {
        headlines.cases(&metric.id).map(|(case, measured)| value(metric, case, measured.value)).collect::<Vec<_>>()
    });
    let machine = &run.header.machine;
    Some(Reference {
        id: Name::intern(&run.header.id),
        title,
        machine: machine.kernel.release.get().map(|release| ("kernel".into(), release.clone())).into_iter().collect(),
        frequency_hz: machine.cpu.measured_hz.get().copied(),
        values: values.collect(),
        findings: Vec::new(),
    })
}
