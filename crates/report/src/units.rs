//! Quantities as people read them.

pub use kelvin_analysis::wording::{cycles_text, figure_text, measured_text};
pub use kelvin_core::units::*;
pub use kelvin_core::units::{number as ratio, percent as share};
