//! Predictions of switches: published costs for pipes, this run's pipes for the other channels.

use kelvin_core::catalogue::mem::{FALSE_SHARING, IncrementKind, LinePlacement};
use kelvin_core::catalogue::os::{SYSCALL_READ, SYSCALL_WRITE};
use kelvin_core::{Case, Machine, Metric, NoPrediction, Prediction, PredictionBasis, Unit};
use kelvin_harness::PredictionInputs;
use kelvin_sys::handoff::HandoffMethod;
use kelvin_sys::partner::PartnerKind;

use super::SwitchExperiment;
use crate::formula::{Expr, fact, measured, published};

/// One switch between processes over pipes with the pipe's calls subtracted, in nanoseconds: half of 2008.19, which
/// spans two switches.
const PUBLISHED_PROCESS_SWITCH: f64 = 2008.19 / 2.0;
/// The same between threads: half of 1684.52.
const PUBLISHED_THREAD_SWITCH: f64 = 1684.52 / 2.0;
/// Where these come from.
const STUDY_SOURCE: &str = "zenbook-2011: Core i5-2557M pinned to 1.6 GHz, Ubuntu 14.04; a write, a read and two switches, \
                     less the cost of one read and one write";
/// A second study of the same quantity.
const SECOND_SOURCE: &str = "E. Bendersky, Measuring context switching and memory overheads for Linux threads, 2018: 1.2 to \
                      1.5 us per switch between threads over a pipe on one core of a Core i7-4771, pipe subtracted";
/// Predicted range, factor either way: the published figures differ by almost two between machines whose clocks differ
/// by two, as the work of a switch has grown with the kernels about as fast as the cores.
const SPREAD: f64 = 2.0;

/// The prediction of any metric of a switching experiment.
pub(super) fn predict_metric(
    facts: &PredictionInputs<'_>,
    metric: &Metric,
    what: &SwitchExperiment,
) -> Result<Prediction, NoPrediction> {
    match (&what.like, what.own) {
        (Some(like), _) if metric == what.switch => like.switch(facts),
        (Some(like), own) if metric == what.round_trip => like.round_trip(facts, own),
        (None, _) if metric == what.switch => Ok(over_pipes(facts.machine(), what.task)),
        (None, Some(own)) if metric == what.round_trip => pipe_round_trip(facts, what.task, own),
        _ => uncontended_calls(facts, what.means),
    }
}

/// One switch over pipes, from publications; the two system calls of a pass are subtracted from it and from the measurement.
fn published_switch(task: PartnerKind) -> Expr {
    let (name, value) = match task {
        PartnerKind::Process => ("published switch between processes", PUBLISHED_PROCESS_SWITCH),
        PartnerKind::Thread => ("published switch between threads", PUBLISHED_THREAD_SWITCH),
    };
    published(name, value, Unit::Nanoseconds, STUDY_SOURCE).within(SPREAD)
}

/// The prediction of a switch over pipes.
fn over_pipes(machine: &Machine, task: PartnerKind) -> Prediction {
    let remark =
        format!("half of the published two, taken as a time and not as cycles. {}", describe_mitigations(machine));
    published_switch(task).source(SECOND_SOURCE).explained(PredictionBasis::Published, "published switch", &remark)
}

/// Mitigations on every switch here that the published machine did not have.
fn describe_mitigations(machine: &Machine) -> String {
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
fn pipe_round_trip(facts: &PredictionInputs<'_>, task: PartnerKind, own: &Metric) -> Result<Prediction, NoPrediction> {
    let trip = 2.0 * (published_switch(task) + measured(facts, own, &Case::new())?);
    Ok(trip.predict(PredictionBasis::Derived, "two published switches"))
}

/// How switches over other channels are derived from those over pipes.
pub(super) struct FromPipeSwitch {
    /// The parts of one pass: a switch over pipes, and the calls that are not subtracted.
    pub input_parts: &'static [&'static Metric],
    /// Factor either way of the predicted range.
    pub factor: f64,
    /// Why it may differ.
    pub why: &'static str,
}

impl FromPipeSwitch {
    /// The same switch over another channel: the scheduler's work is the same as with pipes.
    fn switch(&self, facts: &PredictionInputs<'_>) -> Result<Prediction, NoPrediction> {
        let remark = format!("the scheduler's work is the same; {}", self.why);
        Ok(self.describe_sum(facts)?.within(self.factor).explained(PredictionBasis::Derived, "as over pipes", &remark))
    }

    /// A round trip over another channel: two such switches, and twice the calls of one pass.
    fn round_trip(&self, facts: &PredictionInputs<'_>, own: Option<&Metric>) -> Result<Prediction, NoPrediction> {
        let mut pass = self.describe_sum(facts)?;
        if let Some(own) = own {
            pass = pass + measured(facts, own, &Case::new())?;
        }
        Ok((2.0 * pass).within(self.factor).predict(PredictionBasis::Derived, "two as over pipes"))
    }

    /// The parts of one pass.
    fn describe_sum(&self, facts: &PredictionInputs<'_>) -> Result<Expr, NoPrediction> {
        let parts = self.input_parts.iter().map(|part| measured(facts, part, &Case::new()));
        parts.reduce(|sum, part| Ok(sum? + part?)).expect("a pass has parts")
    }
}

/// Locked instructions of a pass and a take by a condition variable that nobody waits for: its mutex is locked and unlocked in each.
const UNCONTENDED_ATOMICS: f64 = 4.0;

/// The calls of a pass and a take, made by one task: two short ways into the kernel, or where nobody waits none.
fn uncontended_calls(facts: &PredictionInputs<'_>, means: HandoffMethod) -> Result<Prediction, NoPrediction> {
    match means {
        HandoffMethod::Pipe | HandoffMethod::Unix | HandoffMethod::Eventfd | HandoffMethod::Futex => {
            let [write, read] = [&SYSCALL_WRITE, &SYSCALL_READ].map(|call| measured(facts, call, &Case::new()));
            Ok((write? + read?).within(2.0).predict(PredictionBasis::Derived, "two short calls"))
        }
        HandoffMethod::Condvar => {
            let apart = Case::new().with_word(IncrementKind::Atomic).with_word(LinePlacement::Separate);
            let atomics =
                fact("locked instructions", UNCONTENDED_ATOMICS, Unit::Count, "a mutex locked and unlocked, twice");
            let calls = atomics * measured(facts, &FALSE_SHARING, &apart)?;
            Ok(calls.within(2.0).predict(PredictionBasis::Derived, "locked instructions"))
        }
        HandoffMethod::Yield => Err(NoPrediction::new("a task that yields makes no calls that are subtracted")),
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::os::{SWITCH_PROCESS_PIPE as PIPE, SWITCH_PROCESS_PIPE_CALLS as OWN};

    use super::*;
    use crate::testing::with_facts;

    /// The parts of a pass in these tests.
    static PARTS: [&Metric; 2] = [&PIPE, &OWN];

    #[test]
    fn published_switch_is_half_of_pair() {
        with_facts(&[], |facts| {
            let process = over_pipes(facts.machine(), PartnerKind::Process);
            assert!((process.value - 1004.095).abs() < 1e-9);
            assert!((process.low - 502.0475).abs() < 1e-9 && (process.high - 2008.19).abs() < 1e-9);
            assert!((over_pipes(facts.machine(), PartnerKind::Thread).value - 842.26).abs() < 1e-9);
            assert!(process.derivation.contains("are unknown"), "{}", process.derivation);
        });
    }

    #[test]
    fn round_trip_is_switches_and_calls() {
        with_facts(&[(OWN.id.as_str(), Some(300.0))], |facts| {
            let trip = pipe_round_trip(facts, PartnerKind::Process, &OWN).unwrap();
            assert!((trip.value - (2008.19 + 600.0)).abs() < 1e-9);
            assert!((trip.high - (4016.38 + 600.0)).abs() < 1e-9);
            assert_eq!(trip.inputs.len(), 2);
        });
        with_facts(&[], |facts| assert!(pipe_round_trip(facts, PartnerKind::Process, &OWN).is_err()));
    }

    #[test]
    fn uncontended_calls_are_syscalls_or_atomics() {
        let known = [
            (SYSCALL_READ.id.as_str(), Some(120.0)),
            (SYSCALL_WRITE.id.as_str(), Some(100.0)),
            (FALSE_SHARING.id.as_str(), Some(5.5)),
        ];
        with_facts(&known, |facts| {
            let of = |means| uncontended_calls(facts, means).map(|prediction| prediction.value);
            assert_eq!([HandoffMethod::Pipe, HandoffMethod::Condvar].map(|means| of(means).unwrap()), [220.0, 22.0]);
            assert!(of(HandoffMethod::Yield).is_err());
        });
        with_facts(&known[..1], |facts| assert!(uncontended_calls(facts, HandoffMethod::Futex).is_err()));
    }

    #[test]
    fn other_channels_follow_measured_pipe() {
        let known = [(PIPE.id.as_str(), Some(1500.0)), (OWN.id.as_str(), Some(250.0))];
        with_facts(&known, |facts| {
            let plain = FromPipeSwitch { input_parts: &PARTS[..1], factor: 1.5, why: "a test" };
            let switch = plain.switch(facts).unwrap();
            assert_eq!((switch.value, switch.low, switch.high), (1500.0, 1000.0, 2250.0));
            assert_eq!(plain.round_trip(facts, Some(&OWN)).unwrap().value, 3500.0);
            assert_eq!(plain.round_trip(facts, None).unwrap().value, 3000.0);
            let dearer = FromPipeSwitch { input_parts: &PARTS, ..plain };
            assert_eq!(dearer.switch(facts).unwrap().value, 1750.0);
            let trip = dearer.round_trip(facts, None).unwrap();
            assert_eq!(trip.formula, "2 x (os.switch.process.pipe + os.switch.process.pipe.own)");
            assert_eq!(trip.derivation, "2 x (1.50 µs + 250 ns) = 3.50 µs");
        });
        let plain = FromPipeSwitch { input_parts: &PARTS[..1], factor: 1.5, why: "a test" };
        with_facts(&[], |facts| assert!(plain.switch(facts).is_err()));
    }
}
