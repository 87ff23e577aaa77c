//! How kelvin measures: probes run in fresh processes, in batches, over rounds interleaved through the run, with
//! canaries between batches, until every interval is narrow enough or time runs out.
//!
//! The parent side is [`supervise`]; the child side, in which a probe runs, is [`serve`]; a probe sees only [`Bench`].
#![forbid(unsafe_code)]

mod bench;
mod bound;
mod canary;
mod clock;
mod cost;
mod crew;
mod cycle;
mod elsewhere;
mod facts;
mod laboratory;
mod launch;
mod ledger;
mod plan;
mod probe;
mod protocol;
mod quiet;
mod room;
mod schedule;
mod serve;
mod setup;
mod stop;
mod supervise;
mod watch;

pub use bench::Bench;
pub use bound::{Bounded, Hardware, bounds};
pub use clock::{ClockError, best_clock, calibrate_clock, clock_source};
pub use cost::Cost;
pub use elsewhere::{At, Elsewhere, Figure, Headlines, OtherMachine, Rules, Sizes, Yardstick};
pub use facts::Facts;
/// The source of [`Facts`].
pub use kelvin_model::MeasuredValue;
pub use laboratory::{Laboratory, Wanted};
pub use plan::{Plan, Rank, Room, Sources, USUAL_ROUND, Unit, UnknownName};
pub use probe::{Effort, Method, Probe, ProbeKind, predictions};
pub use quiet::{looked_at_within, undisturbed_shares};
pub use schedule::Limit;
pub use serve::serve;
pub use setup::{OtherHost, Placement, Setup, SocketOptions};
pub use stop::Stop;
pub use supervise::{Judge, Options, Sink, supervise};
