//! Known truths, whose answer is fixed by construction, and known faults.

use crate::{Axis, AxisScale, Better, Canaries, HeadlineSamples, Metric, SampleTags, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::file::CacheState;

/// The metrics of this area, in the order of reports.
pub static ALL: &[&Metric] = &[
    &WAIT,
    &CYCLES,
    &PIPE,
    &QUOTA,
    &DISK,
    &DISK_COUNTED_RATIO,
    &LINK,
    &LINK_COUNTED_RATIO,
    &DELAY,
    &DELAY_LOGGED_RATIO,
    &FAULT,
];

/// Bits per second that a shaped link passes.
pub const LINK_RATE: Axis = Axis::new("rate", "rate of the link, bits per second", AxisScale::Logarithmic);

/// How long a relay holds each frame.
pub const RELAY_DELAY: Axis = Axis::new("delay", "delay of each frame in the relay, ns", AxisScale::Logarithmic);

words! {
    /// What a deliberately faulty probe does: the word is the probe's id.
    pub enum InjectedFault: "fault", "fault" {
        /// It sleeps for an hour.
        Hang = "truth.fault.hang",
        /// It aborts.
        Crash = "truth.fault.crash",
        /// It panics.
        Panic = "truth.fault.panic",
        /// It prints garbage instead of readings.
        Garbage = "truth.fault.garbage",
        /// It ends without a reading.
        Silence = "truth.fault.silence",
    }
}

/// Counts as measured, whatever disturbs it: its construction guards it.
const fn as_found_metric(metric: Metric) -> Metric {
    metric.headline(HeadlineSamples::AsFound).canaries(Canaries::NONE)
}

/// Like `as_found_metric`, where waiting and throttling are the point.
const fn throttled_metric(metric: Metric) -> Metric {
    as_found_metric(metric).contaminants(SampleTags::NONE)
}

/// A wait.
pub static WAIT: Metric =
    Metric::duration("truth.wait", "A 10 us wait by the kernel's clock, timed with kelvin's").canaries(Canaries::NONE);

/// A chain of known cycles.
pub static CYCLES: Metric = Metric::duration("truth.cycles", "Time of a dependent multiply over a dependent add")
    .unit(Unit::Ratio, Better::Neither)
    .canaries(Canaries::NONE);

/// A pipe of known rate.
pub static PIPE: Metric =
    as_found_metric(Metric::rate("truth.pipe", "Bytes per second from a pipe that is filled at a known rate"));

/// A quota of CPU time.
pub static QUOTA: Metric = as_found_metric(
    Metric::duration("truth.quota", "CPU time over elapsed time of a spinning process under a CPU quota")
        .unit(Unit::Ratio, Better::Neither),
);

/// A disk of known rate.
pub static DISK: Metric =
    throttled_metric(Metric::rate("truth.disk", "Bytes per second from a disk limited to 32 MiB/s"))
        .with_axes([CacheState::AXIS]);

/// Bytes read over bytes counted by the kernel.
pub static DISK_COUNTED_RATIO: Metric = throttled_metric(
    Metric::rate("truth.disk.counted", "Bytes read over bytes counted by the control group")
        .unit(Unit::Ratio, Better::Neither),
)
.with_axes([CacheState::AXIS]);

/// A link of known rate.
pub static LINK: Metric =
    throttled_metric(Metric::rate("truth.link", "Bytes per second received over a shaped link")).with_axes([LINK_RATE]);

/// Bytes received over bytes counted by the shaper.
pub static LINK_COUNTED_RATIO: Metric = throttled_metric(
    Metric::rate("truth.link.counted", "Bytes received over the payload counted by the shaper")
        .unit(Unit::Ratio, Better::Neither),
)
.with_axes([LINK_RATE]);

/// A path of known delay.
pub static DELAY: Metric =
    throttled_metric(Metric::duration("truth.delay", "What a relay that delays each frame adds to a round trip"))
        .with_axes([RELAY_DELAY])
        .not_in_cycles();

/// The measured delay over the relay's own log.
pub static DELAY_LOGGED_RATIO: Metric = throttled_metric(
    Metric::rate("truth.delay.ratio_to_log", "Delay added to a round trip over the delay that the relay logged")
        .unit(Unit::Ratio, Better::Neither),
)
.with_axes([RELAY_DELAY]);

/// A metric that no faulty probe measures.
pub static FAULT: Metric = Metric::duration("truth.fault", "Never measured: the probe fails on purpose");
