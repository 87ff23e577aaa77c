//! How kelvin measures: probes run in fresh processes, in batches, over rounds interleaved through the run, with
//! canaries between batches, until every interval is narrow enough or time runs out.
//!
//! The parent side is [`supervise()`]; the child side, in which a probe runs, is [`run_probe_process`]; a probe sees only [`Bench`].
#![forbid(unsafe_code)]

mod bench;
mod budget_fit;
mod canary;
mod clock;
mod cpu_select;
mod facts;
mod interference;
mod launcher;
pub mod markdown;
mod method;
mod plan;
mod probe;
mod probe_error;
mod probe_process;
mod protocol;
mod reference_machines;
mod schedule;
mod setup;
mod supervise;
mod worker_group;

pub use bench::Bench;
pub use budget_fit::ExpectedCost;
pub use clock::{ClockError, best_clock, calibrate_clock, clock_source, multiply_cycles};
pub use cpu_select::{max_sampled_cpus, undisturbed_shares};
pub use facts::{BoundedMetric, HardwareFacts, PredictFn, PredictionInputs, bound_records};
/// The source of [`PredictionInputs`].
pub use kelvin_core::MeasuredValue;
pub use launcher::{EarlyEnd, ProbeRunner, RoundSpec};
pub use method::Method;
pub use plan::{DEFAULT_ROUND_COST, Plan, PlanContext, PlanRank, PlanUnit, UnknownName, input_probes};
pub use probe::{Effort, Probe, ProbeKind, prediction_records};
pub use probe_error::ProbeError;
pub use probe_process::run_probe_process;
pub use reference_machines::{
    HeadlineTable, Proxy, ProxyCases, ReferenceHeadline, ReferenceMachines, ReferenceRecord, ReferenceRules, SizedCases,
};
pub use schedule::BudgetLimit;
pub use setup::{AgentEndpoint, Placement, Setup, TcpOptions};
pub use supervise::{EventSink, RunObserver, SuperviseOptions, supervise};
