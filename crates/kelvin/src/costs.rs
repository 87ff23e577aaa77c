//! What rounds are expected to take beside their timing: what they took in earlier runs under the same conditions, or else what a table
//! says.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use kelvin_analysis::{FIRST_ROUND_COST, ROUND_COST, RoundCost, round_costs};
use kelvin_harness::{Cost, Plan, Probe};
use kelvin_model::{Case, Headline, Learned, Machine, Metric, Name, Run, Value};
use kelvin_stats::median;
use kelvin_store::{Kin, Store};

use crate::fault::Fault;

/// So many runs teach what a case takes, on average: what all cases take is a sum, of which the sum of the quickest falls short, and the
/// files that cases share are made by another one of them in each run.
const RUNS: usize = 3;
/// So many known cases tell how much slower this machine is than that of the table.
const TELLING: usize = 8;
/// Axes of a stored cost, beside those of its case.
const PROBE: Name = Name::new("probe");
const CONDITIONS: Name = Name::new("conditions");

/// What makes rounds of one machine take longer at one time than at another, besides what else runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions(Name);

impl Conditions {
    /// Of a machine, so many of its CPUs, and a directory for files.
    pub fn of(machine: &Machine, cpus: usize, directory: &Path) -> Self {
        let quota = quota(machine).map_or_else(|| "all".into(), |quota| quota.to_string());
        let memory = machine
            .limits
            .memory_bytes
            .get()
            .copied()
            .flatten()
            .map_or_else(|| "all".into(), |limit| limit.to_string());
        // A directory that is not there is refused later, with the reason.
        let place = kelvin_sys::fs::identity(directory).unwrap_or(0);
        Self(Name::intern(&format!("cpus={cpus} time={quota} memory={memory} files={place:016x}")))
    }
}

/// Share of one CPU that the quota leaves, if that is less than all.
fn quota(machine: &Machine) -> Option<f64> {
    machine.limits.cpu_quota.get().copied().flatten().filter(|&quota| quota > 0.0 && quota < 1.0)
}

/// What rounds are expected to take.
#[derive(Debug)]
pub struct Costs {
    /// What they took before.
    known: HashMap<(Name, Case), Cost>,
    /// How many times as long as the table says all others are expected to take.
    slowness: f64,
}

impl Costs {
    /// By the table alone.
    pub fn of_table(machine: &Machine) -> Self {
        Self { known: HashMap::new(), slowness: 1.0 / quota(machine).unwrap_or(1.0) }
    }

    /// By earlier runs of a machine under the same conditions, as far as these are in the store.
    ///
    /// # Errors
    /// If the store fails.
    pub fn learned(machine: &Machine, conditions: Conditions, store: &Store) -> Result<Self, Fault> {
        let kin = Kin { machine: &machine.identity, mode: None, but: &[] };
        let means = |metric: Metric| -> Result<HashMap<(Name, Case), Duration>, Fault> {
            let learned = store.learned(&kin, &[metric], RUNS);
            let learned = learned.map_err(|error| Fault::new("cannot learn from earlier runs", error))?;
            let mean = |costs: &[f64]| Duration::from_nanos((costs.iter().sum::<f64>() / costs.len() as f64) as u64);
            let of = |one: Learned| Some((case_under(conditions, &one.case)?, mean(&one.headlines)));
            Ok(learned.into_iter().filter_map(of).collect())
        };
        let (firsts, laters) = (means(FIRST_ROUND_COST)?, means(ROUND_COST)?);
        let both = |(key, later): ((Name, Case), Duration)| {
            let first = *firsts.get(&key)?;
            Some((key, Cost { first, later, known: true }))
        };
        let known: HashMap<(Name, Case), Cost> = laters.into_iter().filter_map(both).collect();
        let probes: HashMap<Name, &Probe> =
            kelvin_probes::all().into_iter().map(|probe| (Name::new(probe.id), probe)).collect();
        let ratio = |((probe, case), cost): (&(Name, Case), &Cost)| {
            let by_table = kelvin_probes::expected_cost(probes.get(probe)?, case);
            Some(cost.later.as_secs_f64() / by_table.as_secs_f64())
        };
        let ratios: Vec<f64> = known.iter().filter_map(ratio).collect();
        let slowness = if ratios.len() < TELLING { Self::of_table(machine).slowness } else { median(&ratios) };
        Ok(Self { known, slowness })
    }

    /// What the rounds of a probe at a case are expected to take beside their timing.
    pub fn of(&self, probe: &Probe, case: &Case) -> Cost {
        let guess = || Cost::guessed(kelvin_probes::expected_cost(probe, case).mul_f64(self.slowness));
        self.before(probe, case).unwrap_or_else(guess)
    }

    /// Where those of most cases of a plan come from, in words.
    pub fn source(&self, plan: &Plan) -> &'static str {
        let known = plan.units.iter().filter(|unit| self.before(unit.probe, &unit.case).is_some()).count();
        if 2 * known > plan.units.len() { "going by earlier runs here" } else { "going by other machines" }
    }

    fn before(&self, probe: &Probe, case: &Case) -> Option<Cost> {
        self.known.get(&(Name::new(probe.id), case.clone())).copied()
    }
}

/// What a run teaches later ones of its rounds.
pub fn taught(run: &Run, conditions: Conditions) -> Vec<Headline> {
    let headlines = |RoundCost { probe, case, first, later }| {
        let beside = [(PROBE, Value::Word(probe)), (CONDITIONS, Value::Word(conditions.0))];
        let case: Case = case.iter().chain(beside).collect();
        [(FIRST_ROUND_COST, first), (ROUND_COST, later)].map(|(metric, value)| Headline {
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
fn case_under(conditions: Conditions, stored: &Case) -> Option<(Name, Case)> {
    let Some(Value::Word(probe)) = stored.get(&PROBE) else { return None };
    (stored.get(&CONDITIONS) == Some(Value::Word(conditions.0))).then_some(())?;
    Some((probe, stored.iter().filter(|(axis, _)| ![PROBE, CONDITIONS].contains(axis)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_harness::Unit;
    use kelvin_model::Fact;

    fn machine(quota: Option<f64>) -> Machine {
        let mut machine = Machine::default();
        machine.limits.cpu_quota = Fact::known(quota, "a test");
        machine
    }

    #[test]
    fn a_cost_is_found_again_under_its_conditions_only() {
        let [all, tenth] = [None, Some(0.1)].map(|quota| Conditions::of(&machine(quota), 2, Path::new("/")));
        assert_ne!(all, tenth);
        assert_ne!(all, Conditions::of(&machine(None), 1, Path::new("/")));
        // More than one CPU slows no round of one.
        assert_eq!(all, Conditions::of(&machine(Some(1.5)), 2, Path::new("/")));
        let case = Case::new().with("bytes", 64);
        let beside = [(PROBE, Value::Word(Name::new("mem.x"))), (CONDITIONS, Value::Word(all.0))];
        let stored: Case = case.iter().chain(beside).collect();
        assert_eq!(case_under(all, &stored), Some((Name::new("mem.x"), case)));
        assert_eq!(case_under(tenth, &stored), None);
    }

    #[test]
    fn what_is_not_known_is_by_the_table_as_slow_as_the_quota_makes_it() {
        let probe = kelvin_probes::all()[0];
        let table = kelvin_probes::expected_cost(probe, &Case::new());
        let of = |quota| Costs::of_table(&machine(quota)).of(probe, &Case::new());
        assert_eq!([None, Some(1.5), Some(0.25)].map(of), [table, table, 4 * table].map(Cost::guessed));
        let before = Cost { first: Duration::from_millis(90), later: Duration::from_millis(7), known: true };
        let known = HashMap::from([((Name::new(probe.id), Case::new()), before)]);
        let costs = Costs { known, slowness: 3.0 };
        assert_eq!(costs.of(probe, &Case::new()), before);
        let unit = |n| Unit::new(probe, if n == 0 { Case::new() } else { Case::new().with("n", n) });
        let source = |units: &[u64]| {
            costs.source(&Plan { units: units.iter().map(|&n| unit(n)).collect(), left_out: Vec::new() })
        };
        assert_eq!((source(&[0]), source(&[0, 1])), ("going by earlier runs here", "going by other machines"));
    }
}
