//! What rounds are expected to take beside their timing: what they took in earlier runs under the same conditions, or else what a table
//! says.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use kelvin_analysis::{ROUND_COST, round_costs};
use kelvin_harness::{Plan, Probe};
use kelvin_model::{Case, Headline, Machine, Name, Run, Value};
use kelvin_stats::median;
use kelvin_store::{Kin, Store};

use crate::fault::Fault;

/// So many runs teach what a case takes, of which the quickest counts: whatever else ran beside them made them slower.
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
    /// Nanoseconds that they took before.
    known: HashMap<(Name, Case), f64>,
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
        let kin = Kin { machine: &machine.identity, mode: None };
        let learned = store.learned(&kin, &[ROUND_COST], RUNS);
        let learned = learned.map_err(|error| Fault::new("cannot learn from earlier runs", error))?;
        let quickest = |costs: Vec<f64>| costs.into_iter().fold(f64::INFINITY, f64::min);
        let known: HashMap<(Name, Case), f64> = learned
            .into_iter()
            .filter_map(|one| Some((case_under(conditions, &one.case)?, quickest(one.headlines))))
            .collect();
        let ratios: Vec<f64> =
            known.iter().filter_map(|((probe, case), cost)| Some(cost / by_table(*probe, case)?)).collect();
        let slowness = if ratios.len() < TELLING { Self::of_table(machine).slowness } else { median(&ratios) };
        Ok(Self { known, slowness })
    }

    /// What a round of a probe at a case is expected to take beside its timing.
    pub fn of(&self, probe: &Probe, case: &Case) -> Duration {
        match self.before(probe, case) {
            Some(cost) => Duration::from_nanos(cost as u64),
            None => kelvin_probes::expected_cost(probe, case).mul_f64(self.slowness),
        }
    }

    /// Where those of most cases of a plan come from, in words.
    pub fn source(&self, plan: &Plan) -> &'static str {
        let known = plan.units.iter().filter(|unit| self.before(unit.probe, &unit.case).is_some()).count();
        if 2 * known > plan.units.len() { "going by earlier runs here" } else { "going by other machines" }
    }

    fn before(&self, probe: &Probe, case: &Case) -> Option<f64> {
        self.known.get(&(Name::new(probe.id), case.clone())).copied()
    }
}

/// What a run teaches later ones of its rounds.
pub fn taught(run: &Run, conditions: Conditions) -> Vec<Headline> {
    let headline = |(probe, case, value): (Name, Case, f64)| {
        let beside = [(PROBE, Value::Word(probe)), (CONDITIONS, Value::Word(conditions.0))];
        let case = case.iter().chain(beside).collect();
        Headline { metric: ROUND_COST.id, version: ROUND_COST.version, case, value, within_variance: 0.0 }
    };
    round_costs(run).into_iter().map(headline).collect()
}

/// The probe and the case of a stored cost, if it is of these conditions.
fn case_under(conditions: Conditions, stored: &Case) -> Option<(Name, Case)> {
    let Some(Value::Word(probe)) = stored.get(&PROBE) else { return None };
    (stored.get(&CONDITIONS) == Some(Value::Word(conditions.0))).then_some(())?;
    Some((probe, stored.iter().filter(|(axis, _)| ![PROBE, CONDITIONS].contains(axis)).collect()))
}

/// Nanoseconds by the table; `None` for a probe that is gone.
fn by_table(probe: Name, case: &Case) -> Option<f64> {
    let probe = kelvin_probes::all().into_iter().find(|known| probe == *known.id)?;
    Some(kelvin_probes::expected_cost(probe, case).as_nanos() as f64)
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
        assert_eq!((of(None), of(Some(1.5)), of(Some(0.25))), (table, table, 4 * table));
        let known = HashMap::from([((Name::new(probe.id), Case::new()), 7e6)]);
        let costs = Costs { known, slowness: 3.0 };
        assert_eq!(costs.of(probe, &Case::new()), Duration::from_millis(7));
        let unit = |n| Unit::new(probe, if n == 0 { Case::new() } else { Case::new().with("n", n) });
        let source = |units: &[u64]| {
            costs.source(&Plan { units: units.iter().map(|&n| unit(n)).collect(), left_out: Vec::new() })
        };
        assert_eq!((source(&[0]), source(&[0, 1])), ("going by earlier runs here", "going by other machines"));
    }
}
