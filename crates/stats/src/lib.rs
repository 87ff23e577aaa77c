//! Pure statistics: samples, quantiles, intervals, modes, drift, change points, fits.
//!
//! Nothing here knows of metrics or machines; every method names its source and its range.
#![forbid(unsafe_code)]

mod autocorrelation;
mod between_runs;
mod bimodal;
mod blocked_ratio;
mod change_points;
mod distributions;
mod fdr;
mod fixed_plus_linear;
mod headline_interval;
mod histogram;
mod mode_pattern;
mod modes;
mod prediction_interval;
mod queueing;
mod random;
mod rank_change_points;
mod ranks;
mod samples;
mod scalability;
mod share_of_change;
mod token_bucket;
mod trend;
mod uncertain_value;

pub use autocorrelation::effective_samples;
pub use between_runs::{
    BetweenRunPrior, RunFigure, inflation_factor, medians_of_runs, ratio_of_runs, usual_between_run_std,
};
pub use bimodal::{TwoStates, two_states};
pub use blocked_ratio::{BestValue, Block, BlockedRatio, RatioEstimator, blocked_ratio, modes_of};
pub use change_points::{
    ChangePoints, Drift, MIN_LEVEL_VALUES, STEP_ALPHA, STEP_INDEX_LEVEL, Step, detect_change_points,
};
pub use distributions::{normal_cdf, normal_quantile, t_quantile, t_upper_tail};
pub use fdr::{FALSE_DISCOVERY_RATE, adjusted_p_values};
pub use fixed_plus_linear::{FixedPlusLinear, WorkSample, fit_fixed_plus_linear};
pub use headline_interval::{
    ASSUMED_BETWEEN_RUN_STD, ASSUMED_CLOCK_STD, ASSUMED_NEIGHBOUR_STD, BetweenRunVariance, CONFIDENCE_LEVEL,
    EarlierRuns, HeadlineInterval, HeadlineIntervalKind, MAX_HISTORY_RUNS, MAX_RANGE_ROUNDS, MIN_HISTORY_RUNS,
    UnobservedVariance, VarianceEstimate, headline, headline_interval, repeat_interval, within_run_variance,
};
pub use histogram::Histogram;
pub use mode_pattern::{ModePattern, mode_pattern};
pub use modes::{Cluster, clusters, dominant_mode, fastest_mode};
pub use prediction_interval::{MachinePrediction, MachineRelation, PREDICTION_LEVEL, VarianceComponents};
pub use queueing::{
    AsymptoticBounds, ClosedNetwork, DevicePart, MvaResult, NetworkError, Service, Station, whole_servers,
};
pub use random::Random;
pub use rank_change_points::{RankChangePoint, rank_change_points};
pub use ranks::spearman;
pub use samples::{MAD_TO_STD, Samples, SamplesError, Sorted, mad, mean, median, median_in_place, variance};
pub use scalability::{
    ErrorModel, MAX_MISFIT, MIN_LOADS, RepeatedLoad, Scalability, ScalabilityFit, WorstMisfit, fit_scalability,
    fit_scalability_with_intervals,
};
pub use share_of_change::{ShareOfChange, share_of_change};
pub use token_bucket::{Burst, PacedRate, ProgressPoint, burst, paced_rate, sustained_start};
pub use trend::{MAX_EXACT_VALUES, Trend, trend};
pub use uncertain_value::{
    MIN_INTERVAL_ROUNDS, UncertainValue, bonferroni_level, paired_ratio, ratio_of_medians, rounds_to_decide,
};
