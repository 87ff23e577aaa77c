//! Published figures of other machines, each with its source, and what machines of one class have in common.
//!
//! The data are the files of `machines/`, one for each source; the crate's `README.md` states how to add a machine. Only figures that mean
//! the same as kelvin's are in them. Where a published method differs by a known amount, the row names the method, and that states what
//! differs and the factor within which the two agree in nine of ten cases.
//!
//! [`built_in_library`] reads them once. [`MachineClass`] is what machines must share to be compared, by the area of a metric, and [`ReferenceLibrary::class_range`] is
//! where a figure of one more machine of a class lies; [`ReferenceLibrary::area_factor`] compares all figures of an area as one.
#![forbid(unsafe_code)]

mod area_factor;
mod class;
mod class_range;
mod facts;
mod library;
mod machine;
mod machine_file;
mod mitigation;
pub mod published;

pub use area_factor::{AreaFactor, MachineFigure};
pub use class::{MachineClass, MetricArea};
pub use class_range::{ClassRange, MIN_KNOWN_MEMBERS};
pub use library::{ReferenceLibrary, built_in_library};
pub use machine::{LibraryMachine, MachineKind, PublishedFigure, PublishedSource, SourceMethod, Virtualisation};
pub use mitigation::ActiveMitigation;
