//! Known truths, whose answer is fixed by construction, and known faults.

use crate::{Axis, AxisScale, Better, Canaries, Metric, SampleTags, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::file::CacheState;
use crate::catalogue::metric_list::{duration, metrics, rate};

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

/// Counts as measured with any disturbance: its construction guards it, and waiting and throttling are the point.
const fn throttled_metric(metric: Metric) -> Metric {
    metric.unguarded().contaminants(SampleTags::NONE)
}

metrics! {
    /// The metrics of this area, in the order of reports.
    pub const ALL = [
        /// A 10 us wait by the kernel's clock, timed with kelvin's
        WAIT = duration("truth.wait").canaries(Canaries::NONE),
        /// Time of a dependent multiply over a dependent add
        CYCLES = duration("truth.cycles").unit(Unit::Ratio, Better::Neither).canaries(Canaries::NONE),
        // The construction of this one and the next guards them.
        /// Bytes per second from a pipe that is filled at a known rate
        PIPE = rate("truth.pipe").unguarded(),
        /// CPU time over elapsed time of a spinning process under a CPU quota
        QUOTA = duration("truth.quota").unit(Unit::Ratio, Better::Neither).unguarded(),
        /// Bytes per second from a disk limited to 32 MiB/s
        DISK = throttled_metric(rate("truth.disk")).with_axes([CacheState::AXIS]),
        /// Bytes read over bytes counted by the control group
        DISK_COUNTED_RATIO = throttled_metric(rate("truth.disk.counted").unit(Unit::Ratio, Better::Neither))
            .with_axes([CacheState::AXIS]),
        /// Bytes per second received over a shaped link
        LINK = throttled_metric(rate("truth.link")).with_axes([LINK_RATE]),
        /// Bytes received over the payload counted by the shaper
        LINK_COUNTED_RATIO = throttled_metric(rate("truth.link.counted").unit(Unit::Ratio, Better::Neither))
            .with_axes([LINK_RATE]),
        /// What a relay that delays each frame adds to a round trip
        DELAY = throttled_metric(duration("truth.delay")).with_axes([RELAY_DELAY]).not_in_cycles(),
        /// Delay added to a round trip over the delay that the relay logged
        DELAY_LOGGED_RATIO = throttled_metric(rate("truth.delay.ratio_to_log").unit(Unit::Ratio, Better::Neither))
            .with_axes([RELAY_DELAY]),
        /// Never measured: the probe fails on purpose
        FAULT = duration("truth.fault"),
    ];
}
