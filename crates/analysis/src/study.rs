//! Conclusions of the tasks study: a fixed amount of work split over 1 to 2P threads, and over as many processes.

mod crossing;
mod engines;
pub(crate) mod network;
pub(crate) mod peer;
mod ratio;
mod remote;
mod threads;
mod tune;

pub use engines::engines;
pub use network::{StreamCeiling, calls as network_calls, stream_ceiling, streams as network_streams};
pub use peer::{FULL, peer};
pub use remote::remote;
pub use threads::threads;
pub(crate) use threads::{best_cells, laws};
pub use tune::tune;

use kelvin_model::units::{number, p_value, percent, plain};
use kelvin_model::{Case, Conclusion, Name, Run, StudyResult, Unit};
use kelvin_stats::{LEVEL, headline, headline_interval, mean_test, median_ratio};

use crate::gather::Gathered;
use crate::headlines::{Desk, Settled};

/// Largest chance of a difference by accident.
const ALPHA: f64 = 1.0 - LEVEL;
/// An efficiency from which the split counts as efficient.
const EFFICIENT: f64 = 0.9;
/// A part of the CPU time that is worth saying.
const VISIBLE: f64 = 0.01;

/// The two ways to split work.
const KINDS: [&str; 2] = ["threads", "processes"];

/// Conclusions of the tasks study, from the metrics `os.tasks.*`; `None` if the run has not measured the elapsed time of
/// one task and of as many tasks as there are CPUs.
pub fn tasks(run: &Run) -> Option<StudyResult> {
    run.metric("os.tasks.elapsed")?;
    let study = Tasks { run, desk: Desk::of(run), cpus: cpus(run)? };
    let mut conclusions = Vec::new();
    for kind in KINDS {
        conclusions.extend(study.speed_up(kind));
        conclusions.extend(study.more_than_cpus(kind));
        conclusions.extend(study.unseen(kind));
    }
    conclusions.extend(study.threads_against_processes());
    let cpus = study.cpus;
    let design = format!(
        "A fixed amount of CPU work was split over 1 to {} threads, and over as many processes, on {cpus} CPUs; elapsed, \
         user and system time of each split were measured in several rounds.",
        study.most_tasks()
    );
    (!conclusions.is_empty()).then_some(StudyResult { id: Name::new("os.tasks"), design, conclusions })
}

/// CPUs that the run could use: those allowed, and no more than the quota.
fn cpus(run: &Run) -> Option<u64> {
    let machine = &run.outline.machine;
    let allowed = machine.topology.allowed.get().or(machine.topology.online.get())?.len() as u64;
    let quota =
        machine.limits.cpu_quota.get().copied().flatten().map_or(u64::MAX, |quota| (quota.floor() as u64).max(1));
    Some(allowed.min(quota))
}

struct Tasks<'r> {
    run: &'r Run,
    desk: Desk<'r>,
    cpus: u64,
}

impl Tasks<'_> {
    /// The headlines of the rounds of a metric with `tasks` tasks of a kind.
    fn rounds(&self, metric: &str, kind: &str, tasks: u64) -> Option<Vec<f64>> {
        let definition = self.run.metric(metric)?;
        let is_case = |case: &Case| case.word("kind") == Some(kind) && case.integer("tasks") == Some(tasks);
        let holds = |m: &&kelvin_model::Measurement| is_case(&m.planned.case) && m.readings(metric).next().is_some();
        let measurement = self.run.measurements.iter().find(holds)?;
        let gathered = Gathered::of(measurement, definition, &self.desk.references);
        Some(Settled::headline(&gathered, None)?.round_headlines)
    }

    /// Numbers of tasks at which the elapsed time of a kind was measured, ascending.
    fn numbers(&self, kind: &str) -> Vec<u64> {
        let cases = self.run.measurements.iter().map(|measurement| &measurement.planned.case);
        let of_kind = cases.filter(|case| case.word("kind") == Some(kind));
        let mut numbers: Vec<u64> = of_kind.filter_map(|case| case.integer("tasks")).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|&tasks| self.rounds("os.tasks.elapsed", kind, tasks).is_some());
        numbers
    }

    fn most_tasks(&self) -> u64 {
        KINDS.iter().filter_map(|kind| self.numbers(kind).last().copied()).max().unwrap_or(self.cpus)
    }

    fn speed_up(&self, kind: &str) -> Vec<Conclusion> {
        let cpus = self.cpus;
        let (Some(one), Some(all)) =
            (self.rounds("os.tasks.elapsed", kind, 1), self.rounds("os.tasks.elapsed", kind, cpus))
        else {
            return Vec::new();
        };
        if cpus < 2 {
            return Vec::new();
        }
        let Some((speed_up, low, high)) = median_ratio(&all, &one) else { return Vec::new() };
        let test = format!(
            "ratio of median elapsed times with its 95 % interval by Welch's test on logarithms, {} against {} rounds",
            one.len(),
            all.len()
        );
        let n = cpus as f64;
        let range = format!("{} to {}", number(low), number(high));
        let faster = Conclusion {
            text: format!("{cpus} {kind} finish the work {} times as fast as one ({range})", number(speed_up)),
            holds: beyond(low, high, 1.0),
            test: test.clone(),
        };
        let efficient = Conclusion {
            text: format!(
                "{cpus} {kind} use the CPUs with an efficiency of at least {}: it is {} ({} to {})",
                percent(EFFICIENT),
                percent(speed_up / n),
                percent(low / n),
                percent(high / n)
            ),
            holds: beyond(low / n, high / n, EFFICIENT),
            test,
        };
        vec![faster, efficient]
    }

    /// Whether more tasks than CPUs finish earlier, at the number of them that does best.
    fn more_than_cpus(&self, kind: &str) -> Option<Conclusion> {
        let at_cpus = self.rounds("os.tasks.elapsed", kind, self.cpus)?;
        let more = self.numbers(kind).into_iter().rfind(|&tasks| tasks > self.cpus)?;
        let at_more = self.rounds("os.tasks.elapsed", kind, more)?;
        let test = mean_test(&at_cpus, &at_more)?;
        let change = test.difference / headline(&at_cpus);
        let text = match (test.p <= ALPHA, change < 0.0) {
            (true, true) => format!("more {kind} than CPUs help: {more} finish {} earlier", percent(-change)),
            (true, false) => format!("more {kind} than CPUs help: {more} finish {} later", percent(change)),
            (false, _) => {
                let size = percent(test.half_width / headline(&at_cpus));
                format!(
                    "more {kind} than CPUs help: {more} differ by {} +/- {size}, which may be none",
                    percent(change)
                )
            }
        };
        Some(Conclusion {
            text,
            holds: (test.p <= ALPHA).then_some(change < 0.0),
            test: format!(
                "Welch's test of the elapsed time with {} and with {more} {kind}: {}, {} against {} rounds",
                self.cpus,
                p_value(test.p),
                at_cpus.len(),
                at_more.len()
            ),
        })
    }

    fn threads_against_processes(&self) -> Option<Conclusion> {
        let [threads, processes] = KINDS.map(|kind| self.rounds("os.tasks.elapsed", kind, self.cpus));
        let (threads, processes) = (threads?, processes?);
        let test = mean_test(&threads, &processes)?;
        let (ratio, low, high) = median_ratio(&threads, &processes)?;
        let (before, after) = (headline(&threads), headline(&processes));
        Some(Conclusion {
            text: format!(
                "threads and processes differ: {} processes take {} times as long as as many threads ({} to {}): {} \
                 against {}",
                self.cpus,
                number(ratio),
                number(low),
                number(high),
                plain(after, Unit::Nanoseconds),
                plain(before, Unit::Nanoseconds)
            ),
            holds: if test.p <= ALPHA { Some(true) } else { None },
            test: format!("Welch's test: {}, {} against {} rounds", p_value(test.p), threads.len(), processes.len()),
        })
    }

    /// The part of the CPU time of the machine, with as many tasks as CPUs, that user and system time do not show.
    fn unseen(&self, kind: &str) -> Option<Conclusion> {
        let elapsed = self.rounds("os.tasks.elapsed", kind, self.cpus)?;
        let invisible = self.rounds("os.tasks.invisible", kind, self.cpus)?;
        if elapsed.len() != invisible.len() || elapsed.iter().any(|&time| time <= 0.0) {
            return None;
        }
        let cpus = self.cpus as f64;
        let shares: Vec<f64> = invisible.iter().zip(&elapsed).map(|(unseen, time)| unseen / (time * cpus)).collect();
        let interval = headline_interval(&shares, None)?;
        Some(Conclusion {
            text: format!(
                "with {} {kind}, more than {} of the machine's CPU time is in neither user nor system time of the work \
                 (waiting, steal, other processes): it is {} ({} to {}), {} a round",
                self.cpus,
                percent(VISIBLE),
                percent(headline(&shares)),
                percent(interval.lower),
                percent(interval.upper),
                plain(headline(&invisible), Unit::Nanoseconds)
            ),
            holds: beyond(interval.lower, interval.upper, VISIBLE),
            test: format!("median of {} rounds and its interval", shares.len()),
        })
    }
}

/// Whether all of an interval is beyond a limit; `None` if the limit is inside.
fn beyond(low: f64, high: f64, limit: f64) -> Option<bool> {
    if low > limit {
        Some(true)
    } else if high < limit {
        Some(false)
    } else {
        None
    }
}
