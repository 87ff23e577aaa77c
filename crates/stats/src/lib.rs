//! Pure statistics: samples, quantiles, intervals, modes, drift, change points, fits.
//!
//! Nothing here knows of metrics or machines; every method names its source and its range.
#![forbid(unsafe_code)]

mod alternation;
mod autocorrelation;
mod blocked;
mod bucket;
mod change;
mod course;
mod discoveries;
mod histogram;
mod interval;
mod modes;
mod one_more;
mod queueing;
mod random;
mod ranks;
mod runs;
mod samples;
mod scalability;
mod share;
mod special;
mod states;
mod trend;
mod two_costs;
mod uncertain;

pub use alternation::{Alternation, alternation};
pub use autocorrelation::effective_samples;
pub use blocked::{Best, Block, BlockedRatio, RatioOf, blocked_ratio, modes_of};
pub use bucket::{Burst, Done, Paced, burst, fallen_from, paced};
pub use change::{ChangePoint, ChangeSearch, change_points};
pub use course::{Course, Drift, LEAST_OF_LEVEL, PLACE_LEVEL, STEP_CHANCE, Step, course};
pub use discoveries::{FALSE_SHARE, joint_chances};
pub use histogram::Histogram;
pub use interval::{
    ASSUMED_BETWEEN_RUNS, ASSUMED_OF_NEIGHBOURS, ASSUMED_OF_THE_CLOCK, Earlier, HISTORY, HeadlineInterval,
    HeadlineIntervalKind, LEAST_HISTORY, LEVEL, RANGE_ROUNDS, RunToRun, Spread, Unseen, headline, headline_interval,
    repeat_interval, within_spread,
};
pub use modes::{Cluster, clusters, dominant_mode, fastest_mode};
pub use one_more::{Effects, OneMore, RANGE, Relation};
pub use queueing::{AsymptoticBounds, ClosedNetwork, NotANetwork, Part, Population, Service, Station, whole_servers};
pub use random::Random;
pub use ranks::spearman;
pub use runs::{BetweenRuns, RunFigure, figures_of_runs, inflation, ratio_of_runs, usual_between_runs};
pub use samples::{MAD_TO_STD, NotSamples, Samples, Sorted, mad, mean, median, median_in_place, variance};
pub use scalability::{
    CLOSE, Errors, FittedScalability, Furthest, LEAST_LOADS, Repeated, Scalability, fitted_scalability, scalability,
};
pub use share::{ShareOfChange, share_of_change};
pub use special::{normal_cdf, normal_quantile, t_quantile, t_upper_tail};
pub use states::{TwoStates, two_states};
pub use trend::{EXACT, Trend, trend};
pub use two_costs::{Load, TwoCosts, two_costs};
pub use uncertain::{LEAST_ROUNDS, Uncertain, jointly_at, paired_ratio, ratio, rounds_to_decide};
