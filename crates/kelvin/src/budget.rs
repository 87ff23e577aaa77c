//! The time of a run: whether it yields or its cases do, which of them fit, and what is said of that before the run starts.

use std::collections::BTreeMap;
use std::time::Duration;

use kelvin_harness::{Limit, Plan, Room};
use kelvin_model::units::seconds;

use crate::cli::MINIMUM;
use crate::costs::Costs;
use crate::fault::Fault;
use crate::gaps;
use crate::measure::Wishes;
use crate::output;

/// Reading the machine and calibrating the clock take about this long before the first round.
pub const BEFORE: Duration = Duration::from_millis(300);
/// Analysis, table and page take this long after the last round, and so much longer for each case.
const AFTER: Duration = Duration::from_millis(60);
const AFTER_EACH: Duration = Duration::from_millis(1);

/// The time of a run.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Seconds of the whole run.
    pub seconds: f64,
    /// What yields where they are too few.
    pub limit: Limit,
    /// The part of them for trying the causes of gaps.
    pub causes: Duration,
}

/// A plan and its time.
pub struct Fitted {
    /// What fits.
    pub plan: Plan,
    /// The time.
    pub budget: Budget,
    /// What does not, in words.
    left_out: Vec<String>,
    /// The usual time, if it is too short here.
    usual: Option<f64>,
    /// Where the expected time comes from, in words.
    source: &'static str,
    /// Seconds that all of it needs where nothing else runs, of a run that may take longer.
    needed: Option<f64>,
}

impl Fitted {
    /// What of a plan fits into a budget that was asked for; without one, the usual time grows until all of it does, before the run and in
    /// it, or to the most that these wishes allow.
    ///
    /// # Errors
    /// If nothing fits.
    pub fn new(plan: Plan, wishes: &Wishes<'_>, costs: &Costs) -> Result<Self, Fault> {
        let plan = plan.expecting(|probe, case| costs.of(probe, case));
        let (rounds, source) = (wishes.rounds(), costs.source(&plan));
        let needed = (BEFORE + plan.expected(rounds) + after(&plan)).as_secs_f64();
        let most = wishes.most.filter(|most| needed > most.as_secs_f64());
        match wishes.args.budget.or(most) {
            Some(time) if time != MINIMUM => {
                let causes = for_causes(time.mul_f64(wishes.causes));
                let budget = Budget { seconds: time.as_secs_f64(), limit: Limit::Kept, causes };
                let all = plan.clone();
                let room = Room { time: time.saturating_sub(BEFORE + AFTER + causes), rounds };
                let plan = plan.within(room);
                if plan.units.is_empty() && !all.units.is_empty() {
                    return Err(Fault::because(format!(
                        "{} {}: {rounds} rounds of no case fit; all take about {}",
                        if wishes.args.budget.is_some() { "--budget" } else { "--quick, at most" },
                        seconds(budget.seconds),
                        seconds(all.expected(rounds).as_secs_f64())
                    )));
                }
                let left_out = names(&all, &plan);
                Ok(Self { plan, budget, left_out, usual: None, source, needed: None })
            }
            asked => {
                let usual = if asked.is_none() { Some(wishes.budget) } else { None };
                let seconds = needed.max(usual.unwrap_or(0.0));
                // Rounds come first.
                let causes = for_causes(Duration::from_secs_f64((wishes.causes * seconds).min(seconds - needed)));
                let limit = wishes.most.filter(|_| asked.is_none()).map_or(Limit::Grows, Limit::GrowsTo);
                let budget = Budget { seconds, limit, causes };
                let usual = usual.filter(|&usual| needed > usual);
                Ok(Self { plan, budget, left_out: Vec::new(), usual, source, needed: Some(needed) })
            }
        }
    }

    /// Says before the run what it measures, and what not.
    pub fn announce(&self, whereto: &str) {
        let (cases, time) = (self.plan.units.len(), seconds(self.budget.seconds));
        let longer = self.usual.map_or_else(String::new, |usual| format!(", more than the usual {}", seconds(usual)));
        let beside = self.needed.and_then(|needed| beside_other_work(needed, self.budget.seconds, &others()));
        let beside = beside.map_or_else(String::new, |time| {
            format!(", or about {} if the other work that runs here now goes on", seconds(time))
        });
        output::remark(format!("kelvin: {cases} cases in about {time}{longer}{beside}, {}; {whereto}", self.source));
        if !self.left_out.is_empty() {
            let head = format!("kelvin: {time} is too short for these, which matter less and are left out:");
            output::remark_names(head, &self.left_out);
        }
    }
}

/// Looks at what else runs, and the time between them.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Threads that run or would run now, for each CPU, as often as looked; none where that cannot be told.
fn others() -> Vec<f64> {
    let cpus = kelvin_sys::cpu::allowed().map_or(1, |cpus| cpus.len().max(1)) as f64;
    let look = |at: u32| {
        if at > 0 {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        // The one that reads it is among them.
        Some(f64::from(runnable(&text)?.saturating_sub(1)) / cpus)
    };
    (0..LOOKS).filter_map(look).collect()
}

/// How many threads are runnable: `1.20 1.10 1.00 3/212 4711`.
fn runnable(loadavg: &str) -> Option<u32> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// How long a run takes beside so many other threads of each CPU, each of which gets as much time as its own; `None` where that is not
/// longer than its budget.
fn beside_other_work(needed: f64, budget: f64, others: &[f64]) -> Option<f64> {
    let others = others.iter().copied().fold(f64::INFINITY, f64::min);
    let time = needed * (1.0 + others);
    (others.is_finite() && time > budget).then_some(time)
}

/// The time for trying causes, if it is worth beginning.
fn for_causes(time: Duration) -> Duration {
    if time < gaps::LEAST { Duration::ZERO } else { time }
}

/// What is kept of a budget for the time after the last round.
pub fn after(plan: &Plan) -> Duration {
    AFTER + AFTER_EACH * plan.units.len() as u32
}

/// The cases of one plan that another lacks, in words: the beginning of the ids of probes that all are lost, or a probe and how many of
/// its cases.
pub fn names(all: &Plan, kept: &Plan) -> Vec<String> {
    let [all, kept] = [all, kept].map(cases);
    let lost = |id: &str| all[id] - kept.get(id).copied().unwrap_or(0);
    let mut names: Vec<String> = Vec::new();
    for (&id, &cases) in all.iter().filter(|&(id, _)| lost(id) > 0) {
        let ends = id.match_indices('.').map(|(end, _)| &id[..=end]);
        let is_lost = |beginning: &&str| {
            let mut of_it = all.keys().filter(|other| other.starts_with(beginning));
            of_it.clone().count() > 1 && of_it.all(|other| !kept.contains_key(other))
        };
        let name = match ends.clone().find(is_lost) {
            Some(beginning) => beginning.trim_end_matches('.').to_owned(),
            None if lost(id) == cases => id.to_owned(),
            None => format!("{id} ({} of {cases} cases)", lost(id)),
        };
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names
}

/// How many cases of each probe are asked for.
fn cases(plan: &Plan) -> BTreeMap<&'static str, usize> {
    let mut cases = BTreeMap::new();
    plan.units.iter().filter(|unit| !unit.only_input).for_each(|unit| *cases.entry(unit.probe.id).or_default() += 1);
    cases
}

#[cfg(test)]
mod tests {
    use kelvin_harness::Unit;
    use kelvin_model::Case;

    use super::*;

    fn plan(cases: &[(&str, u64)]) -> Plan {
        let probe = |id: &str| kelvin_probes::all().into_iter().find(|probe| probe.id == id).unwrap();
        let unit = |&(id, n): &(&str, u64)| Unit::new(probe(id), Case::new().with("n", n));
        Plan { units: cases.iter().map(unit).collect(), left_out: Vec::new() }
    }

    #[test]
    fn other_work_that_runs_now_makes_a_run_longer_by_its_share() {
        assert_eq!(runnable("2.40 1.10 1.00 3/212 4711\n"), Some(3));
        assert_eq!(runnable("2.40 1.10"), None);
        // The least that was seen: what comes and goes makes no run twice as long.
        assert_eq!(beside_other_work(40.0, 45.0, &[1.0, 0.5, 2.0]), Some(60.0));
        assert_eq!(beside_other_work(40.0, 45.0, &[1.0, 0.0]), None);
        assert_eq!(beside_other_work(10.0, 45.0, &[1.0, 1.0]), None, "there is time for it");
        assert_eq!(beside_other_work(10.0, 5.0, &[]), None);
    }

    #[test]
    fn what_is_left_out_is_named_by_area_probe_or_number_of_cases() {
        let all = [
            ("cpu.loop", 1),
            ("cpu.latency", 1),
            ("mem.latency", 1),
            ("mem.latency", 2),
            ("mem.tlb", 1),
            ("net.connect", 1),
        ];
        let kept = [("mem.latency", 2)];
        assert_eq!(names(&plan(&all), &plan(&kept)), ["cpu", "mem.latency (1 of 2 cases)", "mem.tlb", "net.connect"]);
        assert!(names(&plan(&all), &plan(&all)).is_empty());
    }
}
