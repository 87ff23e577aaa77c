//! Quantities as people read them.

pub use kelvin_analysis::words::{cycles, figure, measured};
pub use kelvin_model::units::*;
pub use kelvin_model::units::{number as ratio, percent as share};
