//! Samples as a round takes them: which of them are warm-up, which are undisturbed, and when there are enough.

use std::collections::BTreeMap;

use kelvin_core::{Batches, Canary, CoreSteadyState, HeadlineSamples, SampleTags};
use kelvin_stats::median;

use super::MAX_SAMPLES;

/// Warm-up ends when two successive groups of this many batches have medians within the tolerance of each other.
const WARM_GROUP: usize = 5;
const WARM_TOLERANCE: f64 = 0.02;
/// Minimum samples after warm-up, even if an operation is longer than the slice: five, or two where five would overrun
/// the slice by more than this many nanoseconds.
const MIN_SAMPLES: usize = 5;
const MIN_LONG_SAMPLES: usize = 2;
const MAX_SLICE_OVERRUN: f64 = 200e6;
/// A round goes on until this share of its samples is undisturbed: their median is then nearly as exact as that of all.
const MIN_UNDISTURBED_SHARE: f64 = 0.5;

/// Samples of several metrics, as they are taken.
pub(super) struct SampleBuffer<const K: usize> {
    /// Times of each metric, in nanoseconds.
    times: [Vec<f64>; K],
    pub(super) tags: Vec<SampleTags>,
    pub(super) canaries: BTreeMap<Canary, Vec<f32>>,
    pub(super) warm_up: WarmUp,
    /// Samples up to the last check of the thread's counters, and of those in files.
    pub(super) thread_checked: usize,
    pub(super) files_checked: usize,
}

impl<const K: usize> Default for SampleBuffer<K> {
    fn default() -> Self {
        let times = std::array::from_fn(|_| Vec::new());
        Self {
            times,
            tags: Vec::new(),
            canaries: BTreeMap::new(),
            warm_up: WarmUp::default(),
            thread_checked: 0,
            files_checked: 0,
        }
    }
}

impl<const K: usize> SampleBuffer<K> {
    /// Whether there are enough after this many nanoseconds.
    pub(super) fn is_enough(&self, sampling: &SamplingSpec, elapsed: f64) -> bool {
        let min_samples = if elapsed < sampling.slice + MAX_SLICE_OVERRUN { MIN_SAMPLES } else { MIN_LONG_SAMPLES };
        let is_complete = self.warm_up.is_done && self.tags.len() >= self.warm_up.samples + min_samples;
        is_complete && elapsed >= sampling.slice || self.tags.len() >= sampling.max_samples
    }

    /// Adds a sample of each metric.
    pub(super) fn add(&mut self, nanoseconds: [f64; K], state: SampleTags) {
        for (column, nanoseconds) in self.times.iter_mut().zip(nanoseconds) {
            column.push(nanoseconds);
        }
        self.tags.push(state);
    }

    /// Tags the samples taken since the counters of the thread were read last.
    pub(super) fn tag_since_thread_check(&mut self, tags: SampleTags) {
        self.tags[self.thread_checked..].iter_mut().for_each(|tag| *tag |= tags);
        self.thread_checked = self.tags.len();
    }

    /// Tags the samples taken since the files of counters were read last.
    pub(super) fn tag_since_file_check(&mut self, tags: SampleTags) {
        self.tags[self.files_checked..].iter_mut().for_each(|tag| *tag |= tags);
        self.files_checked = self.tags.len();
    }

    pub(super) fn update_warm_up(&mut self, is_over: bool) {
        if !self.warm_up.is_done {
            self.warm_up.samples += 1;
            self.warm_up.update(&self.times[0], is_over);
        }
    }

    /// Whether there are enough for what is found.
    pub(super) fn has_min_samples(&self) -> bool {
        self.warm_up.is_done && self.tags.len() >= self.warm_up.samples + MIN_SAMPLES
    }

    /// How many undisturbed samples are enough: [`MIN_UNDISTURBED_SHARE`] of those after warm-up, of which a whole slice has this many times as many.
    pub(super) fn undisturbed_goal(&self, times: f64) -> usize {
        (MIN_UNDISTURBED_SHARE * times * (self.tags.len() - self.warm_up.samples) as f64).ceil() as usize
    }

    /// Number of samples after warm-up that lie between two readings of an undisturbed core.
    pub(super) fn count_undisturbed(&self, criterion: &UndisturbedCriterion, stride: usize) -> usize {
        let is_quiet = criterion.is_quiet_reading(&self.canaries);
        let groups = self.tags.chunks(stride).enumerate().filter(|&(index, _)| is_quiet(index) && is_quiet(index + 1));
        groups.map(|(_, group)| group.iter().filter(|tags| !tags.intersects(SampleTags::WARM_UP)).count()).sum()
    }

    /// Forgets the samples before the last reading of the canaries, and the reading before them, where they and those before them
    /// lie between readings of a disturbed core: one group is kept at each end of a disturbance.
    pub(super) fn drop_disturbed_group(&mut self, criterion: &UndisturbedCriterion, stride: usize) {
        let Some(last) = (self.tags.len() / stride).checked_sub(1) else { return };
        let was_awaited = |group: usize| self.tags[group * stride].intersects(SampleTags::AWAITED);
        if last == 0 || !was_awaited(last) || !was_awaited(last - 1) {
            return;
        }
        if (last - 1..=last + 1).any(criterion.is_quiet_reading(&self.canaries)) {
            return;
        }
        let remaining = last * stride;
        self.times.iter_mut().for_each(|column| column.truncate(remaining));
        self.tags.truncate(remaining);
        self.canaries.values_mut().for_each(|column| {
            column.swap_remove(last);
        });
        self.thread_checked = self.thread_checked.min(remaining);
        self.files_checked = self.files_checked.min(remaining);
    }

    /// Takes back the last reading of the canaries.
    pub(super) fn drop_last_canaries(&mut self) {
        self.canaries.values_mut().for_each(|column| {
            column.pop();
        });
    }

    /// The longest of the last sample's times.
    pub(super) fn last_nanoseconds(&self) -> f64 {
        self.times.iter().filter_map(|times| times.last().copied()).fold(0.0, f64::max)
    }

    pub(super) fn into_batches(self, sampling: &SamplingSpec) -> [Batches; K] {
        self.times.map(|nanoseconds| Batches {
            iterations: vec![sampling.iterations; nanoseconds.len()],
            nanoseconds,
            tags: self.tags.clone(),
            work_per_iteration: sampling.work,
            canary_stride: sampling.stride,
            canaries: self.canaries.clone(),
        })
    }
}

/// What reads as an undisturbed core.
pub(super) struct UndisturbedCriterion {
    pub(super) core: CoreSteadyState,
    pub(super) treatment: HeadlineSamples,
}

impl UndisturbedCriterion {
    /// Whether the readings of a number do.
    fn is_quiet_reading<'c>(&'c self, canaries: &'c BTreeMap<Canary, Vec<f32>>) -> impl Fn(usize) -> bool + 'c {
        let [chain, block] =
            [Canary::Chain, Canary::Block].map(|canary| canaries.get(&canary).map_or(&[][..], Vec::as_slice));
        move |reading| match (chain.get(reading), block.get(reading)) {
            (Some(&chain), Some(&block)) => self.core.is_undisturbed(chain, block, self.treatment),
            _ => false,
        }
    }
}

/// How samples are taken.
pub(super) struct SamplingSpec {
    pub(super) start: u64,
    pub(super) slice: f64,
    pub(super) iterations: u64,
    /// Iterations dropped after a reading of the canaries.
    pub(super) rewarm: u64,
    /// Samples between two readings of the canaries.
    pub(super) stride: usize,
    /// Maximum samples.
    pub(super) max_samples: usize,
    pub(super) work: f64,
    /// Samples between two checks of the thread's counters.
    pub(super) check_stride: usize,
}

impl SamplingSpec {
    /// Every sample is a batch; canaries and counters are read after each.
    pub(super) fn batched(start: u64, slice: f64, iterations: u64, work: f64) -> Self {
        let (rewarm, max_samples) = (iterations / 32, MAX_SAMPLES * 2);
        Self { start, slice, iterations, rewarm, stride: 1, max_samples, work, check_stride: 1 }
    }
}

/// Decides when warm-up is over.
#[derive(Default)]
pub(super) struct WarmUp {
    is_done: bool,
    /// Samples taken during warm-up.
    pub(super) samples: usize,
}

impl WarmUp {
    /// The tags of a sample that is taken now.
    pub(super) fn tags(&self) -> SampleTags {
        if self.is_done { SampleTags::NONE } else { SampleTags::WARM_UP }
    }

    /// Checks all samples so far; `is_late` ends warm-up in any case.
    fn update(&mut self, samples: &[f64], is_late: bool) {
        let is_settled = samples.len() >= 2 * WARM_GROUP && {
            let (previous, last) = samples[samples.len() - 2 * WARM_GROUP..].split_at(WARM_GROUP);
            let (previous_median, last_median) = (median(previous), median(last));
            (last_median - previous_median).abs() <= WARM_TOLERANCE * previous_median
        };
        self.is_done = is_settled || is_late;
    }
}
