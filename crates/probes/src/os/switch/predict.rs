//! Predictions of switches: published costs for pipes, this run's pipes for the other channels.

use kelvin_catalogue::mem::{FALSE_SHARING, IncrementKind, Lines};
use kelvin_catalogue::os::{SYSCALL_READ, SYSCALL_WRITE};
use kelvin_harness::Facts;
use kelvin_model::{Basis, Case, Input, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::partner::Task;
use kelvin_sys::token::Means;

use super::Switching;
use crate::predict::Predicting;

/// One switch between processes over pipes with the pipe's calls subtracted, in nanoseconds: half of 2008.19, which
/// spans two switches.
const PROCESS_SWITCH: f64 = 2008.19 / 2.0;
/// The same between threads: half of 1684.52.
const THREAD_SWITCH: f64 = 1684.52 / 2.0;
/// Where these come from.
const STUDY: &str = "zenbook-2011: Core i5-2557M pinned to 1.6 GHz, Ubuntu 14.04; a write, a read and two switches, \
                     less the cost of one read and one write";
/// A second study of the same quantity.
const SECOND: &str = "E. Bendersky, Measuring context switching and memory overheads for Linux threads, 2018: 1.2 to \
                      1.5 us per switch between threads over a pipe on one core of a Core i7-4771, pipe subtracted";
/// Predicted range, factor either way: the published figures differ by almost two between machines whose clocks differ
/// by two, as the work of a switch has grown with the kernels about as fast as the cores.
const SPREAD: f64 = 2.0;

/// The prediction of any metric of a switching experiment.
pub(super) fn of(facts: &Facts<'_>, metric: &Metric, what: &Switching) -> Result<Prediction, NoPrediction> {
    match (&what.like, what.own) {
        (Some(like), _) if metric == what.switch => like.switch(facts),
        (Some(like), own) if metric == what.round_trip => like.round_trip(facts, own),
        (None, _) if metric == what.switch => Ok(published(facts, what.task)),
        (None, Some(own)) if metric == what.round_trip => round_trip(facts, what.task, own),
        _ => calls_alone(facts, what.means),
    }
}

/// One switch over pipes, from publications.
fn published(facts: &Facts<'_>, task: Task) -> Prediction {
    let (value, what) = match task {
        Task::Process => (PROCESS_SWITCH, "processes"),
        Task::Thread => (THREAD_SWITCH, "threads"),
    };
    Predicting::within_factor(Basis::Published, value, SPREAD)
        .formula(
            "published switch",
            "published switch; the two system calls of a pass are subtracted from it and from the measurement",
        )
        .constant(format!("published switch between {what}"), value, Unit::Nanoseconds, STUDY)
        .source(STUDY)
        .source(SECOND)
        .derived_as(format!(
            "{:.0} ns published for two switches between {what} / 2 = {value:.0} ns, taken as a time and not as \
             cycles; predicted range: a factor of {SPREAD} either way. {}",
            2.0 * value,
            mitigations(facts.machine())
        ))
}

/// Mitigations on every switch here that the published machine did not have.
fn mitigations(machine: &Machine) -> String {
    let status = machine
        .cpu
        .mitigations
        .get()
        .and_then(|all| all.iter().find(|one| one.vulnerability == "spectre_v2"))
        .map(|one| one.status.as_str());
    match status {
        None => "The mitigations in force are unknown.".into(),
        Some(status) if status.contains("IBPB: always-on") => {
            "Every switch between processes has an indirect branch predictor barrier (IBPB), which the published \
             machine did not have; its cost is not added, so expect more."
                .into()
        }
        Some(status) if status.contains("Retpolines") => {
            "Retpolines are in force, which the published machine did not have; their cost is not added. There is no \
             IBPB between tasks that have not requested one."
                .into()
        }
        Some(_) => "No cost of mitigations is added.".into(),
    }
}

/// A round trip: two switches, and twice the calls of one pass.
fn round_trip(facts: &Facts<'_>, task: Task, own: &Metric) -> Result<Prediction, NoPrediction> {
    let calls = facts.measured(own, &Case::new())?;
    let switch = published(facts, task);
    let value = 2.0 * (switch.value + calls.value);
    let text = format!("2 x ({:.0} ns + {:.0} ns {}) = {value:.0} ns", switch.value, calls.value, own.id);
    let (low, high) = (2.0 * (switch.low + calls.value), 2.0 * (switch.high + calls.value));
    Ok(Predicting::between(Basis::Derived, value, low, high)
        .formula("two published switches", "2 x (published switch + calls of one pass)")
        .constant("published switch", switch.value, Unit::Nanoseconds, STUDY)
        .source(STUDY)
        .input(calls)
        .derived_as(text))
}

/// How switches over other channels are derived from those over pipes.
pub(super) struct AsWithPipes {
    /// The parts of one pass: a switch over pipes, and the calls that are not subtracted.
    pub parts: &'static [&'static Metric],
    /// Factor either way of the predicted range.
    pub factor: f64,
    /// Why it may differ.
    pub why: &'static str,
}

impl AsWithPipes {
    /// The same switch over another channel: the scheduler's work is the same as with pipes.
    fn switch(&self, facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
        let parts = self.parts(facts)?;
        let value = parts.iter().map(|part| part.value).sum();
        let derivation =
            format!("{}; {}; predicted range: a factor of {} either way", sum(&parts), self.why, self.factor);
        Ok(self
            .from(value, parts, "as over pipes", |names| format!("{names}: the scheduler's work is the same"))
            .derived_as(derivation))
    }

    /// A round trip over another channel: two such switches, and twice the calls of one pass.
    fn round_trip(&self, facts: &Facts<'_>, own: Option<&Metric>) -> Result<Prediction, NoPrediction> {
        let mut parts = self.parts(facts)?;
        if let Some(own) = own {
            parts.push(facts.measured(own, &Case::new())?);
        }
        let value = 2.0 * parts.iter().map(|part| part.value).sum::<f64>();
        let derivation = format!("2 x ({}) = {value:.0} ns", sum(&parts));
        Ok(self.from(value, parts, "two as over pipes", |names| format!("2 x ({names})")).derived_as(derivation))
    }

    fn parts(&self, facts: &Facts<'_>) -> Result<Vec<Input>, NoPrediction> {
        self.parts.iter().map(|part| facts.measured(part, &Case::new())).collect()
    }

    fn from(
        &self,
        value: f64,
        parts: Vec<Input>,
        name: &'static str,
        formula: impl FnOnce(String) -> String,
    ) -> Predicting {
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let formula = formula(names.join(" + "));
        let predicting = Predicting::within_factor(Basis::Derived, value, self.factor).formula(name, formula);
        predicting.inputs(parts)
    }
}

/// `1700 ns os.switch.process.pipe + 300 ns ...`
fn sum(parts: &[Input]) -> String {
    let each: Vec<String> = parts.iter().map(|part| format!("{:.0} ns {}", part.value, part.name)).collect();
    each.join(" + ")
}

/// Locked instructions of a pass and a take by a condition variable that nobody waits for: its mutex is locked and unlocked in each.
const ATOMICS: f64 = 4.0;

/// The calls of a pass and a take, made by one task: two short ways into the kernel, or where nobody waits none.
fn calls_alone(facts: &Facts<'_>, means: Means) -> Result<Prediction, NoPrediction> {
    let predicting = |value| Predicting::within_factor(Basis::Derived, value, 2.0);
    match means {
        Means::Pipe | Means::Unix | Means::Eventfd | Means::Futex => {
            let [read, write] = [&SYSCALL_READ, &SYSCALL_WRITE].map(|call| facts.measured(call, &Case::new()));
            let (read, write) = (read?, write?);
            let value = read.value + write.value;
            let derivation = format!("{:.0} ns + {:.0} ns = {value:.0} ns", write.value, read.value);
            Ok(predicting(value)
                .formula("two short calls", "os.syscall.write + os.syscall.read: two calls that do little")
                .input(write)
                .input(read)
                .derived_as(derivation))
        }
        Means::Condvar => {
            let apart = Case::new().at(IncrementKind::Atomic).at(Lines::Apart);
            let atomic = facts.measured(&FALSE_SHARING, &apart)?;
            let value = ATOMICS * atomic.value;
            Ok(predicting(value)
                .formula(
                    "locked instructions",
                    format!("{ATOMICS} locked instructions on lines of one's own, each {}", atomic.name),
                )
                .constant("locked instructions", ATOMICS, Unit::Count, "a mutex locked and unlocked, twice")
                .input(atomic.clone())
                .derived_as(format!("{ATOMICS} x {:.2} ns = {value:.1} ns", atomic.value)))
        }
        Means::Yield => Err(NoPrediction::because("a task that yields makes no calls that are subtracted")),
    }
}

#[cfg(test)]
mod tests {
    use kelvin_catalogue::os::{SWITCH_PROCESS_PIPE as PIPE, SWITCH_PROCESS_PIPE_OWN as OWN};

    use super::*;
    use crate::testing::facts_about;

    /// The parts of a pass in these tests.
    static PARTS: [&Metric; 2] = [&PIPE, &OWN];

    #[test]
    fn the_published_switch_is_half_of_what_spans_two() {
        facts_about(&[], |facts| {
            let process = published(facts, Task::Process);
            assert!((process.value - 1004.095).abs() < 1e-9);
            assert!((process.low - 502.0475).abs() < 1e-9 && (process.high - 2008.19).abs() < 1e-9);
            assert!((published(facts, Task::Thread).value - 842.26).abs() < 1e-9);
            assert!(process.derivation.contains("are unknown"), "{}", process.derivation);
        });
    }

    #[test]
    fn a_round_trip_is_two_switches_and_twice_the_calls() {
        facts_about(&[(OWN.id.as_str(), Some(300.0))], |facts| {
            let trip = round_trip(facts, Task::Process, &OWN).unwrap();
            assert!((trip.value - (2008.19 + 600.0)).abs() < 1e-9);
            assert!((trip.high - (4016.38 + 600.0)).abs() < 1e-9);
            assert_eq!(trip.inputs.len(), 2);
        });
        facts_about(&[], |facts| assert!(round_trip(facts, Task::Process, &OWN).is_err()));
    }

    #[test]
    fn the_calls_alone_are_two_short_ways_or_four_locked_instructions() {
        let known = [
            (SYSCALL_READ.id.as_str(), Some(120.0)),
            (SYSCALL_WRITE.id.as_str(), Some(100.0)),
            (FALSE_SHARING.id.as_str(), Some(5.5)),
        ];
        facts_about(&known, |facts| {
            let of = |means| calls_alone(facts, means).map(|prediction| prediction.value);
            assert_eq!([Means::Pipe, Means::Condvar].map(|means| of(means).unwrap()), [220.0, 22.0]);
            assert!(of(Means::Yield).is_err());
        });
        facts_about(&known[..1], |facts| assert!(calls_alone(facts, Means::Futex).is_err()));
    }

    #[test]
    fn other_channels_follow_the_pipe_of_this_run() {
        let known = [(PIPE.id.as_str(), Some(1500.0)), (OWN.id.as_str(), Some(250.0))];
        facts_about(&known, |facts| {
            let plain = AsWithPipes { parts: &PARTS[..1], factor: 1.5, why: "a test" };
            let switch = plain.switch(facts).unwrap();
            assert_eq!((switch.value, switch.low, switch.high), (1500.0, 1000.0, 2250.0));
            assert_eq!(plain.round_trip(facts, Some(&OWN)).unwrap().value, 3500.0);
            assert_eq!(plain.round_trip(facts, None).unwrap().value, 3000.0);
            let dearer = AsWithPipes { parts: &PARTS, ..plain };
            assert_eq!(dearer.switch(facts).unwrap().value, 1750.0);
            let trip = dearer.round_trip(facts, None).unwrap();
            assert_eq!(trip.formula, "2 x (os.switch.process.pipe + os.switch.process.pipe.own)");
            assert_eq!(
                trip.derivation,
                "2 x (1500 ns os.switch.process.pipe + 250 ns os.switch.process.pipe.own) = 3500 ns"
            );
        });
        let plain = AsWithPipes { parts: &PARTS[..1], factor: 1.5, why: "a test" };
        facts_about(&[], |facts| assert!(plain.switch(facts).is_err()));
    }
}
