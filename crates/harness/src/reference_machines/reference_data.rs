//! Machines kept as data, and what is known of metrics besides their formulas.

use std::collections::HashMap;

use kelvin_core::{AxisWord, Case, IndirectSort, Machine, MeasuredValue, Metric, Name, PlannedMeasurement, Value};
use serde::{Deserialize, Serialize};

/// A machine with its figures, kept as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceRecord {
    /// What it is, with its article: `an Intel server core, a virtual machine of two CPUs`.
    pub name: String,
    /// Its facts.
    pub machine: Machine,
    /// Its figures.
    pub figures: Vec<ReferenceHeadline>,
}

/// A figure of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceHeadline {
    /// Id of its metric.
    pub metric: Name,
    /// Its case.
    pub case: Case,
    /// In the metric's unit.
    pub value: f64,
    /// Half-width of its interval, in the metric's unit.
    pub half_width: f64,
}

/// A metric that moves with another from machine to machine, where no formula predicts how.
#[derive(Clone, Copy, Debug)]
pub struct Proxy {
    /// The metric.
    pub metric: &'static Metric,
    /// The words of its cases; none for all cases.
    pub words: &'static [AxisWord],
    /// What it moves with; nothing for the property of a device or a setting, which other machines do not predict.
    pub scales_with: Option<(&'static Metric, ProxyCases)>,
    /// Whether it predicts better than the metric's formula, which then serves only where no other machine is known.
    pub is_preferred: bool,
}

impl Proxy {
    /// Whether it is that of a metric at a case.
    pub fn applies_to(&self, metric: &Metric, case: &Case) -> bool {
        self.metric.id == metric.id && self.words.iter().all(|word| word.is_in_case(case))
    }
}

/// The cases of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyCases {
    /// That of the figure.
    SameCase,
    /// All with these words that both machines have measured, by their geometric mean.
    At(&'static [AxisWord]),
}

impl ProxyCases {
    /// Whether one of a proxy's cases counts for a figure at a case.
    pub(super) fn includes(self, figure_case: &Case, case: &Case) -> bool {
        match self {
            Self::SameCase => case == figure_case,
            Self::At(words) => words.iter().all(|word| word.is_in_case(case)),
        }
    }
}

/// What is known of metrics besides their formulas.
#[derive(Clone, Copy, Debug)]
pub struct ReferenceRules<'a> {
    /// What moves with what.
    pub proxies: &'a [Proxy],
    /// Metrics measured at sizes that follow the machine's caches: a case that a machine has not stands for the one in the same place among
    /// its own, the largest for the largest.
    pub sized_metrics: &'a [&'a Metric],
    /// Metrics whose cases name parts of the machine, such as two of its CPUs: a case stands for all that another machine has, by their
    /// geometric mean.
    pub part_metrics: &'a [&'a Metric],
    /// Whether a metric at a case is what many CPUs do together, which a machine of another number of them does not predict.
    pub takes_all_cpus: fn(&Metric, &Case) -> bool,
    /// Whether a metric at a case takes either of two values on one and the same machine, as a predictor of its core happens to be: its
    /// formula gives both, and other machines show only in which of them they were.
    pub has_modes: fn(&Metric, &Case) -> bool,
}

impl ReferenceRules<'_> {
    /// Nothing is known but formulas.
    pub const NONE: Self = ReferenceRules {
        proxies: &[],
        sized_metrics: &[],
        part_metrics: &[],
        takes_all_cpus: |_, _| false,
        has_modes: |_, _| false,
    };
}

/// The cases of metrics whose sizes follow the machine.
#[derive(Clone, Debug, Default)]
pub struct SizedCases(pub(super) HashMap<Name, Vec<Case>>);

impl SizedCases {
    /// Those of a plan.
    pub(super) fn from_plan(rules: &ReferenceRules<'_>, plan: &[PlannedMeasurement]) -> Self {
        let mut sizes = Self::default();
        let is_sized = |id: &Name| rules.sized_metrics.iter().any(|metric| metric.id == *id);
        for measurement in plan {
            for metric in measurement.metrics.iter().filter(|metric| is_sized(metric)) {
                sizes.0.entry(*metric).or_default().push(measurement.case.clone());
            }
        }
        sizes
    }

    /// What is known of a metric at a case, or at the one in its place.
    pub(super) fn lookup<T: Copy>(&self, metric: &str, case: &Case, values: &[(Case, T)]) -> Option<T> {
        let exactly = values.iter().find(|(known_case, _)| known_case == case).map(|(_, value)| *value);
        exactly.or_else(|| {
            let sized_cases = self.0.iter().find(|(id, _)| **id == *metric)?.1;
            case.iter().find_map(|(axis, _)| {
                let mut planned_cases: Vec<&Case> =
                    sized_cases.iter().filter(|known_case| differ_only_in(axis, known_case, case)).collect();
                let mut measured_cases: Vec<&(Case, T)> =
                    values.iter().filter(|(known_case, _)| differ_only_in(axis, known_case, case)).collect();
                planned_cases.indirect_sort_by_key(|known_case| known_case.get(&axis));
                measured_cases.indirect_sort_by_key(|(known_case, _)| known_case.get(&axis));
                let position = planned_cases.iter().position(|known_case| *known_case == case)?;
                (planned_cases.len() == measured_cases.len()).then(|| measured_cases[position].1)
            })
        })
    }
}

/// Headlines of one machine by metric.
#[derive(Clone, Debug, Default)]
pub struct HeadlineTable {
    pub(super) by_metric: HashMap<Name, Vec<(Case, MeasuredValue)>>,
    sizes: SizedCases,
}

impl HeadlineTable {
    /// Those of a machine that is kept.
    pub fn new(machine: &ReferenceRecord, sizes: SizedCases) -> Self {
        let mut by_metric: HashMap<Name, Vec<(Case, MeasuredValue)>> = HashMap::new();
        for ReferenceHeadline { metric, case, value, half_width } in &machine.figures {
            let value = MeasuredValue { value: *value, half_width: *half_width };
            by_metric.entry(*metric).or_default().push((case.clone(), value));
        }
        Self { by_metric, sizes }
    }

    /// The headline of a metric at a case, or at the one in its place: sizes are not what they were when the machine was measured.
    pub fn lookup(&self, metric: &str, case: &Case) -> Option<MeasuredValue> {
        let cases = self.by_metric.iter().find(|(id, _)| **id == *metric)?.1;
        self.sizes.lookup(metric, case, cases)
    }
}

/// Whether two cases are the same but for the number on one axis, at most.
fn differ_only_in(axis: Name, first: &Case, second: &Case) -> bool {
    let is_number = |case: &Case| matches!(case.get(&axis), Some(Value::Integer(_)));
    let rest = |case: &Case| case.iter().filter(|(name, _)| *name != axis).collect::<Vec<_>>();
    is_number(first) && is_number(second) && rest(first) == rest(second)
}
