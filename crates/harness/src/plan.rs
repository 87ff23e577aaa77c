//! The plan of a run: probes at cases, in the order of reports, and what is left out and why.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kelvin_core::units::seconds;
use kelvin_core::{
    Case, Machine, MeasuredValue, Metric, Name, NoPrediction, PlannedMeasurement, SkipReason, Unit as Measure,
};
use strsim::levenshtein;

use crate::budget_fit::{ExpectedCost, UnitCost, as_nanoseconds, over_budget};
use crate::facts::PredictionInputs;
use crate::probe::{Effort, Probe, ProbeKind};
use crate::reference_machines::ReferenceMachines;
use crate::schedule::{EQUAL_PASS_SHARE, MIN_ROUNDS, MIN_SLICE};

/// The overhead of a round of most probes: a process started, set up and ended, and its readings stored.
pub const DEFAULT_ROUND_COST: Duration = Duration::from_millis(5);

/// A probe of more cases than these has so many that each needs no more than the minimum of rounds: a matrix is read as a whole.
const MAX_FULL_CASES: usize = 128;

/// One probe at one case.
#[derive(Clone, Debug)]
pub struct PlanUnit {
    /// The probe.
    pub probe: &'static Probe,
    /// The case.
    pub case: Case,
    /// Whether it is measured only as an input of predictions: then the minimum of rounds is enough.
    pub only_input: bool,
    /// Whether it is one of many points of a matrix, of which the minimum of rounds is enough too.
    pub is_matrix_point: bool,
    /// Units of one block lie next to each other in a pass, since they are compared with each other.
    pub block: u32,
    /// How much it matters where time is short.
    pub rank: PlanRank,
    /// The expected overhead of its rounds.
    pub expected_cost: ExpectedCost,
    /// What its predictions need: metrics, each with a case. Nothing for an input, of which nobody asked for a prediction.
    pub required_inputs: BTreeSet<(Name, Case)>,
}

impl PlanUnit {
    /// A unit that is asked for and of which nothing is known.
    pub fn new(probe: &'static Probe, case: Case) -> Self {
        Self {
            probe,
            case,
            only_input: false,
            is_matrix_point: false,
            block: 0,
            rank: PlanRank::Thorough,
            expected_cost: ExpectedCost::estimated(DEFAULT_ROUND_COST),
            required_inputs: BTreeSet::new(),
        }
    }

    /// Its minimum of rounds, where this is that of the run.
    pub(crate) fn min_rounds(&self, rounds: u32) -> u32 {
        if self.only_input || self.is_matrix_point { rounds.min(MIN_ROUNDS) } else { rounds }
    }

    /// Whether it is asked for, or an input of what is needed.
    fn is_needed(&self, inputs: &BTreeSet<(Name, Case)>) -> bool {
        !self.only_input || self.probe.is_input_of(inputs, &self.case)
    }
}

/// What the predictions of some units need.
fn required_inputs<'u>(units: impl IntoIterator<Item = &'u PlanUnit>) -> BTreeSet<(Name, Case)> {
    units.into_iter().flat_map(|unit| unit.required_inputs.iter().cloned()).collect()
}

/// What plans are made from.
#[derive(Clone, Copy, Debug)]
pub struct PlanContext<'a> {
    /// All probes, in the order of reports.
    pub probes: &'a [&'static Probe],
    /// The machine.
    pub machine: &'a Machine,
    /// What other machines predict of planned figures: a prediction by a figure that moves with it needs that one measured.
    /// Without, predictions are by formulas alone.
    pub references: Option<fn(&Machine, &[PlannedMeasurement]) -> ReferenceMachines>,
}

/// How much a case matters where time is short, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanRank {
    /// A quick run measures it, and an earlier study has published it.
    Baseline,
    /// A quick run measures it.
    Quick,
    /// It is only an input of predictions.
    Input,
    /// A default run measures it, and a quick one does not.
    Default,
    /// Only a thorough run measures it.
    Thorough,
}

impl PlanRank {
    /// The ranks of the cases of a probe that are asked for.
    fn ranks_of_cases(probe: &Probe, machine: &Machine) -> impl Fn(&Case) -> Self {
        let [quick, default_cases] = [Effort::Quick, Effort::Default].map(|effort| (probe.cases)(machine, effort));
        let is_baseline = probe.metrics.iter().any(|metric| metric.baseline);
        // It takes next to no time of its own, and what its first round made is of use to the last ones alone.
        let spans_run = probe.spans_run();
        move |case| match () {
            () if spans_run => Self::Baseline,
            () if quick.contains(case) && is_baseline => Self::Baseline,
            () if quick.contains(case) => Self::Quick,
            () if default_cases.contains(case) => Self::Default,
            () => Self::Thorough,
        }
    }
}

/// The plan of a run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The units, in the order of reports.
    pub units: Vec<PlanUnit>,
    /// What is left out at this effort, with the reason.
    pub omissions: Vec<(&'static Probe, Case, SkipReason)>,
}

/// A name on the command line that selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no probe, metric or area is called '{name}'{}", suggestion(.nearest))]
pub struct UnknownName {
    /// The name.
    pub name: String,
    /// Similar names.
    pub nearest: Vec<String>,
}

impl UnknownName {
    /// The error of a name that selects none of these probes.
    pub fn new(name: &str, probes: &[&'static Probe]) -> Self {
        Self { name: name.to_owned(), nearest: nearest_names(name, probes) }
    }
}

fn suggestion(nearest: &[String]) -> String {
    if nearest.is_empty() {
        "; `kelvin list` shows all".into()
    } else {
        format!("; did you mean {}? `kelvin list` shows all", nearest.join(" or "))
    }
}

impl Plan {
    /// The plan of a run of the probes of one kind that `names` select: ids of probes or metrics, areas, or a prefix of
    /// an id up to a dot; none selects all. It includes the inputs of their predictions, at the cases that those need.
    ///
    /// # Errors
    /// A name that selects nothing.
    pub fn new(
        sources: &PlanContext<'_>,
        kind: ProbeKind,
        names: &[String],
        effort: Effort,
    ) -> Result<Self, UnknownName> {
        let PlanContext { probes, machine, .. } = *sources;
        let eligible: Vec<&'static Probe> = probes.iter().copied().filter(|probe| probe.kind == kind).collect();
        for name in names {
            if !eligible.iter().any(|probe| probe.is_selected_by(name)) {
                // Both kinds are run by their names.
                let named_kinds = [ProbeKind::Measure, ProbeKind::Study];
                let is_selectable =
                    |other: ProbeKind| other == kind || named_kinds.contains(&kind) && named_kinds.contains(&other);
                let candidates: Vec<&'static Probe> =
                    probes.iter().copied().filter(|probe| is_selectable(probe.kind)).collect();
                return Err(UnknownName::new(name, &candidates));
            }
        }
        let is_requested = |probe: &Probe| {
            probe.kind == kind && (names.is_empty() || names.iter().any(|name| probe.is_selected_by(name)))
        };
        let probe_units = |probe: &&'static Probe| {
            let (probe, rank) = (*probe, PlanRank::ranks_of_cases(probe, machine));
            let cases = (probe.cases)(machine, effort);
            // What a quick run measures as well is more than a point among others.
            let is_matrix_point = |rank| cases.len() > MAX_FULL_CASES && rank > PlanRank::Quick;
            let unit = |case: &Case| {
                let rank = rank(case);
                PlanUnit { rank, is_matrix_point: is_matrix_point(rank), ..PlanUnit::new(probe, case.clone()) }
            };
            cases.iter().map(unit).collect::<Vec<_>>()
        };
        let mut plan = Self { units: Vec::new(), omissions: Vec::new() };
        plan.units = probes.iter().filter(|probe| is_requested(probe)).flat_map(probe_units).collect();
        // A study rests on points that a plain run leaves out, and has the time for them, also a quick one.
        let input_effort = if kind == ProbeKind::Study { Effort::Thorough } else { effort };
        let may_be_input = |probe: &Probe| matches!(probe.kind, ProbeKind::Measure | ProbeKind::Study);
        let possible_inputs = probes.iter().filter(|probe| !is_requested(probe) && may_be_input(probe));
        let other_cases = possible_inputs.flat_map(|probe| metric_cases(probe, (probe.cases)(machine, input_effort)));
        let planned_cases = plan.units.iter().flat_map(|unit| metric_cases(unit.probe, [unit.case.clone()]));
        let available: BTreeSet<(Name, Case)> = other_cases.chain(planned_cases).collect();
        let required = plan.resolve_inputs(sources, &available);
        let mut requested_units = std::mem::take(&mut plan.units).into_iter().peekable();
        for probe in probes.iter().copied() {
            if is_requested(probe) {
                plan.units.extend(std::iter::from_fn(|| requested_units.next_if(|unit| unit.probe.id == probe.id)));
            } else if may_be_input(probe) {
                // Cases take time to make: first whether any metric is asked for.
                let metrics = || probe.metrics.iter().any(|metric| required.iter().any(|(id, _)| *id == metric.id));
                let cases = if metrics() { (probe.cases)(machine, input_effort) } else { Vec::new() };
                let unit = |case| PlanUnit { only_input: true, rank: PlanRank::Input, ..PlanUnit::new(probe, case) };
                plan.units.extend(cases.into_iter().filter(|case| probe.is_input_of(&required, case)).map(unit));
            }
        }
        for probe in eligible.iter().copied().filter(|probe| effort < Effort::Default && is_requested(probe)) {
            let [selected, default_cases] = [effort, Effort::Default].map(|effort| (probe.cases)(machine, effort));
            let reason = || SkipReason::new("omitted by --quick; a default run measures it");
            let omitted = default_cases.into_iter().filter(|case| !selected.contains(case));
            plan.omissions.extend(omitted.map(|case| (probe, case, reason())));
        }
        Ok(plan)
    }

    /// Notes what the predictions of each unit need, and returns all of it. What those of inputs need does not count: nobody asked for an
    /// input's own prediction. Of the figures that can be had at this effort: a formula that has no other one may go by another input.
    fn resolve_inputs(
        &mut self,
        sources: &PlanContext<'_>,
        available: &BTreeSet<(Name, Case)>,
    ) -> BTreeSet<(Name, Case)> {
        let PlanContext { probes, machine, references } = *sources;
        let references = references.map(|read| read(machine, &self.measurements()));
        let requested = RefCell::new(BTreeSet::new());
        let lookup = |id: &str, case: &Case| {
            let figure = (Name::intern(id), case.clone());
            available.contains(&figure).then(|| requested.borrow_mut().insert(figure))?;
            placeholder_value(probes, id)
        };
        for unit in &mut self.units {
            let facts = PredictionInputs::new(machine, &lookup);
            let facts = references.iter().fold(facts, |facts, references| facts.with_references(references));
            for metric in unit.probe.metrics.iter().filter(|metric| metric.is_measured_at(&unit.case)) {
                // Only what it asks for counts; whether there is a prediction is known once everything is measured.
                let _ = facts.predict(metric, &unit.case, unit.probe.predict);
            }
            unit.required_inputs = requested.take();
        }
        required_inputs(&self.units)
    }

    /// The figures that are asked for and that no formula predicts, whether or not its inputs are measured, with the reason.
    pub fn without_formula(
        &self,
        probes: &[&'static Probe],
        machine: &Machine,
    ) -> Vec<(&'static Metric, Case, NoPrediction)> {
        let lookup = |id: &str, _: &Case| placeholder_value(probes, id);
        let facts = PredictionInputs::new(machine, &lookup);
        let reasons = |unit: &PlanUnit| {
            let (probe, case) = (unit.probe, unit.case.clone());
            let metrics = probe.metrics.iter().copied().filter(|metric| metric.is_measured_at(&case));
            let reason = |metric| Some((metric, case.clone(), (probe.predict)(&facts, metric, &case).err()?));
            metrics.filter_map(reason).collect::<Vec<_>>()
        };
        self.units.iter().filter(|unit| !unit.only_input).flat_map(reasons).collect()
    }

    /// This plan with these cases only of what was asked for, and with no more inputs than their predictions need, which may be cases of
    /// the same probe.
    #[must_use]
    pub fn retain_cases(mut self, is_selected: impl Fn(&Case) -> bool) -> Self {
        for unit in self.units.iter_mut().filter(|unit| !unit.only_input && !is_selected(&unit.case)) {
            // Nobody asks for an input's own prediction.
            (unit.only_input, unit.rank, unit.required_inputs) = (true, PlanRank::Input, BTreeSet::new());
        }
        self.omissions.retain(|(_, case, _)| is_selected(case));
        let inputs = required_inputs(&self.units);
        self.units.retain(|unit| unit.is_needed(&inputs));
        self
    }

    /// This plan with other cases of some probes, each once: of what is asked for, and of what predictions of these probes need of them. A
    /// former case stays as an input where the prediction of another probe needs it.
    #[must_use]
    pub fn change_cases(mut self, is_changed: impl Fn(&Probe) -> bool, change: impl Fn(&Case) -> Case) -> Self {
        let changed_probes = self.units.iter().map(|unit| unit.probe).filter(|probe| is_changed(probe));
        let metrics: BTreeSet<Name> = changed_probes.flat_map(|probe| probe.metrics).map(|metric| metric.id).collect();
        for mut unit in std::mem::take(&mut self.units) {
            if is_changed(unit.probe) {
                let input = |(id, case): (Name, Case)| (id, if metrics.contains(&id) { change(&case) } else { case });
                let required_inputs = std::mem::take(&mut unit.required_inputs).into_iter().map(input).collect();
                let case = change(&unit.case);
                let former_input = PlanUnit { only_input: true, rank: PlanRank::Input, ..unit.clone() };
                unit = PlanUnit { case, required_inputs, ..unit };
                self.units.extend((former_input.case != unit.case).then_some(former_input));
            }
            self.units.push(unit);
        }
        self.omissions.iter_mut().filter(|(probe, ..)| is_changed(probe)).for_each(|(_, case, _)| *case = change(case));
        // Without the former cases that nothing needs.
        Self::default().merge(self.retain_cases(|_| true))
    }

    /// This plan with what fits into this time, each case with this many rounds: by their rank, and among equals first one case of each
    /// probe, then the next of each. What does not fit is left out, and the inputs that only its predictions need are: they keep nothing
    /// out.
    #[must_use]
    pub fn fit_to_budget(mut self, time: Duration, rounds: u32) -> Self {
        let full_duration = self.expected_duration(rounds).div_f64(EQUAL_PASS_SHARE);
        let budget = EQUAL_PASS_SHARE * as_nanoseconds(time);
        let excluded_units = self.units_over_budget(self.unit_costs(rounds), budget);
        let reason = SkipReason::new(format!(
            "no time for it after what is more important; all cases take about {}",
            seconds(full_duration.as_secs_f64())
        ));
        for (index, unit) in std::mem::take(&mut self.units).into_iter().enumerate() {
            if !excluded_units.contains(&index) {
                self.units.push(unit);
            } else if !unit.only_input {
                self.omissions.push((unit.probe, unit.case, reason.clone()));
            }
        }
        self
    }

    /// The units that do not fit into a budget in nanoseconds, and the inputs that only they need.
    fn units_over_budget(&self, mut costs: Vec<UnitCost>, budget: f64) -> BTreeSet<usize> {
        let mut unneeded_inputs = BTreeSet::new();
        loop {
            let excluded_units: BTreeSet<usize> =
                over_budget(&costs, budget, budget).into_iter().chain(unneeded_inputs.clone()).collect();
            let remaining_units = || (0..self.units.len()).filter(|index| !excluded_units.contains(index));
            let inputs = required_inputs(remaining_units().map(|index| &self.units[index]));
            let newly_unneeded: Vec<usize> =
                remaining_units().filter(|&index| !self.units[index].is_needed(&inputs)).collect();
            if newly_unneeded.is_empty() {
                return excluded_units;
            }
            newly_unneeded.iter().for_each(|&index| costs[index].remaining = 0.0);
            unneeded_inputs.extend(newly_unneeded);
        }
    }

    /// This plan with the expected overhead of the rounds of each unit.
    #[must_use]
    pub fn with_expected_costs(mut self, expected: impl Fn(&Probe, &Case) -> ExpectedCost) -> Self {
        self.units.iter_mut().for_each(|unit| unit.expected_cost = expected(unit.probe, &unit.case));
        self
    }

    /// What this many rounds of everything are expected to take.
    pub fn expected_duration(&self, rounds: u32) -> Duration {
        Duration::from_nanos(self.unit_costs(rounds).iter().map(|cost| cost.remaining).sum::<f64>() as u64)
    }

    /// What this many rounds of each unit are expected to need.
    fn unit_costs(&self, rounds: u32) -> Vec<UnitCost> {
        let unit_cost = |(unit, priority): (&PlanUnit, usize)| {
            let rounds = unit.min_rounds(rounds);
            let time = unit.expected_cost.total_for_rounds(rounds) + f64::from(rounds) * MIN_SLICE;
            UnitCost { priority, total: time, remaining: time }
        };
        self.units.iter().zip(self.priorities()).map(unit_cost).collect()
    }

    /// The place of each unit in the order of importance: by rank; among equals the first case of each probe comes before the second
    /// of any, since a few points of every curve show more than all of one.
    pub(crate) fn priorities(&self) -> Vec<usize> {
        let mut case_counts: BTreeMap<(&str, PlanRank), usize> = BTreeMap::new();
        let mut order: Vec<(PlanRank, usize, usize)> = Vec::new();
        for (index, unit) in self.units.iter().enumerate() {
            let nth = case_counts.entry((unit.probe.id, unit.rank)).or_default();
            order.push((unit.rank, *nth, index));
            *nth += 1;
        }
        order.sort_unstable();
        let mut priorities = vec![0; self.units.len()];
        order.iter().enumerate().for_each(|(priority, &(.., index))| priorities[index] = priority);
        priorities
    }

    /// This plan with the units that are asked for in blocks, by their cases.
    #[must_use]
    pub fn with_blocks(mut self, block: impl Fn(&Case) -> u32) -> Self {
        self.units.iter_mut().filter(|unit| !unit.only_input).for_each(|unit| unit.block = block(&unit.case));
        self
    }

    /// This plan merged with another. What both measure is measured once, in full if either does so.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        for unit in other.units {
            let is_same_unit =
                |existing: &&mut PlanUnit| existing.probe.id == unit.probe.id && existing.case == unit.case;
            match self.units.iter_mut().find(is_same_unit) {
                Some(existing) => {
                    existing.only_input &= unit.only_input;
                    existing.rank = existing.rank.min(unit.rank);
                    existing.required_inputs.extend(unit.required_inputs);
                }
                None => self.units.push(unit),
            }
        }
        let is_measured =
            |probe: &Probe, case: &Case| self.units.iter().any(|unit| unit.probe.id == probe.id && unit.case == *case);
        self.omissions.extend(other.omissions);
        let mut omitted = BTreeSet::new();
        self.omissions.retain(|(probe, case, _)| !is_measured(probe, case) && omitted.insert((probe.id, case.clone())));
        self
    }

    /// The definitions of all its metrics, each once, in the order of reports.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics: Vec<Metric> = Vec::new();
        let probes = self.units.iter().map(|unit| unit.probe).chain(self.omissions.iter().map(|(probe, ..)| *probe));
        for metric in probes.flat_map(|probe| probe.metrics) {
            if !metrics.iter().any(|existing| existing.id == metric.id) {
                metrics.push(**metric);
            }
        }
        metrics
    }

    /// The plan as it is stored with the run; what is left out is part of it.
    pub fn measurements(&self) -> Vec<PlannedMeasurement> {
        let entry = |unit: &PlanUnit| planned_entry(unit.probe, &unit.case, unit.only_input);
        let mut planned_measurements: Vec<PlannedMeasurement> = self.units.iter().map(entry).collect();
        for (probe, case, _) in &self.omissions {
            let last = planned_measurements.iter().rposition(|entry| *entry.probe == *probe.id);
            let index = last.map_or(planned_measurements.len(), |index| index + 1);
            planned_measurements.insert(index, planned_entry(probe, case, false));
        }
        planned_measurements
    }
}

/// What a probe measures at these cases.
fn metric_cases(probe: &'static Probe, cases: impl IntoIterator<Item = Case>) -> Vec<(Name, Case)> {
    let case_metrics = |case: Case| {
        let metrics = probe.metrics.iter().filter(|metric| metric.is_measured_at(&case));
        metrics.map(|metric| (metric.id, case.clone())).collect::<Vec<_>>()
    };
    cases.into_iter().flat_map(case_metrics).collect()
}

/// The probes whose metrics the predictions of a probe ask for on a machine, in the order of reports.
pub fn input_probes(probe: &Probe, probes: &[&'static Probe], machine: &Machine) -> Vec<&'static str> {
    let requested = RefCell::new(BTreeSet::new());
    let lookup = |id: &str, _: &Case| {
        requested.borrow_mut().insert(Name::intern(id));
        placeholder_value(probes, id)
    };
    let facts = PredictionInputs::new(machine, &lookup);
    for case in (probe.cases)(machine, Effort::Thorough) {
        for metric in probe.metrics {
            // Only what it asks for counts.
            let _ = (probe.predict)(&facts, metric, &case);
        }
    }
    let requested = requested.into_inner();
    let is_input = |candidate: &&&'static Probe| candidate.metrics.iter().any(|metric| requested.contains(&metric.id));
    probes.iter().filter(|candidate| candidate.id != probe.id).filter(is_input).map(|candidate| candidate.id).collect()
}

/// A plausible value, so that a prediction goes on to its next input.
fn placeholder_value(probes: &[&'static Probe], id: &str) -> Option<MeasuredValue> {
    let metric = probes.iter().flat_map(|probe| probe.metrics).find(|metric| metric.id == *id)?;
    let value = match metric.unit {
        Measure::Nanoseconds => 100.0,
        Measure::Cycles => 400.0,
        Measure::Hertz => 4e9,
        Measure::Bytes => 4096.0,
        Measure::BytesPerSecond => 1e10,
        Measure::PerSecond => 1e7,
        Measure::Ratio => 0.5,
        Measure::Count => 2.0,
    };
    Some(MeasuredValue { value, half_width: 0.0 })
}

fn planned_entry(probe: &Probe, case: &Case, only_input: bool) -> PlannedMeasurement {
    let metrics = probe.metrics.iter().filter(|metric| metric.is_measured_at(case)).map(|metric| metric.id).collect();
    PlannedMeasurement { probe: Name::new(probe.id), metrics, case: case.clone(), only_input }
}

/// Up to three ids or leading parts of ids similar to a name, in upper or lower case; the one that is the same but for its case alone.
fn nearest_names(name: &str, probes: &[&'static Probe]) -> Vec<String> {
    let name = &name.to_lowercase();
    let ids =
        |probe: &&'static Probe| std::iter::once(probe.id).chain(probe.metrics.iter().map(|metric| metric.id.as_str()));
    let parts = |id: &'static str| id.match_indices('.').map(move |(end, _)| &id[..end]).chain([id]);
    let mut candidates: Vec<(usize, &str)> = probes
        .iter()
        .flat_map(ids)
        .flat_map(parts)
        .map(|id| (levenshtein(name, id).min(levenshtein(name, id.rsplit('.').next().unwrap_or(id)) + 1), id))
        .filter(|&(distance, _)| distance <= 1 + name.len() / 4)
        .collect();
    candidates.sort_unstable();
    candidates.dedup();
    let max_names = if candidates.first().is_some_and(|&(distance, _)| distance == 0) { 1 } else { 3 };
    candidates.into_iter().take(max_names).map(|(_, id)| id.to_owned()).collect()
}

#[cfg(test)]
mod tests;
