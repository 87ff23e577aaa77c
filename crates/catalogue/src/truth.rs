//! Known truths, whose answer is fixed by construction, and known faults.

use kelvin_model::{Axis, AxisScale, Better, Canaries, Metric, Tags, Treatment, Unit};

use crate::file::CacheState;
use crate::words::words;

/// The metrics of this area, in the order of reports.
pub static ALL: &[&Metric] =
    &[&WAIT, &CYCLES, &PIPE, &QUOTA, &DISK, &DISK_COUNTED, &LINK, &LINK_COUNTED, &DELAY, &DELAY_LOGGED, &FAULT];

/// Bits per second that a shaped link passes.
pub const LINK_RATE: Axis = Axis::new("rate", "rate of the link, bits per second", AxisScale::Logarithmic);

/// How long a relay holds each frame.
pub const RELAY_DELAY: Axis = Axis::new("delay", "delay of each frame in the relay, ns", AxisScale::Logarithmic);

words! {
    /// What a deliberately faulty probe does: the word is the probe's id.
    pub enum Fault: "fault", "fault" {
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
const fn as_found(metric: Metric) -> Metric {
    metric.headline(Treatment::AsFound).canaries(Canaries::NONE)
}

/// The same, where waiting and throttling are the point.
const fn held_back(metric: Metric) -> Metric {
    as_found(metric).contaminants(Tags::NONE)
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
    as_found(Metric::rate("truth.pipe", "Bytes per second from a pipe that is filled at a known rate"));

/// A quota of CPU time.
pub static QUOTA: Metric = as_found(
    Metric::duration("truth.quota", "CPU time over elapsed time of a spinning process under a CPU quota")
        .unit(Unit::Ratio, Better::Neither),
);

/// A disk of known rate.
pub static DISK: Metric =
    held_back(Metric::rate("truth.disk", "Bytes per second from a disk limited to 32 MiB/s")).over([CacheState::AXIS]);

/// Bytes read over bytes counted by the kernel.
pub static DISK_COUNTED: Metric = held_back(
    Metric::rate("truth.disk.counted", "Bytes read over bytes counted by the control group")
        .unit(Unit::Ratio, Better::Neither),
)
.over([CacheState::AXIS]);

/// A link of known rate.
pub static LINK: Metric =
    held_back(Metric::rate("truth.link", "Bytes per second received over a shaped link")).over([LINK_RATE]);

/// Bytes received over bytes counted by the shaper.
pub static LINK_COUNTED: Metric = held_back(
    Metric::rate("truth.link.counted", "Bytes received over the payload counted by the shaper")
        .unit(Unit::Ratio, Better::Neither),
)
.over([LINK_RATE]);

/// A path of known delay.
pub static DELAY: Metric =
    held_back(Metric::duration("truth.delay", "What a relay that delays each frame adds to a round trip"))
        .over([RELAY_DELAY])
        .not_in_cycles();

/// The measured delay over the relay's own log.
pub static DELAY_LOGGED: Metric = held_back(
    Metric::rate("truth.delay.logged", "Delay added to a round trip over the delay that the relay logged")
        .unit(Unit::Ratio, Better::Neither),
)
.over([RELAY_DELAY]);

/// A metric that no faulty probe measures.
pub static FAULT: Metric = Metric::duration("truth.fault", "Never measured: the probe fails on purpose");
