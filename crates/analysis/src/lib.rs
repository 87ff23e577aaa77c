//! From a run to summaries, measured against predicted, warnings and verdicts.
//!
//! Pure: a stored run and a live run go through the same call, [`analyse()`], and give the same [`Analysis`].
#![forbid(unsafe_code)]

mod analyse;
mod bounds;
mod canaries;
pub mod class_comparison;
mod command_times;
pub mod compare;
pub mod counters;
mod cpu_placement_modes;
mod evidence;
pub mod explanation;
mod figure_ratio;
mod findings;
mod growth_end;
mod headlines;
pub mod history;
mod history_export;
mod kept_headlines;
mod levels;
mod metric_selector;
mod network_charts;
mod overview;
mod prediction_comparison;
mod prelude;
mod progress;
mod result;
mod rivals;
mod samples;
mod sanity;
mod studies;
mod summary;
#[doc(hidden)]
pub mod testing;
pub mod wording;

pub use analyse::{analyse, analyse_with_library};
pub use canaries::{BLOCK_OVER_CHAIN, STEADY_CHAIN, steady_core};
pub use class_comparison::class_member;
pub use command_times::{CommandRun, CommandRuns, TimingSettings, time_commands};
pub use compare::{
    ComparisonRequest, ComparisonSubject, Gate, InterleavedCase, InterleavedSettings, SideInput, compare_interleaved,
    fact_differences, foreign_reference,
};
pub use explanation::{explain, measured_with_controls, shown_controls};
pub use headlines::Headlines;
pub use history::{
    HistoryInput, HistoryInputRun, HistoryInputSeries, MIN_RANKED_MACHINES, alarming_changes, annotate_changes,
    new_changes,
};
pub use history_export::{FIRST_ROUND_COST, ROUND_COST, RoundCost, round_costs};
pub use kelvin_core::{Interval, IntervalKind};
pub use kelvin_reference::published::{self as reference, references};
pub use kelvin_reference::{LibraryMachine as Member, ReferenceLibrary, built_in_library};
pub use kept_headlines::keep_headlines;
pub use levels::{CurvePoint, levels};
pub use progress::RunProgress;
pub use result::*;
pub use samples::samples_as_found;
pub use studies::{FULL_CPU_SHARE, published_load, studies, study_ids, study_metrics, study_summary};
