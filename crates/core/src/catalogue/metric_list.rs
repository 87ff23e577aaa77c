//! Metrics defined together with the list of them.

use crate::Metric;

/// Defines metrics and the list of them: `metrics! { /// Which. pub const ALL = [ /// Its summary NAME = duration("area.name"), ]; }`.
///
/// The documentation of a metric is its summary, one sentence without a full stop, in one line or several.
macro_rules! metrics {
    (
        $(#[$which:meta])*
        pub const $LIST:ident = [
            $($(#[doc = $summary:literal])+ $NAME:ident = $metric:expr,)+
        ];
    ) => {
        $(#[$which])*
        pub const $LIST: &[&crate::Metric] = &[$(&$NAME,)+];

        $(
            $(#[doc = $summary])+
            #[allow(rustdoc::broken_intra_doc_links, reason = "a summary is text without links")]
            pub static $NAME: crate::Metric = $metric.summary(concat!($($summary),+));
        )+
    };
}

pub(crate) use metrics;

/// [`Metric::duration`] whose summary `metrics!` adds.
pub(super) const fn duration(id: &'static str) -> Metric {
    Metric::duration(id, "")
}

/// [`Metric::rate`] whose summary `metrics!` adds.
pub(super) const fn rate(id: &'static str) -> Metric {
    Metric::rate(id, "")
}
