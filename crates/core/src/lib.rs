//! Plain data shared by all parts of kelvin: metrics, cases, readings, machines, predictions, runs and events.
//!
//! Nothing here measures, computes or prints. A [`Run`] carries the definitions of its metrics, so that it can be analysed and
//! rendered on another machine, even by a kelvin without the probe.
//!
//! Base units: time in nanoseconds, rates in units per second, sizes in bytes; see [`Unit`].
#![forbid(unsafe_code)]

mod axis;
mod bound;
mod build_info;
mod canary;
mod case;
mod case_status;
pub mod catalogue;
pub mod cluster;
mod command_times;
mod compare;
mod conclusion;
mod event;
mod explanation;
mod gate;
mod hazard;
mod headline;
mod history;
pub mod identifiers;
mod indirect_sort;
mod interval;
pub mod json;
mod labels;
pub mod load;
mod machine;
mod machine_text;
mod measurement;
mod metric;
mod name;
mod network_path;
mod outcome;
mod overview;
mod prediction;
pub mod quantity;
mod readings;
mod reference;
pub mod resources;
mod run;
pub mod text;
mod topology;
pub mod units;

pub use axis::*;
pub use bound::*;
pub use build_info::*;
pub use canary::*;
pub use case::*;
pub use case_status::*;
pub use command_times::*;
pub use compare::*;
pub use conclusion::*;
pub use event::*;
pub use explanation::*;
pub use gate::*;
pub use hazard::*;
pub use headline::*;
pub use history::*;
pub use indirect_sort::*;
pub use interval::*;
pub use labels::*;
pub use machine::*;
pub use machine_text::*;
pub use measurement::*;
pub use metric::*;
pub use name::*;
pub use network_path::*;
pub use outcome::*;
pub use overview::*;
pub use prediction::*;
pub use readings::*;
pub use reference::*;
pub use run::*;
pub use topology::*;
