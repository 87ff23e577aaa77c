//! Simulated histories: values of one figure, a run each, of which it is known where they step, drift, or do neither.
#![allow(dead_code)] // the table and the test each use their part

use kelvin_stats::Random;

/// What a figure does over its runs, in standard deviations of what differs from run to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scenario {
    /// Nothing; independent normal values.
    Steady,
    /// Nothing; Student's t with 3 degrees of freedom.
    HeavyTails,
    /// Nothing; one run in twelve is off by ten, to one side.
    Outliers,
    /// Nothing; the machine is in one of two states, eight apart, the second in one run of four.
    TwoStates,
    /// Nothing; 0.4 of what differs is left at the next run.
    Lasting,
    /// A step of so much, this many runs before the end.
    Step(f64, usize),
    /// Like `Step`, with one run in twelve off by ten.
    StepAmongOutliers(f64, usize),
    /// A step up by so much after a third, and back after two.
    UpAndBack(f64),
    /// A rise by so much, even over all runs.
    Drift(f64),
}

impl Scenario {
    /// A history of this many runs.
    pub fn values(self, runs: usize, random: &mut Random) -> Vec<f64> {
        let mut state = random.normal();
        (0..runs).map(|run| 100.0 + self.level(run, runs) + self.noise(&mut state, random)).collect()
    }

    /// Where it steps.
    pub fn steps(self, runs: usize) -> Vec<usize> {
        match self {
            Self::Step(_, after) | Self::StepAmongOutliers(_, after) => vec![runs - after],
            Self::UpAndBack(_) => vec![runs / 3, 2 * runs / 3],
            _ => Vec::new(),
        }
    }

    fn level(self, run: usize, runs: usize) -> f64 {
        match self {
            Self::Step(height, after) | Self::StepAmongOutliers(height, after) if run + after >= runs => height,
            Self::UpAndBack(height) if (runs / 3..2 * runs / 3).contains(&run) => height,
            Self::Drift(rise) => rise * run as f64 / (runs - 1) as f64,
            _ => 0.0,
        }
    }

    fn noise(self, state: &mut f64, random: &mut Random) -> f64 {
        let normal = random.normal();
        let rare_shift =
            |random: &mut Random, share: f64, shift: f64| if random.uniform() < share { shift } else { 0.0 };
        match self {
            Self::HeavyTails => {
                let squares: f64 = (0..3).map(|_| random.normal().powi(2)).sum();
                normal / (squares / 3.0).sqrt()
            }
            Self::Outliers | Self::StepAmongOutliers(..) => normal + rare_shift(random, 1.0 / 12.0, 10.0),
            Self::TwoStates => normal + rare_shift(random, 0.25, 8.0),
            Self::Lasting => {
                const PERSISTENCE: f64 = 0.4;
                *state = PERSISTENCE * *state + (1.0 - PERSISTENCE * PERSISTENCE).sqrt() * normal;
                *state
            }
            _ => normal,
        }
    }
}
