//! The time of a run: whether it yields or its cases do, which of them fit, and what is said of that before the run starts.

use std::collections::BTreeMap;
use std::time::Duration;

use kelvin_core::units::seconds;
use kelvin_harness::{BudgetLimit, Plan, TimeBudget};

use crate::cli::MINIMUM_ROUNDS_BUDGET;
use crate::cli_error::CliError;
use crate::costs::Costs;
use crate::gaps;
use crate::measure::RunOptions;
use crate::output;

/// Reading the machine and calibrating the clock take about this long before the first round.
pub const STARTUP_TIME: Duration = Duration::from_millis(300);
/// Analysis, table and page take this long after the last round, and so much longer for each case.
const REPORT_TIME: Duration = Duration::from_millis(60);
const REPORT_TIME_PER_CASE: Duration = Duration::from_millis(1);

/// The time of a run.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Seconds of the whole run.
    pub seconds: f64,
    /// What yields where they are too few.
    pub limit: BudgetLimit,
    /// The part of them for trying the causes of gaps.
    pub causes: Duration,
}

/// A plan and its time.
pub struct BudgetedPlan {
    /// What fits.
    pub plan: Plan,
    /// The time.
    pub budget: Budget,
    /// What does not, in words.
    left_out: Vec<String>,
    /// The usual time, if it is too short here.
    exceeded_default: Option<f64>,
    /// Where the expected time comes from, in words.
    source: &'static str,
    /// Seconds that all of it needs where nothing else runs, of a run that may take longer.
    needed: Option<f64>,
}

impl BudgetedPlan {
    /// What of a plan fits into a budget that was asked for; without one, the usual time grows until all of it does, before the run and in
    /// it, or to the most that these wishes allow.
    ///
    /// # Errors
    /// If nothing fits.
    pub fn new(plan: Plan, wishes: &RunOptions<'_>, costs: &Costs) -> Result<Self, CliError> {
        let plan = plan.with_expected_costs(|probe, case| costs.expected_cost(probe, case));
        let (rounds, source) = (wishes.rounds(), costs.source(&plan));
        let needed = (STARTUP_TIME + plan.expected_duration(rounds) + report_time(&plan)).as_secs_f64();
        let most = wishes.max_budget.filter(|most| needed > most.as_secs_f64());
        match wishes.args.budget.or(most) {
            Some(time) if time != MINIMUM_ROUNDS_BUDGET => {
                let causes = usable_cause_time(time.mul_f64(wishes.causes_share));
                let budget = Budget { seconds: time.as_secs_f64(), limit: BudgetLimit::Fixed, causes };
                let all = plan.clone();
                let room = TimeBudget { time: time.saturating_sub(STARTUP_TIME + REPORT_TIME + causes), rounds };
                let plan = plan.fit_to_budget(room);
                if plan.units.is_empty() && !all.units.is_empty() {
                    return Err(CliError::msg(format!(
                        "{} {}: {rounds} rounds of no case fit; all take about {}",
                        if wishes.args.budget.is_some() { "--budget" } else { "--quick, at most" },
                        seconds(budget.seconds),
                        seconds(all.expected_duration(rounds).as_secs_f64())
                    )));
                }
                let left_out = left_out_names(&all, &plan);
                Ok(Self { plan, budget, left_out, exceeded_default: None, source, needed: None })
            }
            asked => {
                let usual = if asked.is_none() { Some(wishes.budget) } else { None };
                let seconds = needed.max(usual.unwrap_or(0.0));
                // Rounds come first.
                let causes =
                    usable_cause_time(Duration::from_secs_f64((wishes.causes_share * seconds).min(seconds - needed)));
                let limit = wishes
                    .max_budget
                    .filter(|_| asked.is_none())
                    .map_or(BudgetLimit::Extendable, BudgetLimit::ExtendableTo);
                let budget = Budget { seconds, limit, causes };
                let usual = usual.filter(|&usual| needed > usual);
                Ok(Self { plan, budget, left_out: Vec::new(), exceeded_default: usual, source, needed: Some(needed) })
            }
        }
    }

    /// Says before the run what it measures, and what not.
    pub fn announce(&self, whereto: &str) {
        let (cases, time) = (self.plan.units.len(), seconds(self.budget.seconds));
        let longer =
            self.exceeded_default.map_or_else(String::new, |usual| format!(", more than the usual {}", seconds(usual)));
        let beside =
            self.needed.and_then(|needed| time_under_load(needed, self.budget.seconds, &runnable_threads_per_cpu()));
        let beside = beside.map_or_else(String::new, |time| {
            format!(", or about {} if the other work that runs here now goes on", seconds(time))
        });
        output::eprint_line(format!(
            "kelvin: {cases} cases in about {time}{longer}{beside}, {}; {whereto}",
            self.source
        ));
        if !self.left_out.is_empty() {
            let head = format!("kelvin: {time} is too short for these, which matter less and are left out:");
            output::eprint_names(head, &self.left_out);
        }
    }
}

/// Looks at what else runs, and the time between them.
const LOAD_SAMPLES: u32 = 4;
const LOAD_SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// Threads that run or would run now, for each CPU, as often as looked; none where that cannot be told.
fn runnable_threads_per_cpu() -> Vec<f64> {
    let cpus = kelvin_sys::cpu::allowed().map_or(1, |cpus| cpus.len().max(1)) as f64;
    let look = |at: u32| {
        if at > 0 {
            std::thread::sleep(LOAD_SAMPLE_INTERVAL);
        }
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        // The one that reads it is among them.
        Some(f64::from(parse_runnable_threads(&text)?.saturating_sub(1)) / cpus)
    };
    (0..LOAD_SAMPLES).filter_map(look).collect()
}

/// How many threads are runnable: `1.20 1.10 1.00 3/212 4711`.
fn parse_runnable_threads(loadavg: &str) -> Option<u32> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// How long a run takes beside so many other threads of each CPU, each of which gets as much time as its own; `None` where that is not
/// longer than its budget.
fn time_under_load(needed: f64, budget: f64, others: &[f64]) -> Option<f64> {
    let others = others.iter().copied().fold(f64::INFINITY, f64::min);
    let time = needed * (1.0 + others);
    (others.is_finite() && time > budget).then_some(time)
}

/// The time for trying causes, if it is worth beginning.
fn usable_cause_time(time: Duration) -> Duration {
    if time < gaps::MIN_EXPLAIN_TIME { Duration::ZERO } else { time }
}

/// What is kept of a budget for the time after the last round.
pub fn report_time(plan: &Plan) -> Duration {
    REPORT_TIME + REPORT_TIME_PER_CASE * plan.units.len() as u32
}

/// The cases of one plan that another lacks, in words: the beginning of the ids of probes that all are lost, or a probe and how many of
/// its cases.
pub fn left_out_names(all: &Plan, kept: &Plan) -> Vec<String> {
    let [all, kept] = [all, kept].map(cases_by_probe);
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
fn cases_by_probe(plan: &Plan) -> BTreeMap<&'static str, usize> {
    let mut cases = BTreeMap::new();
    plan.units.iter().filter(|unit| !unit.only_input).for_each(|unit| *cases.entry(unit.probe.id).or_default() += 1);
    cases
}

#[cfg(test)]
mod tests {
    use kelvin_core::Case;
    use kelvin_harness::PlanUnit;

    use super::*;

    fn plan(cases: &[(&str, u64)]) -> Plan {
        let probe = |id: &str| kelvin_probes::all().into_iter().find(|probe| probe.id == id).unwrap();
        let unit = |&(id, n): &(&str, u64)| PlanUnit::new(probe(id), Case::new().with_number("n", n));
        Plan { units: cases.iter().map(unit).collect(), left_out: Vec::new() }
    }

    #[test]
    fn runnable_threads_lengthen_the_expected_time() {
        assert_eq!(parse_runnable_threads("2.40 1.10 1.00 3/212 4711\n"), Some(3));
        assert_eq!(parse_runnable_threads("2.40 1.10"), None);
        // The least that was seen: what comes and goes makes no run twice as long.
        assert_eq!(time_under_load(40.0, 45.0, &[1.0, 0.5, 2.0]), Some(60.0));
        assert_eq!(time_under_load(40.0, 45.0, &[1.0, 0.0]), None);
        assert_eq!(time_under_load(10.0, 45.0, &[1.0, 1.0]), None, "there is time for it");
        assert_eq!(time_under_load(10.0, 5.0, &[]), None);
    }

    #[test]
    fn left_out_cases_are_named_by_area() {
        let all = [
            ("cpu.loop", 1),
            ("cpu.latency", 1),
            ("mem.latency", 1),
            ("mem.latency", 2),
            ("mem.tlb", 1),
            ("net.connect", 1),
        ];
        let kept = [("mem.latency", 2)];
        assert_eq!(
            left_out_names(&plan(&all), &plan(&kept)),
            ["cpu", "mem.latency (1 of 2 cases)", "mem.tlb", "net.connect"]
        );
        assert!(left_out_names(&plan(&all), &plan(&all)).is_empty());
    }
}
