//! Two sides compared, each of one run or several: what differs, figure by figure and besides.
//!
//! A verdict holds for the whole report: that any figure of an unchanged machine is called better or worse is rare, however many
//! figures there are. For that, the error of a ratio has what differs from run to run, learned from earlier runs or else assumed;
//! what the core's frequency explains is no difference of a figure; and errors are widened where most figures differ by more than
//! theirs.

mod causes;
mod differences;
mod gate;
mod in_turn;
mod judge;
mod ladder;
mod series;
mod verdicts;

use kelvin_model::{COMPARE_FORMAT, ComparedRun, ComparedSide, Comparison, Learned, Reference, Run, RunStatus};
use kelvin_stats::median;

use self::differences::Known;
pub use self::differences::what_differs;
pub use self::gate::Gate;
pub use self::in_turn::{MeasuredInTurn, Turns, compare_in_turn};
use self::judge::Judge;
use self::series::{Series, at_one_frequency, pairs};

/// One side of a comparison.
#[derive(Clone, Debug)]
pub struct SideOf<'a> {
    /// As it was asked for.
    pub name: String,
    /// What it is.
    pub of: Subject<'a>,
}

/// What can be compared.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// Runs, oldest first, at least one.
    Runs(&'a [Run]),
    /// A published machine.
    Published(&'a Reference),
    /// A run that another program made, and what [`reference::foreign`](crate::reference::foreign) makes of it.
    Foreign(&'a Run, &'a Reference),
}

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Compare<'a> {
    /// What is compared with.
    pub base: SideOf<'a>,
    /// What is compared.
    pub other: SideOf<'a>,
    /// What other runs of the machine say of the spread from run to run: it counts before what the runs themselves knew, which may have
    /// been made before there were any, and may count one another.
    pub learned: &'a [Learned],
    /// The same of the headlines over [`STEADY_CHAIN`](crate::STEADY_CHAIN) in each of those runs, for what is a fixed number of core cycles.
    pub learned_in_cycles: &'a [Learned],
    /// Share by which a figure must differ to be better or worse.
    pub threshold: f64,
}

impl Compare<'_> {
    /// Compares them.
    pub fn compare(&self) -> Comparison {
        let sides = [&self.base, &self.other];
        let mut series = sides.map(|side| Series::of_side(side.of));
        // Of another machine the frequency is part of what makes it faster or slower.
        let frequency = if self.is_of_one_machine() { at_one_frequency(&mut series) } else { None };
        let clocks = series[0].hertz.zip(series[1].hertz).map(<[f64; 2]>::from);
        let (pairs, mut not_compared) = pairs(&series);
        let judge = Judge::new(self, clocks);
        let (figures, inflation) = judge.judge(&series, &pairs, &mut not_compared);
        let goodness: Vec<f64> = figures.iter().filter_map(verdicts::times_as_good).collect();
        let [base, other] = sides.map(described);
        Comparison {
            compare_format: COMPARE_FORMAT,
            base,
            other,
            threshold: self.threshold,
            differences: differences::between(
                &sides.map(|side| side.of.known()),
                series.each_ref().map(|one| one.slowed),
            ),
            clocks,
            frequency,
            middle: (!goodness.is_empty()).then(|| median(&goodness)),
            inflation,
            figures,
            not_compared,
            ladder: Vec::new(),
            in_turn: None,
            gated: None,
        }
    }

    /// Whether all runs of both sides are of one machine.
    fn is_of_one_machine(&self) -> bool {
        let runs = [self.base.of, self.other.of].into_iter().flat_map(Subject::runs);
        let machines: Vec<&str> = runs.map(|run| run.outline.machine.identity.as_str()).collect();
        machines.windows(2).all(|pair| pair[0] == pair[1])
    }
}

impl<'a> Subject<'a> {
    /// What is known of it besides its figures.
    fn known(self) -> Known<'a> {
        match self {
            Self::Runs(runs) => Known::Runs(runs.iter().map(|run| &run.outline).collect()),
            Self::Published(reference) => Known::Published(reference),
            Self::Foreign(run, _) => Known::Foreign(&run.outline),
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

fn described(side: &SideOf<'_>) -> ComparedSide {
    let run = |run: &Run| ComparedRun {
        id: run.outline.id.clone(),
        started: run.outline.started.clone(),
        seconds: run.seconds,
        is_partial: run.status != RunStatus::Complete,
        foreign: run.outline.foreign.clone(),
    };
    let runs = match side.of {
        Subject::Foreign(one, _) => std::slice::from_ref(one),
        of => of.runs(),
    };
    ComparedSide { name: side.name.clone(), runs: runs.iter().map(run).collect() }
}
