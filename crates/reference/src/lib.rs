//! Published figures of other machines, each with its source, and what machines of one class have in common.
//!
//! The data are the files of `machines/`, one for each source; the crate's `README.md` says how to add a machine. Only figures that mean
//! the same as kelvin's are in them. Where a published method differs by a known amount, the row names the method, and that states what
//! differs and the factor within which the two agree in nine of ten cases.
//!
//! [`library`] reads them once. [`Class`] is what machines must share to be compared, by the area of a metric, and [`Library::range`] is
//! where a figure of one more machine of a class lies; [`Library::area_factor`] judges all figures of an area as one.
#![forbid(unsafe_code)]

mod area;
mod class;
mod facts;
mod files;
mod library;
mod machine;
mod mitigation;
mod range;
mod rows;

pub use area::{AreaFactor, Judged};
pub use class::{Area, Class};
pub use library::{Library, library};
pub use machine::{Instance, Machine, MachineKind, MemoryKind, Method, Row, Source};
pub use mitigation::Mitigation;
pub use range::{ClassRange, FEW_MEMBERS};
