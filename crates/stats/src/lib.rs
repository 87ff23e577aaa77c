//! Pure statistics: samples, quantiles, intervals, modes, drift, change points, fits.
//!
//! Nothing here knows of metrics or machines; every method names its source and its range.
#![forbid(unsafe_code)]

mod autocorrelation;
mod between_run_variance;
mod between_runs;
mod blocked_ratio;
mod change_points;
mod counting;
mod distributions;
mod fixed_plus_linear;
mod headline_interval;
mod histogram;
mod modes;
mod prediction_interval;
mod queueing;
mod random;
mod ranks;
mod samples;
mod scalability;
mod steady_state;
mod token_bucket;
mod two_way_model;
mod uncertain_value;
mod variance_estimate;

pub use autocorrelation::effective_samples;
pub use between_run_variance::{
    BetweenRunVariance, CONFIDENCE_LEVEL, EarlierRuns, MAX_HISTORY_RUNS, MIN_HISTORY_RUNS, within_run_variance,
};
pub use between_runs::{
    BetweenRunPrior, RunFigure, inflation_factor, medians_of_runs, ratio_of_runs, typical_between_run_std,
};
pub use blocked_ratio::{BestValue, Block, BlockedRatio, RatioEstimator, blocked_ratio, find_modes};
pub use change_points::{
    ChangePoints, Drift, MIN_LEVEL_VALUES, STEP_ALPHA, STEP_INDEX_LEVEL, Step, detect_change_points,
};
pub use counting::LogFactorials;
pub use distributions::{normal_cdf, normal_quantile, t_quantile, t_upper_tail};
pub use fixed_plus_linear::{FixedPlusLinear, WorkSample, fit_fixed_plus_linear};
pub use headline_interval::{
    ASSUMED_BETWEEN_RUN_STD, ASSUMED_CLOCK_STD, ASSUMED_NEIGHBOUR_STD, HeadlineInterval, HeadlineIntervalKind,
    UnobservedVariance, headline, headline_interval, repeat_interval,
};
pub use histogram::{Histogram, HistogramError};
pub use modes::{Cluster, ModePattern, TwoStates, clusters, dominant_mode, fastest_mode, mode_pattern, two_states};
pub use prediction_interval::{MachinePrediction, MachineRelation, PREDICTION_LEVEL, VarianceComponents};
pub use queueing::{
    AsymptoticBounds, ClosedNetwork, DevicePart, MvaResult, NetworkError, Service, Station, round_server_count,
};
pub use random::Random;
pub use ranks::{MAX_EXACT_VALUES, RankChangePoint, Trend, rank_change_points, spearman, trend};
pub use samples::{MAD_TO_STD, Sorted, mad, mean, median, median_in_place, min_max, variance};
pub use scalability::{
    ErrorModel, MAX_MISFIT, MIN_LOADS, RepeatedLoad, Scalability, ScalabilityFit, WorstMisfit, fit_scalability,
    fit_scalability_with_intervals,
};
pub use steady_state::{MAX_STEADY_RANGE, MAX_STEADY_SLOPE, MeasurementWindow, STEADY_WINDOWS};
pub use token_bucket::{Burst, PacedRate, ProgressPoint, burst, paced_rate, sustained_start};
pub use two_way_model::{PairPrediction, PairValue, TwoWayModel};
pub use uncertain_value::{
    FALSE_DISCOVERY_RATE, MIN_INTERVAL_ROUNDS, ShareOfChange, UncertainValue, adjusted_p_values, bonferroni_level,
    paired_ratio, ratio_of_medians, rounds_to_decide, share_of_change,
};
pub use variance_estimate::VarianceEstimate;
