//! Quantities as people read them.

pub use kelvin_analysis::wording::{cycles_text, figure_text, measured_text};
pub use kelvin_model::units::*;
pub use kelvin_model::units::{number as ratio, percent as share};
