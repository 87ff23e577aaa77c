//! The expected duration of rounds without their timing. It comes from earlier runs under the same conditions,
//! or else from a table.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use kelvin_analysis::{FIRST_ROUND_COST, ROUND_COST, RoundCost, round_costs};
use kelvin_core::{Case, Machine, Metric, Name, Run, SpreadHistory, StoredHeadline, Value};
use kelvin_harness::{ExpectedCost, Plan, Probe};
use kelvin_stats::median;
use kelvin_store::{HistoryFilter, Store};

use crate::cli_error::{CliError, Context};

/// Runs that a mean cost of a case needs. A sum over cases must be one of means: the sum of the quickest falls short of it.
/// Files that cases share are made by another one of them in each run.
const MIN_LEARNED_RUNS: usize = 3;
/// Known cases that a ratio of this machine to that of the table needs.
const MIN_KNOWN_CASES: usize = 8;
/// Axes of a stored cost, in addition to those of its case.
const PROBE_AXIS: Name = Name::new("probe");
const CONDITIONS_AXIS: Name = Name::new("conditions");

/// What makes rounds of one machine take longer at one time than at another, besides what else runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostConditions(Name);

impl CostConditions {
    /// Of a machine, this many of its CPUs, and a directory for files.
    pub fn new(machine: &Machine, cpus: usize, directory: &Path) -> Self {
        let quota = cpu_quota_share(machine).map_or_else(|| "all".into(), |quota| quota.to_string());
        let memory = machine.limits.memory_bytes.get().copied().flatten();
        let memory = memory.map_or_else(|| "all".into(), |limit| limit.to_string());
        // A directory that is not there is refused later, with the reason.
        let file_system = kelvin_sys::fs::file_system_id(directory).unwrap_or(0);
        Self(Name::intern(&format!("cpus={cpus} time={quota} memory={memory} files={file_system:016x}")))
    }
}

/// Share of one CPU that the quota leaves, if that is less than all.
fn cpu_quota_share(machine: &Machine) -> Option<f64> {
    machine.limits.cpu_quota.get().copied().flatten().filter(|&quota| quota > 0.0 && quota < 1.0)
}

/// What rounds are expected to take.
#[derive(Debug)]
pub struct Costs {
    /// Costs in earlier runs.
    costs_by_case: HashMap<(Name, Case), ExpectedCost>,
    /// Factor by which all other cases take longer than in the table.
    slowness: f64,
}

impl Costs {
    /// By the table alone.
    pub fn from_table(machine: &Machine) -> Self {
        Self { costs_by_case: HashMap::new(), slowness: 1.0 / cpu_quota_share(machine).unwrap_or(1.0) }
    }

    /// By earlier runs of a machine under the same conditions, as far as these are in the store.
    ///
    /// # Errors
    /// If the store fails.
    pub fn from_store(machine: &Machine, conditions: CostConditions, store: &Store) -> Result<Self, CliError> {
        let filter = HistoryFilter { machine: &machine.identity, mode: None, excluded: &[] };
        let means = |metric: Metric| -> Result<HashMap<(Name, Case), Duration>, CliError> {
            let history = store.spread_history(&filter, &[metric], MIN_LEARNED_RUNS);
            let history = history.context("cannot learn from earlier runs")?;
            let mean = |costs: &[f64]| Duration::from_nanos((costs.iter().sum::<f64>() / costs.len() as f64) as u64);
            let cost =
                |spread: SpreadHistory| Some((parse_stored_case(conditions, &spread.case)?, mean(&spread.headlines)));
            Ok(history.into_iter().filter_map(cost).collect())
        };
        let (firsts, laters) = (means(FIRST_ROUND_COST)?, means(ROUND_COST)?);
        let cost = |(key, later): ((Name, Case), Duration)| {
            let first = *firsts.get(&key)?;
            Some((key, ExpectedCost { first, later, is_measured: true }))
        };
        let costs_by_case: HashMap<(Name, Case), ExpectedCost> = laters.into_iter().filter_map(cost).collect();
        let probes: HashMap<Name, &Probe> =
            kelvin_probes::all().into_iter().map(|probe| (Name::new(probe.id), probe)).collect();
        let ratio = |((probe, case), cost): (&(Name, Case), &ExpectedCost)| {
            let table_cost = kelvin_probes::expected_cost(probes.get(probe)?, case);
            Some(cost.later.as_secs_f64() / table_cost.as_secs_f64())
        };
        let ratios: Vec<f64> = costs_by_case.iter().filter_map(ratio).collect();
        let slowness =
            if ratios.len() < MIN_KNOWN_CASES { Self::from_table(machine).slowness } else { median(&ratios) };
        Ok(Self { costs_by_case, slowness })
    }

    /// The expected cost of the rounds of a probe at a case, without their timing.
    pub fn expected_cost(&self, probe: &Probe, case: &Case) -> ExpectedCost {
        let guess = || ExpectedCost::estimated(kelvin_probes::expected_cost(probe, case).mul_f64(self.slowness));
        self.measured_cost(probe, case).unwrap_or_else(guess)
    }

    /// Where those of most cases of a plan come from, in words.
    pub fn source(&self, plan: &Plan) -> &'static str {
        let measured_count =
            plan.units.iter().filter(|unit| self.measured_cost(unit.probe, &unit.case).is_some()).count();
        if 2 * measured_count > plan.units.len() { "going by earlier runs here" } else { "going by other machines" }
    }

    fn measured_cost(&self, probe: &Probe, case: &Case) -> Option<ExpectedCost> {
        self.costs_by_case.get(&(Name::new(probe.id), case.clone())).copied()
    }
}

/// The costs of a run's rounds, for the plans of later runs.
pub fn costs_to_store(run: &Run, conditions: CostConditions) -> Vec<StoredHeadline> {
    let headlines = |RoundCost { probe, case, first, later }| {
        let axes = [(PROBE_AXIS, Value::Word(probe)), (CONDITIONS_AXIS, Value::Word(conditions.0))];
        let case: Case = case.iter().chain(axes).collect();
        [(FIRST_ROUND_COST, first), (ROUND_COST, later)].map(|(metric, value)| StoredHeadline {
            metric: metric.id,
            version: metric.version,
            case: case.clone(),
            value,
            within_variance: 0.0,
        })
    };
    round_costs(run).into_iter().flat_map(headlines).collect()
}

/// The probe and the case of a stored cost, if it is of these conditions.
fn parse_stored_case(conditions: CostConditions, stored_case: &Case) -> Option<(Name, Case)> {
    let Some(Value::Word(probe)) = stored_case.get(&PROBE_AXIS) else { return None };
    (stored_case.get(&CONDITIONS_AXIS) == Some(Value::Word(conditions.0))).then_some(())?;
    Some((probe, stored_case.iter().filter(|(axis, _)| ![PROBE_AXIS, CONDITIONS_AXIS].contains(axis)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_core::Fact;
    use kelvin_harness::PlanUnit;

    fn machine(quota: Option<f64>) -> Machine {
        let mut machine = Machine::default();
        machine.limits.cpu_quota = Fact::known(quota, "a test");
        machine
    }

    #[test]
    fn stored_cost_needs_equal_conditions() {
        let [unlimited, limited] =
            [None, Some(0.1)].map(|quota| CostConditions::new(&machine(quota), 2, Path::new("/")));
        assert_ne!(unlimited, limited);
        assert_ne!(unlimited, CostConditions::new(&machine(None), 1, Path::new("/")));
        // More than one CPU slows no round of one.
        assert_eq!(unlimited, CostConditions::new(&machine(Some(1.5)), 2, Path::new("/")));
        let case = Case::new().with_number("bytes", 64);
        let axes = [(PROBE_AXIS, Value::Word(Name::new("mem.x"))), (CONDITIONS_AXIS, Value::Word(unlimited.0))];
        let stored_case: Case = case.iter().chain(axes).collect();
        assert_eq!(parse_stored_case(unlimited, &stored_case), Some((Name::new("mem.x"), case)));
        assert_eq!(parse_stored_case(limited, &stored_case), None);
    }

    #[test]
    fn table_costs_scale_with_cpu_quota() {
        let probe = kelvin_probes::all()[0];
        let table = kelvin_probes::expected_cost(probe, &Case::new());
        let cost_at_quota = |quota| Costs::from_table(&machine(quota)).expected_cost(probe, &Case::new());
        assert_eq!(
            [None, Some(1.5), Some(0.25)].map(cost_at_quota),
            [table, table, 4 * table].map(ExpectedCost::estimated)
        );
        let earlier_cost =
            ExpectedCost { first: Duration::from_millis(90), later: Duration::from_millis(7), is_measured: true };
        let costs_by_case = HashMap::from([((Name::new(probe.id), Case::new()), earlier_cost)]);
        let costs = Costs { costs_by_case, slowness: 3.0 };
        assert_eq!(costs.expected_cost(probe, &Case::new()), earlier_cost);
        let unit = |n| PlanUnit::new(probe, if n == 0 { Case::new() } else { Case::new().with_number("n", n) });
        let source = |units: &[u64]| {
            costs.source(&Plan { units: units.iter().map(|&n| unit(n)).collect(), omissions: Vec::new() })
        };
        assert_eq!((source(&[0]), source(&[0, 1])), ("going by earlier runs here", "going by other machines"));
    }
}
