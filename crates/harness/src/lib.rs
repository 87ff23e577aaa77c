//! How kelvin measures: probes run in fresh processes, in batches, over rounds interleaved through the run, with
//! canaries between batches, until every interval is narrow enough or the time is over.
//!
//! The parent side is [`supervise`]; the child side, in which a probe runs, is [`serve`]; a probe sees only [`Bench`].
#![forbid(unsafe_code)]

mod bench;
mod bound;
mod canary;
mod crew;
mod cycle;
mod facts;
mod launch;
mod ledger;
mod plan;
mod probe;
mod protocol;
mod schedule;
mod serve;
mod supervise;
mod watch;

pub use bench::Bench;
pub use bound::{Bounded, Hardware};
pub use cycle::multiply_cycles;
pub use facts::{AsFound, Facts, Lacking, MeasuredValue};
pub use plan::{Plan, Unit, UnknownName};
pub use probe::{Effort, Kind, Method, Probe, Stop};
pub use protocol::{OtherHost, SocketOptions};
pub use serve::serve;
pub use supervise::{Options, Sink, supervise};
