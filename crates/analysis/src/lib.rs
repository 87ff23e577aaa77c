//! From a run to summaries, measured against predicted, warnings and verdicts.
//!
//! Pure: a stored run and a live run go through the same call, [`analyse`], and give the same [`Analysis`].
#![forbid(unsafe_code)]

mod analyse;
mod bounds;
mod canaries;
mod causes;
mod ceilings;
mod compare;
mod evidence;
mod findings;
mod gather;
mod headlines;
mod history;
mod learn;
mod levels;
mod normal;
mod placement;
mod plausible;
mod predicted;
mod raw;
pub mod reference;
mod result;
mod rivals;
mod screen;
mod standing;
mod studies;
mod summary;
mod tails;
#[doc(hidden)]
pub mod testing;
pub mod words;

pub use analyse::{analyse, analyse_among};
pub use canaries::{BLOCK_OVER_CHAIN, STEADY_CHAIN, steady_core};
pub use causes::{controls_of, explain, measured_under};
pub use compare::{Compare, Gate, MeasuredInTurn, SideOf, Subject, Turns, compare_in_turn, what_differs};
pub use gather::samples_as_found;
pub use headlines::Headlines;
pub use history::{LEAST_MACHINES, Recorded, RecordedRun, Records, alarming, annotate, news};
pub use kelvin_model::{Interval, IntervalKind, Place};
pub use kelvin_reference::{Library, Machine as Member, library};
pub use learn::{FIRST_ROUND_COST, ROUND_COST, RoundCost, round_costs};
pub use levels::{CurvePoint, levels};
pub use normal::member;
pub use reference::references;
pub use result::{
    AgainstClass, Analysis, Answer, AreaAgainstClass, BesideRival, BestCell, CanaryCorrelation, CanaryHistory,
    Capacity, Ceiling, Coefficient, Compared, Concluded, CountOf, Distribution, Figure, FigureClass, Finding,
    FittedLaw, Found, Gap, Importance, KneeMark, LineCeiling, MemoryLevel, MemoryLevels, MetricResult, Mode, ModelLine,
    ModesOf, Moved, Normal, Outcome, RivalOutcome, Study, StudyColumn, StudyRow, StudyTable, Summary, TagCount, Tails,
    Timeline, TimelineGroup, Translation, Verdict, Warning,
};
pub use standing::Standings;
pub use studies::{FULL, ids_of_studies, published_load, rests_on, studies, study_summary};
