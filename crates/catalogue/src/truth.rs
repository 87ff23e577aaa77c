//! Known truths, whose answer is set by construction, and known faults.

use kelvin_model::{Axis, AxisScale, Better, Canaries, Metric, Tags, Treatment, Unit};

use crate::file::CacheState;
use crate::words::words;

/// The metrics of this area, in the order of reports.
pub static ALL: &[&Metric] =
    &[&WAIT, &CYCLES, &PIPE, &QUOTA, &DISK, &DISK_COUNTED, &LINK, &LINK_COUNTED, &DELAY, &DELAY_LOGGED, &FAULT];

/// Bits per second that a shaped link lets through.
pub const LINK_RATE: Axis = Axis::new("rate", "rate of the link, bits per second", AxisScale::Logarithmic);

/// How long a relay keeps each frame.
pub const RELAY_DELAY: Axis = Axis::new("delay", "time that the relay keeps each frame, ns", AxisScale::Logarithmic);

words! {
    /// What a probe does that goes wrong on purpose: the word is the probe's id.
    pub enum Fault: "fault", "fault" {
        /// It sleeps for an hour.
        Hang = "truth.fault.hang",
        /// It aborts.
        Crash = "truth.fault.crash",
        /// It panics.
        Panic = "truth.fault.panic",
        /// It prints garbage where readings belong.
        Garbage = "truth.fault.garbage",
        /// It ends without a reading.
        Silence = "truth.fault.silence",
    }
}

/// What counts as found, whatever disturbs it: its own construction guards it.
const fn as_found(metric: Metric) -> Metric {
    metric.headline(Treatment::AsFound).canaries(Canaries::NONE)
}

/// The same where waiting, and being held back, is the point.
const fn held_back(metric: Metric) -> Metric {
    as_found(metric).contaminants(Tags::NONE)
}

/// A wait.
pub static WAIT: Metric =
    Metric::duration("truth.wait", "A wait of 10 us by the kernel's clock, timed by kelvin's").canaries(Canaries::NONE);

/// A chain of known cycles.
pub static CYCLES: Metric = Metric::duration("truth.cycles", "Dependent multiply over dependent add, in time")
    .unit(Unit::Ratio, Better::Neither)
    .canaries(Canaries::NONE);

/// A pipe of known rate.
pub static PIPE: Metric =
    as_found(Metric::rate("truth.pipe", "Bytes per second out of a pipe that is filled at a known rate"));

/// A quota of CPU time.
pub static QUOTA: Metric = as_found(
    Metric::duration("truth.quota", "CPU time over elapsed time of a spinning process under a quota")
        .unit(Unit::Ratio, Better::Neither),
);

/// A disk of known rate.
pub static DISK: Metric =
    held_back(Metric::rate("truth.disk", "Bytes per second from a disk that may give 32 MiB a second"))
        .over([CacheState::AXIS]);

/// The same over what the kernel counted.
pub static DISK_COUNTED: Metric = held_back(
    Metric::rate("truth.disk.counted", "Bytes that were read over those that the control group counted meanwhile")
        .unit(Unit::Ratio, Better::Neither),
)
.over([CacheState::AXIS]);

/// A link of known rate.
pub static LINK: Metric =
    held_back(Metric::rate("truth.link", "Bytes per second that arrive over a link that a shaper limits"))
        .over([LINK_RATE]);

/// The same over what the shaper counted.
pub static LINK_COUNTED: Metric = held_back(
    Metric::rate("truth.link.counted", "What arrived over the payload of what the shaper counted meanwhile")
        .unit(Unit::Ratio, Better::Neither),
)
.over([LINK_RATE]);

/// A path of known delay.
pub static DELAY: Metric =
    held_back(Metric::duration("truth.delay", "What a relay adds to a round trip that keeps each frame for a time"))
        .over([RELAY_DELAY])
        .not_in_cycles();

/// The same over what the relay noted.
pub static DELAY_LOGGED: Metric = held_back(
    Metric::rate("truth.delay.logged", "What the relay added over what it noted itself")
        .unit(Unit::Ratio, Better::Neither),
)
.over([RELAY_DELAY]);

/// What no faulty probe measures.
pub static FAULT: Metric = Metric::duration("truth.fault", "Never measured: the probe goes wrong on purpose");
